-- Placement of chunks (parallel.placement), the generator's half: the rule of eviction against an exhaustive search and
-- against a cache, plans against the budget, what is refused. test_placement_cuda has the programs.
local eviction = require "passes.eviction"

local json = dofile "tests/lua/json.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- === eviction =====================================================================================

local rng = 7
-- A whole number in 1 .. n, the same sequence in every run.
local function draw(n)
    rng = (rng * 48271) % 2147483647
    return rng % n + 1
end

-- { uses, sizes, room }: up to 64 uses of up to 16 chunks of sizes 1 to `largest`.
local function list_of(longest, largest)
    local case, chunks = { uses = {}, sizes = {}, room = 0 }, draw(16)
    for chunk = 1, chunks do case.sizes[chunk] = draw(largest) end
    for i = 1, draw(longest) do
        case.uses[i] = draw(chunks)
        case.room = math.max(case.room, case.sizes[case.uses[i]])
    end
    case.room = case.room + draw(4 * largest) - 1
    return case
end

-- The bytes that the steps load; refuses steps with which a chunk is not there or too much is.
local function played(case, steps)
    local there, used, bytes = {}, 0, 0
    for i, chunk in ipairs(case.uses) do
        for _, gone in ipairs(steps[i].gone) do
            assert(there[gone] and gone ~= chunk, "a chunk goes that is not there, or is in use")
            there[gone], used = nil, used - case.sizes[gone]
        end
        assert(steps[i].load == not there[chunk], "a chunk is loaded that is there, or is not")
        if steps[i].load then
            there[chunk], used, bytes = true, used + case.sizes[chunk], bytes + case.sizes[chunk]
        end
        assert(used <= case.room, "more than there is room for")
    end
    return bytes
end

-- The bytes of a cache from which the chunk goes whose last use lies farthest back.
local function cached(case)
    local order, used, bytes = {}, 0, 0             -- order: from the oldest to the newest use
    for _, chunk in ipairs(case.uses) do
        local at
        for k, other in ipairs(order) do at = other == chunk and k or at end
        if at then
            table.remove(order, at)
        else
            used, bytes = used + case.sizes[chunk], bytes + case.sizes[chunk]
        end
        while used > case.room do used = used - case.sizes[table.remove(order, 1)] end
        order[#order + 1] = chunk
    end
    return bytes
end

-- The fewest bytes of all plans: from each set of chunks to each smaller one that has room for the next.
local function fewest(case)
    local known = {}
    local function from(i, there, used)             -- there: a bit of each chunk
        local chunk = case.uses[i]
        if not chunk then return 0 end
        local key = i << 17 | there
        if known[key] then return known[key] end
        local loads = there >> chunk & 1 == 0
        local with, size = there | 1 << chunk, used + (loads and case.sizes[chunk] or 0)
        local best = math.huge
        local function without(other, set, bytes)
            if bytes <= case.room then          -- fewer chunks than these are never better
                best = math.min(best, from(i + 1, set, bytes))
                return
            end
            for k = other, #case.sizes do
                if k ~= chunk and set >> k & 1 == 1 then without(k + 1, set & ~(1 << k), bytes - case.sizes[k]) end
            end
        end
        without(1, with, size)
        known[key] = best + (loads and case.sizes[chunk] or 0)
        return known[key]
    end
    return from(1, 0, 0)
end

local LISTS = 1000

add("1,000 lists: never more than there is room for, never more bytes than a cache moves", function(t)
    local fewer = 0
    for _ = 1, LISTS do
        local case = list_of(64, 9)
        local steps, bytes = eviction.plan(case.uses, case.sizes, case.room)
        t.equal(bytes, played(case, steps))
        local of_cache = cached(case)
        assert(bytes <= of_cache, ("%d bytes, a cache %d"):format(bytes, of_cache))
        fewer = fewer + (bytes < of_cache and 1 or 0)
    end
    assert(fewer > LISTS / 4, fewer .. " lists have fewer bytes than a cache")
end)

add("1,000 lists of up to 10 uses: the fewest bytes with equal sizes, else at most 1.6 times as many", function(t)
    local different = 0
    for k = 1, LISTS do
        local case = list_of(10, k % 2 == 0 and 1 or 9)
        local _, bytes = eviction.plan(case.uses, case.sizes, case.room)
        local least = fewest(case)
        if k % 2 == 0 then t.equal(bytes, least) end
        assert(bytes >= least and bytes <= 1.6 * least, ("%d bytes, %d would do"):format(bytes, least))
        different = different + (least < cached(case) and 1 or 0)
    end
    assert(different > 20, different .. " lists in which the order matters")
end)

add("the chunk goes whose next use lies farthest: never again, the larger, the lower number first", function(t)
    local function gone(uses, sizes, room, may_pass)
        local list = {}
        for i, step in ipairs((eviction.plan(uses, sizes, room, may_pass))) do
            list[i] = (step.load and "+" or "") .. (step.passes and "p" or "") .. table.concat(step.gone, ",")
        end
        return table.concat(list, " ")
    end
    t.equal(gone({ 1, 2, 3, 1, 2, 3 }, { 1, 1, 1 }, 2), "+ + +2  +1 ")
    t.equal(gone({ 1, 2, 3, 1 }, { 1, 1, 1 }, 2), "+ + +2 ")
    t.equal(gone({ 1, 2, 3 }, { 1, 2, 1 }, 3), "+ + +2")
    t.equal(gone({ 2, 1, 3 }, { 1, 1, 1 }, 2), "+ + +1")
    -- forward and backward, where one need not stay: the last ones are there again
    t.equal(gone({ 1, 2, 3, 3, 2, 1 }, { 1, 1, 1 }, 2, true), "+ + +1   +p")
    t.equal(gone({ 1, 1 }, { 3 }, 2, true), "+p +p")
end)

-- === plans ========================================================================================

-- A first chunk that is larger than all others together, equal ones, and a small one.
local function spec(parallel, memory, how)
    how = how or {}
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { eval = 300 } }
batch      (8)
accumulate (3)
model      { linear "in" { 600 }, relu {}, linear "narrow" { 40 },
             times(4) "h" { residual { linear "fc" { 40 }, tanh {} } }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  %s
parallel   %s
train      { updates = 3 }
eval       { every = 3 }
target     (%q)
%s%s]]):format(how.optimizer or '{ "adamw", lr = 1e-3 }', parallel, how.target or "cuda",
        memory and ('memory { budget = "%dB"%s }\n'):format(memory, how.memory or "") or "", how.more or "")
end

-- The plan of a spec: its facts, or nil and the complaint.
local function planned(t, text, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/placed.lua"
    t.write(path, text)
    local result = programs.gagen { "plan", "--json", path, ... }
    if result.status ~= 0 then
        t.equal(result.status, 1, result.err)
        return nil, result.err
    end
    return json.read(result.out), result.err
end

local function auto(ranks, more) return ('{ "zero3", ranks = %d, placement = "auto"%s }'):format(ranks, more or "") end

-- The least budget, as the refusal of one byte has it.
local function least_of(t, ranks, how)
    local _, complaint = planned(t, spec(auto(ranks), 1, how))
    return tonumber((t.match(complaint, "expected (%d+)B or more")))
end

local function device_bytes(plan)
    local sum = 0
    for _, arena in ipairs(plan.arenas) do sum = sum + (arena.memory == "device" and arena.bytes or 0) end
    return sum
end

-- The chunks with `field` on the host, as numbers in the order of the plan.
local function on_host(plan, field)
    local list = {}
    for _, chunk in ipairs(plan.placement.chunks) do
        if chunk[field] == "host" then list[#list + 1] = chunk.chunk end
    end
    return list
end

-- Chunks in the order in which the forward pass needs them: in, narrow, the layers of h from 0 on, out.
local NEEDED = { 1, 2, 6, 5, 4, 3, 7 }

-- A chunk on the host goes before those that are needed later, unless it is larger than these; kept: chunks that the
-- margin keeps. Returns whether one is there.
local function check_last(plan, field, kept)
    local chunks, largest = {}, 0                   -- largest: of those on the host that are needed earlier
    for _, chunk in ipairs(plan.placement.chunks) do chunks[chunk.chunk] = chunk end
    for _, number in ipairs(NEEDED) do
        local chunk = chunks[number]
        if chunk[field] == "host" then
            largest = math.max(largest, chunk.own_bytes)
        elseif not (kept and kept[number]) then
            assert(largest == 0 or chunk.own_bytes < largest, ("the %s of chunk %d is on the device, that of one that "
                .. "is needed earlier is not"):format(field, number))
        end
    end
    return largest > 0
end

-- A state is on the device beside values on the host only if it takes less than these with their gradient.
local function check_states_first(plan)
    for _, a in ipairs(plan.placement.chunks) do
        for _, b in ipairs(plan.placement.chunks) do
            assert(a.values == "device" or b.state == "host" or b.own_bytes < a.own_bytes,
                ("values of chunk %d are on the host, the state of chunk %d is not"):format(a.chunk, b.chunk))
        end
    end
end

-- The rest of the budget, without the pool, has room for no values and gradient that are on the host, or no state.
local function check_filled(plan, budget)
    local left, page = budget - device_bytes(plan), 4096
    for _, arena in ipairs(plan.arenas) do left = left + (arena.name == "device_pool" and arena.bytes or 0) end
    for _, chunk in ipairs(plan.placement.chunks) do
        local on_host = chunk.values == "host" or chunk.state == "host"     -- either way two arrays of its bytes
        assert(not on_host or left < 2 * (chunk.own_bytes + page), ("%d bytes are left, chunk %d has %d"):format(left,
            chunk.chunk, chunk.own_bytes))
    end
end

-- With one rank the arrays of the device have the cuts that the table says.
local function check_arrays(t, plan)
    local sums = { device_parameters = 0, device_gradients = 0, device_state_m = 0, device_state_v = 0 }
    for _, chunk in ipairs(plan.placement.chunks) do
        for name, bytes in next, sums do
            local on_device = chunk[name:find "state" and "state" or "values"] == "device"
            sums[name] = bytes + (on_device and chunk.own_bytes or 0)
        end
    end
    for _, arena in ipairs(plan.arenas) do
        local bytes = sums[arena.name]
        if bytes then t.equal(arena.bytes, bytes > 0 and bytes // 4096 * 4096 + 4096 or 0, arena.name) end
    end
end

local function check_bytes(t, plan, budget)
    local bytes = device_bytes(plan)
    t.equal(plan.placement.device_bytes, bytes)
    assert(bytes <= budget, ("%d bytes on the device, the budget is %d"):format(bytes, budget))
    return bytes
end

-- Gathered in one pass alone: the backward pass begins with the last one, and needs no gradient of the data.
local ONCE = { ["out.weight"] = true, ["in.weight"] = true }

-- Bytes that move in an update with one rank, by the table of the chunks: values as f32, 3 micro-steps.
local function check_moved(t, plan)
    local found, size, wanted = plan.placement.moved, 4, { 0, 0, 0, 0 }
    for _, chunk in ipairs(plan.placement.chunks) do
        local bytes = chunk.elements * size
        if chunk.values == "host" then
            local passes = (chunk.pooled or ONCE[chunk.from]) and 1 or 2
            local one = { 3 * passes * bytes, 3 * bytes, 3 * bytes, 0 }
            for k = 1, 4 do wanted[k] = wanted[k] + one[k] end
        elseif chunk.state == "host" then
            wanted[2], wanted[4] = wanted[2] + bytes, wanted[4] + bytes
        end
    end
    t.equal({ found.values_up, found.gradients_down, found.gradients_up, found.updated_up }, wanted)
    t.equal(found.total, wanted[1] + wanted[2] + wanted[3] + wanted[4])
end

add("auto, five budgets: never above, states go before values, the chunk that is needed last goes first", function(t)
    local whole = planned(t, spec '{ "zero3", ranks = 1 }')
    local device, least = device_bytes(whole), least_of(t, 1)
    local before, states, partly = math.huge, 0, 0
    for k = 0, 4 do
        local budget = least + (device - least) * k // 4
        local plan = planned(t, spec(auto(1), budget))
        local bytes = check_bytes(t, plan, budget)
        check_filled(plan, budget)
        check_arrays(t, plan)
        if k == 0 then t.equal(bytes, least) end
        if k == 4 then
            t.equal(bytes, device, "with the bytes of \"device\" all is there")
            t.equal(plan.placement.moved.total, 0)
            plan.placement = nil
            t.equal(plan, whole, "the plan")
            break
        end
        check_last(plan, "values")
        check_last(plan, "state")
        check_states_first(plan)
        t.equal(on_host(plan, "gradient"), on_host(plan, "values"))
        check_moved(t, plan)
        assert(plan.placement.moved.total < before, "more memory, and not less moves")
        before = plan.placement.moved.total
        local away = #on_host(plan, "state")
        states = states + (away > 0 and #on_host(plan, "values") == 0 and 1 or 0)
        partly = partly + (away > 0 and away < #NEEDED and 1 or 0)
    end
    assert(states > 0 and partly > 0, ("%d %d"):format(states, partly))
end)

add("auto, 1 to 3 ranks: a byte less than the least budget is refused, with the number that would do", function(t)
    for ranks = 1, 3 do
        local least = least_of(t, ranks)
        local plan = planned(t, spec(auto(ranks), least))
        t.equal(check_bytes(t, plan, least), least)
        for _, chunk in ipairs(plan.placement.chunks) do            -- each array has a page, which small ones fill
            assert(chunk.values == "host" or chunk.own_bytes < 4096, chunk.chunk)
        end
        local _, complaint = planned(t, spec(auto(ranks), least - 1))
        t.contains(complaint, ("expected %dB or more"):format(least))
        local host = planned(t, spec(('{ "zero3", ranks = %d, placement = "cpu" }'):format(ranks)))
        t.equal(device_bytes(host), least, "placement host")
        t.equal(#on_host(host, "state"), #NEEDED)
        assert(host.placement.moved.total >= plan.placement.moved.total)
    end
end)

add("gpu_margin_mem_ratio: whole chunks in their order while used + chunk < margin x ratio / 4", function(t)
    local least, device = least_of(t, 1), device_bytes((planned(t, spec '{ "zero3", ranks = 1 }')))
    local budget, counts = least + (device - least) * 9 // 10, {}
    for i, ratio in ipairs { 0, 0.2, 1 } do
        local plan = planned(t, spec(auto(1, (", gpu_margin_mem_ratio = %g"):format(ratio)), budget))
        check_bytes(t, plan, budget)
        local used, kept = 0, {}
        for _, chunk in ipairs(plan.placement.chunks) do
            if used + chunk.own_bytes >= (budget - least) * ratio / 4 then break end
            used, kept[chunk.chunk] = used + chunk.own_bytes, true
            t.equal({ chunk.values, chunk.gradient, chunk.state }, { "device", "device", "device" })
        end
        check_last(plan, "values", kept)
        check_last(plan, "state", kept)
        counts[i] = 0
        for _, chunk in ipairs(plan.placement.chunks) do
            t.equal(chunk.kept, kept[chunk.chunk] or false, "chunk " .. chunk.chunk)
            counts[i] = counts[i] + (chunk.kept and 1 or 0)
        end
    end
    t.equal(counts[1], 0)
    assert(counts[3] > counts[2], ("%d and %d chunks"):format(counts[2], counts[3]))
end)

add("the pool: what stays from forward to backward lies beside each other, on the host and in both passes", function(t)
    local compile = require "command.compile"
    local ordered = require "base.ordered"
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, least, pools = programs.folder() .. "/pool.lua", least_of(t, 1), 0
    for _, more in ipairs { 165000, 180000 } do        -- room for values of narrow, not for their gradient
        t.write(path, spec(auto(1), least + more))
        local g = compile(path, {})
        local pool, ends = g.placement.pool, {}
        for chunk, at in next, pool and pool.kept or {} do
            assert(g.buckets[chunk].values_on_host, chunk)
            for _, name in ipairs { "forward", "backward" } do
                assert(ordered.find(g.chunks.orders[name], chunk), name)
            end
            ends[#ends + 1] = { at, at + g.buckets[chunk].n }
        end
        table.sort(ends, function(a, b) return a[1] < b[1] end)
        for k, cut in ipairs(ends) do t.equal(cut[1], k == 1 and 0 or ends[k - 1][2]) end
        if pool then t.equal(ends[#ends][2], pool.elements) end
        pools = pools + #ends
    end
    t.equal(pools, 2)
end)

add("const: at most 512 MiB of windows, with fewer gathers ahead if the spec leaves it open", function(t)
    local function wide(n, more)                -- each layer n x n; a window takes 4 n n bytes
        local text = spec('{ "zero3", placement = "const"' .. more .. " }")
        return (text:gsub("model  .-\nloss", ('model { linear "in" { %d }, times(2) "h" { linear "fc" { %d } }, '
            .. 'linear "out" { 10 } }\nloss'):format(n, n)))
    end
    local function windows(plan)
        for _, arena in ipairs(plan.arenas) do
            if arena.name == "device_chunks" then return arena.bytes end
        end
    end
    local small, tight = 4000, 9000
    local two, one = windows((planned(t, wide(small, "")))), windows((planned(t, wide(tight, ""))))
    assert(two > 2 * 4 * small ^ 2 and two <= 512 << 20, two)
    assert(one > 4 * tight ^ 2 and one <= 512 << 20, one)
    t.contains(select(2, planned(t, wide(tight, ", prefetch = 1"))), 'placement is "const", and with prefetch = 1 the '
        .. "gathered values of this model take 650,412,096 bytes, expected at most 536,870,912")
    t.contains(select(2, planned(t, wide(12000, ""))), "expected at most 536,870,912")
end)

add("rows of a micro-step and placement are chosen together, within one budget", function(t)
    local how = { memory = ', recompute = "auto"' }
    local least = least_of(t, 1, how)
    local plan = planned(t, spec(auto(1), least, how))
    t.equal(check_bytes(t, plan, least), least)
    t.contains(select(2, planned(t, spec(auto(1), least - 1, how))), ("expected %dB or more"):format(least))
end)

add("target c: accepted, and nothing changes", function(t)
    local function facts(parallel) return (planned(t, spec(parallel, nil, { target = "c" }))) end
    local plan, plain = facts '{ "zero3", placement = "host" }', facts '{ "zero3" }'
    t.equal(plan.placement, { policy = "host", changes = false, target = "c" })
    plan.placement = nil
    t.equal(plan, plain)
    t.equal(facts '{ "zero3", placement = "cuda" }', plain)
end)

add("words that do not go together are refused", function(t)
    local function refused(parallel, expected, memory, how)
        local plan, complaint = planned(t, spec(parallel, memory, how))
        assert(not plan, parallel .. " is accepted")
        t.contains(complaint, expected)
    end
    local GIB = 1 << 30
    refused('{ "zero2", placement = "host" }', '"host" goes by chunks of parameters, and with "zero2" there are none')
    refused('{ "none", placement = "auto" }', 'with "none" there are none', GIB)
    refused('{ "zero3", placement = "gpu" }', "expected one of 'device', 'cuda', 'host', 'cpu', 'auto', 'const'")
    refused('{ "zero3", ranks = 1, placement = "auto" }', "expected memory { budget = \"20GiB\" } beside it")
    refused('{ "zero3", placement = "auto" }', "expected ranks = n, also 1, or the option --ranks n", GIB)
    refused('{ "zero3", placement = "cpu", enable_distributed_storage = false }', "each process has all parameters")
    refused('{ "zero3", placement = "cpu", nvme = "/tmp" }', "expected one of them", nil, { target = "c" })
    refused('{ "zero3", placement = "host", chunks = "search" }', "too small to be divided into chunks")
    refused('{ "zero3", placement = "host", gpu_margin_mem_ratio = 1.5 }', "gpu_margin_mem_ratio")
    for _, target in ipairs { "c", "cuda" } do
        refused('{ "zero3", placement = "const" }', "the rule 'lamb' goes over whole tensors", nil,
            { optimizer = '{ "lamb", lr = 1e-3 }', target = target })
    end
    local _, warned = planned(t, spec '{ "zero3", placement = "host", gpu_margin_mem_ratio = 0.5 }')
    t.contains(warned, 'warning: parallel: gpu_margin_mem_ratio is about placement = "auto"')
end)

return tests
