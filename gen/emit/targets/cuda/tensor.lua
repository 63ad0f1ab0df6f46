-- tensor: the products that a device of sm_80 or newer computes on tensor cores, their tiles, and the arguments of
-- their template (templates/cuda/tensor_product.cu).
local behind = require "emit.targets.cuda.behind"
local graph = require "graph.graph"
local hopper = require "emit.targets.cuda.hopper"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local plain = require "emit.targets.cuda.plain"
local text = require "base.text"

local tensor = {}

local ceil = launches.ceil

--- The least compute capability with these instructions.
tensor.ARCH = 80

-- The least rows, columns and terms of a product: half of those of an instruction, eight neighbours of a result. Most
-- multiplications of such a product are by zeros, but fewer instructions than those of threads.
local LEAST = 8

-- Elements of 16 bits in the 16 bytes of a copy.
local CHUNK = 8

-- rows, columns: of a tile; down, across: the warps of its block, or of each of its `deep` teams. The ring of the
-- largest takes 96 KiB of shared memory, which each device with tensor cores has; its sums leave no registers to hold
-- the elements of odd rows.
local TILES = {
    { rows = 128, columns = 256, down = 2, across = 4, deep = 1, whole = true },
    { rows = 128, columns = 128, down = 2, across = 4, deep = 1 },
    { rows = 64, columns = 64, down = 2, across = 2, deep = 1 },
}

-- Elements of a tile whose products take more time than other instructions.
local LARGE = 128 * 256

-- The tile where there are few of them and a sum is long, from so many terms on: the time of such a product is that of
-- one slice behind the other, so each warp of a block has every eighth slice, and their sums are added up.
local DEEP = { rows = 32, columns = 32, down = 1, across = 1, deep = 8 }
local LONG, FEW = 256, 96

--- Blocks that keep a device with 100 or so multiprocessors busy.
tensor.ENOUGH = 96

-- As in tensor_slices.cu: terms of a slice, slices in shared memory, those of a team.
local DEPTH, STAGES, DEEP_STAGES = 32, 4, 3

local function takes(half, arch) return half and (arch or tensor.ARCH) >= tensor.ARCH end

--- Whether a kernel may use these instructions: one of 16-bit operands in a program that is not for older devices too
--- (target { arch }).
function tensor.takes(kernel) return takes(kernel.half, kernel.arch) end

--- The rows of a product from which on its weight is read as it lies: that costs tensor cores nothing.
function tensor.turns(config)
    return takes(config.precision == "bf16" or config.precision == "f16", config.arch) and LEAST or nil
end

local function blocks_of(tile, g) return ceil(g.M, tile.rows) * ceil(g.N, tile.columns) end

-- The largest tile of which there are enough, else the smallest one. odd: whether an operand has odd rows, for whose
-- elements a thread of a team would need too many registers.
local function tile_of(g, odd)
    if not odd and g.K >= LONG and blocks_of(TILES[#TILES], g) < FEW then return DEEP end
    for _, tile in ipairs(TILES) do
        if blocks_of(tile, g) >= tensor.ENOUGH and not (odd and tile.whole) then return tile end
    end
    return TILES[#TILES]
end

-- How an operand lies, from its stride along its rows (columns) and along the sum, and its extent. Odd: its rows of
-- memory do not begin at whole chunks. Whole: they are whole chunks.
local function operand(side, term, extent, terms)
    local turned = term ~= 1
    local stride = turned and term or side
    return { turned = turned, stride = stride, odd = stride % CHUNK > 0,
        whole = (turned and extent or terms) % CHUNK == 0 }
end

local function operands_of(g)
    return { a = operand(g.a_row, g.a_col, g.M, g.K), b = operand(g.b_col, g.b_row, g.N, g.K) }
end

--- Whether a product (op.gemm's table) is computed on tensor cores: one of 8 rows, columns and terms or more.
function tensor.computes(g, kernel)
    return tensor.takes(kernel) and math.min(g.M, g.N, g.K) >= LEAST
end

-- By op, the operands whose rows may be further apart than they are long; those of products.
local STRIDES = { cross_entropy = { "logits" }, cross_entropy_dx = { "logits", "y" }, hit = { "logits" },
    top_hit = { "logits" }, column_sum = { "x" } }
local OF_PRODUCTS = { linear = { "y" }, linear_in_out = { "y" }, linear_dx = { "dy" }, linear_in_out_dx = { "dy" },
    linear_dw = { "dy" }, linear_in_out_dw = { "dy" } }

--- Asked by passes/strides.lua about a node. Statements behind a product read other values as long as its result.
function tensor.strides(config)
    return function(node, op)
        local names = OF_PRODUCTS[node.op]
        if not names then return STRIDES[node.op] or {}, false end
        local kernel = { half = graph.is_half(graph.reads(node)[1]), arch = config.arch }
        local dense = node.behind and names[1] == "y"
        local computes = not dense and tensor.computes(op.gemm(node), kernel)
        return computes and names or {}, computes
    end
end

local function truth(is) return text.ident(tostring(is)) end

-- The kernel of a small tile has other code for rows that are whole chunks: its products take less time than
-- instructions do. Large tiles have one kernel for both.
local function spelled(o, tile)
    local lies = o.odd and "GA_ODD" or o.whole and tile.rows * tile.columns < LARGE and "GA_WHOLE" or "GA_BEGUN"
    return { turned = truth(o.turned), lies = text.ident(lies) }
end

--- The sizes of a product with these strides (op.gemm's table), and a name of it that products of other ops share:
--- "product_nt_bias_tile_128x256".
function tensor.sizes(g, kernel, op)
    local node, operands = kernel.node, operands_of(g)
    local a, b = operands.a, operands.b
    local tile, own = tile_of(g, a.odd or b.odd), hopper.sizes(g, kernel, operands)
    local form = plain.of(kernel, op)
    return { op = plain.name(node, op), plain = form, missing = form and form.missing,
        kind = (node.ins.bias and not form and "_bias" or "") .. (node.outs.bias and "_sums" or "")
            .. (kernel.can_add and "_adds" or "") .. ("_tile_%dx%d"):format(tile.rows, tile.columns),
        types = "product_sizes", list = { { "product_sizes size", {
            (".M = %d, .N = %d, .K = %d"):format(g.M, g.N, g.K),
            (".a_row = %d, .b_row = %d, .c_row = %d"):format(a.stride, b.stride, g.c_row),
            table.unpack(own or {}) } } } }
end

--- The template arguments of a product with these strides (op.gemm's table); sets the kernel's launch.
---   tile.rows, tile.columns        of a block; tile.down, tile.across: the warps of each of its tile.deep teams
---   tile.at_least                  blocks of a multiprocessor: of a small one as many as shared memory has room for,
---                                  four with draws, two with odd rows: NVRTC would spill registers to have more
---   a.turned, a.lies               whether rows of memory hold one term each; how they lie (tensor_slices.cu);
---                                  likewise b
---   c.all                          whether rows of the result begin at whole chunks
---   c.bias                         whether a bias is added: "always", "where" it is not null, or false: never
---   c.add                          whether `add` says that the result is added
---   c.with_1                       whether nothing but another value is added (targets/cuda/plain.lua)
---   c.drops                        a dropout of the result (targets/cuda/ops.lua), or false
---   sums, of                       sums of an operand over the terms (targets/cuda/ops.lua), or false; of which one
---   behind                         the pointwise node behind it (targets/cuda/behind.lua), or false
function tensor.product(g, kernel, has_bias, sums, drops)
    local operands = operands_of(g)
    local a, b = operands.a, operands.b
    local tile = tile_of(g, a.odd or b.odd)
    kernel.matrix = true
    local stages, form = tile.deep > 1 and DEEP_STAGES or STAGES, kernel.sizes.plain
    kernel.launch = { blocks = blocks_of(tile, g), threads = 32 * tile.down * tile.across * tile.deep,
        arch = tensor.ARCH, shared = (tile.rows + tile.columns) * DEPTH * tile.deep * stages * 2 }
    local room = (a.odd or b.odd) and 2 or drops and 4 or 5
    local at_least = text.block(kernel.launch.threads == 128 and ", " .. room or "")
    local list = { tile = ordered.copy(tile, { at_least = at_least }),
        a = spelled(a, tile), b = spelled(b, tile),
        c = { all = truth(g.c_row % CHUNK == 0), bias = form and form.bias or has_bias and "always", drops = drops,
            with_1 = form and form.with_1 or false, add = kernel.can_add or false },
        sums = sums, of = text.ident("GA_OF_" .. (sums and sums.array.text:upper() or "NONE")),
        behind = not form and behind.eights(kernel, g.c_row % CHUNK == 0) }
    local twin = hopper.twin(g, kernel, operands, list)
    kernel.launch.twin = twin
    if twin then kernel.matrix = twin.cluster > 1 and "cluster_flops" or "twin_flops" end
    return list
end

--- The blocks of functions that its kernel calls.
tensor.HELPERS = "tensor:half eights:half tensor_strips:half tensor_slices:half tensor_sums:half tensor_tile:half "
    .. "tensor_product:half"

return tensor
