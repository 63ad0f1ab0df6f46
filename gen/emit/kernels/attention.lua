-- attention: the template arguments of attention and of what belongs to it, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local attention = { arguments = {} }
local arguments = attention.arguments

-- B sequences of T positions; heads of the queries, d elements each; group: how many of them share a head of the keys;
-- q_row, k_row: elements from one position to the next in the query, and in the key and the value; packed: whether the
-- query holds the key and the value too.
local function shape_of(node)
    local a, s = node.attrs, node.size
    return { B = s.B, T = s.T, heads = a.heads, d = a.d, group = a.heads // a.kv_heads, q_row = s.Q,
        k_row = s.K or s.Q, packed = not node.ins.key }
end

-- The keys and queries of a tile that meet, in C: stop, the end of the keys for the queries i0 .. i0 + n - 1; first, the
-- first query for the keys from j0 on. Targets add how a pair is hidden.
local function visible_in(attrs)
    return { stop = text.block(attrs.causal and "i0 + n" or "T"), first = text.block(attrs.causal and "j0" or "0") }
end

-- Between scores and probabilities: scale, the factor of a score; exp and log, names of functions.
local function softmax_of(attrs, dtype, target)
    return { scale = text.number(1 / math.sqrt(attrs.d), dtype), exp = target.call("exp", dtype),
        log = target.call("log", dtype) }
end

-- p, the probability of a 0; name, that of the random draws.
local function dropout_of(attrs) return { p = text.number(attrs.dropout, "f64"), name = text.string(attrs.name) } end

--- `type`: of an element of the query, the key and the value in memory; `dropout`: false if there is none.
function arguments.attend(_, node, _, dtype, target)
    local attrs = node.attrs
    return { shape = shape_of(node), visible = visible_in(attrs), softmax = softmax_of(attrs, dtype, target),
        dropout = attrs.dropout > 0 and dropout_of(attrs), type = c_text.type_of(node.ins.query) }
end

arguments.attend_dx = arguments.attend

function arguments.attend_delta(_, node)
    return { rows = node.size.B * node.size.T, heads = node.attrs.heads, d = node.attrs.d }
end

--- The two elements of a pair, low and high: `load`, each as a number; `store`, the statements that write them.
--- `low`, `high`: how their places are spelled.
function attention.rotary(kernel, node, low, high)
    local a, s = node.attrs, node.size
    local function load(place) return text.block(c_text.load(node.ins.x, ("x[%s]"):format(place))) end
    local function store(place, value) return c_text.store(kernel, ("y[%s]"):format(place), value) end
    return { shape = { B = s.B, T = s.T, heads = a.heads, d = a.d }, base = text.number(a.base, "f64"),
        sign = text.block(a.back and "-" or ""), load = { low = load(low), high = load(high) },
        store = { low = store(low, "low"), high = store(high, "high") } }
end

return attention
