-- matrix_conv: the sizes of convolutions in blocks, on matrix registers or vectors (templates/c/conv.c).
--
--   A tile is `tall` rows of the result by `wide` columns. Its panel is gathered once for all rows of the tile, in
--   chunks of `depth` terms, and stays in the L2 cache with the tile's sums.
local matrix = require "emit.targets.c.matrix"
local text = require "base.text"

local matrix_conv = {}

local BLOCK = matrix.BLOCK
local PADDED = 8            -- blocks have at most this many times the terms of the product
local PADDED_SLICES = 2     -- the same where operands have slices
local TILES = 8             -- a convolution has about this many tiles, unless they get too small
local WIDE, WIDE_MIN = 128, 64
local TALL, TALL_MIN = 512, 128
local DEPTH = 384           -- terms, of one slice: 32 rows of the weight take 24 KiB
local PLACES = 512          -- terms of a gradient, of one slice: the capacity in templates/c/planes.c
local LOCATED = 16384       -- places times taps whose elements are known at once: 64 KiB, and as much for windows
local PANEL = 3 << 16       -- elements of a panel of the weight's gradient: 384 KiB
local SUMS = 1 << 16        -- elements of the sums that it keeps from chunk to chunk: 256 KiB

local function ceil(a, b) return (a + b - 1) // b end

-- Places of a panel, at most.
local function most_places(shape, most)
    return math.max(BLOCK, math.min(most, LOCATED // shape.taps // BLOCK * BLOCK))
end

--- The slices of the operands of a convolution in blocks, nil of another; shape: of emit/kernels/conv.lua. Groups with
--- few channels are no blocks, as 32 rows and 32 terms would be mostly zeros.
function matrix_conv.slices(kernel, shape)
    local K = shape.channels * shape.taps
    local slices = matrix.takes(kernel) and 1 or not kernel.half and kernel.slices or nil
    local most = slices == 1 and PADDED or PADDED_SLICES
    return slices and matrix.whole(shape.out) * matrix.whole(K) <= most * shape.out * K and slices or nil
end

--- The sizes of a product over planes; places: of each part of the result, in all images.
---   direct, registers    whether rows of the weight are read where they are; whether matrix registers multiply
function matrix_conv.product(kernel, shape, places, slices)
    local tall, wide = matrix.side(shape.out, TALL), most_places(shape, WIDE)
    local function tiles()
        local n = 0
        for _, of_part in ipairs(places) do n = n + shape.groups * ceil(shape.out, tall) * ceil(of_part, wide) end
        return n
    end
    while tiles() < TILES and (tall > TALL_MIN or wide > WIDE_MIN) do
        if tall > math.max(wide, TALL_MIN) then tall = matrix.side(shape.out, math.max(TALL_MIN, tall // 2))
        else wide = math.max(WIDE_MIN, wide // 2) end
    end
    return { tall = tall, wide = wide, depth = matrix.side(shape.channels * shape.taps, DEPTH // slices),
        direct = slices == 1, registers = matrix.has_registers(kernel) }
end

--- The sizes of the gradient of a weight: rows are (channel, tap), columns outputs, terms places.
---   run     the places of a partial sum, in whole chunks
---   rows    the array that blocks of A are read from
function matrix_conv.gradient(kernel, shape, partials, slices)
    local K, run = shape.channels * shape.taps, ceil(shape.B * shape.rows * shape.columns, partials)
    local depth = matrix.side(run, most_places(shape, PLACES // slices))
    run = ceil(run, depth) * depth
    local wide = matrix.side(shape.out, PANEL // slices // depth)
    local tall = matrix.side(K, run > depth and math.max(BLOCK, SUMS // wide) or K)
    while partials * shape.groups * ceil(K, tall) * ceil(shape.out, wide) < TILES and tall > TALL_MIN do
        tall = matrix.side(K, math.max(TALL_MIN, tall // 2))
    end
    return { tall = tall, wide = wide, depth = depth, run = run, direct = slices == 1,
        rows = text.ident(slices == 1 and "rows" or "rows_part"), registers = matrix.has_registers(kernel) }
end

return matrix_conv
