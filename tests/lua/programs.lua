-- Programs for the end-to-end tests: generates and builds a spec once for each text and each gagen, runs the
-- program, and reads its dumps and logs.
-- Invariant: nothing is written outside the build folder, and every run has its own checkpoints.

-- The engine for processes of the program in `folder`: its objects of the tests' build.
local function engine_of(t, folder, comm)
    comm = comm or host.read(folder .. "/Makefile"):match("\nCOMM = (%w+)\n")
    local objects = {}
    for _, name in ipairs { "comm_" .. comm, comm .. "_exchange" } do
        local file = "runtime/ranks/" .. name
        if host.exists(("%s/%s.c"):format(folder, file)) then
            objects[#objects + 1] = ("%s/%s.o"):format(t.build, file)
        end
    end
    return objects
end

-- The hash of a file that does not change while tests run.
local function hash_of(t, path)
    return t.kept(path, function() return host.sha256(assert(host.read(path))) end)
end

-- A text that changes with the headers of the tests.
local function headers_of(t)
    return t.kept("headers", function()
        local list = {}
        for _, folder in ipairs { "tests/include/", "tests/matrix/" } do
            for _, file in ipairs(host.list(folder)) do list[#list + 1] = hash_of(t, folder .. file) end
        end
        return table.concat(list, " ")
    end)
end

-- The option of gcc for the tests' own immintrin.h, whose reading is quicker, if it has all that the kernels use.
local function headers_for(t, folder)
    local known = host.read "tests/include/immintrin.h"
    for _, file in ipairs { "math.c", "kernels.c" } do
        for name in (host.read(folder .. "/" .. file) or ""):gmatch "_mm%d+_[%w_]+" do
            if not known:find(name, 1, true) then return "" end
        end
    end
    return " -I" .. t.root .. "/tests/include"
end

-- Options of clang. Arrays begin as not-a-numbers, so that what is read before it is written shows.
local CLANG = "-O0 -ftrivial-auto-var-init=pattern"

-- The compiler of a program built as `how` says, or nil for cc, and its options: warnings are errors. Levels are options
-- of cc. A program that compiles its kernels anew has them position-independent: not with headers that were read for
-- another one.
local function compiler_of(t, marches, how)
    local compiler = how.compiler or not how.level and not how.watch and not marches.forced and t.compiler or nil
    local level = compiler and compiler:find "clang" and CLANG or marches.level(how.level)
    return compiler, level .. " -Werror"
end

-- The option of clang for the headers of the system, read once for each set of the programs' own options. With it a small
-- program takes two thirds of the time.
local function headers_read(t, store, folder, compiler, level)
    local flags = host.read(folder .. "/Makefile"):match "\nFLAGS = (.-[^\\])\n":gsub("\\\n", "")
    local header = t.root .. "/tests/include/standard.h"
    local file = store.file({ flags, level, compiler, hash_of(t, header) }, ".pch", function(path)
        local result = t.shell(("%s %s %s -x c-header %s -o %s"):format(compiler, flags, level, header, path))
        assert(result.status == 0, result.err)
    end)
    return (" -include-pch %s/%s"):format(t.root, file)
end

-- The option of the compiler of a program, cc where it is nil, for headers that are read quickly.
local function headers_option(t, store, folder, compiler, level)
    if not compiler then return headers_for(t, folder) end
    return compiler:find "clang" and headers_read(t, store, folder, compiler, level) or ""
end

local function has_mpi(t)
    return t.kept("mpi", function()
        return t.shell("mpirun --version && pkg-config --exists ompi-c").status == 0 and "yes" or "no"
    end)
end

-- gold, where it is installed, links in half the time.
local function linker(t)
    return t.kept("linker", function()
        return t.shell("command -v ld.gold").status == 0 and "-fuse-ld=gold " or ""
    end)
end

local json = dofile "tests/lua/json.lua"

local UNPACK, BYTES = { F32 = "<f", F64 = "<d" }, { F32 = 4, F64 = 8 }

-- The tensors of a safetensors file, by name: { dtype, element = dtype of the elements in bytes, bytes, count }.
local function stored(path)
    local text = assert(host.read(path))
    local start, list = 8 + string.unpack("<I8", text), {}
    for name, entry in next, json.read(text:sub(9, start)) do
        if name ~= "__metadata__" then
            local bytes = text:sub(start + entry.data_offsets[1] + 1, start + entry.data_offsets[2])
            local element = entry.dtype
            if element == "BF16" then       -- the upper half of an f32
                element, bytes = "F32", bytes:gsub("..", "\0\0%0")
            end
            if not BYTES[element] then error(name .. ": dtype " .. element) end
            list[name] = { dtype = entry.dtype, element = element, bytes = bytes, count = #bytes // BYTES[element] }
        end
    end
    return list
end

-- The values of a tensor of stored().
local function values_of(tensor)
    local values, at, format = {}, 1, UNPACK[tensor.element]
    for i = 1, tensor.count do values[i], at = string.unpack(format, tensor.bytes, at) end
    return values
end

-- The largest difference of two tensors, and the largest element of y.
local function largest_gap(x, y) return host.distance(y.element, x.bytes, 1, y.bytes, 1, y.count) end

-- The same in the 2-norm.
local function norm_of_gap(x, y)
    local gap, size, values = 0, 0, values_of(x)
    for i, value in ipairs(values_of(y)) do gap, size = gap + (values[i] - value) ^ 2, size + value ^ 2 end
    return math.sqrt(gap), math.sqrt(size)
end

-- The largest of measure(tensor of a, tensor of b), and the tensor's name; `without`: the name of one that is left out.
local function worst_of(a, b, measure, without)
    local x, y, worst, where, names = stored(a), stored(b), -1, nil, 0
    for name in next, x do assert(y[name], b .. ": has no " .. name) end
    for name, tensor in next, y do
        local other = assert(x[name], a .. ": has no " .. name)
        assert(other.count == tensor.count and other.dtype == tensor.dtype, name .. ": other shape")
        local gap, size = measure(other, tensor)
        assert(gap - gap == 0 and size - size == 0, name .. ": not finite")
        local relative = gap == 0 and 0 or gap / size
        if relative > worst and name ~= without then worst, where = relative, name end
        names = names + 1
    end
    assert(names > 0, b .. ": no tensors")
    return worst, where
end

-- 90 rows of 4 values and a class of 3: small enough that a whole run takes milliseconds.
local function tiny_rows()
    local rows = {}
    for i = 1, 90 do
        local class, row = i % 3, {}
        for k = 1, 4 do row[k] = ("%.3f"):format(math.sin(i * k + class) + (k == class and 1 or 0)) end
        rows[i] = table.concat(row, ",") .. "," .. class
    end
    return table.concat(rows, "\n") .. "\n"
end

-- The text of a csv: in each row `columns` values of a sine, then one of three classes.
local function sine_rows(rows, columns)
    local list = {}
    for i = 1, rows do
        local row = {}
        for c = 1, columns do row[c] = ("%.3f"):format(math.sin(i * 0.7 + c * c)) end
        row[columns + 1] = tostring(i % 3)
        list[i] = table.concat(row, ",")
    end
    return table.concat(list, "\n") .. "\n"
end

-- Files of the runtime that train does not link: train-probe, train-watch and the library add theirs.
local ALONE = { probe = true, collect = true, comparison = true, edits = true }

return function(t)
    local store, marches = t.load("tests/lua/store.lua")(t), t.load("tests/lua/marches.lua")(t)
    local programs = {}
    local base = ("%s/tests/worker%d/programs"):format(t.build, t.worker)

    local function check_run(result, what)
        if result.status ~= 0 then
            error(("%s: status %d\n%s%s"):format(what, result.status, result.out, result.err), 0)
        end
        return result
    end

    -- Without the options of the `make` that runs the tests, and with a separate cache folder.
    local CLEAN = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GAGEN_DATA" }

    local function environment(more)
        local list = table.move(CLEAN, 1, #CLEAN, 1, {})
        list[#list + 1] = "XDG_CACHE_HOME=" .. t.root .. "/" .. t.build .. "/tests/cache"
        return table.move(more or {}, 1, #(more or {}), #list + 1, list)
    end

    --- Runs gagen with these arguments: a table as for t.run.
    function programs.gagen(arguments)
        local command = { t.root .. "/" .. t.gagen, cwd = arguments.cwd,
            env = environment(arguments.env), timeout = arguments.timeout }
        return t.run(table.move(arguments, 1, #arguments, 2, command))
    end

    --- Writes a csv of so many rows to the data of build(): values of a sine, then one of three classes.
    function programs.write_sines(file, rows, columns)
        t.write(programs.folder() .. "/data/" .. file, sine_rows(rows, columns))
    end

    --- The folder of specs that build() uses, with its `data` (digits/, tiny.csv and tiny.safetensors).
    function programs.folder()
        local data = base .. "/data"
        local function missing(name) return not host.exists(data .. "/" .. name) end
        assert(host.folder(data))
        if missing "digits" then assert(host.link(t.root .. "/specs/data/digits", data .. "/digits")) end
        if missing "tiny.safetensors" then
            t.write(data .. "/tiny.safetensors", t.load("tests/numeric/rows.lua").sample(90, 4))
        end
        if missing "tiny.csv" then t.write(data .. "/tiny.csv", tiny_rows()) end
        return base
    end

    -- The runtime of the program in `folder` as one object, from the objects of the tests' build, and a text that
    -- stands for its content. The engines for processes are not in it.
    local function runtime_object(folder)
        local objects, content = {}, { hash_of(t, t.build .. "/libruntime.a") }
        for _, room in ipairs(host.list(folder .. "/runtime")) do
            for _, file in ipairs(host.list(folder .. "/runtime/" .. room)) do
                local name = file:match("^(.*)%.c$")
                local alone = ALONE[name] or name == "sha256" and host.exists(folder .. "/train_watch.c")
                if name and not name:find("^comm_") and not name:find("_exchange$") and not alone then
                    objects[#objects + 1] = ("%s/runtime/%s/%s.o"):format(t.build, room, name)
                    content[#content + 1] = name
                end
            end
        end
        content = table.concat(content, " ")
        local path = ("%s/runtime_%s.o"):format(base, host.sha256(content):sub(1, 16))
        if not host.exists(path) then
            check_run(t.run(table.move(objects, 1, #objects, 5, { "ld", "-r", "-o", path })), "ld")
        end
        return t.root .. "/" .. path, content
    end

    -- -B: with this PROGRAM, make does not know that `train` depends on the program's files.
    local function make_command(folder, how, headers)
        local compiler, level = compiler_of(t, marches, how)
        local make = { "make", "-s", "-B", "-C", folder, "LDFLAGS=" .. linker(t) .. (how.ldflags or ""),
            ("CFLAGS=%s%s"):format(level, headers), how.only or "train" }
        if how.lib then make[#make + 1] = "lib" end
        if how.probe then make[#make + 1] = "probe" end
        if how.watch then make[#make + 1] = "train-watch" end
        if how.predict then make[#make + 1] = "predict" end
        if how.comm then make[#make + 1] = "COMM=" .. how.comm end
        if compiler then make[#make + 1] = "CC=" .. compiler end
        make.env = environment(compiler and { "OMPI_CC=" .. compiler })
        return make
    end

    local function is_made(file)
        return file == "train" or file:match "^train%-%w+$" or file == ".command" or file:match "^lib.*%.a$"
            or file:match "_predict$"
    end

    -- Compiles the program in `folder`, or takes the same from the store. The program's three files are compiled as one,
    -- which takes three quarters of the time.
    local function compile(name, folder, how)
        local make = make_command(folder, how, headers_option(t, store, folder, compiler_of(t, marches, how)))
        local inputs = { table.concat(make, " ", 6), store.sources(folder, how.probe) }
        local sources, content = runtime_object(folder)
        inputs[3] = content
        inputs[#inputs + 1] = headers_of(t)
        for _, source in ipairs(how.sources or {}) do
            sources, inputs[#inputs + 1] = sources .. " " .. t.root .. "/" .. source, host.read(source)
        end
        local engine = {}
        for i, object in ipairs(engine_of(t, folder, how.comm)) do
            engine[i], inputs[#inputs + 1] = t.root .. "/" .. object, hash_of(t, object)
        end
        make[#make + 1] = "SOURCES=" .. sources
        make[#make + 1] = "ENGINE=" .. table.concat(engine, " ")
        make[#make + 1] = ("PROGRAM=%s/tests/include/program.c"):format(t.root)
        store.fetch(folder, inputs, function()
            check_run(t.run(make), name .. ": make")
            local made = {}
            for _, file in ipairs(host.list(folder)) do
                if is_made(file) then made[#made + 1] = file end
            end
            return made
        end)
    end

    --- A program of the spec `text`, built: { name, spec, folder, train, probe }. how: comm = "mpi", probe, watch, lib,
    --- predict = true (what make builds too), only = a word of make in the place of train, sources = more C files,
    --- ldflags, options = words for gagen, level = "-O3", of cc (else t.quick of t.compiler: compiling takes longer than
    --- most runs), compiler = in the place of t.compiler and cc.
    function programs.build(name, text, how)
        how = how or {}
        if how.comm == "mpi" and has_mpi(t) == "no" then
            t.not_run("mpirun and the files to build against MPI are not installed")
        end
        local folder = programs.folder() .. "/" .. name
        local p = { name = name, spec = base .. "/" .. name .. ".lua", folder = folder,
            train = t.root .. "/" .. folder .. "/train", probe = t.root .. "/" .. folder .. "/train-probe" }
        local options = marches.words(how.options, text)
        local key = { hash_of(t, t.gagen), headers_of(t), text, table.concat(make_command(folder, how, ""), " "),
            table.concat(options, " ") }
        for _, source in ipairs(how.sources or {}) do key[#key + 1] = host.read(source) end
        local stamp = host.sha256(table.concat(key, "\0"))
        if host.exists(folder .. ".built") == "file" and host.read(folder .. ".built") == stamp then
            return p
        end
        host.remove(folder .. ".built")
        if host.exists(folder) then check_run(t.run { "rm", "-rf", folder }, "rm") end
        t.write(p.spec, text)
        check_run(programs.gagen(table.move(options, 1, #options, 4, { p.spec, "-o", folder })), name)
        compile(name, folder, how)
        t.write(folder .. ".built", stamp)
        return p
    end

    --- Compiles an emitted program, wherever it lies, with the runtime of the tests' build. how: as for build().
    function programs.compile(folder, how)
        programs.folder()
        compile(folder, folder, how or {})
    end

    --- Writes a file of the program and compiles it; the next build() makes it as it was. how: as for build().
    function programs.edit(p, file, text, how)
        host.remove(p.folder .. ".built")
        t.write(p.folder .. "/" .. file, text)
        programs.compile(p.folder, how)
    end

    --- Runs the program with the options at the positions of `o`, quiet and with checkpoints in a
    --- fresh folder unless they say otherwise. o.ranks: processes; o.status: what is expected (0;
    --- false: anything); o.before: words of a command in front, such as { "timeout", "1" }. Returns
    --- t.run's result with `checkpoint`, its folder.
    function programs.train(p, o)
        local command = o.ranks and t.mpirun(o.ranks) or {}
        table.move(o.before or {}, 1, #(o.before or {}), #command + 1, command)
        command[#command + 1] = p.train
        local checkpoint, quiet = nil, false
        for i, word in ipairs(o) do
            command[#command + 1] = tostring(word)
            if word == "--checkpoint" then checkpoint = o[i + 1] end
            if word == "--watch" or word == "--help" then quiet = true end
        end
        if not quiet then command[#command + 1] = "--quiet" end
        if not checkpoint then
            checkpoint = t.temp()
            table.move({ "--checkpoint", checkpoint }, 1, 2, #command + 1, command)
        end
        command.env = environment(o.env or { "GAGEN_TIMEOUT=300" })
        local result = t.run(command)
        if o.status ~= false and result.status ~= (o.status or 0) then
            error(("%s: status %d, expected %d\n%s%s"):format(table.concat(command, " "),
                result.status, o.status or 0, result.out, result.err), 2)
        end
        result.checkpoint = checkpoint
        return result
    end

    --- Trains with --dump and returns the folder of the dump.
    function programs.dump(p, o)
        local folder = t.temp()
        table.move({ "--dump", folder }, 1, 2, #o + 1, o)
        programs.train(p, o)
        return folder
    end

    --- Trains with --log and returns the events.
    function programs.events(p, o)
        local file = t.temp() .. "/log.jsonl"
        table.move({ "--log", file }, 1, 2, #o + 1, o)
        programs.train(p, o)
        return json.lines(host.read(file))
    end

    --- The result of `gagen plan --json` for a spec, as it is built here; more arguments as text.
    function programs.plan(p, ...)
        local words = marches.words({ ... }, host.read(p.spec))
        return json.read(check_run(programs.gagen { "plan", "--json", p.spec, table.unpack(words) }, p.name).out)
    end

    --- The tensors of a safetensors file, by name: { dtype, count, values }.
    function programs.tensors(path)
        local list = stored(path)
        for _, tensor in next, list do tensor.values = values_of(tensor) end
        return list
    end

    --- The largest of max|a - b| / max|b| over the tensors of two files, and the tensor's name. Other
    --- names or shapes, and values that are not finite, are an error.
    function programs.difference(a, b) return worst_of(a, b, largest_gap) end

    --- As difference, of |a - b| / |b| in the 2-norm: for values of 16 bits, where parts that cancel leave their rounding.
    function programs.distance(a, b, without) return worst_of(a, b, norm_of_gap, without) end

    --- All tensors of two dumps must agree within `bound`, as difference() measures it, or measure().
    function programs.close(a, b, bound, files, measure)
        for _, file in ipairs(files or { "parameters", "state" }) do
            local name = "/" .. file .. ".safetensors"
            local worst, where = (measure or programs.difference)(a .. name, b .. name)
            if not (worst <= bound) then
                error(("%s: %s differs by %.3g, at most %.3g expected"):format(file, where, worst, bound), 2)
            end
        end
    end

    --- The files of both dumps must be equal byte by byte.
    function programs.identical(a, b, files)
        for _, file in ipairs(files or { "parameters", "state" }) do
            local name = "/" .. file .. ".safetensors"
            if assert(host.read(a .. name)) ~= assert(host.read(b .. name)) then
                local worst, where = programs.difference(a .. name, b .. name)
                error(("%s: bits differ, most in %s by %.3g"):format(file, where, worst), 2)
            end
        end
    end

    return programs
end
