-- cuda_ops_conv: template arguments of convolutions of the CUDA target besides the shared ones, and their forms: on
-- tensor cores (tensor_conv.lua), or tiles of a product by threads; the choice of a block's part of the places.
local behind = require "emit.targets.cuda.behind"
local c_text = require "emit.targets.c_text"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local tensor_conv = require "emit.targets.cuda.tensor_conv"
local text = require "base.text"

local ceil = launches.ceil

local BLOCKS_EACH = 1024     -- most blocks for a part of a turned weight

-- The text that finds the part of a block and the blocks of the parts before it. tiles_of(part): blocks of a part.
local function part_choice(parts, tiles_of)
    local lines, tiles = {}, 0
    for i, part in ipairs(parts) do
        local value = conv.part_text(part, tiles) .. ";"
        lines[i] = i == 1 and "conv_part part = " .. value or ("if (blockIdx.x >= %d) part = %s"):format(tiles, value)
        tiles = tiles + tiles_of(part)
    end
    return text.block(table.concat(lines, "\n")), tiles
end

-- tile: of a product of this many rows.
--   rows, columns, depth    rows and columns of a block, terms at once
--   tall, wide              rows and columns of a thread
--   blocks                  of a multiprocessor at least: functions of f64 need more registers
local function tile_of(rows)
    local side = rows <= 32 and 32 or 64
    return { rows = side, columns = side, depth = side == 32 and 32 or 16, tall = side // 16, wide = side // 16 }
end

local function product(kernel, node, op, dtype)
    if node.octets then return tensor_conv.product(node, kernel, op.gather(node, true)) end
    local list = conv.arguments.conv2d(kernel, node, op)
    list.store = behind.store(kernel, dtype)
    local g, out = op.gather(node), list.shape.out
    local tile = tile_of(out)
    tile.blocks = node.behind and dtype == "f64" and 1 or 2
    list.tile = tile
    list.weight = text.block(c_text.load(node.ins.weight, "weight[part.weight + (ga_int64)(g * OUT + i) * K + k]"))
    list.part_choice, kernel.launch.blocks = part_choice(g.parts, function(part)
        return ceil(out, tile.rows) * g.groups * ceil(g.B * part.h.places * part.w.places, tile.columns)
    end)
    return list
end

local function product_sizes(_, node, op)
    return node.octets and tensor_conv.product_sizes(node, op.gather(node, true)) or nil
end

-- Blocks for a part of a turned weight.
local function blocks_each(node)
    return math.min(ceil(node.size.N, #node.parts * launches.THREADS), BLOCKS_EACH)
end

-- from: the number of channel c of row i of group g in the weight, `row` = g s.rows.by + i.
local function octets(node)
    local from = node.attrs.octets == "x" and "(ga_int64)row * s.channels + c"
        or "((ga_int64)g * s.channels + c) * s.rows.by + i"
    return { from = text.block(from), shares = #node.parts,
        value = text.block(c_text.load(node.ins.weight, "weight[(from * s.height + h) * s.width + w]")),
        store = text.block(c_text.stored(node.outs.y.tensor, "value")) }
end

local function turned(kernel, node)
    if node.attrs.octets then
        kernel.launch.blocks = #node.parts * blocks_each(node)
        return octets(node)
    end
    local list = conv.arguments.conv2d_turned(kernel, node)
    list.blocks_each = blocks_each(node)
    list.part_choice, kernel.launch.blocks = part_choice(node.parts, function() return list.blocks_each end)
    return list
end

local function turned_sizes(_, node)
    local a = node.attrs
    local rows, terms = a.out // a.groups, a.channels // a.groups
    if a.octets == "dy" then rows, terms = terms, rows end
    return a.octets and tensor_conv.weights_sizes(node, rows, terms, blocks_each(node)) or nil
end

local function weight_gradient(kernel, node, op)
    if node.octets then return tensor_conv.gradient(kernel, node, op.gather(node)) end
    local list = conv.weight_gradient(node, op)
    list.d = text.block(c_text.load(node.ins.dy, "dy[((p / PLACES * GROUPS + g) * OUT + j) * PLACES + p % PLACES]"))
    local shape = list.shape
    local terms = shape.channels * shape.taps
    local tile = tile_of(math.min(terms, shape.out))
    list.tile, list.part_choice = tile, part_choice(op.gather(node).parts, function() return 0 end)
    kernel.launch.blocks = ceil(terms, tile.rows) * ceil(shape.out, tile.columns) * shape.groups * list.partials
    return list
end

-- The blocks of a kernel: this one, or that of its form on tensor cores; patched: that of its form with patches.
local function set_forms(entry, name, patched)
    entry.blocks = { name, name .. "_tensor", patched }
    entry.block = function(kernel)
        return kernel.patched and patched or kernel.matrix and name .. "_tensor" or name
    end
    entry.helper = function(_, kernel)
        return "planes:half " .. (kernel.patched and tensor_conv.PATCH_HELPERS
            or kernel.matrix and tensor_conv.HELPERS or "")
    end
end

-- shape of the planes that become octets, or the other way round: B images, groups of `channels` planes of `places`.
local function copied_shape(node, channels)
    local a, s = node.attrs, node.size
    return { B = s.B, groups = a.groups, channels = channels // a.groups, places = s.H * s.W }
end

-- A thread for each octet of a place.
local function by_octets(node)
    local shape = node.op == "planes" and node.ins.x.shape or node.outs.y.tensor.shape
    return launches.full(graph.elements(shape) // 8)
end

-- members: the gradients that a kernel adds up (passes/together.lua), each by blocks of its own, from `first` on.
local function weight_sums(kernel, node)
    local members, blocks = {}, 0
    for i, s in ipairs(node.attrs.members or { node.size }) do
        local y, first = node.signature.outs[i], blocks
        blocks = blocks + ceil(s.K, 32) * ceil(s.L, 32) * s.G
        members[i] = { partials = s.N, groups = s.G, terms = s.K, out = s.L, first = first,
            y = text.ident(y), partial = text.ident(node.signature.ins[i]),
            add = text.ident(kernel.flags[y] or "false") }
    end
    kernel.launch.blocks = blocks
    return { members = members }
end

-- Entries of the copies between both orders of planes.
local function set_copies(list)
    list.octets = { launch = by_octets, helper = "elements:half", arguments = function(kernel, node)
        local y = node.outs.y.tensor
        return { shape = copied_shape(node, node.size.C), type = c_text.type_of(y), adds = kernel.can_add or false,
            x = text.block(c_text.load(node.ins.x, "x[(at * IN + c) * PLACES + place]")),
            store = c_text.store(kernel, "to.at[e]", "value") }
    end }
    list.planes = { launch = by_octets, helper = "elements:half", arguments = function(kernel, node)
        return { shape = copied_shape(node, node.size.C),
            store = c_text.store(kernel, "y[(at * OUT + c) * PLACES + place]", "value") }
    end }
end

-- Sets the entries of convolution ops in the target's table.
return function(list)
    list.conv2d = { arguments = product, sizes = product_sizes }
    list.conv2d_dx = { arguments = product, sizes = product_sizes }
    list.conv2d_turned = { arguments = turned, sizes = turned_sizes }
    list.conv2d_dw = { arguments = weight_gradient, sizes = function(_, node, op)
        return node.octets and tensor_conv.gradient_sizes(node, op.gather(node)) or nil
    end }
    set_forms(list.conv2d, "conv2d")
    set_forms(list.conv2d_dx, "conv2d")
    set_forms(list.conv2d_dw, "conv2d_dw", "conv2d_dw_patch")
    list.conv2d_turned.blocks = { "conv2d_turned", "conv2d_octets" }
    list.conv2d_turned.block = function(kernel)
        return kernel.node.attrs.octets and "conv2d_octets" or "conv2d_turned"
    end
    for _, name in ipairs { "conv2d", "conv2d_dx", "conv2d_turned", "conv2d_dw" } do
        list[name].launch = launches.by_tiles
    end
    set_copies(list)
    list.conv2d_dw_sum = { arguments = weight_sums, launch = launches.by_tiles, helper = "weight_sums" }
end
