-- Several ranks train as one rank with the same rows per update: a cover of the pairs of modes, ranks, models, cycles,
-- weights, clipping, precisions and optimizers; with make test-all of their triples. Rows are the same for any number of ranks, since each cycle takes
-- RANKS * A micro-batches in their order.

local json = dofile "tests/lua/json.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CYCLES = 3

-- === cases =======================================================================================

-- Each dimension and its values. The first value of a dimension is the simple one.
local DIMENSIONS = {
    { "mode", "ddp", "zero1", "zero2" },
    { "ranks", 2, 3, 4, 1 },
    { "model", "mlp", "convnet", "batchnorm", "gpt", "llama" },
    { "a", 1, 3, 4 },
    { "tail", "drop", "flush" },
    { "weight", "token", "sample", "micro" },
    { "clip", "", "clip (0.1)", "clip { 0.1, per_group = true }", "clip { value = 0.01 }" },
    { "precision", "f64", "f32", "bf16", "f16" },
    { "optimizer", "adamw", "sgd", "lamb", "lars", "adafactor", "muon", "ema", "frozen" },
    { "bucket", "25MiB", "1KiB", "2KiB" },
    { "comm", "f32", "bf16", "f16" },
    { "overlap", true, false },
}

local OPTIMIZERS = {
    adamw = '{ "adamw", lr = 1e-2, weight_decay = 0.05 }',
    sgd = '{ "sgd", lr = 0.1, momentum = 0.9, groups = { { "*.bias", lr_scale = 2 } } }',
    lamb = '{ "lamb", lr = 1e-2 }', lars = '{ "lars", lr = 0.1, momentum = 0.9 }',
    adafactor = '{ "adafactor", lr = 1e-2 }', muon = '{ "muon", lr = 1e-2, rest = { "adamw", lr = 1e-3 } }',
    ema = '{ "adamw", lr = 1e-2, ema = 0.9 }',
}

-- The first of several layers, or one alone.
local FROZEN = { mlp = "fc1.bias", convnet = "conv1.*", batchnorm = "h.1.*", gpt = "h.1.*", llama = "h.0.*" }

-- ROWS: of a micro-step. The bias of a key has no gradient but rounding, of which a rule like Adam's makes steps: there is none.
local MODELS = {
    mlp = { rows = "digits", '{ linear "fc1" { 21 }, relu {}, linear "fc2" { 10 } }' },
    convnet = { rows = "digits", [[{
    reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, padding = 1 }, relu {}, conv2d "conv2" { 7, 3, stride = 2 }, relu {},
    flatten {}, linear "fc1" { 10 },
}]] },
    batchnorm = { rows = "digits", [[{
    reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, bias = false },
    batchnorm "bn1" { rows = ROWS, running = "cycle" }, relu {},
    times(3) "h" { conv2d "conv" { 5, 3, padding = 1, bias = false },
                   batchnorm "bn" { rows = ROWS, running = "cycle" }, relu {} },
    flatten {}, linear "fc1" { 10 },
}]] },
    gpt = { rows = "tokens", [[{
    embedding "wte" { 11, 12 }, positions "wpe" { 6 },
    times(5) "h" {
        residual { layernorm "ln_1" {}, linear "c_attn" { 36, bias = false }, attend { heads = 2, causal = true },
                   linear "c_proj" { 12 } },
        residual { layernorm "ln_2" {}, linear "c_fc" { 20 }, gelu { "tanh" }, linear "proj" { 12 } },
    },
    layernorm "ln_f" {}, unembed { "wte" },
}]] },
    llama = { rows = "tokens", [[(function(batch)
    local x = embedding "embed" { 11, 8 } (batch.input)
    x = times(3) "h" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 2 } (linear "q" { 8, bias = false } (h))
        local k = rotary { heads = 1 } (linear "k" { 4, bias = false } (h))
        local a = attend { heads = 2, kv_heads = 1, causal = true } (q, k, linear "v" { 4, bias = false } (h))
        x = x + linear "o" { 8, bias = false } (a)
        h = rmsnorm "norm2" {} (x)
        return x + linear "down" { 8 } (silu {} (linear "gate" { 12 } (h)) * linear "up" { 12 } (h))
    end) (x)
    return linear "head" { 11 } (rmsnorm "norm" {} (x))
end)]] },
}

local ROWS = {
    digits = 'data { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, '
        .. 'split = { fold = 2, of = 5 } }',
    tokens = 'data { "tokens", train = "parallel.bin", context = 6 }',
}

-- Whether a case is possible: no clip by group for a rule that reads the norm of all, no weight by token for single rows.
-- Parts in 16 bits go with a step that is proportional to the gradient: other rules, and a clip of each element, make
-- much of the rounding of small elements.
local function fits(case)
    if case.clip:find "per_group" and (case.optimizer == "lamb" or case.optimizer == "muon") then return false end
    if case.weight == "token" and MODELS[case.model].rows == "digits" then return false end
    local proportional = case.optimizer == "sgd" and not case.clip:find "value"
    if case.comm ~= "f32" and (case.precision == "f64" or not proportional) then return false end
    return not (case.optimizer == "muon" and case.precision ~= "f64" and case.precision ~= "f32")
end

-- Numbers of the combinations of `size` values of different dimensions in a case; choice: the numbers of its values.
local function combinations(choice, size)
    local list = {}
    local function add_from(first, number, left)
        if left == 0 then
            list[#list + 1] = number
            return
        end
        for i = first, #DIMENSIONS - left + 1 do add_from(i + 1, number * 256 + i * 16 + choice[i], left - 1) end
    end
    add_from(1, 0, size)
    return list
end

-- Cases that meet each possible combination of `size` values once: the next case is the one of some candidates, drawn by
-- a fixed rule, that meets the most new combinations.
local function cases(size, candidates)
    local list, met, state = {}, {}, 1
    local function draw(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
    local dry = 0
    while dry < 20 do
        local best, gain, its = nil, 0, nil
        for _ = 1, candidates do
            local case, choice, new = {}, {}, 0
            for i, d in ipairs(DIMENSIONS) do
                choice[i] = draw(#d - 1)
                case[d[1]] = d[1 + choice[i]]
            end
            if fits(case) then
                local all = combinations(choice, size)
                for _, number in ipairs(all) do new = new + (met[number] and 0 or 1) end
                if new > gain then best, gain, its = case, new, all end
            end
        end
        if best then
            for _, number in ipairs(its) do met[number] = true end
            list[#list + 1] = best
        else
            dry = dry + 1
        end
    end
    return list
end

-- === one case ====================================================================================

-- 60 micro-batches of tokens from 0 to 10, as llm.c writes them.
local function write_tokens(t, programs)
    local path = programs.folder() .. "/data/parallel.bin"
    if host.exists(path) then return end
    local list, state = {}, 5
    for i = 1, 6 * 480 + 1 do
        state = (state * 75 + 74) % 65537
        list[i] = string.pack("<I2", state % 11)
    end
    t.write(path, string.pack("<i4i4i4", 20240520, 1, #list) .. ("\0"):rep(1012) .. table.concat(list))
end

-- The spec of a case for `ranks` processes, of which each has `rows` rows per micro-step.
local function spec(case, rows, a, parallel)
    local target = case.target and ('target "%s"\n'):format(case.target) or ""
    local optimizer = OPTIMIZERS[case.optimizer]
        or ('{ "adamw", lr = 1e-2, groups = { { %q, frozen = true } } }'):format(FROZEN[case.model])
    return table.concat({ ROWS[MODELS[case.model].rows],
        ("batch (%d)\naccumulate { %d, tail = %q }"):format(rows, a, case.tail),
        "model " .. MODELS[case.model][1]:gsub("ROWS", rows), ('loss { "cross_entropy", weight = %q }'):format(case.weight),
        "optimizer " .. optimizer, case.clip, ("precision %q"):format(case.precision),
        case.precision == "f16" and "scaler { initial_scale = 1024 }" or "",
        "train { updates = 50, seed = 7 }", 'checkpoint { every = "end" }', parallel, target }, "\n")
end

-- How far parameters may differ, since sums have another order: relative to the largest of each tensor. In 16 bits each
-- micro-step rounds other values: relative in the 2-norm of each tensor.
local BOUNDS, HALF = { f64 = 1e-12, f32 = 1e-5 }, 4e-3

-- Of parts in 16 bits, each rounded by at most 2^-9 of itself. Parts of different ranks cancel in part: the 2-norms of
-- theirs are taken to be at most four times that of their sum.
local ROUNDED_PARTS = 4 * 2.0 ^ -9

-- Parameters of rules whose step hardly depends on the size of the gradient move by whole steps where a gradient is
-- rounding alone, so f32 is compared after one update.
local function cycles_of(case) return case.precision == "f64" and CYCLES or 1 end

local function compare(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_tokens(t, programs)
    local rows = case.weight == "micro" and 4 or 3
    local name = "parallel_" .. host.sha256(spec(case, rows, case.a, "")):sub(1, 12)
    local cycles = cycles_of(case)
    local one = programs.dump(programs.build(name, spec(case, rows, case.a * case.ranks, "")), { "--cycles", cycles })
    local text = spec(case, rows, case.a, ("parallel { %q, bucket = %q, comm = %q, overlap = %s }"):format(case.mode,
        case.bucket, case.comm, case.overlap))
    local p = programs.build(name .. "_ranks", text, { comm = "mpi" })
    local many = programs.dump(p, { ranks = case.ranks, "--threads", 2, "--cycles", cycles })
    local bound = case.comm == "f32" and BOUNDS[case.precision]
    programs.close(many, one, bound or case.comm == "f32" and HALF or ROUNDED_PARTS, { "parameters" },
        bound and programs.difference or programs.distance)
    if case.mode == "ddp" or case.mode == "zero2" and case.a > 1 then return end
    local ddp = programs.build(name .. "_ddp", (text:gsub(case.mode, "ddp")), { comm = "mpi" })
    programs.identical(many, programs.dump(ddp, { ranks = case.ranks, "--threads", 1, "--cycles", cycles }),
        { "parameters", "gradients", "state" })
end

local function name_of(case)
    local words = {}
    for i, d in ipairs(DIMENSIONS) do words[i] = case[d[1]] ~= "" and d[1] .. " " .. tostring(case[d[1]]) or "no clip" end
    return table.concat(words, ", ")
end

-- The cover of the triples with make test-all.
for _, case in ipairs(host.environment "GAGEN_TEST_ALL" and cases(3, 40) or cases(2, 200)) do
    add("as one rank: " .. name_of(case), function(t) compare(t, case) end)
end

-- Bytes of the plan and of the program's counters; the small sums of all cycles beside the buckets.
add("parts in 16 bits: half the bytes", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "sgd", clip = "", precision = "f32" }
    local bytes = {}
    for _, comm in ipairs { "f32", "bf16" } do
        local text = spec(case, 3, 2, ('parallel { "ddp", bucket = "1KiB", comm = %q }'):format(comm))
        local p = programs.build("parallel_" .. comm, text, { comm = "mpi" })
        local plan = programs.plan(p, "--ranks", "2").totals.comm_bytes_per_cycle
        for _, event in ipairs(programs.events(p, { ranks = 2, "--threads", 1, "--cycles", 2 })) do
            if event.event == "update" then
                t.equal({ event.collectives, event.comm_bytes }, { 7 + 1, plan })
            end
        end
        bytes[comm] = plan
    end
    t.equal(bytes.f32, 2 * bytes.bf16)
end)

add("parts in 16 bits: refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_tokens(t, programs)
    local path = programs.folder() .. "/parallel_refused.lua"
    local function refused(precision, target, message)
        local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "sgd", clip = "",
            precision = precision, target = target }
        t.write(path, spec(case, 3, 1, 'parallel { "ddp", comm = "bf16" }'))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1)
        t.match(result.err, message)
    end
    refused("f64", "c", 'refused.lua:%d+: parallel: comm is "bf16", and the precision is "f64": expected no comm')
    refused("f32", "cuda", 'refused.lua:%d+: parallel: comm is "bf16", and the target "cuda" sums in f32')
end)

-- Each of 300 layers is a bucket, and so are the embeddings and the norm.
add("more buckets than requests are refused, with a size that will do", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "adamw", clip = "", precision = "f32" }
    local function checked(layers, bucket)
        local text = spec(case, 3, 1, ("parallel { \"ddp\", bucket = %q }"):format(bucket))
        local path = programs.folder() .. "/parallel_many.lua"
        t.write(path, (text:gsub("times%(5%)", ("times(%d)"):format(layers))))
        return programs.gagen { "check", path }
    end
    local result = checked(300, "1KiB")
    t.equal(result.status, 1)
    local size = result.err:match 'many.lua:%d+: parallel: 302 buckets, expected at most 256: bucket = "(%d+KiB)"'
    assert(size, result.err)
    t.equal(checked(300, size).status, 0)
    t.equal(checked(254, "1KiB").status, 0)
end)

-- Buckets of whole layers are never above the size that is asked for, unless one layer is.
add("layers of a region are divided into buckets", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "adamw", clip = "", precision = "f32" }
    local function buckets(bucket)
        local path = programs.folder() .. "/parallel_layers.lua"
        t.write(path, spec(case, 3, 1, ("parallel { \"ddp\", bucket = %q }"):format(bucket)))
        local bytes = {}
        for _, c in ipairs(json.read(programs.gagen({ "plan", "--json", path }).out).collectives) do
            if c.kind ~= "small" then bytes[#bytes + 1] = c.bytes end
        end
        return bytes
    end
    local whole = buckets "25MiB"
    t.equal(#whole, 1)
    local each = buckets "1KiB"                     -- tokens and positions, five layers, the last norm
    t.equal(#each, 7)
    local layer = each[2]
    t.equal({ table.unpack(each, 2, 6) }, { layer, layer, layer, layer, layer })
    local pairs_of_layers = buckets(2 * layer .. "B")
    t.equal({ table.unpack(pairs_of_layers, 2, 4) }, { 2 * layer, 2 * layer, layer })
    local sum = 0
    for _, bytes in ipairs(each) do sum = sum + bytes end
    t.equal(sum, whole[1])
end)

return tests
