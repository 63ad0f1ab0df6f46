-- attention: a query takes the average of the values, weighted by how its head matches their keys.
--   p(i, j) = softmax over the keys j of q(i) . k(j) / sqrt(d),   y(i) = sum over j of p(i, j) v(j)
-- Head h of the queries uses head h // (heads / kv_heads) of the keys. The T x S matrix of T queries and S keys is
-- never stored: the backward pass computes p again from lse, the log of the sum of the exponentials (Dao, 2022).
-- With delta(i) = dy(i) . y(i):
--   ds(i, j) = p(i, j) (dy(i) . v(j) - delta(i)) / sqrt(d)
--   dq(i) = sum over j of ds(i, j) k(j),  dk(j) = sum over i of ds(i, j) q(i),
--   dv(j) = sum over i of p(i, j) dy(i)
-- With dropout, p(i, j) is multiplied by z(i, j), 0 or 1 / (1 - dropout), wherever it meets v or dy; the
-- draw is number (h T + i) S + j of the row (runtime/base/rng.h, ga_draw_key), so that it is drawn again.
-- attrs: heads, kv_heads, d (elements of a head), causal (query i sees the keys 0 .. i), dropout, name (of the random
-- draws). Without the inputs key and value, query holds all three side by side, and S is T.

-- The number of pairs of a query and a key that it sees. Causal: the first min(T, S) queries see half of as many keys
-- on average, those behind them see all.
local function pairs_of(n)
    local s, a = n.size, n.attrs
    local both = math.min(s.T, s.S)
    local seen = a.causal and both * (both + 1) // 2 + (s.T - both) * s.S or s.T * s.S
    return s.B * a.heads * seen
end

-- The elements of the query, the key and the value.
local function elements(n)
    local s, a = n.size, n.attrs
    return s.B * (s.T * a.heads + s.S * 2 * a.kv_heads) * a.d
end

local function letters(n, seen)
    seen.H, seen.W, seen.S = n.attrs.heads, n.attrs.heads * n.attrs.d, seen.S or seen.T
end

op "attend" {
    doc = "softmax(q k^T / sqrt(d)) v for each head; a query that sees no key gives 0",
    ins = { "query (B, T, Q)", "key (B, S, K) ?", "value (B, S, K) ?", "mask i32 (B, S) ?",
        "micro micro (1) ?" },
    outs = { "y (B, T, W)", "lse full (B, H, T)" },
    letters = letters, draws = true,
    grad = function(b, n, dy)
        local ins, y = n.ins, n.outs.y.tensor
        local delta = b:node("attend_delta", { dy = dy.y, y = y }, n.attrs,
            { delta = b:full_name("attend_delta") }).outs.delta.tensor
        local dx = b:node("attend_dx", { dy = dy.y, query = ins.query, key = ins.key, value = ins.value,
            mask = ins.mask, lse = n.outs.lse.tensor, delta = delta, micro = ins.micro }, n.attrs).outs
        return { query = dx.dq.tensor, key = ins.key and dx.dk.tensor, value = ins.key and dx.dv.tensor }
    end,
    cost = function(n)
        return { flops = pairs_of(n) * (4 * n.attrs.d + 5),
            elements = elements(n) + n.size.B * n.size.T * (n.size.W + n.size.H) }
    end,
    lower = "attention", rounds = true, half = "query key value y",
    sample = [[function(x)
            return flatten {} (attend { heads = 2 } (reshape { 3, 12 } (linear "qkv" { 36 } (x))))
        end]],
    samples = {
        [[function(x)
            local function of(name, width) return reshape { 3, width } (linear(name) { 3 * width } (x)) end
            local q, k, v = of("q", 12), of("k", 6), of("v", 6)
            return flatten {} (attend { heads = 4, kv_heads = 2, causal = true } (q, k, v))
        end]],
        [[function(x)
            local function of(name) return reshape { 3, 4 } (linear(name) { 12 } (x)) end
            return flatten {} (attend { heads = 2, dropout = 0.4 } (of("q"), of("k"), of("v"), batch.ids))
        end]],
        [[function(x)
            local function of(name, T, width) return reshape { T, width } (linear(name) { T * width } (x)) end
            local q, k, v = of("q", 5, 8), of("k", 3, 4), of("v", 3, 4)
            return flatten {} (attend { heads = 4, kv_heads = 2, dropout = 0.4 } (q, k, v, batch.ids))
        end]],
        [[function(x)
            local function of(name, T) return reshape { T, 4 } (linear(name) { T * 4 } (x)) end
            return flatten {} (attend { heads = 2, causal = true } (of("q", 3), of("k", 2), of("v", 2))
                + attend { heads = 2, causal = true } (of("q2", 3), of("k2", 4), of("v2", 4)))
        end]],
    },
}

op "attend_delta" {
    doc = "dy . y of each head",
    ins = { "dy (B, T, W)", "y (B, T, W)" }, outs = { "delta full (B, H, T)" },
    internal = true, letters = letters,
    cost = function(n)
        local s = n.size
        return { flops = 2 * s.B * s.T * s.W, elements = s.B * s.T * (2 * s.W + s.H) }
    end,
    lower = "attention", rounds = true, half = "dy y",
}

op "attend_dx" {
    doc = "the gradients of attend with respect to q, k and v",
    ins = { "dy (B, T, W)", "query (B, T, Q)", "key (B, S, K) ?", "value (B, S, K) ?",
        "mask i32 (B, S) ?", "lse full (B, H, T)", "delta full (B, H, T)", "micro micro (1) ?" },
    outs = { "dq (B, T, Q)", "dk (B, S, K) ?", "dv (B, S, K) ?" },
    internal = true, letters = letters, draws = true, never_adds = true,
    omit = function(n, name) return name ~= "dq" and not n.ins.key end,
    cost = function(n)
        return { flops = pairs_of(n) * (10 * n.attrs.d + 6),
            elements = 2 * elements(n) + n.size.B * n.size.T * (n.size.W + 2 * n.size.H) }
    end,
    lower = "attention", rounds = true, half = "dy query key value",
}

op "rotary" {
    doc = "pairs (x[i], x[i + d/2]) of each head turned by the angle t base^(-2i/d) at position t; what stands behind "
        .. "the heads in a row is copied",
    ins = { "x (B, T, W)" }, outs = { "y (B, T, W)" },
    grad = function(b, n, dy)
        local a = n.attrs
        return { x = b:value("rotary", { x = dy.y }, { heads = a.heads, d = a.d, base = a.base,
            back = not a.back }) }
    end,
    cost = function(n)
        local s = n.size
        return { flops = 3 * s.B * s.T * s.W, elements = 2 * s.B * s.T * s.W }
    end,
    lower = "attention", half = "x y", detail = function(n) return n.attrs.back and "back" end,
    sample = [[function(x)
            return flatten {} (rotary { heads = 2, base = 7 } (reshape { 3, 8 } (linear "r" { 24 } (x))))
        end]],
}
