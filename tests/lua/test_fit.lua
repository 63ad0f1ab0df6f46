-- Memory budgets: the plan stays within the budget, results of training do not change, and a budget that is too small
-- is refused with the smallest possible one.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Three regions of a layer with everything that is costly or cheap, or three numbered blocks of it.
local REGION = [[
    x = times(3) "h" (function(x)
        local y = layernorm "ln" {} (x)
        y = linear "fc" { 256 } (y)
        y = dropout(0.1)(gelu(y))
        return x + linear "proj" { 64 } (y)
    end)(x)
]]
local BLOCK = [[
    x = block "h.%d" (function(x)
        local y = linear "fc" { 256 } (tanh(x))
        return x + linear "proj" { 64 } (relu(y))
    end)(x)
]]

local function spec(how)
    local body = how.blocks and BLOCK:format(0) .. BLOCK:format(1) .. BLOCK:format(2) or REGION
    return ([[
data      { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch     %s
accumulate%s
model (function(batch)
    local x = linear "in" { 64 } (batch.input)
%s    return linear "out" { 10 } (x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 2 }
]]):format(how.batch or "{ 128 }", how.accumulate or "(2)", body) .. (how.more or "")
end

local function planned(t, text, name, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/" .. name .. ".lua"
    t.write(path, text)
    local words = t.load("tests/lua/marches.lua")(t).words({ ... }, text)
    return programs.gagen { "plan", "--json", path, table.unpack(words) }, path
end

local function bytes_of(t, text, ...)
    local result = planned(t, text, "fit_plan", ...)
    t.equal(result.status, 0, result.err)
    return t.load("tests/lua/json.lua").read(result.out).totals.bytes, result.err
end

-- The refusal of a budget of one byte: the smallest plan.
local function smallest(t, how)
    how.more = 'memory { budget = "1B"' .. (how.recompute and ', recompute = "auto"' or "") .. " }\n"
    local result = planned(t, spec(how), "fit_refused")
    t.equal(result.status, 1, result.err)
    return tonumber((t.match(result.err, "expected (%d+)B or more")))
end

for _, how in ipairs { { name = "regions" }, { name = "blocks", blocks = true } } do
    add("recomputed values give the same bits: " .. how.name, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local all, least = bytes_of(t, spec { blocks = how.blocks }), smallest(t, { blocks = how.blocks, recompute = true })
        assert(least < 0.95 * all, ("%d of %d bytes"):format(least, all))
        local kept = programs.dump(programs.build("fit_kept_" .. how.name, spec { blocks = how.blocks }), {})
        for _, budget in ipairs { least, (least + all) // 2 } do
            local text = spec { blocks = how.blocks,
                more = ('memory { budget = "%dB", recompute = "auto" }\n'):format(budget) }
            local p = programs.build(("fit_%s_%d"):format(how.name, budget == least and 1 or 2), text)
            local bytes, said = bytes_of(t, text)
            assert(bytes <= budget, bytes)
            t.contains(said, "computed again")
            programs.identical(programs.dump(p, {}), kept, { "parameters", "gradients" })
        end
    end)
end

add("rows are the most that fit, and the program equals one with these rows", function(t)
    local auto = { batch = '{ "auto", global = 384 }', accumulate = " {}" }
    local most = bytes_of(t, spec { batch = "{ 384, global = 384 }", accumulate = " {}" })
    local plans = {}
    for i, rows in ipairs { 384, 192, 128, 96, 64 } do
        local fixed = spec { batch = ("{ %d, global = 384 }"):format(rows), accumulate = " {}" }
        plans[i] = { rows = rows, bytes = bytes_of(t, fixed) }
        assert(plans[i].bytes <= most)
    end
    for _, plan in ipairs(plans) do
        local text = spec { batch = auto.batch, accumulate = " {}",
            more = ('memory { budget = "%dB" }\n'):format(plan.bytes) }
        local found, said = bytes_of(t, text)
        local fits = 1      -- fewer rows may need more: copies of weights
        while plans[fits].bytes > plan.bytes do fits = fits + 1 end
        t.equal(found, plans[fits].bytes, plan.rows .. " rows")
        t.contains(said, ("memory: %d rows per micro-step"):format(plans[fits].rows))
    end
end)

add("the smallest budget is accepted, one byte less is refused", function(t)
    for _, how in ipairs { { recompute = true }, { batch = '{ "auto", global = 96 }', accumulate = " {}" },
        { recompute = true, batch = '{ "auto", global = 96 }', accumulate = " {}" } } do
        local least = smallest(t, how)
        local rest = how.recompute and ', recompute = "auto" }\n' or " }\n"
        how.more = ('memory { budget = "%dB"'):format(least) .. rest
        assert(bytes_of(t, spec(how)) <= least)
        how.more = ('memory { budget = "%dB"'):format(least - 1) .. rest
        t.match(planned(t, spec(how), "fit_refused").err, "the smallest plan has")
    end
end)

-- Logits of 128 rows x 1000 classes in runs of 16, and a width that the rest of the model has little of.
local function classes(how)
    return (spec(how):gsub('linear "out" { 10 }', 'linear "out" { 1000 }'))
end

add("a device is judged by its own rates", function(t)
    local json = t.load("tests/lua/json.lua")
    local result = planned(t, spec { more = 'target "cuda"\nprecision "f64"\n' }, "fit_device")
    t.equal(result.status, 0, result.err)
    local plan, ms = json.read(result.out), 0
    for _, kernel in ipairs(plan.kernels) do
        t.near(kernel.predicted_us, 1e6 * math.max(kernel.flops / 34e12, kernel.bytes / 3.7e12), 1e-6)
        ms = ms + kernel.calls * (kernel.predicted_us + 3) / 1e3
    end
    local programs = t.load("tests/lua/programs.lua")(t)
    local shown = programs.gagen { "plan", programs.folder() .. "/fit_device.lua" }.out
    t.contains(shown, ("\ntime        %.3g ms of an update predicted: coarse rates of a device like an H200\n")
        :format(ms))
    -- light values computed again cost the processor and a device another part of their time
    local function slower(target, device)
        local bytes = 0
        for _, arena in ipairs(json.read(planned(t, spec { more = target }, "fit_device").out).arenas) do
            if not device or arena.memory == "device" then bytes = bytes + arena.bytes end
        end
        local budget = ('memory { budget = "%dB", recompute = "auto" }\n'):format(bytes - 1)
        local said = planned(t, spec { more = budget .. target }, "fit_device").err
        return (t.match(said, "light values computed again.*predicted ([%d.]+) %% slower"))
    end
    assert(slower('target "cuda"\n', true) ~= slower 'target "c"\n', "a device and the processor lose the same")
end)

add("logits are whole as long as they fit, then chunked", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local whole = bytes_of(t, classes {})
    local chunked = bytes_of(t, classes { more = 'memory { logits = "chunked", logits_rows = 16 }\n' })
    assert(chunked < whole - 128 * 1000 * 4, ("%d of %d bytes"):format(chunked, whole))
    local function auto(budget, more)
        return classes { more = ('memory { budget = "%dB", logits = "auto", logits_rows = 16%s }\n'):format(budget,
            more or "") }
    end
    local bytes, said = bytes_of(t, auto(whole))
    t.equal(bytes, whole)
    t.contains(said, "all values kept, logits whole: ")
    for _, budget in ipairs { whole - 1, chunked } do
        bytes, said = bytes_of(t, auto(budget))
        t.equal(bytes, chunked)
        t.match(said, "all values kept, logits of 16 rows at a time: .* 0%.0 %% more arithmetic and predicted "
            .. "%d+%.%d %% slower than 128 rows with all values kept, logits whole, which would be")
    end
    local kept, p = programs.build("fit_logits_whole", classes {}), programs.build("fit_logits", auto(chunked))
    programs.close(programs.dump(p, {}), programs.dump(kept, {}), 1e-5, { "parameters" })
    local refused = planned(t, auto(chunked - 1), "fit_refused")
    t.equal(refused.status, 1)
    t.match(refused.err, "the smallest plan has .*logits of 16 rows at a time.*expected " .. chunked .. "B or more")
    local both = tonumber((t.match(planned(t, auto(1, ', recompute = "auto"'), "fit_refused").err,
        "expected (%d+)B or more")))
    assert(both < chunked)
    t.match(select(2, bytes_of(t, auto(both, ', recompute = "auto"'))), "computed again, logits of 16 rows at a time")
    t.contains(planned(t, classes { more = 'memory { budget = "1B", logits_rows = 16 }\n' }, "fit_refused").err,
        ', or logits = "auto"')
end)

add("a budget is checked when nothing is left open", function(t)
    local bytes = bytes_of(t, spec {})
    t.equal(bytes_of(t, spec { more = ('memory { budget = "%dB" }\n'):format(bytes) }), bytes)
    local result = planned(t, spec { more = ('memory { budget = "%dB" }\n'):format(bytes - 1) }, "fit_refused")
    t.equal(result.status, 1)
    t.contains(result.err, ('expected %dB or more, or batch { "auto", global = 256 }, or recompute = "auto"')
        :format(bytes))
end)

add("global is divided by the ranks of --ranks", function(t)
    local text = spec { batch = "{ 32, global = 128 }", accumulate = " {}", more = 'parallel "ddp"\n' }
    for ranks, a in ipairs { 4, 2 } do
        local result = planned(t, text, "fit_ranks", "--ranks", tostring(ranks))
        t.equal(t.load("tests/lua/json.lua").read(result.out).cycle.accumulate, a)
    end
    -- other ranks would change the rows of an update: the program refuses them
    local _, path = planned(t, text, "fit_ranks")
    t.contains(t.load("tests/lua/programs.lua")(t).gagen { "show", path, "model.c", "--ranks", "2" }.out, "RANKS = 2,")
    t.contains(planned(t, text, "fit_ranks").err, 'batch: global is divided by the number of processes')
    t.contains(planned(t, text, "fit_ranks", "--ranks", "3").err, "which 32 rows x 3 ranks = 96 does not divide")
end)

add("an open choice refuses wrong combinations", function(t)
    local budget = 'memory { budget = "1GiB" }\n'
    local auto = { batch = '{ "auto", global = 64 }', accumulate = " {}" }
    local function refused(text, part)
        local result = planned(t, text, "fit_refused")
        t.equal(result.status, 1, result.err)
        t.contains(result.err, part)
    end
    refused(spec { batch = auto.batch, accumulate = " {}" }, "gagen does not ask the machine")
    refused(spec { more = 'memory { recompute = "auto" }\n' }, "gagen does not ask the machine")
    refused(spec { batch = '"auto"', more = budget }, "expected global = rows per update beside it")
    refused(spec { batch = auto.batch, accumulate = '{ tail = "flush" }', more = budget }, "which rows an epoch has")
    local micro = spec { batch = auto.batch, accumulate = " {}", more = budget }
    refused(micro:gsub('loss      "cross_entropy"', 'loss { "cross_entropy", weight = "micro" }'), "depends on them")
    refused(spec { more = "memory { budget = 4096 }\n" }, 'expected bytes such as "2GiB"')
    refused(spec { batch = '{ "most", global = 64 }', accumulate = " {}", more = budget }, '"auto"')
end)

return tests
