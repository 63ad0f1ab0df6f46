-- Stores compiled files of tests by a hash of all their inputs: the first worker that needs a program compiles it,
-- and it is compiled again only if its emitted text, the runtime or the flags change.
return function(t)
    local store = {}
    local base = t.build .. "/tests/store"

    local function check(result, what)
        if result.status == 0 then return end
        error(("%s: status %d\n%s%s"):format(what, result.status, result.out, result.err), 0)
    end

    local compiler
    local function version_of_compiler()
        compiler = compiler or t.shell("${CC:-cc} --version").out
        return compiler
    end

    --- Text of every file of an emitted program that a compiler may read, in one.
    function store.sources(folder)
        local rooms, parts = { "" }, {}
        for _, room in ipairs(host.list(folder .. "/runtime")) do rooms[#rooms + 1] = "runtime/" .. room .. "/" end
        for _, room in ipairs(rooms) do
            for _, name in ipairs(host.list(folder .. "/" .. room)) do
                if name:match("%.[ch]$") or name:match("%.cu$") or name == "Makefile" then
                    table.move({ room .. name, host.read(folder .. "/" .. room .. name) }, 1, 2, #parts + 1, parts)
                end
            end
        end
        return table.concat(parts, "\0")
    end

    --- Puts files into `folder`: the files stored for these inputs (an array of texts), or else those that make()
    --- makes there; make() returns their names.
    function store.fetch(folder, inputs, make)
        local key = host.sha256(table.concat(inputs, "\0") .. "\0" .. version_of_compiler())
        local kept = base .. "/" .. key:sub(1, 32)
        assert(host.folder(base))
        t.locked(kept .. ".lock", function()
            if host.exists(kept) then
                check(t.run { "cp", "-r", kept .. "/.", folder }, "cp")
                check(t.run { "touch", kept }, "touch") -- used today
                return
            end
            local new = kept .. ".new"
            local copy = { "cp", "-t", new }
            for _, name in ipairs(make()) do copy[#copy + 1] = folder .. "/" .. name end
            check(t.run { "rm", "-rf", new }, "rm")
            assert(host.folder(new))
            check(t.run(copy), "cp")
            check(t.run { "mv", new, kept }, "mv")
        end)
    end

    return store
end
