-- attention: the layers between the projections of a transformer. Tensors are (rows, positions, width); the width
-- holds the heads side by side.
local diag = require "base.diag"
local graph = require "graph.graph"

local LARGEST_HEAD = 256     -- elements: the stack of a thread holds a tile of keys and its gradient

local function fail(b, what, message, ...) diag.fail(b.at, what .. ": " .. message:format(...), {}) end

local function check_rank(b, what, x)
    if #x.shape ~= 3 then
        fail(b, what, "shape %s found, expected (rows, positions, width)", graph.shape_text(x.shape))
    end
end

-- The elements of one of `heads` heads in x; `noun` names these heads in messages.
local function head_size(b, what, x, heads, noun)
    local width = x.shape[3]
    if width % heads ~= 0 then
        fail(b, what, "width %d found, expected a multiple of %d: %s", width, heads, noun)
    elseif width // heads > LARGEST_HEAD then
        fail(b, what, "heads of %d elements found, expected at most %d", width // heads, LARGEST_HEAD)
    end
    return width // heads
end

-- The keys, the values and the mask of the keys have the same positions; queries may have others.
local function check_positions(b, k, v, mask)
    for _, x in ipairs { v, mask } do
        if x.shape[2] ~= k.shape[2] then
            fail(b, "attend", "keys of shape %s and %s of shape %s found, expected as many positions",
                graph.shape_text(k.shape), x == v and "values" or "a mask", graph.shape_text(x.shape))
        end
    end
end

layer "attend" {
    doc = "attention: softmax(q k^T / sqrt(d)) v for each head. attend { heads = 12 } (qkv), with queries, keys and "
        .. "values side by side; or (q, k, v), with as many keys as queries or another number of them, as in a decoder "
        .. "that reads an encoder; or (q, k, v, mask): keys with 0 in mask are not seen; a "
        .. "query that sees none gives 0",
    takes = { 1, 3, 4 },
    fields = {
        { name = "heads", type = "int", min = 1, max = 65536, required = true, doc = "heads of the queries" },
        { name = "kv_heads", type = "int", min = 1, max = 65536,
          doc = "heads of the keys and values, each for heads / kv_heads of the queries; default: heads" },
        { name = "causal", type = "bool", default = false, doc = "whether a query sees no later key: query i sees the "
            .. "keys 1 to i, whatever their numbers are (torch's is_causal)" },
        { name = "dropout", type = "num", default = 0, min = 0, below = 1,
          doc = "the probability that a query leaves out a key in training; the others count 1 / (1 - dropout)" },
    },
    example = 'local y = flatten {} (attend { heads = 2, causal = true } '
        .. '(reshape { 3, 12 } (linear "qkv" { 36 } (x))))',
    apply = function(b, f, q, k, v, mask)
        local kv_heads = f.kv_heads or f.heads
        if f.heads % kv_heads ~= 0 then
            fail(b, "attend", "%d heads found for %d kv_heads, expected a multiple", f.heads, kv_heads)
        end
        check_rank(b, "attend", q)
        local d = k and head_size(b, "attend", q, f.heads, "the heads of the queries")
            or head_size(b, "attend", q, f.heads + 2 * kv_heads, "the heads of queries, keys and values")
        for _, x in ipairs { k, v } do
            check_rank(b, "attend", x)
            if x.shape[3] ~= kv_heads * d then
                fail(b, "attend", "keys and values of width %d found, expected %d: %d heads of %d as those of "
                    .. "the queries", x.shape[3], kv_heads * d, kv_heads, d)
            end
        end
        if k then check_positions(b, k, v, mask) end
        local name = f.dropout > 0 and b:draw_name("attend", q) or nil
        return b:value("attend", { query = q, key = k, value = v, mask = mask, micro = name and b.graph.micro },
            { heads = f.heads, kv_heads = kv_heads, d = d, causal = f.causal, dropout = f.dropout, name = name })
    end,
}

layer "rotary" {
    doc = "rotary position embedding of queries or keys: in each head of d elements the pair (i, i + d/2) is turned "
        .. "by the angle t base^(-2i/d) at position t = 0, 1, ... (as Llama's files of Hugging Face have it)",
    fields = {
        { name = "heads", type = "int", min = 1, max = 65536, required = true, doc = "heads side by side in x" },
        { name = "base", type = "num", default = 10000, above = 1, doc = "base of the angles" },
    },
    example = "local y = flatten {} (rotary { heads = 2 } (reshape { 2, 4 } (x)))",
    apply = function(b, f, x)
        check_rank(b, "rotary", x)
        local d = head_size(b, "rotary", x, f.heads, "its heads")
        if d % 2 ~= 0 then fail(b, "rotary", "heads of %d elements found, expected an even number", d) end
        return b:value("rotary", { x = x }, { heads = f.heads, d = d, base = f.base, back = false })
    end,
}
