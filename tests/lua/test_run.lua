-- `gagen run`: programs with the same runtime share one compiled runtime, kept in the user's cache folder.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A compiler that writes down its arguments and takes the object of the tests' build for a source of the runtime.
local COMPILER = [[
#!/bin/sh
echo "$@" >> %s
for word; do
    object=%s/${word%%%%.c}.o
    if [ "${word%%%%.c}" != "$word" ] && [ -f "$object" ]; then ready=$object; fi
    [ "$before" != -o ] || output=$word
    before=$word
done
[ -z "$ready" ] || exec cp "$ready" "$output"
exec cc "$@"
]]

local SPEC = [[
data { "csv", train = "tiny.csv", target = "last" }
batch (9)
model { linear "fc" { 3 } }
loss "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train { updates = 3, seed = 1 }
]]

-- Tools of a test: run(o) makes and starts a program in a new folder with the cache `cache`, and returns the files of
-- the runtime that were compiled for it.
local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local spec, cc, log = programs.folder() .. "/kept.lua", folder .. "/cc", folder .. "/log"
    t.write(spec, SPEC)
    t.write(cc, COMPILER:format(log, t.root .. "/" .. t.build))
    t.equal(t.run { "chmod", "+x", cc }.status, 0)
    local function run(o)
        host.remove(log)
        local result = programs.gagen { "run", spec, "-o", folder .. "/" .. o.into, "--", "--checkpoint", t.temp(),
            "--quiet", env = { "CC=" .. cc, "CFLAGS=" .. (o.flags or "-O0"), "XDG_CACHE_HOME=" .. (o.cache or folder) } }
        t.equal(result.status, 0, result.err)
        local compiled = {}
        for file in host.read(log):gmatch("runtime/[%w_]+/([%w_]+)%.c") do compiled[#compiled + 1] = file end
        return compiled
    end
    return run, folder, spec
end

local function objects(folder)
    local list = host.list(folder .. "/gagen")
    for _, name in ipairs(list) do assert(name:match("^runtime%-%x+%.o$"), name) end
    return list
end

add("a second program links the kept runtime, unless its flags differ", function(t)
    local run, folder = open(t)
    assert(#run { into = "first" } > 10)
    t.equal(#objects(folder), 1)
    local log = host.read(folder .. "/log")
    assert(log:find(" step.c\n", 1, true) < log:find("runtime/ranks/launcher.c\n", 1, true), "step.c waits")
    t.equal(run { into = "second" }, { "comm_self" })
    t.equal(#objects(folder), 1)
    assert(#run { into = "third", flags = "-O0 -g" } > 10)
    t.equal(#objects(folder), 2)
end)

add("the program still builds alone", function(t)
    local run, folder = open(t)
    run { into = "program" }
    t.equal(host.exists(folder .. "/program/runtime.o"), false)
    t.equal(t.run { "rm", "-r", folder .. "/gagen", folder .. "/program/train" }.status, 0)
    local function make(...)
        return t.run { "make", "-s", "-C", folder .. "/program", "CFLAGS=-O0", env = { "MAKEFLAGS" }, ... }.status
    end
    t.equal(make(), 0)
    t.equal({ make "-q", make("-n", "COMM=mpi") }, { 0, 2 })       -- nothing to do; one process has one engine
end)

add("a cache that cannot be written is not used", function(t)
    local run, folder = open(t)
    t.write(folder .. "/file", "")
    assert(#run { into = "program", cache = folder .. "/file" } > 10)
    assert(#run { into = "spaces", cache = folder .. "/a folder" } > 10)
end)

add("two runs at once leave one complete runtime", function(t)
    local _, folder, spec = open(t)
    local command = ("%s/%s run %s/%s -o %s/%%s -- --quiet --checkpoint %s/c%%s"):format(t.root, t.gagen, t.root, spec,
        folder, folder)
    local result = t.run { "sh", "-c", command:format(1, 1) .. " & " .. command:format(2, 2) .. " && wait $!",
        env = { "MAKEFLAGS", "CC=" .. folder .. "/cc", "CFLAGS=-O0", "XDG_CACHE_HOME=" .. folder } }
    t.equal(result.status, 0, result.err)
    t.equal(#objects(folder), 1)
end)

add("two runs of one spec at once share one program; one that needs no change starts beside a running one", function(t)
    local _, folder, spec = open(t)
    local command = ("%s/%s run %s/%s -o %s/program -- --quiet --checkpoint %s/c"):format(t.root, t.gagen, t.root, spec,
        folder, folder)
    local environment = { "MAKEFLAGS", "CC=" .. folder .. "/cc", "CFLAGS=-O0", "XDG_CACHE_HOME=" .. folder }
    local function links()
        return select(2, host.read(folder .. "/log"):gsub("%-o train%.new ", ""))
    end
    local result = t.run { "sh", "-c", ("%s1 & %s2 && wait $!"):format(command, command), env = environment }
    t.equal(result.status, 0, result.err)
    t.equal(links(), 1)
    local lock = assert(host.lock(folder .. "/program/.lock"))
    t.equal(lock:take "shared", true)
    result = t.run { "sh", "-c", command .. "3", env = environment }
    t.equal(result.status, 0, result.err)
    t.equal(links(), 1)
    host.remove(folder .. "/program/train")
    result = t.run { "sh", "-c", command .. "3", env = environment }
    t.equal(result.status, 1, result.err)
    t.contains(result.err, " is used by ")
    lock:close()
end)

-- Between its two questions gagen waits for the lock. Here a train begins meanwhile, as one that another gagen has just
-- made and started.
add("a train that began while gagen waited is in the way only of a program to be changed", function(t)
    local locked, programs = require "emit.program.locked", t.load("tests/lua/programs.lua")(t)
    local p = programs.build("waited_for", (SPEC:gsub("updates = 3", "updates = 1000000000")))
    local log, train = t.root .. "/" .. t.temp() .. "/log"
    local function start()
        local command = ("cd %s && { timeout 60 ./train --quiet >%s 2>&1 & echo $!; }"):format(p.folder, log)
        train = t.run { "sh", "-c", command }
        for _ = 1, 3000 do
            if host.lock_holder(p.folder .. "/.lock") then return end
            host.pause(0.01)
        end
        error(host.read(log))
    end
    local function ask(answer)
        local asked, changed = 0, false
        local right, message = pcall(locked, p.folder, function()
            asked = asked + 1
            if not train then start() end
            return asked == 2 and answer
        end, function() changed = true end)
        t.equal({ asked, changed }, { 2, false })
        return right, message
    end
    local current, other = { ask(true) }, { ask(false) }
    t.run { "kill", (train.out:gsub("%s", "")) }
    t.equal(current, { true })
    t.equal(other[1], false)
    t.contains(tostring(other[2]), " is used by train (process ")
end)

return tests
