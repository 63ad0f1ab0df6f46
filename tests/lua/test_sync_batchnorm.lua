-- parallel { sync_batchnorm = true }: batchnorm over the rows of all ranks. W ranks of B rows are one rank of W B rows.
local synced = dofile "tests/lua/synced.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local spec, sync = synced.spec, synced.sync

local function build(t, name, o, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("sync_" .. name, spec(o), ...)
end

local function with_ranks(t, name, o)
    return build(t, name, { rows = o.rows, accumulate = o.accumulate, precision = o.precision,
        more = sync(o.mode) .. (o.more or "") }, { comm = "mpi" })
end

-- The losses of the evaluations of a run, each of which is a sum over the ranks.
local function evaluated(programs, p, options)
    local losses = {}
    for _, event in ipairs(programs.events(p, options)) do
        if event.event == "eval" then losses[#losses + 1] = event.loss end
    end
    return losses
end

-- Rows of a rank and micro-steps of a cycle, by the ranks and A; 7 micro-steps of an epoch, so the tail of 3 is one.
local ROWS = { [2] = 120, [3] = 80 }

local RECOMPUTE = 'memory { recompute = { "layer1", "h.*", "bn1_y" } }\n'

local CASES = {
    { ranks = 2, accumulate = 1, mode = "ddp" },
    { ranks = 3, accumulate = 1, mode = "zero1", more = RECOMPUTE },
    { ranks = 2, accumulate = 3, mode = "zero2", more = RECOMPUTE },
    { ranks = 3, accumulate = 3, mode = "ddp" },
}

for _, case in ipairs(CASES) do
    add(("%d ranks are one rank with all rows: %s, A = %d%s"):format(case.ranks, case.mode, case.accumulate,
        case.more and ", recomputed" or ""), function(t)
        local programs, one = build(t, "one_" .. case.accumulate, { rows = 240, accumulate = case.accumulate })
        local _, p = with_ranks(t, ("of_%d_%s_%d"):format(case.ranks, case.mode, case.accumulate), {
            rows = ROWS[case.ranks], accumulate = case.accumulate, mode = case.mode, more = case.more })
        local expected, found = t.temp(), t.temp()
        local losses = evaluated(programs, one, { "--dump", expected })
        local its = evaluated(programs, p, { ranks = case.ranks, "--threads", 2, "--dump", found })
        t.equal(#its, #losses)
        for i, loss in ipairs(losses) do t.near(its[i], loss, 1e-12) end
        programs.close(found, expected, 1e-12, { "parameters", "state" })
    end)
end

add("other precisions: as one rank up to rounding", function(t)
    for precision, bound in next, { f32 = 1e-5, bf16 = 4e-3, f16 = 4e-3 } do
        local programs, one = build(t, "one_" .. precision, { rows = 240, accumulate = 1, precision = precision })
        local _, p = with_ranks(t, "of_2_" .. precision, { rows = 120, accumulate = 1, precision = precision })
        programs.close(programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 1 }),
            programs.dump(one, { "--cycles", 1 }), bound, { "parameters" },
            precision == "f32" and programs.difference or programs.distance)
    end
end)

add("one rank: the bits without the word", function(t)
    for _, precision in ipairs { "f64", "f32" } do
        local o = { rows = 80, accumulate = 3, precision = precision, more = 'parallel "ddp"\n' }
        local programs, plain = build(t, "plain_" .. precision, o)
        o.more = sync()
        local _, p = build(t, "alone_" .. precision, o)
        programs.identical(programs.dump(p, { "--threads", 2 }), programs.dump(plain, { "--threads", 1 }),
            { "parameters", "gradients", "state" })
    end
end)

-- Five layers have five joins of statistics and five of sums in a micro-step; the loop has two of the layers.
add("collectives of each cycle are those of the plan; an evaluation has none", function(t)
    for _, ranks in ipairs { 1, 2 } do
        local programs, p = with_ranks(t, "of_2_ddp_3", { rows = 120, accumulate = 3, mode = "ddp" })
        local plan, all, statistics = programs.plan(p, "--ranks", tostring(ranks)), 0, {}
        for _, c in ipairs(plan.collectives) do
            all = all + c.calls
            if c.kind == "statistics" then statistics[#statistics + 1] = { c.role, c.dtype, c.bytes, c.calls } end
        end
        t.equal(statistics, { { "every", "f64", 8 * 9, 3 }, { "every", "f64", 8 * 13, 15 },
            { "every", "f64", 8 * 12, 15 }, { "every", "f64", 8 * 8, 3 } })
        local full, tail = 0, 0
        for _, event in ipairs(programs.events(p, { ranks = ranks, "--threads", 1 })) do
            if event.event == "update" and event.rows == 3 * 120 * ranks then
                t.equal({ event.collectives, event.comm_bytes }, { all, plan.totals.comm_bytes_per_cycle })
                full = full + 1
            elseif event.event == "update" then
                t.equal(event.collectives, all - (3 - event.rows // (120 * ranks)) * 12)
                tail = tail + 1
            end
        end
        t.equal({ full + tail, full >= 4 }, { 5, true })
    end
end)

add("values computed again gather nothing", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function gathered(more)
        local path = programs.folder() .. "/sync_again.lua"
        t.write(path, spec { rows = 120, accumulate = 1, more = sync() .. more })
        local plan, calls = programs.plan { name = "sync_again", spec = path }, 0
        for _, c in ipairs(plan.collectives) do calls = calls + (c.kind == "statistics" and c.calls or 0) end
        return calls, #plan.kernels
    end
    local calls, kernels = gathered ""
    local again, more = gathered 'memory { recompute = { "*" } }\n'
    t.equal({ calls, again }, { 12, 12 })
    assert(more > kernels, "nothing is computed again")
end)

add("stopped inside a cycle and resumed: the same bits", function(t)
    local programs, p = with_ranks(t, "of_2_ddp_3", { rows = 120, accumulate = 3, mode = "ddp" })
    local straight = programs.dump(p, { ranks = 2, "--threads", 1 })
    for _, micro in ipairs { 1, 2, 7, 8 } do
        local checkpoint = t.temp()
        local stopped = programs.train(p, { ranks = 2, "--threads", 2, "--stop-micro", micro, "--checkpoint",
            checkpoint, status = 75 })
        assert(stopped)
        programs.identical(programs.dump(p, { ranks = 2, "--threads", 3, "--resume", "latest", "--checkpoint",
            checkpoint }), straight, { "parameters", "state" })
    end
end)

add("--overfit and --eval end with several ranks", function(t)
    local programs, p = with_ranks(t, "of_2_ddp_3", { rows = 120, accumulate = 3, mode = "ddp" })
    local command = t.mpirun(2)
    local words = { p.train, "--data", t.root .. "/" .. programs.folder() .. "/data", "--quiet", "--overfit", "4", "--cycles",
        "2", "--save-init", t.temp() .. "/init.safetensors" }
    table.move(words, 1, #words, #command + 1, command)
    command.env = { "GAGEN_TIMEOUT=60" }
    local result = t.run(command)
    t.equal(result.status, 0, result.err)
    local losses = evaluated(programs, p, { ranks = 2, "--threads", 1, "--eval" })
    t.equal(#losses, 1)
end)

add("without the word: no byte of a program's text speaks of it", function(t)
    local _, p = build(t, "plain_f64", { rows = 80, accumulate = 3, more = 'parallel "ddp"\n' })
    local found = t.run { "grep", "-rlE", "moments|STATISTICS|batchnorm_join", p.folder, "--include=*.c",
        "--include=*.h", "--include=Makefile" }
    t.equal(found.out, "")
end)

return tests
