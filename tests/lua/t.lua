-- The argument t of a test function. A failure is an error at the line of the test.
--   t.equal(a, b [, what])       the same, tables entry by entry
--   t.near(a, b, tolerance)      numbers
--   t.match(text, pattern)       a Lua pattern; returns the captures
--   t.contains(text, part)       plain text
--   t.fails(f [, pattern])       f raises an error; returns its text (a diagnostic: as printed)
--   t.run { argv..., cwd =, env = { "A=b", "C" }, timeout = 600 }    env: A is b, and C is not set
--                                { status, out, err, cpu_seconds, timed_out }; no shell
--   t.shell(command)             the same for `sh -c`
--   t.start { argv..., out = FILE, env = }    the number of a process that runs beside the test, its outputs in FILE;
--                                the end of the test ends it
--   t.temp()                     a fresh folder
--   t.write(path, text)          writes a file, making its folders
--   t.root, t.gagen, t.build     the repository; path of gagen in it, and of the build folder
--   t.worker                     number of this process of a run: for names of folders that outlive a test
--   t.locked(path, f)            f() while no other process holds the lock of this file
--   t.load(path)                 value of a Lua file of the repository
--   t.isolated(f, seconds, bytes)  the exit code of f() in a copy of this process with these limits, and
--                                what it printed to standard error; an error is gagen's exit code for it
--   t.clock()                    seconds of the monotonic clock
--   t.not_run(reason)            ends the test as not run
--   t.all                        whether make test-all runs; where it has whole products make test has a cover of pairs
--   t.long()                     ends the test as not run unless make test-all runs
--   t.environment(name)          text or nil
--   t.compiler                   of the programs that programs.lua builds, unless they have a level: GAGEN_TEST_CC, or else
--                                clang, which takes half of gcc's time, where it is installed. nil: cc, as with make
--                                test-all, so that both compilers are proven
--   t.quick                      options of a quick compiler. gcc's second one clears upper halves of vectors before
--                                calls: else exp and tanh can take ten times as long
--   t.mpirun(ranks)              words of a command that starts ranks of this host; nil: their number comes behind
--   t.kept(key, f)               the text f(), asked once for all tests of a process
-- Invariant: no helper changes anything outside the folder of t.temp() but t.write and t.run.

local function show(value, depth)
    if type(value) == "string" then return ("%q"):format(value) end
    if type(value) ~= "table" then return tostring(value) end
    if depth == 0 then return "{...}" end
    local keys, parts = {}, {}
    for key in next, value do keys[#keys + 1] = key end
    table.sort(keys, function(a, b)
        if math.type(a) and math.type(b) then return a < b end
        return tostring(a) < tostring(b)
    end)
    for i, key in ipairs(keys) do
        local name = math.type(key) and ("[%s]"):format(key) or tostring(key)
        parts[i] = name .. " = " .. show(value[key], depth - 1)
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
end

local function same(a, b)
    if type(a) ~= "table" or type(b) ~= "table" then
        return a == b and math.type(a) == math.type(b) or a ~= a and b ~= b
    end
    for key in next, a do
        if not same(a[key], b[key]) then return false end
    end
    for key in next, b do
        if a[key] == nil then return false end
    end
    return true
end

return function(native)
    local t = { root = native.root, gagen = native.gagen, build = native.build, worker = native.worker, clock = native.clock,
                isolated = native.isolated, quick = "-O0 -fexpensive-optimizations",
                environment = host.environment, all = host.environment "GAGEN_TEST_ALL" ~= nil }

    function t.equal(a, b, what)
        if not same(a, b) then
            what = what and what .. ": " or ""
            error(("%sexpected %s, found %s"):format(what, show(b, 6), show(a, 6)), 2)
        end
    end

    function t.near(a, b, tolerance)
        if type(a) ~= "number" or not (math.abs(a - b) <= tolerance) then
            error(("expected %s within %s, found %s"):format(b, tolerance, show(a, 2)), 2)
        end
    end

    function t.match(text, pattern)
        if type(text) ~= "string" or not text:find(pattern) then
            error(("expected a match of %s in\n%s"):format(pattern, show(text, 3)), 2)
        end
        return text:match(pattern)
    end

    function t.contains(text, part)
        if type(text) ~= "string" or not text:find(part, 1, true) then
            error(("expected %q in\n%s"):format(part, show(text, 3)), 2)
        end
    end

    function t.fails(f, pattern)
        local done, value = pcall(f)
        if done then error("expected an error, found none", 2) end
        local text = tostring(value)
        if pattern and not text:find(pattern) then
            error(("expected an error that matches %s, found\n%s"):format(pattern, text), 2)
        end
        return text
    end

    t.run, t.start = native.run, native.start

    function t.shell(command)
        return native.run { "sh", "-c", command }
    end

    function t.kept(key, f)
        local value = native.kept(key)
        if not value then
            value = f()
            native.keep(key, value)
        end
        return value
    end

    t.compiler = host.environment "GAGEN_TEST_CC" or not t.all and t.kept("clang", function()
        return t.shell("command -v clang").status == 0 and "clang" or ""
    end)
    if t.compiler == "" then t.compiler = nil end

    -- Open MPI opens only what ranks of one host use, which halves the time that a start waits.
    function t.mpirun(ranks)
        local words = { "env", "PMIX_MCA_gds=hash", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
            "--mca", "pml", "ob1", "--mca", "btl", "self,vader" }
        if ranks then table.move({ "-n", tostring(ranks) }, 1, 2, #words + 1, words) end
        return words
    end

    function t.locked(path, f)
        local done, message = native.locked(path, f)
        if not done then error(message, 0) end
    end

    function t.temp()
        return native.temporary()
    end

    function t.write(path, text)
        assert(host.folder(path:match("^(.*)/") or "."))
        local file = assert(io.open(path, "wb"))
        assert(file:write(text))
        assert(file:close())
    end

    function t.load(path)
        return dofile(t.root .. "/" .. path)
    end

    function t.not_run(reason)
        error({ not_run = reason }, 0)
    end

    function t.long()
        if not t.all then t.not_run "long: make test-all" end
    end

    return t
end
