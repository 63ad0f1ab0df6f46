-- optimize: gives every trainable parameter its update rule.
--
--   fc1.weight  ->  group 1 { adamw, weight_decay = 0.01 }, state m, v
--
-- Groups come from the optimizer's `groups` list: the first matching entry wins, and parameters that match none form
-- the default group. The layers of a parameter in a `times` may belong to several groups. This pass divides a group
-- further: by the optimizer or its `rest`, and by the forms of a rule for matrices and for vectors.
local diag = require "base.diag"
local graph = require "graph.graph"
local groups = require "spec.groups"
local ordered = require "base.ordered"

local optimize = { name = "optimize", doc = "parameter groups and optimizer state" }

-- With layer_decay, sets param.layer, the depth of each parameter: 0 before the first of the N layers of `times`,
-- N + 1 after the last; in a `times` the depth of its first layer. g.layer_rates has the factor of the rate for each
-- depth.
local function set_layers(g, config)
    local decay = config.optimizer.own.layer_decay
    if not decay or decay == 1 then return end
    local layers, seen = 0, {}
    for _, param in ipairs(g.params) do
        local region = param.region
        if region and not seen[region] then
            seen[region] = layers + 1
            layers = layers + param.count
        end
        param.layer = region and seen[region] or layers
    end
    if layers == 0 then
        diag.fail(config.optimizer.where.locate("layer_decay"),
            "optimizer: layer_decay needs layers: times(n) \"name\" { ... }", {})
    end
    for _, param in ipairs(g.params) do
        if not param.region and param.layer == layers then param.layer = layers + 1 end
    end
    g.layer_rates = {}
    for depth = 0, layers + 1 do g.layer_rates[depth + 1] = decay ^ (layers + 1 - depth) end
end

-- The form of a rule for parameters of this rank, and whether it is the vector form of a rule with two forms.
local function form_of(rule, rank)
    if not rule.matrix or rank < 2 then return rule, rule.matrix ~= nil end
    return ordered.copy(rule, rule.matrix), false
end

-- The group `of` of the spec for a parameter, made when its first parameter comes. index: its number in the spec; those
-- of the rest and the vectors of a rule with a form for matrices follow behind all that the spec counts. name: in the
-- names of numbers that checkpoints have.
local function group_of(g, config, param, of, norms)
    local update = groups.update_of(config, param, of)
    local form, vectors = form_of(update.rule, #param.shape)
    local count = #config.groups + 1
    local rate_index = of + (update.rest and count or 0)
    local index = rate_index + (vectors and 2 * count or 0)
    if not g.groups:has(index) then
        if not norms:has(rate_index) then norms:set(rate_index, norms:size()) end
        local fields = ordered.copy(update.fields)
        if form.settle then
            local complaint = form.settle(fields, config.precision == "f64" and "f64" or "f32")
            if complaint then diag.fail(config.optimizer.at, "optimizer: " .. complaint, {}) end
        end
        g.groups:set(index, { index = index, rate_index = rate_index, of = of,
            name = (update.rest and "rest_" or "") .. (vectors and "vectors_" or "") .. of,
            rest = update.rest, vectors = vectors, position = norms:get(rate_index), rule = form,
            lr_scale = update.lr_scale, fields = fields })
    end
    return g.groups:get(index)
end

-- Names with another meaning in a rule's expressions.
local TAKEN = { w = true, g = true, t = true, lr = true }

local function add_state(g, param, name, shape)
    if TAKEN[name] then error(("a state called '%s': the rule of an update has it for something else"):format(name)) end
    if not ordered.find(g.state_names, name) then g.state_names[#g.state_names + 1] = name end
    param.state[name] = graph.tensor(g, { name = name .. "_" .. param.value.name, shape = shape, kind = "state",
        at = param.at, param = param, scope = param.region })
end

-- Groups whose norms a small sum over the ranks has room for: GA_COMM_SMALL of runtime/ranks/comm.h, less five numbers.
local MOST_NORMS = 251

function optimize.run(g, config)
    g.state_names, g.groups = {}, ordered.map()
    local norms = ordered.map()
    set_layers(g, config)
    for _, param in ipairs(g.params) do
        if param.used then
            local group
            param.groups = ordered.collect(groups.runs(config, param), function(run)
                group = group_of(g, config, param, run.of, norms)
                return { index = group.index, from = run.from, count = run.count }
            end)
            for _, name in ipairs(group.rule.state(group.fields)) do
                local shape = group.rule.state_shape and group.rule.state_shape(name, param.shape)
                add_state(g, param, name, shape or param.shape)
            end
        end
    end
    g.norm_groups = norms:size()
    if config.clip and config.clip.per_group and config.mode.ranks and g.norm_groups > MOST_NORMS then
        diag.fail(config.clip.at, ("clip: per_group with ranks and %d groups, expected at most %d: their norms are one "
            .. "small sum"):format(g.norm_groups, MOST_NORMS), {})
    end
    if g.groups:size() == 0 then
        diag.fail(config.optimizer.at, "optimizer: the loss depends on no parameter, expected at least "
            .. "one to train", {})
    end
    for _, param in ipairs(config.optimizer.own.ema and g.params or {}) do
        if param.used then add_state(g, param, "ema", param.shape) end
    end
    return true
end

return optimize
