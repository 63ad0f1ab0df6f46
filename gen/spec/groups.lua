-- groups: which of the optimizer's groups a parameter belongs to.
local glob = require "base.glob"

local groups = {}

--- The number of the first group that takes the parameter; 0: none, the optimizer's own fields hold.
function groups.of(config, param)
    for i, entry in ipairs(config.groups) do
        if entry.rank and #param.shape == entry.rank then return i end
        if entry.glob and glob.takes(entry.glob, param, config.optimizer.at, "optimizer: groups") then
            return i
        end
    end
    return 0
end

--- Marks the parameters of frozen groups: no gradient, no state, no update.
function groups.freeze(config, params)
    for _, param in ipairs(params) do
        local entry = config.groups[groups.of(config, param)]
        param.frozen = param.buffer or entry ~= nil and entry.frozen
    end
end

return groups
