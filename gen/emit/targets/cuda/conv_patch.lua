-- conv_patch: the convolutions of 3 x 3 taps whose tiles copy what the taps read once for all of them, and the places
-- of these copies, patches (templates/cuda/conv_patch.cu).
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"

local conv_patch = {}

local ceil = launches.ceil

-- Shared memory that each device with tensor cores has.
local SHARED = 96 * 1024

-- As in conv_patch.cu: taps along an axis; slices of a product and of the gradient of a weight in shared memory; bytes
-- of an octet; those of a slice for an output.
local SIDE, STAGES, GRADIENT_STAGES, OCTET = 3, 2, 3, 16
local OUTPUT = OCTET * (2 * SIDE * SIDE + 1)

-- Tiles as in tensor_conv.lua, places of a slice of a gradient.
local TILES = {
    { rows = 256, columns = 64, down = 4, across = 2, fit = 2 },
    { rows = 128, columns = 64, down = 2, across = 2, fit = 3 },
}
local GRADIENT_PLACES = { 64, 32 }

-- The extent of a patch along an axis, from that of the places, and how far it begins before what the first tap reads.
local function extent_of(g, axis, places)
    local far = (SIDE - 1) * g.tap_step[axis]
    return (places - 1) * g.read_step[axis] + math.abs(far) + 1, math.min(far, 0)
end

-- The patch of `count` places of a result, which are whole lines or whole images; nil: there is none.
--   plane, line, section, places, swaps, up, left, down, right    as in conv_sizes.cu
local function patch_of(g, count)
    local part, image = g.parts[1], g.rows * g.columns
    if #g.parts > 1 or part.h.taps ~= SIDE or part.w.taps ~= SIDE then return nil end
    if count % image > 0 and (image % count > 0 or count % g.columns > 0) then return nil end
    local height, up = extent_of(g, 1, math.min(g.rows, count // g.columns))
    local width, left = extent_of(g, 2, g.columns)
    local section = ceil(width, g.read_step[2])
    local line, down, right = section * g.read_step[2], {}, {}
    for tap = 0, SIDE - 1 do
        local columns = tap * g.tap_step[2] - left
        down[tap + 1] = (tap * g.tap_step[1] - up) * line
        right[tap + 1] = columns % g.read_step[2] * section + columns // g.read_step[2]
    end
    local apart = g.read_step[1] * line             -- banks, of which there are 8 of 16 bytes, between lines of places
    local swaps = g.columns == 4 and g.rows % 4 == 0 and apart % 8 ~= 4 and 2 * apart % 8 == 4
    return { swaps = swaps and 1 or 0, plane = height * line, line = line, section = section, up = up, left = left,
        down = down, right = right, places = height * line * ceil(count, image) }
end

-- A tile with the patch of so many places and the bytes that are `shared`, if that is not too much.
local function with_patch(tile, patch, shared)
    if not patch or shared > SHARED then return nil end
    return ordered.copy(tile, { patch = patch, shared = shared })
end

--- The tile of a product over planes, g: op.gather's table: the largest one with enough(tile), or the smallest one;
--- nil: the product has no patches.
function conv_patch.tile_of(g, enough)
    if g.channels // g.groups % 16 > 0 then return nil end
    local least
    for _, tile in ipairs(TILES) do
        local patch = g.out // g.groups % tile.columns == 0 and patch_of(g, tile.rows)
        local shared = patch and STAGES * (tile.columns * OUTPUT + 2 * OCTET * patch.places) + 4 * patch.places
        local own = with_patch(tile, patch, shared)
        if own and enough(own) then return own end
        least = own or least
    end
    return least
end

--- The tile of the gradient of a weight, g: op.gather's table; nil: it has no patches.
---   rows, columns    channels at all taps and outputs of a tile
---   slice            places of a slice
function conv_patch.gradient_tile(g)
    if g.channels // g.groups % 64 > 0 or g.out // g.groups % 64 > 0 then return nil end
    for _, places in ipairs(GRADIENT_PLACES) do
        local patch = patch_of(g, places)
        local shared = patch and GRADIENT_STAGES * 8 * OCTET * (patch.places + places) + 8 * patch.places
        local tile = { rows = 64 * SIDE * SIDE, columns = 64, down = 8, across = 1, blocks = 1, slice = places }
        local own = with_patch(tile, patch, shared)
        if own then return own end
    end
end

--- The sizes of a patch for a kernel; divisor(n): a number that others are divided by, as the host writes it.
function conv_patch.sizes(patch, divisor)
    return { "conv_patch patch", {
        (".plane = %s, .line = %s"):format(divisor(patch.plane), divisor(patch.line)),
        (".section = %s, .places = %d"):format(divisor(patch.section), patch.places),
        (".swaps = %d, .up = %d, .left = %d"):format(patch.swaps, patch.up, patch.left),
        (".down = {%s}, .right = {%s}"):format(table.concat(patch.down, ", "), table.concat(patch.right, ", ")) } }
end

return conv_patch
