-- split: marks the parameters of frozen groups: no gradient, no state, no update. A loop over layers that groups give
-- several forms (frozen, updated by the rest, trained) becomes several loops, one for each run of layers of one form.
--
--   h = times(4)(x)     with h.0.* and h.1.* frozen    ->    h_0_to_1 = times(2)(x); h_2_to_3 = times(2)(h_0_to_1)
--
-- Parameters keep their names, h.0.fc.weight to h.3.fc.weight, and random draws the numbers of their layers.
local graph = require "graph.graph"
local groups = require "spec.groups"
local ordered = require "base.ordered"

local split = { name = "split", doc = "frozen parameters; a loop for each run of layers of one form" }

-- === runs of layers ==============================================================================

-- Runs of a region's layers in which each of its parameters has one form: { from, count }, layers counted from 0.
local function runs_of(g, config, region)
    local begins, list = { [0] = true }, {}
    for _, param in ipairs(g.params) do
        local before
        for _, run in ipairs(param.region == region and not param.buffer and groups.runs(config, param) or {}) do
            local form = groups.form(config, run.of)
            if before and form ~= before then begins[run.from] = true end
            before = form
        end
    end
    for l = 0, region.count - 1 do
        if begins[l] then list[#list + 1] = { from = l, count = 0 } end
        list[#list].count = list[#list].count + 1
    end
    return list
end

-- "_2" or "_2_to_3": what tells the names of a run's values from those of other runs.
local function suffix_of(region, run)
    local first = region.first + run.from
    return run.count == 1 and "_" .. first or ("_%d_to_%d"):format(first, first + run.count - 1)
end

-- === a loop over a run of layers =================================================================

-- The parameters of a region for one run, in the place of its own.
local function copy_params(params, part, run, copied)
    return ordered.collect(params, function(param)
        local copy = ordered.copy(param, { region = part, first = part.first, count = run.count, state = {}, kept = {},
            views = {} })
        copy.value = copied(param.value)
        copy.value.param = copy
        if param.collected then
            copy.collected = copied(param.collected)
            copy.collected.param = copy
        end
        return copy
    end)
end

local function copy_node(node, part, copied)
    local copy = ordered.copy(node, { ins = {}, outs = {}, scope = part })
    for name, t in ordered.each(node.ins) do copy.ins[name] = copied(t) end
    for name, out in ordered.each(node.outs) do
        local t = copied(out.tensor)
        copy.outs[name] = ordered.copy(out, { tensor = t })
        if t.def == node then t.def = copy end
    end
    return copy
end

-- The carry of a run. out: what it writes behind the loop.
local function copy_carry(carry, part, init, out, copied)
    local copy = { init = init, region = part, arg = copied(carry.arg), result = copied(carry.result), out = out }
    copy.arg.carry, copy.result.carried = copy, copy
    out.def, out.carry_out = part, copy
    return copy
end

-- A loop over a run of the region's layers, and its parameters. inits: the values that it begins with; the last run
-- writes the values behind the region, others values of their own.
local function part_of(g, region, params, run, inits)
    local suffix, last = suffix_of(region, run), run.from + run.count == region.count
    local part = ordered.copy(region, { name = region.name .. suffix, first = region.first + run.from,
        count = run.count, whole = region.count, body = {}, carries = {} })
    local old, made = graph.identifier(region.name), {}
    local function renamed(name)
        local rest = name:sub(1, #old + 1) == old .. "_" and name:sub(#old + 1)
        return rest and old .. suffix .. rest or name .. suffix
    end
    local function copied(t)
        if t.scope ~= region then return t end
        made[t] = made[t]
            or graph.tensor(g, ordered.copy(t, { name = renamed(t.name), whole_name = t.name, scope = part }))
        return made[t]
    end
    local own = copy_params(params, part, run, copied)
    for i, node in ipairs(region.body) do part.body[i] = copy_node(node, part, copied) end
    for i, carry in ipairs(region.carries) do
        local out = last and carry.out
            or graph.tensor(g, ordered.copy(carry.out, { name = renamed(carry.out.name) }))
        part.carries[i] = copy_carry(carry, part, inits[i], out, copied)
    end
    return part, own
end

-- The loops over the runs of a region's layers, in the place of the region.
local function split_region(g, region, runs)
    local params = ordered.collect(g.params, function(p) return p.region == region and p or nil end)
    local parts, own = {}, {}
    local inits = ordered.collect(region.carries, function(carry) return carry.init end)
    for i, run in ipairs(runs) do
        local of_part
        parts[i], of_part = part_of(g, region, params, run, inits)
        table.move(of_part, 1, #of_part, #own + 1, own)
        inits = ordered.collect(parts[i].carries, function(carry) return carry.out end)
    end
    local others, position = {}, nil
    for _, param in ipairs(g.params) do
        if param.region == region then
            position = position or #others + 1
        else
            others[#others + 1] = param
        end
    end
    for i, param in ipairs(own) do table.insert(others, position + i - 1, param) end
    g.params = others
    g.tensors = ordered.collect(g.tensors, function(t) return t.scope ~= region and t or nil end)
    graph.decide(g, region.name, #parts .. " loops", "groups freeze only some layers, or give only some to the rest")
    return parts
end

function split.run(g, config)
    local body = {}
    for _, node in ipairs(g.forward) do
        local runs = node.op == "times" and runs_of(g, config, node) or {}
        local parts = #runs > 1 and split_region(g, node, runs) or { node }
        table.move(parts, 1, #parts, #body + 1, body)
    end
    local same = #body == #g.forward
    g.forward = body
    for _, param in ipairs(g.params) do
        local of = groups.runs(config, param)[1].of
        param.frozen = param.buffer or groups.form(config, of) == "frozen"
    end
    return same
end

return split
