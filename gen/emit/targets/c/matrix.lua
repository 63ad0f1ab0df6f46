-- matrix: the sizes of a product of bf16 on the matrix registers of the processor (templates/c/matrix.c).
--
--   A panel (depth x wide of B) is copied once, in pairs of rows, and stays in the L2 cache. 32 rows of A stay in the
--   L1 cache while they run over the panel, 32 columns at a time. A tile has `tall` rows and `wide` columns.
local c_text = require "emit.targets.c_text"
local matmul = require "emit.targets.c.matmul"
local text = require "base.text"

local matrix = {}

matrix.BLOCK = 32           -- rows, columns and terms of one step

local BLOCK = matrix.BLOCK
local SIDE_MAX = 256        -- rows and columns of a tile: its sums take 256 KiB
local SIDE_MIN = 64
local DEPTH_MAX = 384       -- terms: 32 rows of A take 24 KiB
local TILES = 12            -- a product has about this many tiles, unless they get too small

local function ceil(a, b) return (a + b - 1) // b end
local function whole(n) return ceil(n, BLOCK) * BLOCK end

-- Parts of a length, each a multiple of BLOCK and at most `most`, of about equal size.
local function side(length, most) return whole(ceil(length, ceil(length, most))) end

matrix.whole, matrix.side = whole, side

--- Whether a kernel is a product on the matrix registers.
function matrix.takes(kernel) return kernel.half == "bf16" and kernel.profile.matrix_flops ~= nil end

--- The sizes of a product M x N with K terms.
function matrix.sizes(M, N, K)
    local tall, wide = side(M, SIDE_MAX), side(N, SIDE_MAX)
    while ceil(M, tall) * ceil(N, wide) < TILES and math.max(tall, wide) > SIDE_MIN do
        if tall > wide then tall = side(M, math.max(SIDE_MIN, tall // 2))
        else wide = side(N, math.max(SIDE_MIN, wide // 2)) end
    end
    return { tall = tall, wide = wide, depth = side(K, DEPTH_MAX) }
end

--- The arguments of the template for a product with these strides (op.gemm's table).
---   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
---   tile.tall, tile.wide          rows and columns of a tile
---   tile.depth                    terms that go over one panel
---   a.at, b.at                    the places of A's row i and term k, of B's term k and column j
---   a.direct                      whether blocks of A are read where they are, the last one apart
---   a.first, a.rows               the place of A's row i0 and term k; rows of its copy
---   a.pack, b.pack                the functions that copy the tile's part of A, a panel of B
---   a.stride, b.stride            elements between the rows that they read
function matrix.product(g, kernel, has_bias)
    local a_rows, b_rows = g.a_col == 1, g.b_col == 1
    local direct = a_rows and g.K % BLOCK == 0
    local a_row, a_col = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = matrix.sizes(g.M, g.N, g.K),
        a = { at = matmul.index("i", a_row, "k", a_col), first = matmul.index("i0", a_row, "k", a_col),
            rows = text.block(direct and "32" or "TALL"), direct = direct,
            stride = text.block(a_rows and a_row or a_col),
            pack = text.ident("matrix_part_" .. (a_rows and "rows" or "columns")) },
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(b_rows and b_row or b_col),
            pack = text.ident("matrix_pack_" .. (b_rows and "rows" or "columns")) },
        bias = text.block(has_bias and " + bias[j + x + n]" or ""),
        store = c_text.store(kernel, "c[at]", "value") }
end

return matrix
