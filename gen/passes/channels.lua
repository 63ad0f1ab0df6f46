-- channels: statistics of batchnorm in parts of the rows, on a target that computes them in blocks side by side
-- (config.channels). The kernel behind them adds up the parts, in their order, in each of its blocks.
--
--   mean, var, rstd = batchnorm_stats(x)          ->   parts (64, G, 2, C) = batchnorm_stats(x)
--   running = batchnorm_running(mean, var)             y, mean, var, rstd, running = batchnorm(x, parts)
--   y = batchnorm(x, mean, rstd)
--
-- Where a convolution on tensor cores makes x, its tiles are the parts, so that nothing reads x for statistics: many
-- tiles are joined first.
--
--   x = conv2d(...) ; parts = batchnorm_stats(x)  ->   x, tiles (4000, G, 2, C) = conv2d(...)
--                                                      parts (50, G, 2, C) = batchnorm_stats(tiles)
--
--   sum, moment = batchnorm_sums(dy, x)           ->   parts (64, G, 2, C) = batchnorm_sums(dy, x)
--   dx = batchnorm_dx(dy, x, sum, moment)              dx, d_weight, d_bias = batchnorm_dx(dy, x, parts)
--   d_weight, d_bias = column_sum(moment), column_sum(sum)
--
-- With sync_batchnorm a node between them gathers the sums of all rows, and all stays as it is.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local channels = { name = "channels", doc = "statistics of batchnorm in parts of the rows", optional = true }

-- Whether a list of tensors has one of another.
local function meets(list, set)
    for _, t in ipairs(list) do
        if set[t] then return true end
    end
    return false
end

local function written(node)
    return ordered.collect(graph.writes(node), function(out) return out.tensor end)
end

-- The node of a body behind place `at` with this op whose input `key` is t, and its place.
local function reader(body, at, op, key, t)
    for i = at + 1, #body do
        if body[i].op == op and body[i].ins[key] == t then return body[i], i end
    end
end

-- Gives a node that sums over rows one result in the place of all: parts.
local function make_parts(g, node, count, ins)
    local s = node.size
    local parts = graph.tensor(g, { name = node.outs[node.signature.outs[1]].tensor.name .. "_parts", kind = "value",
        dtype = g.real, shape = { count, s.G, 2, s.C }, at = node.at, def = node, scope = node.scope,
        keep_full = true, rowless = true })
    node.attrs, node.outs = ordered.copy(node.attrs, { parts = count }), { parts = { tensor = parts } }
    node.signature = ordered.copy(node.signature, { ins = ins, outs = { "parts" } })
    return parts
end

-- Lets a node read and write more: ins and outs by name, in the order of `names`; those in `instead` no longer.
local function extend(node, more, instead)
    local signature, by = node.signature, { ins = node.ins, outs = node.outs }
    local lists = {}
    for _, key in ipairs { "ins", "outs" } do
        lists[key] = ordered.collect(signature[key], function(name) return not instead[name] and name or nil end)
        by[key] = ordered.copy(by[key])
        for name in ordered.each(instead) do by[key][name] = nil end
        for _, entry in ipairs(more[key]) do
            lists[key][#lists[key] + 1], by[key][entry[1]] = entry[1], entry[2]
            if key == "outs" and entry[2].tensor.kind == "value" then entry[2].tensor.def = node end
        end
    end
    node.ins, node.outs, node.signature = by.ins, by.outs, ordered.copy(signature, lists)
end

-- The nodes between statistics at one place of a body and the node that normalises at another: the node that moves the
-- running ones, and those that must come later; nil: some other node reads the statistics.
local function between(body, from, to, statistics)
    local moves, later = nil, {}
    for i = from + 1, to - 1 do
        local node = body[i]
        if node.op ~= "times" and meets(graph.reads(node), statistics) then
            if node.op == "batchnorm_running" then moves = node
            elseif node.op == "batchnorm_collect" or node.op == "batchnorm_add" then later[#later + 1] = node
            else return nil end
        end
    end
    return { moves = moves, later = later }
end

-- Parts that each block of the next kernel adds up, at most; those that many are joined to, at most.
local MOST_PARTS, JOINED_PARTS = 512, 64

-- Lets the convolution that makes x leave statistics of its tiles; nil: it cannot.
local function tiles_of(g, config, body, node)
    local conv, s = node.ins.x.def, node.size
    local tiles = conv and ordered.find(body, conv) and conv.op == "conv2d" and conv.outs.y.tensor == node.ins.x
        and config.channels.conv2d(conv, node.attrs.rows, config.ops.conv2d)
    if not tiles then return nil end
    local parts = graph.tensor(g, { name = node.ins.x.name .. "_moments", kind = "value", dtype = g.real,
        shape = { tiles, s.G, 2, s.C }, at = conv.at, def = conv, scope = conv.scope, keep_full = true,
        rowless = true })
    local outs = table.move(conv.signature.outs, 1, #conv.signature.outs, 1, {})
    outs[#outs + 1] = "moments"
    conv.outs = ordered.copy(conv.outs, { moments = { tensor = parts } })
    conv.signature = ordered.copy(conv.signature, { outs = outs })
    return parts
end

-- The parts that the normalising node reads, and whether the node for statistics makes them.
local function parts_of(g, config, body, node, count)
    local tiles = tiles_of(g, config, body, node)
    if not tiles then return make_parts(g, node, count, { "x", "micro" }), true end
    local number = tiles.shape[1]
    if number <= MOST_PARTS then return tiles, false end
    count = JOINED_PARTS
    while number % count > 0 do count = count - 1 end
    node.ins = ordered.copy(node.ins, { tiles = tiles })
    return make_parts(g, node, count, { "tiles", "micro" }), true
end

local JOIN = {}

-- Returns the nodes of the body that are taken out, and those behind the normalising one, as sets and lists.
function JOIN.batchnorm_stats(g, config, body, at, count)
    local node = body[at]
    local outs = node.outs
    local y, place = reader(body, at, "batchnorm", "mean", outs.mean.tensor)
    local found = y and between(body, at, place, { [outs.mean.tensor] = true, [outs.var.tensor] = true,
        [outs.rstd.tensor] = true })
    if not found then return nil end
    local ins, moves = node.ins, found.moves
    local parts, makes = parts_of(g, config, body, node, count)
    local more = { ins = { { "parts", parts }, { "running_mean", ins.running_mean }, { "running_var", ins.running_var },
        { "micro", ins.micro } }, outs = { { "mean", outs.mean }, { "var", outs.var }, { "rstd", outs.rstd } } }
    y.attrs = ordered.copy(y.attrs, { parts = parts.shape[1] })
    if moves then
        local own = moves.outs
        y.attrs = ordered.copy(y.attrs, { momentum = moves.attrs.momentum, n = moves.attrs.n })
        table.move({ { "moved_mean", own.running_mean }, { "moved_var", own.running_var }, { "batches", own.batches } },
            1, 3, 4, more.outs)
    end
    extend(y, more, { mean = true, rstd = true })
    local out = table.move(found.later, 1, #found.later, 1, {})
    out[#out + 1] = moves
    if not makes then out[#out + 1] = node end
    return { node = y, out = out, later = found.later }
end

-- The node that sums t over the groups for the gradient of a parameter, if it may stand at place `to` as well: no other
-- node between both places writes or reads the sum, as nodes that add up micro-steps do (passes/accumulate.lua).
local function sum_of(body, at, to, t)
    local sum, place = reader(body, at, "column_sum", "x", t)
    if not sum then return nil end
    local set = { [sum.outs.y.tensor] = true }
    for i = math.min(place, to), math.max(place, to) do
        local node = body[i]
        local touches = node.op == "times" or meets(written(node), set) or meets(graph.reads(node), set)
        if i ~= place and touches then return nil end
    end
    return sum
end

function JOIN.batchnorm_sums(g, _, body, at, count)
    local node = body[at]
    local sum, moment = node.outs.sum.tensor, node.outs.moment.tensor
    local dx, place = reader(body, at, "batchnorm_dx", "sum", sum)
    if not dx then return nil end
    local bias, weight = sum_of(body, at, place, sum), sum_of(body, at, place, moment)
    local readers = 0
    for _, other in ipairs(body) do
        if other.op ~= "times" and meets(graph.reads(other), { [sum] = true, [moment] = true }) then
            readers = readers + 1
        end
    end
    if readers > 1 + (bias and 1 or 0) + (weight and 1 or 0) then return nil end
    local parts = make_parts(g, node, count, node.signature.ins)
    dx.attrs = ordered.copy(dx.attrs, { parts = count })
    extend(dx, { ins = { { "parts", parts } }, outs = ordered.collect({ weight and { "d_weight", weight.outs.y } or 0,
        bias and { "d_bias", bias.outs.y } or 0 }, function(entry) return entry ~= 0 and entry or nil end) },
        { sum = true, moment = true })
    return { node = dx, out = ordered.collect({ weight or 0, bias or 0 }, function(each)
        return each ~= 0 and each or nil
    end), later = {} }
end

-- Looks at the nodes of a body; false if none has changed.
local function join_all(g, config, body)
    local out, behind, changed = {}, {}, false
    for at, node in ipairs(body) do
        local parts_of = config.channels[node.op]
        if node.op == "times" then changed = join_all(g, config, node.body) or changed end
        local found = JOIN[node.op] and parts_of and JOIN[node.op](g, config, body, at, parts_of(node))
        if found then
            changed, behind[found.node] = true, found.later
            for _, each in ipairs(found.out) do out[each] = true end
            graph.decide(g, graph.result(found.node).name, found.node.attrs.parts .. " parts",
                "channels are summed in blocks side by side")
        elseif JOIN[node.op] and parts_of and config.sync_batchnorm then
            graph.decide(g, graph.result(node).name, "not in parts", "sync_batchnorm gathers the sums of all its rows")
        end
    end
    local list = table.move(body, 1, #body, 1, {})
    for i = #body, 1, -1 do body[i] = nil end
    for _, node in ipairs(list) do
        if not out[node] then body[#body + 1] = node end
        for _, each in ipairs(behind[node] or {}) do body[#body + 1] = each end
    end
    return changed
end

-- Takes the tensors out that no node writes any more.
local function take_out(g)
    local known = {}
    for _, body in ipairs { g.forward, g.backward, g.evaluation } do
        graph.walk(body, function(node)
            for _, t in ipairs(written(node)) do known[t] = true end
        end)
    end
    g.tensors = ordered.collect(g.tensors, function(t)
        local gone = t.kind == "value" and t.def and t.def.op == "batchnorm_sums" and not known[t]
        return not gone and t or nil
    end)
end

function channels.run(g, config)
    local changed = false
    for _, body in ipairs { g.forward, g.backward } do changed = join_all(g, config, body) or changed end
    if changed then take_out(g) end
    return not changed
end

return channels
