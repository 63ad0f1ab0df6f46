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

-- The dump after some cycles of the program of a spec(); the same text is one program for all tests.
local function trained(programs, text, how, options)
    local p = programs.build("exact_" .. host.sha256(text):sub(1, 12), text, how)
    return programs.dump(p, table.move({ "--cycles", CYCLES }, 1, 2, #(options or {}) + 1, options or {})), p
end

local function four_is_one(t, model, optimizer, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local log = t.temp() .. "/log"
    local four = trained(programs, spec(model, optimizer, 4, 4, more), nil, { "--log", log })
    local one = trained(programs, spec(model, optimizer, 16, 1, more))
    programs.close(four, one, BOUND, { "parameters", "gradients", "state" })
    return t.load("tests/lua/json.lua").lines(host.read(log))
end

add("four micro-steps of 4 rows are one of 16: sgd with momentum", function(t)
    four_is_one(t, "plain", "momentum")
end)

add("four micro-steps of 4 rows are one of 16: adamw", function(t)
    four_is_one(t, "plain", "adamw")
end)

add("four micro-steps of 4 rows are one of 16: adamw with clip", function(t)
    -- the clip must be active for this test
    for _, event in ipairs(four_is_one(t, "plain", "adamw", "clip (0.05)")) do
        if event.event == "update" then assert(event.grad_norm > 0.1, "clip (0.05) is not active") end
    end
end)

add("four micro-steps of 4 rows are one of 16: times and residual", function(t)
    four_is_one(t, "times", "momentum")
end)

add("four micro-steps of 4 rows are one of 16: sgd with clip, times and residual", function(t)
    four_is_one(t, "times", "momentum", "clip (0.1)")
end)

add("four micro-steps of 4 rows are one of 16: dropout", function(t)
    four_is_one(t, "dropout", "adamw")
end)

-- The same rows on one rank with a micro-steps, and on `ranks` with a / ranks.
local function ranks_are_one(t, ranks, model, optimizer, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local ddp = 'parallel "ddp"\n' .. (more or "")
    local many = trained(programs, spec(model, optimizer, 4, 2, ddp), { comm = "mpi" },
        { ranks = ranks, "--threads", 1 })
    programs.close(many, trained(programs, spec(model, optimizer, 4, 2 * ranks, more)), BOUND)
end

add("two ranks of 2 micro-steps are one of 4", function(t)
    ranks_are_one(t, 2, "plain", "adamw")
end)

add("two ranks of 2 micro-steps are one of 4: clip, times and residual", function(t)
    ranks_are_one(t, 2, "times", "momentum", "clip (0.1)")
end)

add("two ranks of 2 micro-steps are one of 4: dropout", function(t)
    ranks_are_one(t, 2, "dropout", "adamw")
end)

add("three ranks of 2 micro-steps are one of 6: clip", function(t)
    ranks_are_one(t, 3, "times", "momentum", "clip (0.1)")
end)

-- A rank measures its own part of each bucket, so the norm is summed in another order; nothing else is.
add("the size of buckets changes nothing but the order in which the norm is summed", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function run(parallel)
        local dump, p = trained(programs, spec("times", "momentum", 4, 2, parallel), { comm = "mpi" },
            { ranks = 2, "--threads", 1 })
        return dump, #programs.plan(p).collectives
    end
    local whole, one = run 'parallel "ddp"'     -- 25 MiB
    local parts, many = run 'parallel { "ddp", bucket = "1KiB" }'
    t.equal(one, 2)
    assert(many > 3, ("%d collectives with small buckets"):format(many))
    programs.identical(parts, whole)
    programs.close(run 'parallel { "ddp", bucket = "1KiB" }\nclip (0.1)', run 'parallel "ddp"\nclip (0.1)', 1e-14)
end)

add("any number of threads gives the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = host.read(t.root .. "/specs/digits_mlp.lua"):gsub("batch      %(16%)", "batch (64)")
        :gsub("{ 64 }", "{ 200 }"):gsub("accumulate %(4%)", "accumulate (3)\nclip (0.5)")
    local p = programs.build("threads", text)
    local one = programs.dump(p, { "--cycles", 4, "--threads", 1 })
    for threads = 2, 4 do
        programs.identical(programs.dump(p, { "--cycles", 4, "--threads", threads }), one,
            { "parameters", "gradients", "state" })
    end
end)

return tests
