-- Damaged data files of every format (tests/lua/damaged). gagen refuses a damaged file by its place, and so does a
-- program that was made for the whole file, whether it keeps the rows or streams them: exit 1, never a signal. Every
-- fourth of them is tried; with make test-all each one, also in programs with the sanitizers.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local REST = [[

batch      (2)
model      { flatten {}, linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05 }
train      { updates = 9 }
]]

local SEQUENCE = [[

batch      (4)
model      { embedding "e" { 50, 4 }, linear "fc" { 50 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05 }
train      { updates = 9 }
]]

-- Files of the mutants: each returns a list of groups, the files of one program.
--   name, spec     of the program
--   good           the whole files: text by path
--   places         by name: { { path, "kept" or "streamed" }, ... }, where a mutant stands for the whole file
--   first          name of the places of mutants without `at`
--   mutants        { name, content, message, at = name of places, gagen =, kept =, streamed = other messages,
--                  note = a line that gagen says too }: the
--                  content is a text, { folder = true } or { missing = true }; in a message, @ is the mutant's path, ~
--                  the folder of data and % the path in it; gagen's may begin with a line of the spec, else 1: data: ;
--                  false: the file is whole, of other rows
local FILES = { "csv", "images", "arrays", "windows" }

local function groups_of(t, formats)
    local gzip, list = t.load "tests/lua/damaged/gzip.lua", {}
    for _, file in ipairs(FILES) do
        local part = assert(loadfile(("%s/tests/lua/damaged/%s.lua"):format(t.root, file)))(gzip, REST, formats,
            SEQUENCE)
        table.move(part, 1, #part, #list + 1, list)
    end
    return list
end

-- Puts `content` in the place of a file.
local function put(t, path, content)
    host.remove(path)
    if type(content) == "string" then t.write(path, content) end
    if content.folder then assert(host.folder(path)) end
end

-- The message with the names in their places.
local function filled(message, folder, path)
    return message and (message:gsub("[@~%%]", { ["@"] = folder .. "/" .. path, ["~"] = folder, ["%"] = path }))
end

-- The message that `reader` must give, or false.
local function expected(mutant, reader)
    if mutant[reader] ~= nil then return mutant[reader] end
    return reader ~= "gagen" and mutant.program or mutant[3]
end

-- The complaint about what a reader says, or nil. start: how its line begins; note: a line of gagen, or nil.
local function judge(result, start, message, note)
    local status, text = message and 1 or 0, "\n" .. result.err
    local said = not message or text:find("\n" .. start .. message, 1, true) and (not note or text:find("\n" .. note,
        1, true))
    if result.status == status and said then return nil end
    return ("expected %d %s%s %s\n    found %d %s"):format(status, start, message or "", note or "", result.status,
        result.err)
end

-- Calls f(folder, mutant, path, kind, first) with each mutant of a group in each of its places in `folder`/data, beside
-- whole files.
local function each_place(t, group, folder, f)
    local stride = t.all and 1 or 4
    t.write(folder .. "/" .. group.name .. ".lua", group.spec)
    for path, content in next, group.good do t.write(folder .. "/data/" .. path, content) end
    for n = 1, #group.mutants, stride do
        local mutant = group.mutants[n]
        for i, place in ipairs(group.places[mutant.at or group.first]) do
            local path, kind = table.unpack(place)
            put(t, folder .. "/data/" .. path, mutant[2])
            f(mutant, path, kind, i == 1)
            put(t, folder .. "/data/" .. path, group.good[path])
        end
    end
end

-- Tries the mutants of a group in the program p, and in gagen unless o.program is set; returns the complaints.
local function try(t, programs, group, p, o)
    local folder, complaints = t.temp(), {}
    local data = folder .. "/data"
    local function take(mutant, reader, path, result, start, note)
        local message = filled(expected(mutant, reader), data, path)
        local complaint = judge(result, start, message, filled(note, data, path))
        if complaint then complaints[#complaints + 1] = ("%s: %s: %s: %s"):format(group.name, mutant[1], reader,
            complaint) end
    end
    each_place(t, group, folder, function(mutant, path, kind, first)
        if first and not o.program then
            local spec = ("%s/%s.lua:"):format(folder, group.name)
            local result = programs.gagen { "check", spec:sub(1, -2), timeout = 20 }
            local line = (mutant.gagen or ""):find "^%d" and "" or "1: data: "
            take(mutant, "gagen", path, result, spec .. line, mutant.note)
        end
        local result = programs.train(p, { "--data", data, "--cycles", 9, "--threads", 1, status = false,
            before = { "timeout", "20" }, env = { "GAGEN_TIMEOUT=300", "ASAN_OPTIONS=exitcode=66",
            "UBSAN_OPTIONS=exitcode=66" } })
        take(mutant, kind, path, result, group.name .. ": ")
    end)
    return complaints
end

-- Tries all mutants; open(programs, group) gives the program of a group.
local function try_all(t, open, o)
    local formats = t.load("tests/lua/formats.lua")(t)
    local complaints, contents, mutants = {}, {}, 0
    for _, group in ipairs(groups_of(t, formats)) do
        for path, content in next, group.good do formats.write(path, content) end
        local list = try(t, formats.programs, group, open(formats.programs, group), o)
        table.move(list, 1, #list, #complaints + 1, complaints)
        for _, mutant in ipairs(group.mutants) do
            local key = group.name .. (type(mutant[2]) == "string" and mutant[2] or mutant[1]) .. (mutant.at or "")
            assert(not contents[key], ("%s: %s: the mutant is there twice"):format(group.name, mutant[1]))
            contents[key], mutants = true, mutants + 1
        end
    end
    if #complaints > 0 then
        error(("%d complaints:\n%s"):format(#complaints, table.concat(complaints, "\n", 1, math.min(#complaints, 20))),
            0)
    end
    assert(mutants >= 200, mutants .. " mutants")
end

add("damaged files are refused by their places", function(t)
    try_all(t, function(programs, group) return programs.build(group.name, group.spec) end, {})
end)

local SANITIZE = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"

-- The runtime of all formats as one object with the sanitizers.
local function sanitized_runtime(t)
    local object = ("%s/%s/runtime.o"):format(t.root, t.temp())
    local made = t.shell(("cc %s -std=gnu11 -pthread -Iruntime -r -nostdlib -o %s $(find runtime -name '*.c' | grep -v "
        .. "-e /device/ -e /comm_ -e mpi_exchange)"):format(SANITIZE, object))
    t.equal(made.err, "")
    return object
end

add("damaged files cause no error of memory", function(t)
    t.long()
    local runtime = sanitized_runtime(t)
    try_all(t, function(programs, group)
        local folder, spec = t.temp(), ("%s/%s.lua"):format(programs.folder(), group.name)
        t.write(spec, group.spec)
        t.equal(programs.gagen({ spec, "-o", folder }).status, 0)
        local made = t.run { "make", "-s", "-C", folder, "CFLAGS=" .. SANITIZE, "SOURCES=" .. runtime,
            env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL" } }
        t.equal(made.err, "")
        return { train = folder .. "/train" }
    end, { program = true })
end)

return tests
