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

function optimize.run(g, config)
    local rule, fields = config.optimizer.rule, config.optimizer.fields
    g.state_names = ordered.copy(rule.state(fields))
    if config.optimizer.own.ema then g.state_names[#g.state_names + 1] = "ema" end
    g.groups = ordered.map()
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
