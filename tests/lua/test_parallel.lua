-- Several ranks train as one rank with the same rows per update: a cover of the pairs of modes, ranks, models, cycles,
-- weights, clipping, precisions and optimizers; with make test-all of their triples. Rows are the same for any number of ranks, since each cycle takes
-- RANKS * A micro-batches in their order.

local cover = dofile "tests/lua/cover.lua"
local json = dofile "tests/lua/json.lua"
local ranked = dofile "tests/lua/ranked.lua"

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

-- Whether a case is possible: no clip by group for a rule that reads the norm of all, no weight by token for single rows.
-- Parts in 16 bits go with a step that is proportional to the gradient: other rules, and a clip of each element, make
-- much of the rounding of small elements.
local function fits(case)
    if case.clip:find "per_group" and (case.optimizer == "lamb" or case.optimizer == "muon") then return false end
    if case.weight == "token" and ranked.MODELS[case.model].rows == "digits" then return false end
    local proportional = case.optimizer == "sgd" and not case.clip:find "value"
    if case.comm ~= "f32" and (case.precision == "f64" or not proportional) then return false end
    return not (case.optimizer == "muon" and case.precision ~= "f64" and case.precision ~= "f32")
end

-- === one case ====================================================================================

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
    ranked.write_tokens(t, programs)
    local rows = case.weight == "micro" and 4 or 3
    local name = "parallel_" .. host.sha256(ranked.spec(case, rows, case.a, "")):sub(1, 12)
    local cycles = cycles_of(case)
    local one = programs.dump(programs.build(name, ranked.spec(case, rows, case.a * case.ranks, "")), { "--cycles", cycles })
    local text = ranked.spec(case, rows, case.a, ("parallel { %q, bucket = %q, comm = %q, overlap = %s }"):format(case.mode,
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

-- The cover of the triples with make test-all, else cases of that of pairs which have each value at least twice.
local CASES = host.environment "GAGEN_TEST_ALL" and cover.cases(DIMENSIONS, fits, 3, 5)
    or cover.few(DIMENSIONS, cover.cases(DIMENSIONS, fits, 2, 5), 2)

for _, case in ipairs(CASES) do
    add("as one rank: " .. cover.name(DIMENSIONS, case), function(t) compare(t, case) end)
end

-- Bytes of the plan and of the program's counters; the small sums of all cycles beside the buckets.
add("parts in 16 bits: half the bytes", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "sgd", clip = "", precision = "f32" }
    local bytes = {}
    for _, comm in ipairs { "f32", "bf16" } do
        local text = ranked.spec(case, 3, 2, ('parallel { "ddp", bucket = "1KiB", comm = %q }'):format(comm))
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
    ranked.write_tokens(t, programs)
    local path = programs.folder() .. "/parallel_refused.lua"
    local function refused(precision, target, message)
        local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "sgd", clip = "",
            precision = precision, target = target }
        t.write(path, ranked.spec(case, 3, 1, 'parallel { "ddp", comm = "bf16" }'))
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
    ranked.write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "adamw", clip = "", precision = "f32" }
    local function checked(layers, bucket)
        local text = ranked.spec(case, 3, 1, ("parallel { \"ddp\", bucket = %q }"):format(bucket))
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
    ranked.write_tokens(t, programs)
    local case = { model = "gpt", tail = "drop", weight = "token", optimizer = "adamw", clip = "", precision = "f32" }
    local function buckets(bucket)
        local path = programs.folder() .. "/parallel_layers.lua"
        t.write(path, ranked.spec(case, 3, 1, ("parallel { \"ddp\", bucket = %q }"):format(bucket)))
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
