-- Cases of Colossal-AI's tests/test_zero/test_gemini (test_grad_accum.py, test_grad_clip.py, test_optim.py,
-- test_inference.py, test_zeroddp_state_dict.py, test_zerooptim_state_dict.py, test_chunkv2.py) and of its
-- test_norm_gradient_clipping.py, for a GPT and two ranks: zero3 against ddp, where theirs compare with torch's DDP.
-- Bounds are theirs in 16 bits, and narrower otherwise. Their search of chunks is in test_chunk_size.
local json = dofile "tests/lua/json.lua"
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS = 2

-- === runs =========================================================================================

-- A program of the case and what a run of two updates of two micro-steps gives: { dump, losses, norms, program }.
-- case: { precision, parallel, clip, memory, scaler, model, ranks, cycles }.
local function trained(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local text = ranked.spec({ model = case.model or "gpt", optimizer = "adamw", tail = "drop", weight = "micro",
        precision = case.precision, clip = case.clip or "clip (1)", memory = case.memory, split = "split = { eval = 24 }",
        eval = "eval { every = 50, batches = 2 }" }, 3, 2, case.parallel)
    if case.scaler then text = text:gsub("scaler [^\n]*", case.scaler) end
    local p = programs.build("gemini_" .. host.sha256(text):sub(1, 12), text, { comm = "mpi" })
    local log = t.temp() .. "/log"
    local o = { ranks = case.ranks or RANKS, "--threads", 1, "--cycles", case.cycles or 2, "--log", log }
    local run = { losses = {}, norms = {}, program = p, programs = programs, dump = programs.dump(p, o) }
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "update" then
            table.insert(run.losses, event.loss)
            table.insert(run.norms, event.grad_norm)
        end
    end
    return run
end

local function near(found, wanted, bound, what)
    if not (math.abs(found - wanted) <= bound[2] + bound[1] * math.abs(wanted)) then
        error(("%s: %.9g found, %.9g expected"):format(what, found, wanted), 2)
    end
end

-- bounds: { losses, gradients, parameters }, each { relative, absolute }, of each element.
local function compare(found, wanted, bounds)
    for i, loss in ipairs(wanted.losses) do near(found.losses[i], loss, bounds[1], "loss " .. i) end
    for k, file in ipairs { "gradients", "parameters" } do
        local name = ("/%s.safetensors"):format(file)
        local tensors = found.programs.tensors(found.dump .. name)
        for tensor, expected in next, wanted.programs.tensors(wanted.dump .. name) do
            for i, x in ipairs(expected.values) do near(tensors[tensor].values[i], x, bounds[k + 1], tensor) end
        end
    end
end

local DDP = 'parallel { "ddp", bucket = "1KiB" }'

-- === accumulation =================================================================================

local F32 = { { 1e-6, 0 }, { 1e-5, 1e-7 }, { 1e-5, 1e-6 } }
local HALF = { { 1e-3, 1e-5 }, { 2e-3, 2e-3 }, { 1e-3, 2e-3 } }
local RECOMPUTE = 'memory { recompute = { "*" } }'

-- Their max_prefetch, enable_async_reduce, use of activation checkpoints and master weights: { the name, the word
-- parallel, memory, precision, bounds }.
local WAYS = {
    { "prefetch 0", '{ "zero3", prefetch = 0 }', "", "f32", F32 },
    { "prefetch 1, sums that are waited for, recomputed", '{ "zero3", overlap = false }', RECOMPUTE, "f32", F32 },
    { "prefetch 3, recomputed", '{ "zero3", prefetch = 3 }', RECOMPUTE, "f32", F32 },
    { "prefetch 1, bf16", '{ "zero3" }', "", "bf16", HALF },
    { "prefetch 3, f16, recomputed", '{ "zero3", prefetch = 3 }', RECOMPUTE, "f16", HALF },
}

for _, way in ipairs(WAYS) do
    local name, parallel, memory, precision, bounds = table.unpack(way)
    add("test_grad_accum and test_optim: losses, gradients and parameters: " .. name, function(t)
        local found = trained(t, { precision = precision, parallel = "parallel " .. parallel, memory = memory })
        compare(found, trained(t, { precision = precision, parallel = DDP, memory = memory }), bounds)
    end)
end

-- The sums of zero3's first micro-step are those that ddp goes on with.
add("test_grad_accum: the gradient inside a cycle", function(t)
    local case = { precision = "f32", parallel = 'parallel { "zero3", prefetch = 0 }', memory = "", cycles = 1 }
    local zero3, folder = trained(t, case), t.temp()
    zero3.programs.train(zero3.program, { ranks = RANKS, "--threads", 1, "--stop-micro", 1, "--checkpoint", folder,
        status = 75 })
    case.parallel = DDP
    local ddp = trained(t, case)
    local went_on = { losses = {}, programs = ddp.programs, dump = ddp.programs.dump(ddp.program, { ranks = RANKS,
        "--threads", 1, "--cycles", 1, "--checkpoint", folder, "--resume", "latest" }) }
    compare(went_on, { losses = {}, programs = ddp.programs, dump = ddp.dump }, F32)
end)

-- === clipping =====================================================================================

for ranks = 1, 2 do
    add(("test_grad_clip: f16 with a scale of 32, %d rank%s"):format(ranks, ranks > 1 and "s" or ""), function(t)
        local case = { precision = "f16", ranks = ranks, parallel = 'parallel "zero3"', scaler = "scaler { static = 32 }" }
        local found = trained(t, case)
        assert(found.norms[1] > 1, "the gradient is not clipped")
        case.parallel = DDP
        compare(found, trained(t, case), HALF)
    end)
end

-- p: a number, or math.huge for the largest element.
local function norm_of(tensors, p)
    local sum = 0
    for _, tensor in next, tensors do
        for _, x in ipairs(tensor.values) do
            sum = p == math.huge and math.max(sum, math.abs(x)) or sum + math.abs(x) ^ p
        end
    end
    return p == math.huge and sum or sum ^ (1 / p)
end

for _, norm in ipairs { { 2, "2" }, { 3, "3" }, { math.huge, '"inf"' } } do
    local p, word = table.unpack(norm)
    add(("test_norm_gradient_clipping: p = %s on 1 and 2 ranks"):format(word), function(t)
        for ranks = 1, 2 do
            local run = trained(t, { model = "mlp", precision = "f32", ranks = ranks, parallel = 'parallel "zero3"',
                clip = ("clip { 0.01, p = %s }"):format(word), cycles = 1 })
            near(run.norms[1], norm_of(run.programs.tensors(run.dump .. "/gradients.safetensors"), p), { 1e-5, 1e-8 },
                "norm")
        end
    end)
end

-- === evaluation, files ============================================================================

add("test_inference: the loss of an evaluation before and after training", function(t)
    local zero3, ddp = trained(t, { precision = "f32", parallel = 'parallel { "zero3", prefetch = 0 }' }),
        trained(t, { precision = "f32", parallel = DDP })
    local first = t.temp() .. "/first.safetensors"
    ddp.programs.train(ddp.program, { ranks = RANKS, "--save-init", first })
    local function evaluated(run, values)
        local events = run.programs.events(run.program, { ranks = RANKS, "--threads", 1, "--eval", "--init", values })
        for _, event in ipairs(events) do
            if event.event == "eval" then return event.loss end
        end
    end
    local before = evaluated(ddp, first)
    for _, values in ipairs { first, ddp.dump .. "/parameters.safetensors" } do
        local loss = evaluated(ddp, values)
        near(evaluated(zero3, values), loss, { 1e-5, 0 }, values)
        assert((loss == before) == (values == first), "training has changed nothing")
    end
end)

add("test_zeroddp_state_dict: the file of all values has the bytes that were loaded, each name once", function(t)
    local run = trained(t, { precision = "f32", parallel = 'parallel { "zero3", prefetch = 0 }' })
    local ddp = trained(t, { precision = "f32", parallel = DDP })
    local values, again = ddp.dump .. "/parameters.safetensors", t.temp() .. "/again.safetensors"
    run.programs.train(run.program, { ranks = RANKS, "--init", values, "--save-init", again })
    local text, seen = host.read(again), {}
    assert(text == host.read(values), "other bytes")
    for name in text:sub(9, 8 + string.unpack("<I8", text)):gmatch '"([%w_.]+)":{"dtype"' do
        assert(not seen[name], name .. " is there twice")
        seen[name] = true
    end
    assert(seen["wte.weight"] and seen["h.4.proj.bias"])
end)

add("test_zerooptim_state_dict: a state that was saved and loaded has the bits of one that was kept", function(t)
    local run, folder = trained(t, { precision = "f32", parallel = 'parallel { "zero3", prefetch = 0 }' }), t.temp()
    run.programs.train(run.program, { ranks = RANKS, "--threads", 1, "--cycles", 1, "--checkpoint", folder })
    run.programs.identical(run.programs.dump(run.program, { ranks = RANKS, "--threads", 1, "--cycles", 2, "--checkpoint",
        folder, "--resume", "latest" }), run.dump, { "parameters", "state" })
end)

-- === a chunk ======================================================================================

-- Tensors of 512, 16, 64, and 5 elements in two tensors: chunk_size = 1024 takes all of them.
local CHUNK = [[
data       { "csv", train = "chunk.csv", target = "last" }
batch      (3)
model      { linear "a" { 16, bias = false }, rmsnorm "b" {}, linear "c" { 4, bias = false }, linear "d" { 1 } }
loss       "mse"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 2, seed = 7 }
parallel   { "zero3", chunk_size = 1024 }
]]

add("test_chunkv2: a chunk of 1024 holds 597 elements, which 1, 2 and 4 ranks divide", function(t)
    local programs, files = t.load("tests/lua/programs.lua")(t), {}
    programs.write_sines("chunk.csv", 60, 32)
    local p = programs.build("gemini_chunk", CHUNK, { comm = "mpi" })
    t.contains(programs.gagen({ "check", p.spec }).err, "chunks: 1,024 elements, 4,096 bytes: chunk_size")
    for i, ranks in ipairs { 1, 2, 4 } do
        local plan, gathers = programs.plan(p, "--ranks", tostring(ranks)), 0
        t.equal(plan.totals.parameters, 597)
        for _, c in ipairs(plan.collectives) do gathers = gathers + (c.kind == "all_gather" and c.calls or 0) end
        t.equal(gathers, 1)         -- one chunk, which stays from the forward pass to the backward pass
        local path, count = t.temp() .. "/initial.safetensors", 0
        programs.train(p, { ranks = ranks, "--save-init", path })
        for _, tensor in next, programs.tensors(path) do count = count + tensor.count end
        t.equal(count, 597)
        files[i] = host.read(path)
        assert(files[i] == files[1], ranks .. " ranks: other values")
    end
end)

return tests
