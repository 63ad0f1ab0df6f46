-- update_names: a word for each parameter group. Its kernels, numbers and ranges are called after it.
--
--   { rank = 1, weight_decay = 0 }      vectors; the parameters of no group are matrices, if all have two axes
--   { "*.bias", weight_decay = 0 }      bias; the parameters of no group are others
--   { "0.*", weight_decay = 0 }         group_0
local graph = require "graph.graph"
local ordered = require "base.ordered"

local update_names = {}

local OF_RANK = { [0] = "scalars", "vectors", "matrices" }

-- Ends of the names of kernels: no word may look like a group and a kernel of it.
local PARTS = { "sums", "scales", "start", "rows", "columns", "factors" }

-- A word for the parameters that an entry of the spec's `groups` takes; nil for a group without an entry.
local function chosen_by(entry)
    if not entry then return nil end
    if entry.rank then return OF_RANK[entry.rank] or "rank_" .. entry.rank end
    local word = graph.identifier((entry.glob:gsub("%*", "."))):gsub("__+", "_"):gsub("^_", ""):gsub("_$", "")
    return (word:gsub("^%d", "group_%0"))
end

-- A word for the parameters of a group without an entry: by their rank.
local function made_of(params)
    local rank = #params[1].shape
    for _, param in ipairs(params) do
        if #param.shape ~= rank then return "others" end
    end
    return OF_RANK[rank] or "rank_" .. rank
end

local function word_of(config, group, params)
    local chosen = chosen_by(config.groups[group.of])
    if chosen == "" then chosen = "group_" .. group.of end
    if group.rest then return chosen and "rest_" .. chosen or "rest" end
    if group.vectors then return chosen and chosen ~= "vectors" and chosen .. "_vectors" or "vectors" end
    return chosen or made_of(params)
end

--- The wanted name, or with _2, _3 ... behind it, that `taken` does not have; it has it then.
function update_names.unused(taken, wanted)
    local name, n = wanted, 1
    while taken[name] do
        n = n + 1
        name = wanted .. "_" .. n
    end
    taken[name] = true
    return name
end

--- Gives each group its `word`: "all" if there is one group.
function update_names.set(g, config)
    local taken = {}
    for _, group in g.groups:each() do
        local params = ordered.collect(g.params, function(param)
            for _, run in ipairs(param.groups or {}) do
                if run.index == group.index then return param end
            end
        end)
        local word = g.groups:size() == 1 and "all" or word_of(config, group, params)
        if ordered.find(PARTS, word:match("[^_]*$")) then word = word .. "_group" end
        group.word = update_names.unused(taken, word)
    end
end

return update_names
