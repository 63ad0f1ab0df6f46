-- optimize: gives every trainable parameter its update rule.
--
--   fc1.weight  ->  group 1 { adamw, weight_decay = 0.01 }, state m, v
--
-- Groups come from the optimizer's `groups` list; the first entry that matches wins, parameters
-- that match none form the default group.
local diag = require "base.diag"
local graph = require "graph.graph"
local groups = require "spec.groups"
local ordered = require "base.ordered"

local optimize = { name = "optimize", doc = "parameter groups and optimizer state" }

-- With layer_decay: the depth of each parameter, 0 before the first layer of a `times`, N + 1 behind the
-- last of all N, and how much of the rate each depth gets. In a `times` it is that of its first layer.
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

function optimize.run(g, config)
    local rule, fields = config.optimizer.rule, config.optimizer.fields
    g.state_names = ordered.copy(rule.state(fields))
    if config.optimizer.own.ema then g.state_names[#g.state_names + 1] = "ema" end
    g.groups = ordered.map()
    set_layers(g, config)
    for _, param in ipairs(g.params) do
        if param.used then
            local index = groups.of(config, param)
            if not g.groups:has(index) then
                local entry = config.groups[index] or {}
                g.groups:set(index, { index = index, position = g.groups:size(), lr_scale = entry.lr_scale or 1,
                    fields = ordered.copy(fields, entry.fields) })
            end
            param.group = index
            for _, name in ipairs(g.state_names) do
                param.state[name] = graph.tensor(g, { name = name .. "_" .. param.value.name,
                    shape = param.shape, kind = "state", at = param.at, param = param,
                    scope = param.region })
            end
        end
    end
    if g.groups:size() == 0 then
        diag.fail(config.optimizer.at, "optimizer: the loss depends on no parameter, expected at least "
            .. "one to train", {})
    end
end

return optimize
