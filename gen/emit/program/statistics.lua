-- statistics: what nodes of a micro-step gather from all ranks, for plans and for the memory that it takes. An op that
-- gathers says by `exchanges` how many doubles a rank gives.
local ordered = require "base.ordered"

local statistics = {}

-- Calls f(doubles of a rank, times in a micro-step) for each node that gathers.
local function each(body, times, ops, f)
    for _, node in ipairs(body) do
        if node.op == "times" then
            each(node.body, times * node.count, ops, f)
        elseif ops[node.op].exchanges then
            f(ops[node.op].exchanges(node), times)
        end
    end
end

--- The most doubles that a rank gives at once; 0: nothing is gathered.
function statistics.most(g, ops)
    local most = 0
    for _, body in ipairs { g.forward, g.backward } do
        each(body, 1, ops, function(n) most = math.max(most, n) end)
    end
    return most
end

--- The exchanges of a micro-step, { bytes = that a rank gives, calls }, those of the same bytes as one, in the order of
--- the program.
function statistics.list(g, ops)
    local calls = ordered.map()
    for _, body in ipairs { g.forward, g.backward } do
        each(body, 1, ops, function(n, times) calls:set(8 * n, (calls:get(8 * n) or 0) + times) end)
    end
    local list = {}
    for bytes, count in calls:each() do list[#list + 1] = { bytes = bytes, calls = count } end
    return list
end

return statistics
