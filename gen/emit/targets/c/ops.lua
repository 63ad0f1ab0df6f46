-- c_ops: template arguments of the C target besides the shared ones of emit/kernels, and helpers. All workers call a
-- kernel, so no op has a launch.
local attention = require "emit.kernels.attention"
local batchnorm = require "emit.kernels.batchnorm"
local behind = require "emit.targets.c.behind"
local c_text = require "emit.targets.c_text"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local loss = require "emit.kernels.loss"
local matmul = require "emit.targets.c.matmul"
local matrix = require "emit.targets.c.matrix"
local norm = require "emit.kernels.norm"
local of_planes = require "emit.targets.c.ops_conv"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"
local pool = require "emit.kernels.pool"
local shape = require "emit.kernels.shape"
local text = require "base.text"

-- Queries and keys of a product in attention; keys are padded to the lanes of row_lanes.c.
local ROWS, KEYS, ROW_LANES = 64, 64, 16
-- Bytes of the copy of a worker's queries, at most; tiles of a kernel, at least where its queries can be cut so.
local HELD, TILES = 1 << 16, 24
-- Queries of a tile of blocks: copies of keys and queries stay in the L2 cache.
local BLOCK_QUERIES = 256

-- Elements of a row that a worker draws for at once, at most.
local CHUNK = 4096

local list = ops.shared(shape, attention, conv, pool, batchnorm, norm, loss)
local function add(name, more) ops.add(list, name, more) end
local function set(name, entry) list[name] = entry end
local function help(helper, ...)
    for _, name in ipairs { ... } do list[name].helper = helper end
end

local function ceil(a, b) return (a + b - 1) // b end
local function whole(a, b) return ceil(a, b) * b end

-- Columns of a tile of sums over rows: long runs of memory, and about 8 tiles for the threads.
local function sum_width(columns, outer) return math.max(64, math.min(768, ceil(ceil(columns * outer, 8), 64) * 64)) end

local function element(t, spelling) return text.block(c_text.load(t, spelling)) end

-- === products ====================================================================================

for _, name in ipairs { "linear", "linear_dx", "linear_dw", "linear_in_out", "linear_in_out_dx",
    "linear_in_out_dw" } do
    set(name, { arguments = function(kernel, node, op, dtype)
        local slices = dtype ~= "f64" and matrix.slices(kernel, node, op)
        kernel.matrix, kernel.panels = slices or false, node.ins.weight and node.ins.weight.panels
        kernel.beside, kernel.cuts = false, false
        if slices then return matrix.product(op.gemm(node), kernel, node.ins.bias ~= nil, slices) end
        kernel.widens = kernel.half and graph.is_half(node.ins[node.signature.ins[1]])
        return matmul.product(op.gemm(node), kernel, node.ins.bias ~= nil, dtype)
    end, block = function(kernel)
        return kernel.cuts and "slices.linear_slices" or kernel.beside and "linear_matrix_beside"
            or kernel.matrix and "linear_matrix" or kernel.half and "linear_half" or "linear"
    end, blocks = { "linear", "linear_half", "linear_matrix", "linear_matrix_beside", "slices.linear_slices" } })
end

-- Elements of f32 are turned on vectors, where 8 fit one.
set("pack_in_out", { arguments = function(kernel, node, _, dtype)
    local arguments = shape.pack_in_out(node, "x[(size_t)n * K + k]")
    kernel.turned = dtype == "f32" and kernel.profile.vector >= 32
    if kernel.turned then arguments.value, arguments.half = nil, graph.is_half(node.outs.y.tensor) end
    return arguments
end, block = function(kernel) return kernel.turned and "pack_in_out_turned" or "pack_in_out" end,
    blocks = { "pack_in_out", "pack_in_out_turned" } })

for name, turned in pairs { pack_panels = false, pack_turned_panels = true } do
    set(name, { arguments = function(kernel, node)
        return matrix.packed(node.size.N, node.size.K, kernel.profile, turned)
    end, block = function() return "pack_panels" end, blocks = { "pack_panels" } })
end

set("pack_both_panels", { arguments = function(kernel, node)
    return matrix.both_packed(node.size.N, node.size.K, kernel.profile)
end })

-- === attention ===================================================================================

-- Hidden keys leave out parts of a product of tiles: the C text of each kind of edge (attention_tiles.c).
local function edges(causal)
    local function edge(name) return text.block(causal and name .. ", shift" or "EDGE_NONE, 0") end
    return { columns = edge "EDGE_COLUMNS", terms = edge "EDGE_TERMS", later = edge "EDGE_LATER" }
end

-- The queries of a worker's tile: keys are copied once for all of them. heads: those of all sequences, where tiles of
-- one head are claimed apart; nil where a worker takes whole heads.
local function held_queries(T, heads, row_bytes)
    local products = math.max(math.min(BLOCK_QUERIES, HELD // row_bytes) // ROWS, 1)
    while heads and products > 1 and heads * ceil(T, products * ROWS) < TILES do products = products - 1 end
    return math.min(products * ROWS, T)
end

-- Whether gradients of keys from j0 on were begun before, by an earlier head or by earlier queries, in C; false: never.
local function begun(attrs, T, queries)
    local heads, earlier = attrs.heads > attrs.kv_heads, T > queries
    local list = {}
    if heads then list[1] = "h > shared * GROUP" end
    if earlier then list[#list + 1] = attrs.causal and "j0 < i0" or "i0 > 0" end
    return #list > 0 and text.block(table.concat(list, " || "))
end

-- The tile of strips, and how single pairs are hidden.
--   tile.queries               of a worker's tile
--   tile.rows, tile.keys       queries and keys of a product
--   tile.wide                  elements of a row of a head in the tile: whole strips
--   tile.load, tile.edge       the function that copies rows, edges of products
--   tile.direct                whether rows in memory are elements of tiles as they are
--   visible.from               the first query of a worker's tile that sees a key from j0 on
--   visible.few                the queries of a product, from query i of a worker's tile on; causal: query i + r sees
--                              the tile's keys up to r + shift, in C
--   visible.last               the last key of the tile that query r of a product sees, in C
--   visible.written            backward: the end of the keys whose gradients queries i0 .. i0 + n - 1 change or begin
--   visible.again              backward: whether gradients of the keys from j0 on were begun before; false: never
local function add_strips(arguments, node, kernel, dtype)
    local T, S, visible, causal = node.size.T, node.size.S, arguments.visible, node.attrs.causal
    local half, bytes = graph.is_half(node.ins.query), dtype == "f64" and 8 or 4
    local strip = 2 * kernel.profile.vector // bytes
    local wide = whole(node.attrs.d, strip)
    local last = T > S and "(r + shift < m ? r + shift : m - 1)" or "r + shift"
    local heads = node.outs.y and node.size.B * node.attrs.heads
    local queries = held_queries(T, heads, wide * bytes)
    arguments.tile = { queries = queries, rows = math.min(ROWS, T),
        keys = math.min(KEYS, whole(S, math.max(ROW_LANES, strip))), wide = wide,
        load = text.ident(half and "tile_widen" or "tile_load"), direct = not half, edge = edges(causal) }
    visible.from = text.block(causal and "j0 > i0 ? j0 - i0 : 0" or "0")
    visible.few = text.block("i + ROWS < n ? ROWS : n - i" .. (causal and ", shift = i0 + i - j0" or ""))
    visible.last = text.block(causal and last or "m - 1")
    visible.written = causal and S > T and text.block "i0 + n < T ? i0 + n : S" or visible.stop
    visible.again = begun(node.attrs, T, queries)
end

-- The same for blocks.
--   tile.queries, tile.keys    of a tile
--   tile.wide                  elements of a head in whole blocks
--   tile.registers             whether the thread opens the matrix registers
--   tile.kept                  the factors of dropout of a tile's probabilities, in C; NULL if there is none
--   visible.from               forward: the first query of a tile that sees a key of one of keys, in C
--   visible.queries            backward: the same for the 32 keys from j on
--   visible.seen               the keys of a tile that a query of the 32 from i on sees
--   visible.hidden, .later     the queries of the 32 from i on that come before key j, or j + r
local function add_blocks(arguments, node, kernel)
    local causal, visible = node.attrs.causal, arguments.visible
    local function of(name, seen, all) visible[name] = text.block(causal and seen or all) end
    arguments.tile = { queries = math.min(BLOCK_QUERIES, matrix.whole(node.size.T)),
        keys = math.min(matrix.keys(node), matrix.whole(node.size.S)), wide = matrix.whole(node.attrs.d),
        registers = matrix.has_registers(kernel), kept = text.ident(arguments.dropout and "kept" or "NULL") }
    of("from", "j0 > i0 ? j0 - i0 : 0", "0")
    of("queries", "j0 + j > i0 ? (j0 + j - i0) / 32 * 32 : 0", "0")
    of("seen", "i0 + i + 32 - j0 < m ? i0 + i + 32 - j0 : m", "m")
    of("hidden", "j0 + j - i0 - i", "0")
    of("later", "j0 + j + r - i0 - i", "0")
end

-- Adds the tile, of blocks or of strips.
--   visible.mask               the mask of the tile's keys, in C; NULL if there is none
local function add_tiles(arguments, node, kernel, dtype)
    kernel.matrix = matrix.slices_of_attention(kernel, node) or false
    if kernel.matrix then add_blocks(arguments, node, kernel) else add_strips(arguments, node, kernel, dtype) end
    arguments.visible.mask =
        text.block(node.ins.mask and ("mask + %s + j0"):format(arguments.shape.key_row.text) or "NULL")
end

local function tile_helpers(node, kernel)
    local draws = node.ins.micro
    local products = kernel.matrix and "attention_matrix"
        or "attention_tiles" .. (graph.is_half(node.ins.query) and " attention_half:half" or "") .. " attention_rows"
    return (draws and "draws " or "") .. "row_lanes row_sums " .. products .. (draws and " attention_draws" or "")
end

add("attend", function(arguments, node, kernel, _, dtype)
    add_tiles(arguments, node, kernel, dtype)
    kernel.position = node.attrs.position and not kernel.matrix
    local sum = kernel.matrix and "out[r * WIDE + c]" or kernel.position and "sum[c] * factor"
        or "sum[i * WIDE + c] * factor"
    arguments.result = text.block(c_text.stored(node.outs.y.tensor, sum))
end)
list.attend.blocks = { "attend", "attention_blocks.attend_matrix", "attend_position" }
list.attend.block = function(kernel)
    return kernel.matrix and "attention_blocks.attend_matrix" or kernel.position and "attend_position" or "attend"
end
add("attend_dx", function(arguments, node, kernel, _, dtype)
    add_tiles(arguments, node, kernel, dtype)
    local dq = node.outs.dq.tensor
    if kernel.matrix then arguments.half, arguments.result = graph.is_half(dq), c_text.type_of(dq) end
end)
list.attend_dx.blocks = { "attend_dx", "attention_blocks.attend_dx_matrix" }
list.attend_dx.block = function(kernel) return kernel.matrix and "attention_blocks.attend_dx_matrix" or "attend_dx" end
add("attend_delta", function(arguments, node) arguments.half = graph.is_half(node.ins.y) end)
set("rotary", { arguments = function(kernel, node)
    return ordered.copy(attention.rotary(kernel, node, "at + c", "at + HALF + c"), {
        place = text.block(node.attrs.position and "((double)position + p)" or "p") })
end, block = function() return "rotary.rotary" end, blocks = { "rotary.rotary" } })
help(tile_helpers, "attend", "attend_dx")
help("row_lanes row_sums", "attend_delta")

-- === norms =======================================================================================

add("rmsnorm", function(arguments, node)
    arguments.x_half = graph.is_half(node.ins.x)
    arguments.value = text.block(c_text.stored(node.outs.y.tensor, "row[c] * factor * weight[c]"))
end)
add("layernorm", function(arguments, node)
    arguments.x_half, arguments.shift = graph.is_half(node.ins.x), text.block(norm.shift(node))
end)
-- How a kernel stores its results: element by element, or in a row of `place`s that it rounds.
local function add_store(arguments, kernel, dtype, place)
    local store, result = behind.in_row(kernel, dtype, place)
    arguments.store, arguments.row = store or behind.store(kernel, dtype), result or false
end

add("norm_dx", function(arguments, node, kernel, _, dtype)
    add_store(arguments, kernel, dtype, "scaled[c]")
    if arguments.store.text:find "%f[%w_]at%f[^%w_]" then
        arguments.store = text.block("const size_t at = (size_t)r * C + c;\n" .. arguments.store.text)
    end
    arguments.x_half = graph.is_half(node.ins.x)
    arguments.dy = element(node.ins.dy, "dy[(size_t)r * C + c]")
end)

-- The declarations of pointers to a row of x and of dy, at offset `at`.
local function heads(node, at)
    local x, dy = c_text.type_of(node.ins.x).text, c_text.type_of(node.ins.dy).text
    if x == dy then return text.block(("const %s *row = x + %s, *d = dy + %s;"):format(x, at, at)) end
    return text.block(("const %s *row = x + %s;\nconst %s *d = dy + %s;"):format(x, at, dy, at))
end

add("norm_dw", function(arguments, node, kernel)
    arguments.init = text.block(kernel.can_add and "add ? y[j0 + j] : 0" or "0")
    arguments.heads = heads(node, "(size_t)i * C + j0")
    arguments.width = sum_width(node.size.C, 1)
    arguments.x, arguments.dy = element(node.ins.x, "row[r * C + j]"), element(node.ins.dy, "d[r * C + j]")
end)
help("row_lanes row_sums", "layernorm", "rmsnorm", "norm_dx")

add("batchnorm_stats", function(arguments, node)
    arguments.type = c_text.type_of(node.ins.x)
end)
add("batchnorm", function(arguments, node, kernel, _, dtype)
    arguments.x = element(node.ins.x, "x[at]")
    add_store(arguments, kernel, dtype, "row[k]")
end)
add("batchnorm_dx", function(arguments, _, kernel, _, dtype)
    local store, result = behind.in_row(kernel, dtype, "row[k]")
    arguments.store, arguments.row = store or arguments.store, result or false
end)
help("row_lanes plane_sums:half", "batchnorm_stats", "batchnorm_sums")

-- === planes ======================================================================================

of_planes(list)

-- The gradient of a plane is spread over the places of its windows.
local function add_spread(arguments, node, kernel)
    arguments.adds, arguments.half = kernel.can_add or false, graph.is_half(node.outs.y.tensor)
end

-- The block goes along rows of a plane, one column of all windows at a time: vectors need no address of one element.
add("maxpool2d", function(arguments, node)
    arguments.first, arguments.x, arguments.type = nil, nil, nil
    arguments.half = graph.is_half(node.ins.x)
    arguments.value = text.block(c_text.stored(node.outs.y.tensor, "best[q]"))
end)
add("maxpool2d_dx", function(arguments, node, kernel)
    arguments.type, arguments.d = c_text.type_of(node.ins.dy), element(node.ins.dy, "d[i]")
    add_spread(arguments, node, kernel)
end)
add("avgpool2d_dx", function(arguments, node, kernel)
    arguments.d = element(node.ins.dy, "dy[(size_t)t.index * P * Q + i]")
    add_spread(arguments, node, kernel)
end)

-- === rows ========================================================================================

local function axis_sum(kernel, node, _, dtype)
    local by_rows, size = shape.by_rows(node), node.size
    local list = shape.axis_sum(kernel, node, dtype, by_rows and "row[j]" or "row[k]")
    if not by_rows then
        list.next, list.width = element(node.ins.x, "row[r * INNER + k]"), sum_width(size.inner, size.outer)
    end
    return list
end
set("axis_sum", { arguments = axis_sum })
set("column_sum", { arguments = axis_sum })

help("row_lanes row_sums", "softmax", "softmax_dx", "log_softmax_dx")

-- A row of 16-bit logits is widened first.
local function add_half(arguments, node) arguments.half = graph.is_half(node.ins.logits) end
add("cross_entropy", add_half)
add("hit", add_half)
add("top_hit", add_half)

set("embedding", { arguments = function(_, node) return shape.embedding(node, "row[c]") end })
set("embedding_dw", { arguments = function(kernel, node)
    local arguments = shape.embedding_dw(kernel, node, "place[c]")
    arguments.type = c_text.type_of(node.ins.dy)
    return arguments
end })

add("dropout", function(arguments) arguments.chunk = math.min(arguments.width, CHUNK) end)
help("draws", "dropout")
help(function(node) return node.ins.micro and "draws narrow_between" end, "accumulate_half")

return list
