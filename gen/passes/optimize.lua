-- optimize: gives every trainable parameter its update rule.
--
--   fc1.weight  ->  group 1 { adamw, weight_decay = 0.01 }, state m, v
--
-- Groups come from the optimizer's `groups` list; the first entry that matches wins, parameters
-- that match none form the default group.
local diag = require "base.diag"
local glob = require "base.glob"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local optimize = { name = "optimize", doc = "parameter groups and optimizer state" }

local function group_of(config, param)
    for i, entry in ipairs(config.groups) do
        if entry.rank and #param.shape == entry.rank then return i end
        if entry.glob and glob.takes(entry.glob, param, config.optimizer.at, "optimizer: groups") then
            return i
        end
    end
    return 0
end

function optimize.run(g, config)
    local rule, fields = config.optimizer.rule, config.optimizer.fields
    g.groups = ordered.map()
    for _, param in ipairs(g.params) do
        if param.used then
            local index = group_of(config, param)
            if not g.groups:has(index) then
                local entry = config.groups[index] or {}
                g.groups:set(index, { index = index, position = g.groups:size(), lr_scale = entry.lr_scale or 1,
                    fields = ordered.copy(fields, entry.fields) })
            end
            param.group = index
            for _, name in ipairs(rule.state(fields)) do
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
    g.state_names = rule.state(fields)
end

return optimize
