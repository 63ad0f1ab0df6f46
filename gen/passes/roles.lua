-- roles: lists the variants of the backward pass, by the role of a micro-step in its cycle.
--
--   A = 4            ->  first (writes), next (adds), last (adds, reduces over the ranks)
--   A = 4, tail of 1 ->  first, next, last, and only (writes, reduces)
local accumulation = require "spec.accumulation"

local roles = { name = "roles", doc = "the roles that the cycles need" }

local TABLE = {
    { name = "only", adds = false, reduces = true },
    { name = "first", adds = false, reduces = false },
    { name = "next", adds = true, reduces = false },
    { name = "last", adds = true, reduces = true },
}

function roles.run(g, config)
    local needed = {}
    local function take(count)
        if count == 1 then needed.only = true end
        if count > 1 then needed.first, needed.last = true, true end
        if count > 2 then needed.next = true end
    end
    g.sizes, g.longest_tail = accumulation.sizes(config)
    for _, a in ipairs(g.sizes) do take(a) end
    for r = 1, math.min(g.longest_tail or 0, 3) do take(r) end
    g.accumulate, g.roles = config.accumulate, {}
    for _, role in ipairs(TABLE) do
        if needed[role.name] then g.roles[#g.roles + 1] = role end
    end
    return true
end

return roles
