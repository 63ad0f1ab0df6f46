-- attention: the template arguments of attention and of what belongs to it, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local attention = { arguments = {} }
local arguments = attention.arguments

-- shape:
--   B, T            sequences, positions of each
--   S               positions of the keys, false where they are T
--   over            the positions, for comments
--   keys, key_row   names in C: of the positions of the keys, of the first key of the sequence
--   heads, d        heads of the queries, elements of a head
--   group           heads of the queries that share one of the keys
--   q_row, k_row    elements from one position to the next: of the query, of the key and the value
--   packed          whether the query holds the key and the value too
local function shape_of(node)
    local a, s = node.attrs, node.size
    local differ = s.S ~= s.T
    return { B = s.B, T = s.T, S = differ and s.S, heads = a.heads, d = a.d, group = a.heads // a.kv_heads,
        q_row = s.Q, k_row = s.K or s.Q, packed = not node.ins.key,
        over = text.comment(differ and ("%d queries and %d keys"):format(s.T, s.S) or s.T .. " positions"),
        keys = text.ident(differ and "S" or "T"), key_row = text.ident(differ and "key_row" or "row") }
end

-- visible: the pairs of a query and a key that count, in C. Targets add how single pairs are hidden.
--   stop     the end of the keys that queries i0 .. i0 + n - 1 see
--   first    the first query that sees a key from j0 on
local function visible_in(attrs, size)
    if attrs.position then return { stop = text.block("(int)position + 1"), first = text.block("0") } end
    if not attrs.causal then
        return { stop = text.block(size.S == size.T and "T" or "S"), first = text.block("0") }
    end
    return { stop = text.block(size.T > size.S and "(i0 + n < S ? i0 + n : S)" or "i0 + n"), first = text.block("j0") }
end

-- softmax: from scores to probabilities.
--   scale       the factor of a score
--   exp, log    names of functions
local function softmax_of(attrs, dtype, target)
    return { scale = text.number(1 / math.sqrt(attrs.d), dtype), exp = target.call("exp", dtype),
        log = target.call("log", dtype) }
end

-- dropout: false if there is none.
--   p       the probability of a 0
--   name    of the random draws
local function dropout_of(attrs) return { p = text.number(attrs.dropout, "f64"), name = text.string(attrs.name) } end

--- type: of an element of the query, the key and the value in memory.
function arguments.attend(_, node, _, dtype, target)
    local attrs = node.attrs
    return { shape = shape_of(node), visible = visible_in(attrs, node.size), softmax = softmax_of(attrs, dtype, target),
        dropout = attrs.dropout > 0 and dropout_of(attrs), type = c_text.type_of(node.ins.query) }
end

arguments.attend_dx = arguments.attend

function arguments.attend_delta(_, node)
    return { rows = node.size.B * node.size.T, heads = node.attrs.heads, T = node.size.T, d = node.attrs.d }
end

--- The arguments of a rotary; `low` and `high` spell the places of the two elements of a pair.
---   shape.B, shape.T         sequences, positions of each
---   shape.heads, shape.d     heads that are turned, elements of each
---   shape.row                elements of a row
---   load.rest, store.rest    element `at` of those behind the heads; nil, false: there are none
---   load.low, load.high      the elements as numbers
---   store.low, store.high    the statements that write them
function attention.rotary(kernel, node, low, high)
    local a, s = node.attrs, node.size
    local function load(place) return text.block(c_text.load(node.ins.x, ("x[%s]"):format(place))) end
    local function store(place, value) return c_text.store(kernel, ("y[%s]"):format(place), value) end
    local rest = s.W > a.heads * a.d
    return { shape = { B = s.B, T = s.T, heads = a.heads, d = a.d, row = s.W }, base = text.number(a.base, "f64"),
        sign = text.block(a.back and "-" or ""), load = { low = load(low), high = load(high), rest = load "at" },
        store = { low = store(low, "low"), high = store(high, "high"), rest = rest and store("at", "value") } }
end

return attention
