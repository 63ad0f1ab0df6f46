-- kernels_attention: the template arguments of attention and of what belongs to it, for both targets.
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local text = require "base.text"

local attention = { arguments = {}, launch = {} }
local arguments, launch = attention.arguments, attention.launch

-- A tile of the C target: as many queries and keys; keys are padded to the lanes of row_sums.c.
local QUERIES, KEYS, ROW_LANES = 64, 64, 16

-- A tile of the CUDA target is square and has 256 threads (attention_tiles.cu).
local THREADS, SIDE = 256, 16

local function ceil(a, b) return (a + b - 1) // b end

-- Tiles of 64 where they fit the 48 KiB of shared memory, smaller ones for short sequences.
local function tile_of(node, dtype)
    local largest = dtype == "f64" and 32 or 64
    return math.min(largest, node.size.T <= SIDE and SIDE or node.size.T <= 32 and 32 or 64)
end

-- Sizes and strides of the rows of q, k and v.
local function sizes(node, dtype, target)
    local a, s = node.attrs, node.size
    return { B = s.B, T = s.T, heads = a.heads, d = a.d, group = a.heads // a.kv_heads, q_row = s.Q,
        k_row = s.K or s.Q, packed = not node.ins.key, dropout = a.dropout > 0,
        drop = text.number(a.dropout, "f64"), name = text.string(a.name or ""),
        scale = text.number(1 / math.sqrt(a.d), dtype), exp = target.call("exp", dtype) }
end

-- What a query sees, in the words of each target.
local function tiles_of_c(list, node)
    list.real = text.ident("real")
    list.queries, list.keys = math.min(QUERIES, list.T), math.min(KEYS, ceil(list.T, ROW_LANES) * ROW_LANES)
    list.last = text.block(node.attrs.causal and "i0 + i - j0" or "m - 1")
    list.mask = text.block(node.ins.mask and "mask + row + j0" or "NULL")
end

local function tiles_of_cuda(list, node, dtype)
    list.tile, list.depth = tile_of(node, dtype), list.d <= SIDE and SIDE or 2 * SIDE
    local hidden = { "j >= T" }
    if node.attrs.causal then hidden[#hidden + 1] = "j > i" end
    if node.ins.mask then hidden[#hidden + 1] = "mask[row + j] == 0" end
    list.hidden = text.block("(" .. table.concat(hidden, " || ") .. ")")
end

local function common(node, dtype, target)
    local list = sizes(node, dtype, target)
    list.type = c.type_of(node.ins.query)
    if target.folder == "c" then
        tiles_of_c(list, node)
        list.half = graph.is_half(node.ins.query)
    else
        tiles_of_cuda(list, node, dtype)
    end
    return list
end

function arguments.attend(_, node, _, dtype, target)
    local list = common(node, dtype, target)
    list.stop = text.block(node.attrs.causal and "i0 + n" or "T")
    list.log = target.call("log", dtype)
    if target.folder == "c" then
        list.result = text.block(c.stored(node.outs.y.tensor, "sum[i * D + c] * factor"))
    end
    return list
end

function arguments.attend_dx(_, node, _, dtype, target)
    local list = common(node, dtype, target)
    list.first = text.block(node.attrs.causal and "j0" or "0")
    if target.folder == "cuda" then list.stop = text.block(node.attrs.causal and "i0 + n" or "T") end
    return list
end

function arguments.attend_delta(_, node, _, _, target)
    local list = { real = text.ident("real"), rows = node.size.B * node.size.T, heads = node.attrs.heads,
        d = node.attrs.d }
    if target.folder == "c" then
        list.half = graph.is_half(node.ins.y)
    else
        list.x, list.dy = text.block(c.load(node.ins.y, "y[c]")), text.block(c.load(node.ins.dy, "dy[c]"))
    end
    return list
end

function arguments.rotary(kernel, node, _, _, target)
    local a = node.attrs
    local first = target.folder == "c" and "at + c" or "at"
    local second = target.folder == "c" and "at + HALF + c" or "at + HALF"
    return { real = text.ident("real"), x_low = text.block(c.load(node.ins.x, ("x[%s]"):format(first))),
        x_high = text.block(c.load(node.ins.x, ("x[%s]"):format(second))), B = node.size.B,
        T = node.size.T, heads = a.heads, d = a.d, base = text.number(a.base, "f64"),
        sign = text.block(a.back and "-" or ""),
        low = c.store(kernel, ("y[%s]"):format(first), "low"),
        high = c.store(kernel, ("y[%s]"):format(second), "high") }
end

function launch.attend(node, dtype)
    local blocks = node.size.B * node.attrs.heads * ceil(node.size.T, tile_of(node, dtype))
    return { blocks = blocks, threads = THREADS }
end

function launch.attend_dx(node, dtype)
    local heads = node.attrs.heads + node.attrs.kv_heads
    return { blocks = node.size.B * heads * ceil(node.size.T, tile_of(node, dtype)), threads = THREADS }
end

return attention
