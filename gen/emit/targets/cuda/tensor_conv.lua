-- tensor_conv: the convolutions that a device of sm_80 or newer computes on tensor cores, their tiles, and the
-- arguments of their templates (templates/cuda/conv_tensor.cu). Terms come in octets, 8 channels at one tap: planes lie
-- so (passes/octets.lua), and weights since the last update (passes/layout.lua).
local behind = require "emit.targets.cuda.behind"
local conv_patch = require "emit.targets.cuda.conv_patch"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local tensor = require "emit.targets.cuda.tensor"
local text = require "base.text"

local tensor_conv = {}

local ceil = launches.ceil

-- As in tensor_slices.cu: terms of a slice, slices in shared memory. Channels of an octet.
local DEPTH, STAGES, OCTET = 32, 4, 8

-- Fewer outputs of a group are a tile of zeros for the most part; so are more terms with the zeros of octets and slices
-- than this many times those of the product.
local LEAST, PADDED = 32, 4

-- Numbers of places are int. Those of a result are fewer than 2^31 anyway: in 32 channels these take 128 GiB.
local PLACES_MAX = 1 << 30

-- Shares of the places of an input that a kernel gets as arguments: together these take less than 4096 bytes.
local SHARES_MAX = 36

-- rows, columns: of a tile; down, across: the warps of its block; blocks: that parts of a sum shall give a
-- multiprocessor; fit: that its registers suffice for. Rows are places of a product, or octets of the gradient of a
-- weight; columns are outputs.
local LARGE = { rows = 128, columns = 128, down = 2, across = 4, blocks = 2, fit = 2 }
local TALL = { rows = 128, columns = 64, down = 2, across = 2, blocks = 3, fit = 3 }
local WIDE = { rows = 64, columns = 128, down = 2, across = 2, blocks = 3, fit = 3 }
local SMALL = { rows = 64, columns = 64, down = 2, across = 2, blocks = 4, fit = 5 }
local TILES = { LARGE, TALL, SMALL }

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
        if what == "dy" then return fits(channels, out, taps) and a.stride[1] * a.stride[2] <= SHARES_MAX end
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

-- The largest tile of a patch of which there are enough, or the smallest one; of other convolutions the largest tile of
-- which there are enough and that has no more columns of zeros than a smaller one.
local function tile_of(g, out)
    local patched = conv_patch.tile_of(g, function(tile) return blocks_of(tile, g, out) >= tensor.ENOUGH end)
    if patched then return patched end
    local least = TILES[#TILES]
    for _, tile in ipairs(TILES) do
        local pads = ceil(out, tile.columns) * tile.columns > ceil(out, least.columns) * least.columns
        if not pads and blocks_of(tile, g, out) >= tensor.ENOUGH then return tile end
    end
    return least
end

--- In how many tiles a convolution computes the places of `rows` rows: it can leave averages and squared distances of
--- its outputs in each; nil: it cannot.
function tensor_conv.tiles(node, rows, op)
    local a, out = node.attrs, node.attrs.out // node.attrs.groups
    if not (node.op == "conv2d" and node.octets) or node.ins.bias or out % OCTET > 0 then return nil end
    local tile = tile_of(op.gather(node), out)
    local places = rows * a.rows * a.columns
    return places % tile.rows == 0 and places // tile.rows or nil
end

local function launch_of(kernel, tile, blocks)
    kernel.matrix, kernel.patched = true, tile.patch ~= nil
    kernel.launch = { blocks = blocks, threads = 32 * tile.down * tile.across, arch = tensor.ARCH,
        shared = tile.shared or (tile.rows + tile.columns) * DEPTH * STAGES * 2 }
end

-- A number that others are divided by, as the host writes it.
local function divisor(n) return ("divisor(%d)"):format(n) end

-- Adds the shares of places of a result (op.gather's parts) to the sizes of a kernel: "share", or several with numbers.
-- blocks_of(part): the blocks of one.
local function add_shares(list, parts, blocks_of)
    local blocks = 0
    for i, part in ipairs(parts) do
        local h, w, fields = part.h, part.w, {}
        for name, x in ordered.each { h = h, w = w } do
            fields[#fields + 1] = (".%s = {.place = %d, .from = %d, .tap = %d"):format(name, x.place, x.from, x.tap)
            fields[#fields + 1] = (".places = %s, .taps = %s}"):format(divisor(x.places), divisor(x.taps))
        end
        fields[#fields + 1] = (".places = %s, .taps = %s"):format(divisor(h.places * w.places),
            divisor(h.taps * w.taps))
        fields[#fields + 1] = (".weight = %d, .blocks = %d"):format(part.weight, blocks)
        list[#list + 1] = { "conv_share share" .. (#parts > 1 and "_" .. i or ""), fields }
        blocks = blocks + blocks_of(part)
    end
    return list
end

-- The sizes of a product over planes, or of the gradient of a weight (templates/cuda/conv_sizes.cu), in tiles of
-- `columns`; g: op.gather's table.
local function sizes_of(g, columns)
    local channels, out = g.channels // g.groups, g.out // g.groups
    return { "conv_sizes s", { ".images = " .. g.B,
        (".in = %d, .in_octets = %d"):format(channels, ceil(channels, OCTET)),
        (".out = %d, .out_octets = %d"):format(out, ceil(out, OCTET)),
        (".groups = %s, .across = %s"):format(divisor(g.groups), divisor(ceil(out, columns))),
        (".image = %d, .height = %d, .width = %d"):format(g.groups * ceil(channels, OCTET) * g.height * g.width,
            g.height, g.width),
        (".read_h = %d, .read_w = %d"):format(g.read_step[1], g.read_step[2]),
        (".tap_h = %d, .tap_w = %d"):format(g.tap_step[1], g.tap_step[2]),
        (".outputs = %d, .result = %d, .row = %d"):format(g.groups * ceil(out, OCTET) * g.rows * g.columns,
            g.rows * g.columns, g.columns),
        (".place_h = %d, .place_w = %d"):format(g.place_step[1], g.place_step[2]) } }
end

local TYPES = "divisor conv_sizes"

-- "_tile_128x64_4_shares", "_patch_576x64_by_64": what the name of a kernel has behind that of the operation.
local function kind_of(tile, shares)
    return ("_%s_%dx%d"):format(tile.patch and "patch" or "tile", tile.rows, tile.columns)
        .. (tile.slice and ("_by_%d"):format(tile.slice) or "") .. (shares > 1 and ("_%d_shares"):format(shares) or "")
end

--- The sizes of a product over planes, g: op.gather's table.
function tensor_conv.product_sizes(node, g)
    local out = g.out // g.groups
    local tile, parts = tile_of(g, out), node.outs.moments and node.outs.moments.tensor.shape
    local list = add_shares({ sizes_of(g, tile.columns) }, g.parts, function(part)
        return tiles_of_part(tile, g, out, part)
    end)
    if tile.patch then list[#list + 1] = conv_patch.sizes(tile.patch, divisor) end
    if parts then
        list[#list + 1] = { "ga_divisor tiles_of_group", divisor(parts[1]) }
        list[#list + 1] = { "int row_groups", tostring(parts[2]) }
    end
    return { kind = kind_of(tile, #g.parts), types = TYPES, list = list }
end

--- The template arguments of a product over planes, g: op.gather's table; sets the kernel's launch.
---   tile.rows, tile.columns    of a block; tile.down, tile.across: its warps
---   tile.fit                   blocks of a multiprocessor at least
---   tile.product, tile.sizes   the function of a tile, and the sizes that it gets
---   x.name, x.type             of the planes that are read
---   y.add, y.bias              whether `add` says that the result is added; whether a bias is
---   behind                     the pointwise node behind eight neighbours (targets/cuda/behind.lua), or false
---   moments                    whether there are statistics of the outputs
---   shares                     how many shares of places there are
function tensor_conv.product(node, kernel, g)
    local out = g.out // g.groups
    local tile = tile_of(g, out)
    launch_of(kernel, tile, blocks_of(tile, g, out))
    local how = { product = text.ident(tile.patch and "conv_patch_product" or "conv_tensor_product"),
        sizes = text.block(tile.patch and "s, share, patch" or "s, share") }
    return { tile = ordered.copy(tile, how),
        x = { name = text.ident(node.ins.x and "x" or "dy"), type = text.ident(kernel.half) },
        y = { add = kernel.can_add or false, bias = node.ins.bias ~= nil },
        behind = behind.eights(kernel, true, "conv_read_ahead<FEW>(there, weight, "),
        moments = node.outs.moments ~= nil, shares = #g.parts }
end

-- The tile of the gradient of a weight, and the number of its tiles; g: op.gather's table.
local function gradient_tile(a, g)
    local out, rows = a.out // a.groups, ceil(a.channels // a.groups, OCTET) * OCTET * a.window[1] * a.window[2]
    local tile = conv_patch.gradient_tile(g) or out % WIDE.columns == 0 and WIDE or SMALL
    return tile, ceil(rows, tile.rows) * ceil(out, tile.columns) * a.groups
end

--- In how many parts of its places the gradient of a weight is summed on tensor cores: enough for many blocks, of
--- enough places; nil: it is not.
function tensor_conv.parts(node, op)
    if not node.octets then return nil end
    local tile, tiles = gradient_tile(node.attrs, op.gather(node))
    local places = node.size.B * node.attrs.rows * node.attrs.columns
    return math.max(1, math.min(launches.MULTIPROCESSORS * tile.blocks // tiles, places // PART_LEAST))
end

--- The sizes of the gradient of a weight, g: op.gather's table.
---   down    tiles below each other
---   run     places whose products are a sum of their own
function tensor_conv.gradient_sizes(node, g)
    local tile, tiles = gradient_tile(node.attrs, g)
    local across = ceil(g.out // g.groups, tile.columns)
    local slice = tile.slice or DEPTH
    local run = ceil(ceil(g.B * g.rows * g.columns, node.size.N), slice) * slice
    local list = add_shares({ sizes_of(g, tile.columns) }, g.parts, function() return 0 end)
    if tile.patch then list[#list + 1] = conv_patch.sizes(tile.patch, divisor) end
    list[#list + 1] = { "ga_divisor down", divisor(tiles // across // g.groups) }
    list[#list + 1] = { "int run", tostring(run) }
    return { kind = kind_of(tile, 1), types = TYPES, list = list }
end

--- The template arguments of the gradient of a weight; sets the kernel's launch.
---   tile     as of a product; tile.slice: places of a slice of a patch
---   whole    without patches: whether the outputs of a group are whole eights
function tensor_conv.gradient(kernel, node, g)
    local tile, tiles = gradient_tile(node.attrs, g)
    launch_of(kernel, tile, tiles * node.size.N)
    if tile.patch then return { tile = tile } end
    return { tile = tile, whole = text.ident(tostring(node.attrs.out // node.attrs.groups % OCTET == 0)) }
end

--- The sizes of weights that lie by octets: rows of `terms` channels each (templates/cuda/conv_sizes.cu), with `blocks`
--- for each share.
function tensor_conv.weights_sizes(node, rows, terms, blocks)
    local a, first = node.attrs, node.parts[1]
    local sizes = { "conv_weights_sizes s", { (".groups = %s, .rows = %s, .octets = %s"):format(divisor(a.groups),
        divisor(rows), divisor(ceil(terms, OCTET))), (".channels = %d"):format(terms),
        (".height = %d, .width = %d"):format(a.window[1], a.window[2]),
        (".tap_h = %d, .tap_w = %d"):format(first.h.tap_step, first.w.tap_step), ".blocks = " .. blocks } }
    local shares = #node.parts
    return { kind = ("_of_%s"):format(a.octets) .. (shares > 1 and ("_%d_shares"):format(shares) or ""), types = TYPES,
        list = add_shares({ sizes }, node.parts, function() return blocks end) }
end

--- The blocks of functions that their kernels call.
tensor_conv.HELPERS = "tensor:half eights:half tensor_slices:half tensor_tile:half conv_tensor:half"

--- The same of kernels with patches.
tensor_conv.PATCH_HELPERS = tensor_conv.HELPERS .. " conv_patch:half"

return tensor_conv
