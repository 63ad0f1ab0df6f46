-- The folder of a program: its name, its lock while a program uses it, and what gagen writes into it.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (5)
accumulate (2)
model     { linear "fc" { 3 } }
loss      "cross_entropy"
optimizer { "adamw", lr = 1e-2 }
parallel  { "ddp", ranks = 1 }
train     { updates = 3, seed = 1 }
]]

-- A new folder with the spec NAME.lua and its data; gagen(...) runs gagen there.
local function open(t, name)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    assert(host.link(t.root .. "/" .. programs.folder() .. "/data", folder .. "/data"))
    t.write(("%s/%s.lua"):format(folder, name), SPEC)
    return folder, function(...) return programs.gagen { cwd = folder, ... } end
end

add("values of options are parts of the folder's name", function(t)
    local folder = require "command.output".folder
    local function of(o) return folder("p", o) end
    t.equal(of {}, "out/p")
    t.equal(of { output = "x", set = { "batch=4" } }, "x")
    t.equal(of { threads = 2, trace = "x" }, "out/p")
    t.equal(of { set = { "accumulate=8", "optimizer.lr=1e-3" } }, "out/p--accumulate=8--optimizer.lr=1e-3")
    t.equal(of { set = { "optimizer.lr=0.0010", "accumulate = 8" } }, "out/p--accumulate=8--optimizer.lr=0.0010")
    t.equal(of { set = { "optimizer.lr = 1e-2" } }, "out/p--optimizer.lr=1e-2")
    t.equal(of { set = { "optimizer.lr=2.5e-5", "optimizer.weight_decay=-1000000" } },
        "out/p--optimizer.lr=2.5e-5--optimizer.weight_decay=-1000000")
    t.equal(of { target = "cuda", march = "x86-64-v3", ranks = 2 }, "out/p--march=x86-64-v3--ranks=2--target=cuda")
    t.equal(of { without = { "layout", "fusion", "layout" }, set = { "batch=4" } },
        "out/p--batch=4--without=fusion--without=layout")
end)

add("strings have no quotes; long and unsafe values are hashes", function(t)
    local folder = require "command.output".folder
    local function of(...) return folder("p", { set = { ... } }) end
    t.equal(of 'precision="f64"', "out/p--precision=f64")
    t.equal(of "optimizer.amsgrad=true", "out/p--optimizer.amsgrad=true")
    -- sha256sum of { 0.9, 0.95 }, of "8" and "../x y" with their quotes, of 26 letters with theirs
    t.equal(of "optimizer.betas={0.9,0.95}", "out/p--optimizer.betas=361edf30")
    t.equal(of 'name="8"', "out/p--name=ade1a1c2")
    t.equal(of 'data.train="../x y"', "out/p--data.train=1148990a")
    t.equal(of 'name="abcdefghijklmnopqrstuvwxyz"', "out/p--name=7f29a8ea")
    t.equal(of 'name="abcdefghijklmnopqrstuvwx"', "out/p--name=abcdefghijklmnopqrstuvwx")
end)

add("a name of a folder has less than 200 bytes", function(t)
    local folder = require "command.output".folder
    local function of(n) return folder("p", { set = { ("optimizer.%s=1"):format(("f"):rep(n)) } }) end
    t.equal(#of(184), #"out/" + 199)
    t.match(of(185), "^out/p%-%-%x%x%x%x%x%x%x%x$")
    assert(of(185) ~= of(186))
end)

add("options without -o write a folder beside that of the spec; the program keeps its name", function(t)
    local folder, gagen = open(t, "sweep")
    for _, options in ipairs { {}, { "--set", "accumulate=4", "--ranks", "2", "--without", "fusion" } } do
        local result = gagen("sweep.lua", table.unpack(options))
        t.equal(result.status, 0, result.err)
    end
    t.equal(host.list(folder .. "/out"), { "sweep", "sweep--accumulate=4--ranks=2--without=fusion" })
    local text = assert(host.read(folder .. "/out/sweep--accumulate=4--ranks=2--without=fusion/library.c"))
    t.contains(text, "sweep_open(")
    t.contains(host.read(folder .. "/out/sweep/step.c"), "2 micro-steps and one update")
    t.contains(host.read(folder .. "/out/sweep--accumulate=4--ranks=2--without=fusion/step.c"),
        "4 micro-steps and one update")
end)

add("a folder has the text of its spec, as MANIFEST says", function(t)
    local folder, gagen = open(t, "kept")
    local text = "-- \xc3\xa9\r\n" .. SPEC .. "-- no line end"
    t.write(folder .. "/kept.lua", text)
    t.equal(gagen("kept.lua", "--set", "accumulate=4", "-o", "p").status, 0)
    t.equal(host.read(folder .. "/p/spec.lua"), text)
    t.equal(t.run { "sh", "-c", "grep '  spec.lua$' MANIFEST | sha256sum -c --quiet", cwd = folder .. "/p" }.status, 0)
end)

-- Holds a lock of POSIX as a program would: HOLDER FILE r|w SECONDS. It says when it has the lock, and when it ends.
local HOLDER = [[
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct flock l = { .l_type = argv[2][0] == 'r' ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };
    int fd = open(argv[1], argv[2][0] == 'r' ? O_RDONLY : O_RDWR);
    if (argc != 4 || fcntl(fd, F_SETLK, &l) != 0) return 1;
    puts("held");
    fflush(stdout);
    usleep((unsigned)(1e6 * atof(argv[3])));
    puts("ends");
    return 0;
}
]]

-- gagen(...) in a new folder with the spec used.lua, written once to out/used; beside(script) runs a shell script there
-- with `hold r|w SECONDS`, which returns once another process named train has that lock, and "$gagen".
local function open_used(t)
    local folder, gagen = open(t, "used")
    local result = gagen "used.lua"
    t.equal(result.status, 0, result.err)
    t.write(folder .. "/holder.c", HOLDER)
    t.equal(t.run { "cc", "-o", folder .. "/train", folder .. "/holder.c" }.status, 0)
    local function beside(script)
        return t.run { "bash", "-c", "hold() { coproc ./train out/used/.lock $1 $2; read -u ${COPROC[0]} -t 60 word; "
            .. "holder=$COPROC_PID; }\nhas_ended() { ! kill -0 $holder 2> /dev/null; }\n" .. script, cwd = folder,
            env = { "gagen=" .. t.root .. "/" .. t.gagen, "GAGEN_DATA", "MAKEFLAGS" } }
    end
    return folder, gagen, beside
end

local CHANGED = '"$gagen" used.lua -o out/used --set accumulate=4'

add("a folder that a train uses is not changed", function(t)
    local folder, gagen, beside = open_used(t)
    t.equal(host.read(folder .. "/out/used/.lock"), "")
    local before = host.read(folder .. "/out/used/step.c")
    local result = beside("hold r 60\n" .. CHANGED .. "\nstatus=$?\necho $holder\nkill -9 $holder\nexit $status")
    t.equal(result.status, 1, result.err)
    t.equal(result.err:match "^[^\n]*", ("out/used is used by train (process %s): -o DIR for another folder, or wait")
        :format(t.match(result.out, "^(%d+)\n$")))
    t.equal(host.read(folder .. "/out/used/step.c"), before)
    result = beside(CHANGED)                  -- nothing is left of a process that was killed
    t.equal(result.status, 0, result.err)
    assert(host.read(folder .. "/out/used/step.c") ~= before)
    t.equal(gagen("used.lua").status, 0)
    t.equal(host.read(folder .. "/out/used/step.c"), before)
end)

add("a folder in use is left alone where nothing would change", function(t)
    local _, _, beside = open_used(t)
    local result = beside('hold r 60\n"$gagen" used.lua\nstatus=$?\nkill -9 $holder\nexit $status')
    t.equal(result.status, 0, result.err)
    result = beside('rm out/used/data\nhold r 60\n"$gagen" used.lua\nstatus=$?\nkill -9 $holder\nexit $status')
    t.equal(result.status, 1, "the link to the data would change")
end)

add("gagen waits for another one, and compares again", function(t)
    local _, _, beside = open_used(t)
    local result = beside("hold w 0.3\n" .. CHANGED .. " || exit\nhas_ended && echo waited")
    t.equal({ result.status, result.out }, { 0, "waited\n" }, result.err)
    result = beside("hold w 3\n" .. CHANGED .. " || exit\nhas_ended && echo waited")
    t.equal({ result.status, result.out }, { 0, "waited\n" }, result.err)
    t.match(result.err, "^out/used: waits for another gagen, train %(process %d+%)\n")
end)

add("a folder that cannot be locked is said to be so", function(t)
    local folder, gagen = open(t, "locked")
    local path = folder .. "/out/locked/.lock"
    assert(host.folder(path))
    local result = gagen "locked.lua"
    t.equal(result.status, 3)
    t.contains(result.err, "out/locked: cannot be locked: out/locked/.lock: is a link, folder or device, expected a "
        .. "regular file\n")
    assert(host.remove(path))
    t.equal(gagen("locked.lua").status, 0)
    t.equal(t.run { "chmod", "-R", "a-w,a+rX", folder }.status, 0)
    local command = { t.root .. "/" .. t.gagen, "locked.lua", cwd = folder, env = { "GAGEN_DATA" } }
    if t.run { "id", "-u" }.out == "0\n" then
        table.move({ "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups" }, 1, 4, 1,
            table.move(command, 1, 2, 5))
    end
    result = t.run(command)
    if result.err:find "setpriv" then t.not_run "no other user may be taken" end
    t.equal(result.status, 0, result.err)     -- a folder that needs no change needs no writing
    table.move({ "--set", "accumulate=4", "-o", "out/locked" }, 1, 4, #command + 1, command)
    result = t.run(command)
    t.equal({ result.status, result.err:match "^[^\n]*" },
        { 3, "out/locked: cannot be locked: out/locked/.lock: Permission denied" })
    t.equal(t.run { "chmod", "-R", "u+w", folder }.status, 0)
end)

return tests
