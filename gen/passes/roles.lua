-- roles: which variants of the backward pass the accumulation count needs.
--
--   A = 4  ->  first (writes), next (adds), last (adds, reduces over the ranks)
--   A = 1  ->  only (writes, reduces)
local roles = { name = "roles", doc = "the roles that A needs" }

local TABLE = {
    only = { name = "only", adds = false, reduces = true },
    first = { name = "first", adds = false, reduces = false },
    next = { name = "next", adds = true, reduces = false },
    last = { name = "last", adds = true, reduces = true },
}

function roles.run(g, config)
    local a = config.accumulate
    local names = a == 1 and { "only" } or a == 2 and { "first", "last" }
        or { "first", "next", "last" }
    g.accumulate, g.roles = a, {}
    for i, name in ipairs(names) do g.roles[i] = TABLE[name] end
end

return roles
