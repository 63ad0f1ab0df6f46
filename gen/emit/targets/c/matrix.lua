-- matrix: the sizes of a product in blocks, on matrix registers or vectors (templates/c/matrix.c).
--
--   A panel (depth x wide of B) is copied once, in pairs of rows, and stays in the L2 cache. 32 rows of A stay in the
--   L1 cache while they run over the panel, 32 columns at a time. A tile has `tall` rows and `wide` columns.
--
-- The registers multiply numbers of bf16. An operand of f32 is the sum of three of them, its slices. Each slice is the
-- rest after those before it, rounded: 24 binary digits are three times eight. Of the nine products of slices six are
-- added up, and the others are below 2^-26 of a term ("bf16x6"). With two slices ("bf16x3") an operand has an error of
-- up to 2^-17 of it.
local behind = require "emit.targets.c.behind"
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local matmul = require "emit.targets.c.matmul"
local ordered = require "base.ordered"
local text = require "base.text"

local matrix = {}

matrix.BLOCK = 32           -- rows, columns and terms of one step

local BLOCK = matrix.BLOCK
local SIDE_MAX = 256        -- rows and columns of a tile: its sums take 256 KiB
local SIDE_MIN = 64
local DEPTH_MAX = 384       -- terms of a panel, of one slice: 32 rows of A take 24 KiB
local MOST_PADDING = 1.5    -- the most multiplications, per one that the product has, that blocks of BLOCK need
local MOST_IN_ATTENTION = 2 -- the same for the products of attention: their strips are slower
local TILES = 12            -- a product has about this many tiles, unless they get too small

local function ceil(a, b) return (a + b - 1) // b end
local function whole(n) return ceil(n, BLOCK) * BLOCK end

-- Parts of a length, each a multiple of BLOCK and at most `most`, of about equal size.
local function side(length, most) return whole(ceil(length, ceil(length, most))) end

matrix.whole, matrix.side = whole, side

--- The products of slices, in order: the smallest come first, and each has a slice of the one before it.
matrix.ORDER = {
    [2] = { { a = 1, b = 0 }, { a = 0, b = 0 }, { a = 0, b = 1 } },
    [3] = { { a = 2, b = 0 }, { a = 1, b = 0 }, { a = 1, b = 1 }, { a = 0, b = 1 }, { a = 0, b = 2 },
        { a = 0, b = 0 } },
}

--- Whether the products of a kernel of bf16 are computed in blocks.
function matrix.takes(kernel) return kernel.half == "bf16" and kernel.profile.matrix ~= nil end

--- Whether they are computed on matrix registers, for all threads to open.
function matrix.has_registers(kernel) return kernel.profile.matrix == "registers" end

-- The rows, columns and terms of a node's product; over some rows at a time they are those of all rows, so that the way
-- of computing is the same for every run.
local function whole_product(node, op)
    if not node.run then return op.gemm(node) end
    local all = ordered.copy(node, { size = ordered.copy(node.size, { lead = { node.run.whole } }) })
    return op.gemm(all)
end

-- The slices of operands whose products have these sides, and take at most so many multiplications per needed one; nil:
-- the products do not use the matrix registers.
local function slices_for(kernel, sides, most)
    if kernel.half or not kernel.slices then return nil end
    local padded, needed = 1, 1
    for _, n in ipairs(sides) do padded, needed = padded * whole(n), needed * n end
    return padded <= most * needed and kernel.slices or nil
end

--- The number of slices of the operands of a kernel's product on the matrix registers; nil: it does not use them. A
--- product of f32 with a side that is no multiple of BLOCK pays for the rest: small ones do not use the registers.
function matrix.slices(kernel, node, op)
    if matrix.takes(kernel) then return 1 end
    local g = whole_product(node, op)
    return slices_for(kernel, { g.M, g.N, g.K }, MOST_PADDING)
end

--- The same for a kernel of attention: queries, keys and elements of a head are the sides of its products.
function matrix.slices_of_attention(kernel, node)
    if matrix.takes(kernel) then return graph.is_half(node.ins.query) and 1 or nil end
    return slices_for(kernel, { node.size.T, node.size.S, node.attrs.d }, MOST_IN_ATTENTION)
end

--- The functions that cut numbers of f32 for blocks, by rows and by columns: into slices; in a program of bf16, whose
--- operands have one slice, into two operands.
function matrix.cut(half)
    local name = half and "matrix_split_" or "matrix_part_"
    return { rows = text.ident(name .. "rows"), columns = text.ident(name .. "columns") }
end

--- The sizes of a product M x N with K terms of operands that have `slices` slices.
function matrix.sizes(M, N, K, slices)
    local tall, wide = side(M, SIDE_MAX), side(N, SIDE_MAX)
    while ceil(M, tall) * ceil(N, wide) < TILES and math.max(tall, wide) > SIDE_MIN do
        if tall > wide then tall = side(M, math.max(SIDE_MIN, tall // 2))
        else wide = side(N, math.max(SIDE_MIN, wide // 2)) end
    end
    return { tall = tall, wide = wide, depth = side(K, DEPTH_MAX // slices // BLOCK * BLOCK) }
end

-- The statements that store a complete sum.
local function store_of(kernel)
    if kernel.node.behind then return behind.store(kernel, "f32") end
    if graph.is_half(graph.result(kernel.node)) then return c_text.store(kernel, "c[at]", "value") end
    return text.block("c[at] = value;")
end

-- The statement that sets the values which the sums of a tile begin with, and the C condition that there are any. A
-- result of 16 bits is added at the end.
local function beginning(kernel, has_bias)
    local adds = kernel.can_add and not graph.is_half(graph.result(kernel.node))
    local function start(from, stride)
        return ("matrix_start(sums, WIDE, i1 - i0, columns, %s, %s);"):format(from, stride)
    end
    local bias, sums = start("bias + j", "0"), start("c + (size_t)i0 * N + j", "N")
    if not adds then return has_bias and text.block(bias), has_bias and "true" or "k > 0" end
    if has_bias then return text.block(("if (add) %s\nelse %s"):format(sums, bias)), "true" end
    return text.block("if (add) " .. sums), "k > 0 || add"
end

--- The arguments of the template for a product with these strides (op.gemm's table), of operands that have `slices`
--- slices.
---   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
---   tile.tall, tile.wide          rows and columns of a tile
---   tile.depth                    terms that go over one panel
---   tile.registers                whether the thread opens the matrix registers
---   a.at, b.at                    the places of A's row i and term k, of B's term k and column j
---   a.direct                      whether blocks of A are read where they are, the last one apart
---   a.pack, b.pack                the functions that copy rows of A, a panel of B
---   a.stride, b.stride            elements between the rows that they read
---   begin, more                   how sums begin; whether a block is added to them
function matrix.product(g, kernel, has_bias, slices)
    local a_rows, b_rows = g.a_col == 1, g.b_col == 1
    local direct = a_rows and g.K % BLOCK == 0 and slices == 1
    local a_row, a_col = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    local begin, more = beginning(kernel, has_bias)
    local tile = matrix.sizes(g.M, g.N, g.K, slices)
    tile.registers = matrix.has_registers(kernel)
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = tile,
        a = { at = matmul.index("i", a_row, "k", a_col), direct = direct,
            type = text.ident(slices == 1 and "bf16" or "f32"), stride = text.block(a_rows and a_row or a_col),
            pack = text.ident("matrix_part_" .. (a_rows and "rows" or "columns")) },
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(b_rows and b_row or b_col),
            pack = text.ident("matrix_pack_" .. (b_rows and "rows" or "columns")) },
        begin = begin or false, more = text.block(more), store = store_of(kernel) }
end

return matrix
