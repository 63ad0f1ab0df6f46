-- Parameters divided over the ranks and gathered before use: programs end with the bits of zero2 where sums over the
-- elements do not depend on the division, and are those of one rank with the same rows.
local cover = dofile "tests/lua/cover.lua"
local json = dofile "tests/lua/json.lua"
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- === a cover of pairs ============================================================================

-- Each dimension and its values. The first value of a dimension is the simple one.
local DIMENSIONS = {
    { "prefetch", 1, 0, 3 },
    { "ranks", 2, 3, 4, 1 },
    { "model", "mlp", "gpt", "llama", "bert", "resnet", "batchnorm" },
    { "a", 1, 3, 4 },
    { "memory", "", 'memory { recompute = { "*" } }', 'memory { logits = "chunked", logits_rows = 8 }' },
    { "clip", "", "clip (0.1)", "clip { value = 0.01 }" },
    { "precision", "f64", "f32", "bf16", "f16" },
    { "optimizer", "adamw", "ema", "sgd", "lamb", "muon", "adafactor", "frozen" },
    { "comm", "f32", "bf16" },
}

local function fits(case)
    local tokens = ranked.MODELS[case.model].rows == "tokens"
    if case.memory:find "logits" and not tokens then return false end
    if case.comm ~= "f32" and case.precision == "f64" then return false end
    return not (case.optimizer == "muon" and case.precision ~= "f64" and case.precision ~= "f32")
end

-- As test_parallel has them.
local BOUNDS, HALF = { f64 = 1e-12, f32 = 1e-5 }, 4e-3
local ELEMENTS = { adamw = true, ema = true, sgd = true, frozen = true }

local function parallel(mode, case)
    return ("parallel { %q, comm = %q%s }"):format(mode, case.comm, mode == "zero3" and ", prefetch = " .. case.prefetch
        or "")
end

-- The loss of the first evaluation in a log.
local function measured(log)
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "eval" then return event.loss end
    end
    error(log .. ": no evaluation")
end

local function complete(case)
    case.tail, case.weight, case.eval = "flush", "sample", "eval { every = 1, batches = 2 }"
    case.split = "split = { eval = 24 }"
    return case
end

local function compare(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local name = "zero3_" .. host.sha256(ranked.spec(case, 3, case.a, parallel("zero3", case))):sub(1, 12)
    local cycles = case.precision == "f64" and 3 or 1
    local function trained(mode, suffix)
        local text = ranked.spec(case, 3, case.a, parallel(mode, case))
        local p, log = programs.build(name .. suffix, text, { comm = "mpi" }), t.temp() .. "/log"
        local dump = programs.dump(p, { ranks = case.ranks, "--threads", 2, "--cycles", cycles, "--log", log })
        return dump, measured(log)
    end
    local many, loss = trained("zero3", "")
    local like, like_loss = trained("zero2", "_2")
    if ELEMENTS[case.optimizer] and case.clip ~= "clip (0.1)" then
        programs.identical(many, like, { "parameters", "gradients", "state" })
        t.equal(loss, like_loss)
    end
    if case.comm ~= "f32" or case.model == "resnet" and case.ranks > 1 then return end  -- statistics of rank 0 alone
    local one = programs.dump(programs.build(name .. "_1", ranked.spec(case, 3, case.a * case.ranks, "")),
        { "--cycles", cycles })
    local bound = BOUNDS[case.precision]
    programs.close(many, one, bound or HALF, { "parameters" }, bound and programs.difference or programs.distance)
end

-- The cover of the triples with make test-all.
for _, case in ipairs(cover.cases(DIMENSIONS, fits, host.environment "GAGEN_TEST_ALL" and 3 or 2, 100)) do
    add("as zero2 and as one rank: " .. cover.name(DIMENSIONS, case), function(t) compare(t, complete(case)) end)
end

return tests
