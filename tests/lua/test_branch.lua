-- Gradients of parameters beside the rest of a small backward pass (passes/branch.lua), on the device library, which
-- finds two operations that touch the same memory while nothing orders them.
local devices = dofile "tests/lua/devices.lua"
local open, checked = devices.open, devices.checked

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Three layers: a branch of one is under way in the next, and may be in the one after.
local SPEC = [[
data       { "text", train = "branch.txt", context = 8, split = { eval = 2 } }
batch      (2)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 8 } (embedding "wte" { 40, 16 } (batch.input))
    x = times(3) "h" {
        residual { layernorm "ln_1" {}, linear "attn" { 48 }, attend { heads = 2, causal = true },
                   linear "proj" { 16 } },
        residual { layernorm "ln_2" {}, linear "fc" { 32 }, gelu {}, linear "out" { 16 } },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (x))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 8, seed = 3 }
target     "cuda"
]]

local function build(t, programs, name, text, ...)
    local bytes = {}
    for k = 1, 200 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
    t.write(programs.folder() .. "/data/branch.txt", table.concat(bytes))
    return programs.build("branch_" .. name, text or SPEC, ...)
end

local function backward_of(p) return host.read(p.folder .. "/step.c"):match "\nstatic void backward.-\n}" end

local function count_of(text, pattern) return select(2, text:gsub(pattern, "")) end

add("branches change no bit, in any order that their joins leave", function(t)
    local programs, environment = open(t)
    local p = build(t, programs, "beside")
    local backward = backward_of(p)
    t.equal(count_of(backward, "branch_begin"), count_of(backward, "branch_end"))
    assert(count_of(backward, "branch_begin") >= 6 and count_of(backward, "branches_join") == 1, backward)
    local plain = build(t, programs, "plain", nil, { options = { "--without", "branch" } })
    assert(not host.read(plain.folder .. "/step.c"):find("branch_begin", 1, true))
    local expected = programs.dump(plain, { "--cycles", 3, env = environment() })
    for seed = 1, t.all and 4 or 2 do
        for _, more in ipairs { {}, { "--no-graph" } } do
            local options = table.move({ "--cycles", 3 }, 1, 2, 1, { env = environment(checked(seed)) })
            programs.identical(programs.dump(p, table.move(more, 1, #more, 3, options)), expected,
                { "parameters", "gradients" })
        end
    end
end)

-- With one iteration no node waits for a branch of the iteration before, so what is under way before the loop still is
-- behind it.
add("a loop of one iteration ends no branch", function(t)
    local programs, environment = open(t)
    local model = 'model { embedding "wte" { 40, 16 }, times(1) "h" { linear "a" { 16 }, tanh {} }, unembed { "wte" } }\n'
    local p = build(t, programs, "once", (SPEC:gsub("model%(.-\nend%)\n", model)))
    assert(backward_of(p):find("branch_begin", 1, true), "no branch")
    for seed = 1, t.all and 6 or 3 do
        programs.train(p, { "--cycles", 1, env = environment(checked(seed)) })
    end
end)

-- A program whose waits can be left out: LEFT_OUT is the number of a branch, for its join, ALL or BEGIN.
local ALL, BEGIN = 100, 101

local function switched(t, programs)
    local p = build(t, programs, "switched")
    local text = host.read(p.folder .. "/step.c")
    for _, wait in ipairs {
        { "if (q->apart[branch] && q->code == 0)", "branch" },
        { "order(q, q->parted, q->beside, q->stream);", tostring(ALL) },
        { "order(q, q->parted, q->stream, q->beside);", tostring(BEGIN) },
    } do
        local first, last = text:find(wait[1], 1, true)
        assert(first and not text:find(wait[1], last, true), wait[1])
        text = ('%sif (!getenv("LEFT_OUT") || atoi(getenv("LEFT_OUT")) != %s) %s'):format(text:sub(1, first - 1),
            wait[2], text:sub(first))
    end
    programs.edit(p, "step.c", "#include <stdlib.h>\n" .. text)
    return p
end

-- The branch that reads the gradient which a loop hands on: it alternates between two places, which pass sync takes as
-- one, so the join with it comes a layer before it must.
local EARLY = 4

add("found: each wait left out", function(t)
    devices.needs_library(t)
    local programs, environment = open(t)
    local p = switched(t, programs)
    local waits, seen = { ALL, BEGIN }, {}
    for number in backward_of(p):gmatch "branch_join%(q, (%d+)%)" do
        if not seen[number] and tonumber(number) ~= EARLY then waits[#waits + 1] = tonumber(number) end
        seen[number] = true
    end
    assert(#waits > 4, #waits .. " waits")
    for i, number in ipairs(waits) do
        if t.all or i <= 3 or i == #waits then
            local settings = checked(1)
            settings[#settings + 1] = "LEFT_OUT=" .. number
            local result = programs.train(p, { "--cycles", 1, "--no-graph", env = environment(settings),
                status = false })
            assert(result.status == 3 and result.err:find "device: [ru]",
                ("wait %d left out: status %d\n%s"):format(number, result.status, result.err))
        end
    end
end)

local MLP = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (64)
model      { linear "a" { 64 }, relu {}, linear "b" { 64 }, relu {}, linear "c" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 8 }
target     "cuda"
]]

add("a program with a large kernel, one that ranks share, and one of the C target have no branches", function(t)
    local programs = open(t)
    local function has_branches(text, ...)
        local path = programs.folder() .. "/branch_mlp.lua"
        t.write(path, text)
        return programs.gagen({ "show", path, "step.c", ... }).out:find("branch_begin(q)", 1, true) ~= nil
    end
    t.equal(has_branches(MLP), true)
    t.equal(has_branches(MLP, "--without", "branch"), false)
    t.equal(has_branches(MLP .. 'parallel "ddp"\n'), false)
    t.equal(has_branches((MLP:gsub('target +"cuda"', 'target "c"'))), false)
    t.equal(has_branches((MLP:gsub('"(%a)" { 64 }', '"%1" { 1024 }'):gsub("%(64%)", "(512)"))), false)
end)

return tests
