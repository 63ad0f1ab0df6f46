-- tensor_conv: the convolutions that a device of sm_80 or newer computes on tensor cores, their tiles, and the
-- arguments of their templates (templates/cuda/conv_tensor.cu). Terms come in octets, 8 channels at one tap: planes lie
-- so (passes/octets.lua), and weights since the last update (passes/layout.lua).
local behind = require "emit.targets.cuda.behind"
local conv = require "emit.kernels.conv"
local launches = require "emit.targets.cuda.launches"
local tensor = require "emit.targets.cuda.tensor"
local text = require "base.text"

local tensor_conv = {}

local ceil = launches.ceil

-- As in tensor_slices.cu: terms of a slice, slices in shared memory. Channels of an octet.
local DEPTH, STAGES, OCTET = 32, 4, 8

-- Fewer outputs of a group are a tile of zeros for the most part; so are more terms with the zeros of octets and slices
-- than this many times those of the product.
local LEAST, PADDED = 32, 4

local PLACES_MAX = 1 << 30      -- numbers of places are int

-- rows, columns: of a tile; down, across: the warps of its block; blocks: of a multiprocessor at least. Rows are places
-- of a product, or octets of the gradient of a weight; columns are outputs.
local LARGE = { rows = 128, columns = 128, down = 2, across = 4, blocks = 2 }
local TALL = { rows = 128, columns = 64, down = 2, across = 2, blocks = 3 }
local WIDE = { rows = 64, columns = 128, down = 2, across = 2, blocks = 3 }
local SMALL = { rows = 64, columns = 64, down = 2, across = 2, blocks = 4 }
local TILES = { LARGE, TALL, SMALL }

local MULTIPROCESSORS = 132     -- of a device that the parts of a sum keep busy

-- Places of a part of the gradient's sum, at least: 32 slices.
local PART_LEAST = 32 * DEPTH

local function fits(rows, channels, taps)
    local terms = ceil(channels, OCTET) * OCTET * taps
    return rows >= LEAST and ceil(terms, DEPTH) * DEPTH <= PADDED * channels * taps
end

--- A function of the attributes of a convolution, what a product of it reads or computes, "x", "dy" or "weight", and
--- for the gradient of the weight the rows of the batch: whether the product is computed on tensor cores, by the shape
--- alone; nil: none is.
function tensor_conv.octets(config)
    if not tensor.turns(config) then return nil end
    return function(a, what, batch)
        local taps, out, channels = a.window[1] * a.window[2], a.out // a.groups, a.channels // a.groups
        local places = what == "weight" and batch * a.rows * a.columns or LEAST
        if what == "dy" then return fits(channels, out, taps) end
        return fits(out, channels, taps) and places >= LEAST and places < PLACES_MAX
    end
end

local function tiles_of_part(tile, g, out, part)
    return ceil(out, tile.columns) * g.groups * ceil(g.B * part.h.places * part.w.places, tile.rows)
end

local function blocks_of(tile, g, out)
    local blocks = 0
    for _, part in ipairs(g.parts) do blocks = blocks + tiles_of_part(tile, g, out, part) end
    return blocks
end

-- The largest tile of which there are enough and that has no more columns of zeros than a smaller one.
local function tile_of(g, out)
    local least = TILES[#TILES]
    for _, tile in ipairs(TILES) do
        local pads = ceil(out, tile.columns) * tile.columns > ceil(out, least.columns) * least.columns
        if not pads and blocks_of(tile, g, out) >= tensor.ENOUGH then return tile end
    end
    return least
end

--- In how many tiles a convolution computes the places of `rows` rows: it can leave averages and squared distances of
--- its outputs in each; nil: it cannot.
function tensor_conv.tiles(node, rows)
    local a, out = node.attrs, node.attrs.out // node.attrs.groups
    if not (node.op == "conv2d" and node.octets) or node.ins.bias or out % OCTET > 0 then return nil end
    local part = { h = { places = a.rows }, w = { places = a.columns } }
    local tile = tile_of({ B = node.size.B, groups = a.groups, parts = { part } }, out)
    local places = rows * a.rows * a.columns
    return places % tile.rows == 0 and places // tile.rows or nil
end

local function launch_of(kernel, tile, blocks)
    kernel.matrix = true
    kernel.launch = { blocks = blocks, threads = 32 * tile.down * tile.across, arch = tensor.ARCH,
        shared = (tile.rows + tile.columns) * DEPTH * STAGES * 2 }
end

--- Adds the template arguments of a product over planes, g: op.gather's table; sets the kernel's launch.
---   tile.rows, tile.columns    of a block; tile.down, tile.across: its warps
---   tile.blocks                of a multiprocessor at least
---   x.name, x.type             of the planes that are read
---   y.add, y.bias              whether `add` says that the result is added; whether a bias is
---   behind                     the pointwise node behind eight neighbours (targets/cuda/behind.lua), or false
---   moments.tiles, .groups     of statistics of the outputs: tiles of a group of rows, groups; or false
function tensor_conv.product(list, node, kernel, g, part_choice)
    local out = list.shape.out
    local tile = tile_of(g, out)
    list.tile, list.bias = tile, nil
    list.x = { name = list.x, type = text.ident(kernel.half) }
    list.y = { add = kernel.can_add or false, bias = node.ins.bias ~= nil }
    list.behind, list.store = behind.eights(kernel, true), nil
    local parts = node.outs.moments and node.outs.moments.tensor.shape
    list.moments = parts and { tiles = parts[1], groups = parts[2] } or false
    local blocks
    list.part_choice, blocks = part_choice(g.parts, function(part) return tiles_of_part(tile, g, out, part) end)
    launch_of(kernel, tile, blocks)
end

-- The tile of the gradient of a weight, and the number of its tiles.
local function gradient_tile(a)
    local out, rows = a.out // a.groups, ceil(a.channels // a.groups, OCTET) * OCTET * a.window[1] * a.window[2]
    local tile = out % WIDE.columns == 0 and WIDE or SMALL
    return tile, ceil(rows, tile.rows) * ceil(out, tile.columns) * a.groups
end

--- In how many parts of its places the gradient of a weight is summed on tensor cores: enough for many blocks, of
--- enough places; nil: it is not.
function tensor_conv.parts(node)
    if not node.octets then return nil end
    local tile, tiles = gradient_tile(node.attrs)
    local places = node.size.B * node.attrs.rows * node.attrs.columns
    return math.max(1, math.min(MULTIPROCESSORS * tile.blocks // tiles, places // PART_LEAST))
end

--- The template arguments of the gradient of a weight; sets the kernel's launch.
function tensor_conv.gradient(kernel, node, op, part_choice)
    local list = conv.weight_gradient(node, op)
    local tile, tiles = gradient_tile(node.attrs)
    list.tile, list.part_choice = tile, part_choice(op.gather(node).parts, function() return 0 end)
    launch_of(kernel, tile, tiles * list.partials)
    return list
end

--- The blocks of functions that their kernels call.
tensor_conv.HELPERS = "tensor:half eights:half tensor_strips:half tensor_slices:half tensor_tile:half conv_tensor:half"

return tensor_conv
