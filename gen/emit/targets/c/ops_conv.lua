-- c_ops_conv: template arguments of convolutions of the C target besides the shared ones: strips of a product over
-- panels gathered from the planes, or blocks of it on the matrix registers.
local c_text = require "emit.targets.c_text"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local matmul = require "emit.targets.c.matmul"
local matrix_conv = require "emit.targets.c.matrix_conv"
local ops = require "emit.targets.ops"
local text = require "base.text"

local PLACES = 128      -- in a panel of the weight's gradient
local TALL_TERMS = 48   -- rows gathered at once there

local function ceil(a, b) return (a + b - 1) // b end

local function bytes_of(dtype) return dtype == "f64" and 8 or 4 end

-- parts: the table of parts.
--   count    their number
--   rows     a line for each; `tiles_of(part)` is its number of tiles
--   empty    whether no tap reaches the places of some part
local function parts_of(parts, tiles_of)
    local rows, tiles, empty = {}, 0, false
    for i, part in ipairs(parts) do
        empty = empty or part.h.taps * part.w.taps == 0
        tiles = tiles + tiles_of(part)
        rows[i] = conv.named_part_text(part, tiles) .. ","
    end
    return { count = #parts, rows = text.block(table.concat(rows, "\n")), empty = empty }
end

-- tile: `sizes` are those of matmul.sizes.
--   rows, columns    of a strip
--   tall, depth      rows of the result and terms that go over one panel
--   strips           the calls that compute a strip
local function tile_of(sizes, tall, depth, strips)
    return { rows = sizes.rows, columns = sizes.columns, tall = tall, depth = depth, strips = strips }
end

local function add_strips(list, node, kernel, g, dtype)
    local shape = list.shape
    list.half, list.type = graph.is_half(node.ins.weight), c_text.type_of(node.ins.weight)
    local s = matmul.sizes(shape.out, 16 * g.rows * g.columns, shape.channels * shape.taps, bytes_of(dtype),
        kernel.profile)
    list.tile = tile_of(s, s.tall, s.depth, matmul.strip_calls(shape.out, s.columns, s, "i + ROWS > OUT"))
end

local function add_product(list, node, kernel, op, dtype)
    local g, shape = op.gather(node), list.shape
    local function places(part) return g.B * part.h.places * part.w.places end
    local slices = dtype ~= "f64" and matrix_conv.slices(kernel, shape)
    kernel.matrix = slices or false
    if slices then
        local all = {}
        for i, part in ipairs(g.parts) do all[i] = places(part) end
        list.tile, list.adds = matrix_conv.product(kernel, shape, all, slices), kernel.can_add or false
        list.store, list.type = c_text.store(kernel, "row[c]", "value"), c_text.type_of(node.ins.weight)
    else
        add_strips(list, node, kernel, g, dtype)
    end
    local tile = list.tile
    list.parts = parts_of(g.parts, function(part)
        return ceil(shape.out, tile.tall) * g.groups * ceil(places(part), tile.wide or tile.columns)
    end)
end

local function weight_gradient(kernel, node, op, dtype)
    local list = conv.weight_gradient(node, op, "d[(size_t)j * PLACES + from[k]]")
    local shape, lanes = list.shape, kernel.profile.vector // bytes_of(dtype)
    local K = shape.channels * shape.taps
    list.part = text.block(conv.named_part_text(op.gather(node).parts[1], 0) .. ";")
    local slices = dtype ~= "f64" and matrix_conv.slices(kernel, shape)
    kernel.matrix, list.type = slices or false, c_text.type_of(node.ins.x)
    if slices then
        list.tile, list.d = matrix_conv.gradient(kernel, shape, list.partials, slices), nil
        return list
    end
    local s = matmul.sizes(math.min(K, TALL_TERMS), shape.out, PLACES, bytes_of(dtype), kernel.profile)
    local tall, depth = ceil(math.min(K, TALL_TERMS), s.rows) * s.rows, ceil(math.min(s.depth, PLACES), lanes) * lanes
    list.tile = tile_of(s, tall, depth, matmul.strip_calls(K, shape.out, s, "i + ROWS > K", "j0 + COLUMNS > OUT"))
    return list
end

-- Sets the blocks of an op: NAME, or NAME_matrix on the matrix registers, with what each needs.
local function set_blocks(entry, name)
    entry.blocks = { name, name .. "_matrix" }
    entry.block = function(kernel) return entry.blocks[kernel.matrix and 2 or 1] end
    entry.helper = function(_, kernel)
        if not kernel.matrix then return "planes planes_gather:half" end
        return "planes " .. (kernel.half and "planes_windows" or "planes_floats") .. " planes_terms:half"
    end
end

-- Sets the entries of convolution ops in the target's table.
return function(list)
    ops.add(list, "conv2d", add_product)
    ops.add(list, "conv2d_dx", add_product)
    ops.add(list, "conv2d_turned", function(arguments, node)
        arguments.type = c_text.type_of(node.ins.weight)
        arguments.parts = parts_of(node.parts, function() return 0 end)
        local first, window = node.parts[1], node.attrs.window     -- whole: all places have all taps
        arguments.whole = #node.parts == 1 and first.h.taps == window[1] and first.w.taps == window[2]
    end)
    list.conv2d_turned.helper = "planes"
    list.conv2d_dw = { arguments = weight_gradient }
    set_blocks(list.conv2d, "conv2d")
    set_blocks(list.conv2d_dx, "conv2d")
    set_blocks(list.conv2d_dw, "conv2d_dw")
end
