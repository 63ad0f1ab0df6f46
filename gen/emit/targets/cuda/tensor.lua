-- tensor: the products that a device of sm_80 or newer computes on tensor cores, their tiles, and the arguments of
-- their template (templates/cuda/tensor_product.cu).
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local text = require "base.text"

local tensor = {}

local ceil = launches.ceil

-- The least compute capability with these instructions.
local ARCH = 80

-- The least rows, columns and terms of a product: below half a tile, most of the multiplications would be by zeros.
local LEAST = 32

-- Elements of 16 bits in the 16 bytes of a copy.
local CHUNK = 8

-- rows, columns: of a tile; down, across: the warps of its block; each has TALL x WIDE blocks of 16 x 16 sums. The ring
-- of the largest takes 96 KiB of shared memory, which is there on each device with tensor cores.
local TILES = {
    { rows = 128, columns = 256, down = 2, across = 4 },
    { rows = 128, columns = 128, down = 2, across = 4 },
    { rows = 64, columns = 64, down = 2, across = 2 },
}

-- Blocks that keep a device with 100 or so multiprocessors busy.
local ENOUGH = 96

-- As in tensor_tile.cu: terms of a slice, slices in shared memory.
local DEPTH, STAGES = 32, 4

local function takes(half, arch) return half and (arch or ARCH) >= ARCH end

--- The rows of a product from which on its weight is read as it lies: that costs tensor cores nothing.
function tensor.turns(config)
    return takes(config.precision == "bf16" or config.precision == "f16", config.arch) and LEAST or nil
end

local function blocks_of(tile, g) return ceil(g.M, tile.rows) * ceil(g.N, tile.columns) end

-- The largest tile of which there are enough, else the smallest one.
local function tile_of(g)
    for _, tile in ipairs(TILES) do
        if blocks_of(tile, g) >= ENOUGH then return tile end
    end
    return TILES[#TILES]
end

-- How an operand lies, from its stride along its rows (columns) and along the sum, and the extents of both: whether
-- the elements of one term are neighbours, and the distance of the others; nil if they are not whole chunks.
local function operand(side, side_extent, term, term_extent)
    local turned = term ~= 1
    local stride, extent = turned and term or side, turned and side_extent or term_extent
    if (turned and side or term) ~= 1 or stride % CHUNK > 0 or extent % CHUNK > 0 then return nil end
    return { turned = text.ident(tostring(turned)), stride = stride }
end

--- The operands A and B of a product (op.gemm's table) as the template takes them; nil: it is computed without tensor
--- cores. They take products of 16-bit operands, of 32 rows, columns and terms or more, whose rows in memory are whole
--- chunks of 16 bytes, in programs that are not for older devices too (target { arch }).
function tensor.operands(g, kernel)
    if not takes(kernel.half, kernel.arch) or math.min(g.M, g.N, g.K) < LEAST then return nil end
    local a, b = operand(g.a_row, g.M, g.a_col, g.K), operand(g.b_col, g.N, g.b_row, g.K)
    if a and b then return a, b end
end

--- The template arguments of a product of these operands; sets the kernel's launch.
---   shape.M, shape.N, shape.K      rows and columns of the result, terms of a sum
---   tile.rows, tile.columns        of a block; tile.down, tile.across: its warps
---   a.turned, a.stride             whether rows of memory hold one term, and the distance of rows; likewise b
---   out.type, out.all              of the result; whether its rows are whole chunks
---   bias, add                      whether a bias is added, and whether `add` says that the result is
function tensor.product(g, kernel, has_bias, a, b)
    local tile = tile_of(g)
    local y = graph.result(kernel.node)
    kernel.matrix = true
    kernel.launch = { blocks = blocks_of(tile, g), threads = 32 * tile.down * tile.across, arch = ARCH,
        shared = (tile.rows + tile.columns) * DEPTH * STAGES * 2 }
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = tile, a = a, b = b,
        out = { type = text.ident(graph.is_half(y) and y.dtype or "real"),
            all = text.ident(tostring(g.N % CHUNK == 0)) },
        bias = has_bias, add = kernel.can_add or false }
end

--- The blocks of functions that its kernel calls.
tensor.HELPERS = "tensor:half eights:half tensor_tile:half tensor_product:half"

return tensor
