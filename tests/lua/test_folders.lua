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
    t.equal(of { set = { "optimizer.lr=0.0010", "accumulate=8" } }, "out/p--accumulate=8--optimizer.lr=1e-3")
    t.equal(of { set = { "optimizer.lr=0.01" } }, "out/p--optimizer.lr=0.01")
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

return tests
