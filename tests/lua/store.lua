-- Stores compiled files of tests by a hash of all their inputs: the first worker that needs a program compiles it,
-- and it is compiled again only if its emitted text, the runtime or the flags change.
return function(t)
    local store = {}
    local base = t.build .. "/tests/store"

    local function check(result, what)
        if result.status == 0 then return end
        error(("%s: status %d\n%s%s"):format(what, result.status, result.out, result.err), 0)
    end

    local function versions_of_compilers()
        return t.kept("compilers", function()
            return t.shell(("${CC:-cc} --version; %s --version"):format(t.compiler or "true")).out
        end)
    end

    -- The text of a file of an emitted program. Its comments name the spec, which each process of the tests has for
    -- itself; in probes.c, which only train-probe has, the name is a value.
    local function text_of(folder, name, probe)
        local text = host.read(folder .. "/" .. name)
        return probe and name == "probes.c" and text or text:gsub("/tests/worker%d+/", "/tests/")
    end

    --- Text of every file of an emitted program that a compiler may read, in one; of the runtime's files the hashes that
    --- gagen wrote beside them. probe: whether train-probe is compiled too.
    function store.sources(folder, probe)
        local parts = {}
        for _, name in ipairs(host.list(folder)) do
            if name:match("%.[ch]$") or name:match("%.cu$") or name == "Makefile" then
                table.move({ name, text_of(folder, name, probe) }, 1, 2, #parts + 1, parts)
            end
        end
        for line in assert(host.read(folder .. "/MANIFEST")):gmatch("%x+  runtime/[^\n]+") do
            parts[#parts + 1] = line
        end
        return table.concat(parts, "\0")
    end

    local function path_for(inputs)
        assert(host.folder(base))
        return base .. "/" .. host.sha256(table.concat(inputs, "\0") .. "\0" .. versions_of_compilers()):sub(1, 32)
    end

    --- The path of a file stored for these inputs (an array of texts), whose name ends so; make(path) makes it.
    function store.file(inputs, ending, make)
        local path = path_for(inputs) .. ending
        t.locked(path .. ".lock", function()
            if host.exists(path) then return end
            make(path .. ".new")
            assert(os.rename(path .. ".new", path))
        end)
        return path
    end

    --- Puts files into `folder`: the files stored for these inputs (an array of texts), or else those that make()
    --- makes there; make() returns their names.
    function store.fetch(folder, inputs, make)
        local kept = path_for(inputs)
        t.locked(kept .. ".lock", function()
            if host.exists(kept) then
                check(t.run { "cp", "-r", kept .. "/.", folder }, "cp")
                return
            end
            local new = kept .. ".new"
            local copy = { "cp", "-t", new }
            for _, name in ipairs(make()) do copy[#copy + 1] = folder .. "/" .. name end
            if host.exists(new) then check(t.run { "rm", "-rf", new }, "rm") end
            assert(host.folder(new))
            check(t.run(copy), "cp")
            assert(os.rename(new, kept))
        end)
    end

    return store
end
