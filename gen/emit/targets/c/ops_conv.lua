-- c_ops_conv: template arguments of convolutions of the C target besides the shared ones: strips of a product over
-- panels gathered from the planes.
local c_text = require "emit.targets.c_text"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local matmul = require "emit.targets.c.matmul"
local ops = require "emit.targets.ops"
local text = require "base.text"

local PLACES = 128      -- in a panel of the weight's gradient: the capacity in templates/c/planes.c
local TALL_TERMS = 48   -- rows gathered at once there

local function ceil(a, b) return (a + b - 1) // b end

local function bytes_of(dtype) return dtype == "f64" and 8 or 4 end

-- parts: the table of parts.
--   count    their number
--   rows     a line for each; `tiles_of(part)` is its number of tiles
local function parts_of(parts, tiles_of)
    local rows, tiles = {}, 0
    for i, part in ipairs(parts) do
        tiles = tiles + tiles_of(part)
        rows[i] = conv.named_part_text(part, tiles) .. ","
    end
    return { count = #parts, rows = text.block(table.concat(rows, "\n")) }
end

-- tile: `sizes` are those of matmul.sizes.
--   rows, columns    of a strip
--   tall, depth      rows of the result and terms that go over one panel
--   strips           the calls that compute a strip
local function tile_of(sizes, tall, depth, strips)
    return { rows = sizes.rows, columns = sizes.columns, tall = tall, depth = depth, strips = strips }
end

local function add_product(list, node, kernel, op, dtype)
    local g, shape = op.gather(node), list.shape
    list.half, list.type = graph.is_half(node.ins.weight), c_text.type_of(node.ins.weight)
    local s = matmul.sizes(shape.out, 16 * g.rows * g.columns, shape.channels * shape.taps, bytes_of(dtype),
        kernel.profile)
    list.tile = tile_of(s, s.tall, s.depth, matmul.strip_calls(shape.out, s.columns, s, "i + ROWS > OUT"))
    list.parts = parts_of(g.parts, function(part)
        return ceil(shape.out, s.tall) * g.groups * ceil(g.B * part.h.places * part.w.places, s.columns)
    end)
end

local function weight_gradient(kernel, node, op, dtype)
    local list = conv.weight_gradient(node, op, "d[(size_t)j * PLACES + from[k]]")
    local shape, lanes = list.shape, kernel.profile.vector // bytes_of(dtype)
    local K = shape.channels * shape.taps
    local s = matmul.sizes(math.min(K, TALL_TERMS), shape.out, PLACES, bytes_of(dtype), kernel.profile)
    list.type = c_text.type_of(node.ins.x)
    local tall, depth = ceil(math.min(K, TALL_TERMS), s.rows) * s.rows, ceil(math.min(s.depth, PLACES), lanes) * lanes
    list.tile = tile_of(s, tall, depth, matmul.strip_calls(K, shape.out, s, "i + ROWS > K", "j0 + COLUMNS > OUT"))
    list.part = text.block(conv.named_part_text(op.gather(node).parts[1], 0) .. ";")
    return list
end

-- Sets the entries of convolution ops in the target's table.
return function(list)
    ops.add(list, "conv2d", add_product)
    ops.add(list, "conv2d_dx", add_product)
    ops.add(list, "conv2d_turned", function(arguments, node)
        arguments.type = c_text.type_of(node.ins.weight)
        arguments.parts = parts_of(node.parts, function() return 0 end)
    end)
    list.conv2d_dw = { arguments = weight_gradient }
end
