-- Files of programs whose parameters are divided over the ranks, where some are not trained.
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A frozen table with padding and statistics that move: arrays beside the trained ones.
local FILES = [[
data       { "tokens", train = "parallel.bin", context = 6 }
batch      (3)
model      { embedding "wte" { 11, 12, padding = 3 }, linear "a" { 13 }, tanh {}, linear "b" { 11 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.9, groups = { { GLOB, frozen = true } } }
train      { updates = 3, seed = 7 }
parallel   "%s"
]]

for _, frozen in ipairs { { "a frozen table", "wte.*" }, { "a frozen layer", "a.*" } } do
    local name, glob = table.unpack(frozen)
    add(name .. ": first values are those of one process, and files have them", function(t)
        local programs, text = t.load("tests/lua/programs.lua")(t), FILES:gsub("GLOB", ("%q"):format(glob))
        ranked.write_tokens(t, programs)
        local stem = "zero3_files_" .. glob:sub(1, 1)
        local one = programs.build(stem, text:format "none")
        local many = programs.build(stem .. "_3", text:format "zero3", { comm = "mpi" })
        local first, again, last = t.temp() .. "/first", t.temp() .. "/again", t.temp() .. "/last"
        programs.train(one, { "--save-init", first })
        programs.train(many, { ranks = 3, "--save-init", again })
        assert(host.read(first) == host.read(again), "first values have other bytes")
        local dump = programs.dump(many, { ranks = 3, "--threads", 1 })
        local parameters = dump .. "/parameters.safetensors"
        programs.train(many, { ranks = 3, "--save-init", last, "--init", parameters })
        assert(host.read(last) == host.read(parameters), "--init: other bytes")
    end)
end

return tests
