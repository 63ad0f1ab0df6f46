-- targets: the targets of programs. Each folder gen/emit/targets/NAME is a target: its target.lua returns the object
-- that interface.lua declares. No list names the folders.
local catalog = require "catalog.catalog"
local interface = require "emit.targets.interface"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"

local targets = {}

local loaded = {}

--- The target of this name. Loading it checks its fields, and that it can emit all ops of the catalog.
function targets.get(name)
    if not loaded[name] then
        local target = require("emit.targets." .. name .. ".target")
        interface.check(target, name)
        target = ordered.copy(target, { name = name })
        ops.complete(target, catalog.load().ops)
        loaded[name] = target
    end
    return loaded[name]
end

--- The target of a configuration.
function targets.of(config) return targets.get(config.target) end

return targets
