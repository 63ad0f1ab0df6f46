-- Wrong specs (by gagen), options and data files (by the program) are refused with their place, the value found and the
-- value expected. A refusal is exit 1 and takes little processor time.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local FOLDER, LIMIT = "tests/e2e/refuse", 2.5

-- The first line of each spec there: `-- expect: LINE: text`, or `-- expect: text` without a line.
local function refuse(t, programs, name)
    local path = FOLDER .. "/" .. name
    local line, text = host.read(path):match("^%-%- expect: (%d+): ([^\n]*)\n")
    text = text or host.read(path):match("^%-%- expect: ([^\n]*)\n")
    assert(text, path .. ": the first line has no `-- expect:`")
    local out = t.temp() .. "/out"
    local result = programs.gagen { path, "-o", out, env = { "GAGEN_DATA=" .. t.root .. "/specs/data" } }
    t.equal(result.status, 1, path .. "\n" .. result.err)
    local expected = path .. ":" .. (line and line .. ":" or "") .. " " .. text
    if result.err:sub(1, #expected) ~= expected then
        error(("expected: %s\nfound:    %s"):format(expected, result.err), 0)
    end
    t.equal(result.out, "")
    t.equal(host.exists(out), false, path .. ": a folder was written")
    assert(result.cpu_seconds < LIMIT, ("%s: %.2f s"):format(path, result.cpu_seconds))
    return result.err
end

add("wrong specs", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local names = host.list(FOLDER)
    assert(#names >= 30, #names .. " specs")
    for _, name in ipairs(names) do refuse(t, programs, name) end
end)

add("a name that is nearly right is suggested", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for name, hint in next, { unknown_word = "schedule", unknown_layer = "linear", unknown_field = "weight_decay",
        unknown_field_of_layer = "bias", optimizer_unknown = "adamw", loss_unknown = "cross_entropy" } do
        t.contains(refuse(t, programs, name .. ".lua"), ("^ did you mean '%s'?\n"):format(hint))
    end
end)

add("a table changed after the call has no effect", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/changed_later.lua"
    t.write(path, (host.read("specs/digits_mlp.lua"):gsub("batch      %(16%)",
        "local t = {16} batch(t) t[1] = 1e9")))
    local result = programs.gagen { "plan", path }
    t.equal(result.status, 0, result.err)
    t.contains(result.out, "4 micro-steps of 16 rows x 1 rank;")
end)

local function digits(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("digits_fold1", host.read("specs/digits_mlp.lua"))
end

add("wrong options of a program", function(t)
    local programs, p = digits(t)
    local range = "a whole number from %d to %d+ expected\n$"
    local cases = {
        { "--cycels: unknown option, did you mean %-%-cycles%?", "--cycels", "3" },
        { "--cycles: '0' found, " .. range, "--cycles", "0" },
        { "--cycles: '1e3' found, " .. range, "--cycles", "1e3" },
        { "--cycles: '99999999999999999999' found, " .. range, "--cycles", "99999999999999999999" },
        { "--threads: '1025' found, " .. range, "--threads", "1025" },
        { "--threads: no value, N expected\n$", "--threads" },
        { "--cycles: given twice\n$", "--cycles", "1", "--cycles", "2" },
        { "--eval: takes no value\n$", "--eval=1" },
        { "'x': not an option", "x" },
        { "--watch fc9.weight: there is no such parameter; the first is fc1.weight\n$", "--cycles", "1",
            "--watch", "fc9.weight" },
        { "--log: /nonexistent/log: cannot be opened: ", "--log", "/nonexistent/log" },
        { "--log: README.md: is there already and no log of a training program, ", "--log", "README.md" },
        { "/nonexistent.safetensors", "--init", "/nonexistent.safetensors" },
        { "--dump /nonexistent/x: the folder cannot be made: ", "--cycles", "1", "--dump", "/nonexistent/x" },
        { "--dump " .. t.gagen:gsub("%p", "%%%0") .. ": is not a folder\n$", "--cycles", "1", "--dump", t.gagen },
        { "/nonexistent/x.tmp: cannot be created: ", "--cycles", "1", "--save-init", "/nonexistent/x" },
        { "--temperature: given without %-%-sample", "--temperature", "0.5" },
        { "--fresh: given without %-%-init", "--fresh", "fc2.*" },
        { "--sample: given beside %-%-eval", "--eval", "--sample", "3" },
        { "--watch: given beside %-%-eval, which does not train\n$", "--eval", "--watch", "fc1.weight" },
        { "--dump: given beside %-%-sample, which does not train\n$", "--sample", "3", "--dump", "x" },
        { "--stop%-micro: given beside ", "--eval", "--stop-micro", "3" },
        { "--no%-graph: the kernels of this program are not those of a device\n$", "--no-graph" },
        { "--init: given beside %-%-resume, which has parameters of its own\n$", "--init", "x", "--resume", "latest" },
    }
    for _, case in ipairs(cases) do
        local result = t.run { p.train, "--checkpoint", t.temp(), table.unpack(case, 2) }
        t.equal(result.status, 1, table.concat(case, " ", 2))
        t.match(result.err:gsub("^ready\n", ""), "^digits_fold1: [^\n]*" .. case[1]:gsub("^%-%-", "%%-%%-"))
        t.equal(select(2, result.err:gsub("^ready\n", ""):gsub("\n", "")), 1, "one line")
    end
    t.equal(t.run { p.train, "--help" }.status, 0)
end)

add("help and figures that cannot be written are an error", function(t)
    if host.exists "/dev/full" == nil then t.not_run "/dev/full is not there" end
    local _, p = digits(t)
    for _, words in ipairs { "--help", "--eval --threads 1" } do
        local result = t.shell(("%s %s --checkpoint %s > /dev/full"):format(p.train, words, t.temp()))
        t.equal(result.status, 3, words)
        t.match(result.err, "digits_fold1: [%l ]+: it could not be written whole\n$")
    end
end)

add("a pipe is never replaced by a file", function(t)
    local _, p = digits(t)
    local pipe = t.temp() .. "/pipe"
    t.equal(t.run { "mkfifo", pipe }.status, 0)
    local result = t.run { p.train, "--checkpoint", t.temp(), "--cycles", "1", "--save-init", pipe }
    t.equal(result.status, 1)
    t.match(result.err, "^digits_fold1: " .. pipe:gsub("%p", "%%%0") .. ": is not a regular file\n$")
    t.equal(t.run { "test", "-p", pipe }.status, 0)
end)

-- Runs the program on a changed copy of its data; the change is a shell command from the text to a file.
local function bad_data(t, programs, p, change)
    local folder = t.temp() .. "/data"
    assert(host.folder(folder .. "/digits"))
    local made = t.shell(("zcat specs/data/digits/digits.csv.gz | %s > %s/digits/digits.csv.gz"):format(change,
        folder))
    t.equal(made.status, 0, made.err)
    local result = programs.train(p, { "--data", folder, "--cycles", 2, status = 1 })
    t.equal(select(2, result.err:gsub("\n", "")), 1, result.err)
    local rest = t.match(result.err, "^digits_fold1: " .. folder:gsub("%p", "%%%0")
        .. "/digits/digits%.csv%.gz(.*)\n$")
    return rest
end

add("wrong data files", function(t)
    local programs, p = digits(t)
    t.match(bad_data(t, programs, p, "sed '7s/,[0-9]*,/,x,/' | gzip"), "^:7: column 2: found 'x'")
    t.match(bad_data(t, programs, p, "sed '1797s/[0-9]*$/10/' | gzip"), "^:1797: column 65: target 10, "
        .. "expected a whole number in 0%.%.9")
    t.match(bad_data(t, programs, p, "sed '3s/,[0-9]*$//' | gzip"), "^:3: 64 columns found, 65 expected")
    t.match(bad_data(t, programs, p, "sed '9s/$/,1/' | gzip"), "^:9: more than 65 columns found, 65 expected")
    t.match(bad_data(t, programs, p, "sed '1797d' | gzip"), "^: 1796 rows found, 1797 expected")
    t.match(bad_data(t, programs, p, "gzip | head -c 20000"), "^: gzip data ends early: ")
    t.match(bad_data(t, programs, p, "cat"), "^: damaged or no gzip data ")
    t.match(bad_data(t, programs, p, "head -c 0"), "^[^\n]+")
end)

add("a resumed run with other data is refused", function(t)
    local programs, p = digits(t)
    local checkpoint, folder = t.temp(), t.temp()
    programs.train(p, { "--cycles", 2, "--checkpoint", checkpoint })
    assert(host.folder(folder .. "/digits"))
    t.equal(t.shell(("zcat specs/data/digits/digits.csv.gz | sed '5s/^0,/1,/' | gzip > %s/digits/digits.csv.gz")
        :format(folder)).status, 0)
    local result = programs.train(p, { "--data", folder, "--cycles", 3, "--resume", "latest", "--checkpoint",
        checkpoint, status = 1 })
    t.contains(result.err, "digits/digits.csv.gz")
end)

add("a word that is like no other is refused with the place of all words", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/unlike.lua"
    t.write(path, 'model { upsample { 2 } }\n')
    t.equal(programs.gagen { "check", path }.err, path .. [[:1: unknown word 'upsample'
   1 | model { upsample { 2 } }
     |         ^^^^^^^^
gagen list shows what a spec may use
]])
    t.write(path, 'model { linaer "l" { 2 } }\n')
    t.equal(programs.gagen { "check", path }.err:find("gagen list", 1, true), nil)
end)

return tests
