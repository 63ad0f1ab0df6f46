-- onnx_attention: attend and rotary as nodes of ONNX.
local ordered = require "base.ordered"

local attention = {}

-- Columns first + 1 .. last of the last axis of a value with three.
local function columns(file, value, first, last)
    return file:node("Slice", { value, file:constant("i64", { first }), file:constant("i64", { last }),
        file:constant("i64", { 2 }) })
end

-- A value (rows, places, width) as (rows, kv heads, others, places, d); turned: the last two exchanged.
local function by_heads(file, value, shape, turned)
    local apart = file:node("Reshape", { value, file:constant("i64", { 0, table.unpack(shape) }) })
    return file:node("Transpose", { apart }, { perm = turned and { 0, 2, 3, 4, 1 } or { 0, 2, 3, 1, 4 } })
end

-- A boolean value for pairs of a query and a key: the query sees the key. nil: all see all.
local function visible(file, node, places, keys, mask)
    local seen
    if node.attrs.causal then
        local list = {}
        for query = 1, places do
            for key = 1, keys do list[#list + 1] = key <= query and 1 or 0 end
        end
        seen = file:constant("bool", list, { places, keys })
    end
    if mask then
        local shown = file:node("Cast", { mask }, { to = 9 })
        shown = file:node("Reshape", { shown, file:constant("i64", { 0, 1, 1, 1, keys }) })
        seen = seen and file:node("And", { seen, shown }) or shown
    end
    return seen
end

local LOWEST = -3e38

--- softmax(q k^T / sqrt(d)) v of each head; ins: names of values. A query that sees no key gives 0.
function attention.attend(file, node, ins)
    local a, size = node.attrs, node.size
    local T, S, kv, group = size.T, size.S, a.kv_heads, a.heads // a.kv_heads
    local query, key, value = ins.query, ins.key, ins.value
    if not key then
        local q, k = a.heads * a.d, kv * a.d
        query, key, value = columns(file, ins.query, 0, q), columns(file, ins.query, q, q + k),
            columns(file, ins.query, q + k, q + 2 * k)
    end
    query = by_heads(file, query, { T, kv, group, a.d })
    key, value = by_heads(file, key, { S, kv, 1, a.d }, true), by_heads(file, value, { S, kv, 1, a.d })
    local scores = file:node("Mul", { file:node("MatMul", { query, key }), file:constant("f32", 1 / math.sqrt(a.d)) })
    local seen = visible(file, node, T, S, ins.mask)
    if seen then scores = file:node("Where", { seen, scores, file:constant("f32", LOWEST) }) end
    local weights = file:node("Softmax", { scores }, { axis = -1 })
    if seen then weights = file:node("Mul", { weights, file:node("Cast", { seen }, { to = 1 }) }) end
    local y = file:node("Transpose", { file:node("MatMul", { weights, value }) }, { perm = { 0, 3, 1, 2, 4 } })
    return file:node("Reshape", { y, file:constant("i64", { 0, T, a.heads * a.d }) })
end

-- cos or sin of the angle of pair i at place t, as (T, 1, d / 2).
local function angles(file, node, f)
    local a, list = node.attrs, {}
    for place = 0, node.size.T - 1 do
        for i = 0, a.d // 2 - 1 do list[#list + 1] = f(place * a.base ^ (-2 * i / a.d)) end
    end
    return file:constant("f32", list, { node.size.T, 1, a.d // 2 })
end

--- Pairs (x[i], x[i + d/2]) of each head turned by the angle of their place.
function attention.rotary(file, node, ins)
    local a, half = node.attrs, node.attrs.d // 2
    local x = file:node("Reshape", { ins.x, file:constant("i64", { 0, node.size.T, a.heads, a.d }) })
    local cos, sin = angles(file, node, math.cos), angles(file, node, math.sin)
    local first, second = table.unpack(ordered.collect({ 0, half }, function(from)
        return file:node("Slice", { x, file:constant("i64", { from }), file:constant("i64", { from + half }),
            file:constant("i64", { 3 }) })
    end))
    local function turned(op, p, q)
        return file:node(op, { file:node("Mul", { p, cos }), file:node("Mul", { q, sin }) })
    end
    local y = file:node("Concat", { turned("Sub", first, second), turned("Add", second, first) }, { axis = 3 })
    return file:node("Reshape", { y, file:constant("i64", { 0, node.size.T, a.heads * a.d }) })
end

return attention
