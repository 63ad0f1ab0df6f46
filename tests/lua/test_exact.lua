-- Accumulation is exact: A micro-steps of B rows are one step of A * B rows, over ranks too, and the
-- number of threads changes no bit. All in f64, so that only the order of sums differs.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local BOUND, CYCLES = 1e-12, 5

local MODELS = {
    plain = 'linear "fc1" { 24 }, relu {}, linear "fc2" { 10 }',
    times = 'linear "in" { 12 }, times(3) "h" { residual { linear "fc1" { 20 }, tanh {}, linear "fc2" { 12 } } }, '
        .. 'linear "out" { 10 }',
    dropout = 'linear "in" { 12 }, tanh {}, dropout(0.3), times(3) "h" { residual { linear "fc1" { 20 }, '
        .. 'tanh {}, dropout(0.2), linear "fc2" { 12 } } }, linear "out" { 10 }',
}

local OPTIMIZERS = {
    momentum = '{ "sgd", lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }',
    adamw = '{ "adamw", lr = 1e-2, weight_decay = 0.05 }',
}

local function spec(model, optimizer, rows, count, more)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 2, of = 5 } }
batch      (%d)
accumulate (%d)
model      { %s }
loss       "cross_entropy"
optimizer  %s
precision  "f64"
train      { updates = 40, seed = 7 }
%s]]):format(rows, count, MODELS[model], OPTIMIZERS[optimizer], more or "")
end

-- The dump after some cycles of a program with A = count micro-steps.
local function trained(programs, name, text, how, options)
    return programs.dump(programs.build(name, text, how), table.move({ "--cycles", CYCLES }, 1, 2,
        #(options or {}) + 1, options or {}))
end

local function four_is_one(t, name, model, optimizer, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local four = trained(programs, name .. "_a4", spec(model, optimizer, 4, 4, more))
    local one = trained(programs, name .. "_a1", spec(model, optimizer, 16, 1, more))
    programs.close(four, one, BOUND, { "parameters", "gradients", "state" })
end

add("four micro-steps of 4 rows are one of 16: sgd with momentum", function(t)
    four_is_one(t, "exact_momentum", "plain", "momentum")
end)

add("four micro-steps of 4 rows are one of 16: adamw", function(t)
    four_is_one(t, "exact_adamw", "plain", "adamw")
end)

add("four micro-steps of 4 rows are one of 16: adamw with clip", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    four_is_one(t, "exact_clip", "plain", "adamw", "clip (0.05)")
    -- the clip must be active for this test
    local p = programs.build("exact_clip_a4", spec("plain", "adamw", 4, 4, "clip (0.05)"))
    for _, event in ipairs(programs.events(p, { "--cycles", CYCLES })) do
        if event.event == "update" then assert(event.grad_norm > 0.1, "clip (0.05) is not active") end
    end
end)

add("four micro-steps of 4 rows are one of 16: times and residual", function(t)
    four_is_one(t, "exact_times", "times", "momentum")
end)

add("four micro-steps of 4 rows are one of 16: sgd with clip, times and residual", function(t)
    four_is_one(t, "exact_times_clip", "times", "momentum", "clip (0.1)")
end)

add("four micro-steps of 4 rows are one of 16: dropout", function(t)
    four_is_one(t, "exact_dropout", "dropout", "adamw")
end)

-- The same rows on one rank with a micro-steps, and on `ranks` with a / ranks.
local function ranks_are_one(t, ranks, name, model, optimizer, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local ddp = 'parallel "ddp"\n' .. (more or "")
    local many = trained(programs, name .. "_w", spec(model, optimizer, 4, 2, ddp), { comm = "mpi" },
        { ranks = ranks, "--threads", 1 })
    local one = trained(programs, name .. "_" .. 2 * ranks,
        spec(model, optimizer, 4, 2 * ranks, more))
    programs.close(many, one, BOUND)
end

add("two ranks of 2 micro-steps are one of 4", function(t)
    ranks_are_one(t, 2, "ranks", "plain", "adamw")
end)

add("two ranks of 2 micro-steps are one of 4: clip, times and residual", function(t)
    ranks_are_one(t, 2, "ranks_clip", "times", "momentum", "clip (0.1)")
end)

add("two ranks of 2 micro-steps are one of 4: dropout", function(t)
    ranks_are_one(t, 2, "ranks_dropout", "dropout", "adamw")
end)

add("three ranks of 2 micro-steps are one of 6: clip", function(t)
    ranks_are_one(t, 3, "ranks", "plain", "adamw", "clip (0.05)")
end)

add("the size of buckets changes nothing", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function run(name, bucket)
        local text = spec("times", "adamw", 4, 2, ('parallel { "ddp", bucket = %q }'):format(bucket))
        local p = programs.build(name, text, { comm = "mpi" })
        local plan = programs.plan(p)
        return programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", CYCLES }), #plan.collectives
    end
    local whole, one = run("bucket_large", "25MiB")
    local parts, many = run("bucket_small", "1KiB")
    t.equal(one, 2)
    assert(many > 3, ("%d collectives with small buckets"):format(many))
    programs.identical(parts, whole)
end)

add("any number of threads gives the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = host.read(t.root .. "/specs/digits_mlp.lua"):gsub("batch      %(16%)", "batch (64)")
        :gsub("{ 64 }", "{ 200 }"):gsub("accumulate %(4%)", "accumulate (3)\nclip (0.5)")
    local p = programs.build("threads", text)
    local one = programs.dump(p, { "--cycles", 12, "--threads", 1 })
    for threads = 2, 4 do
        programs.identical(programs.dump(p, { "--cycles", 12, "--threads", threads }), one,
            { "parameters", "gradients", "state" })
    end
end)

return tests
