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

-- The rows of a table of parts; `tiles_of(part)` is the number of tiles of a part.
local function part_rows(parts, tiles_of)
    local rows, tiles = {}, 0
    for i, part in ipairs(parts) do
        tiles = tiles + tiles_of(part)
        rows[i] = conv.part_text(part, tiles) .. ","
    end
    return text.block(table.concat(rows, "\n"))
end

local function no_tiles() return 0 end

local function add_product(list, node, kernel, op, dtype)
    local g = op.gather(node)
    list.half, list.type = graph.is_half(node.ins.weight), c_text.type_of(node.ins.weight)
    list.parts = #g.parts
    local s = matmul.sizes(list.out, 16 * g.rows * g.columns, list.channels * list.taps, bytes_of(dtype),
        kernel.profile)
    list.strip_rows, list.wide, list.tall, list.depth = s.rows, s.columns, s.tall, s.depth
    list.strips = matmul.strip_calls(list.out, s.columns, s, "i + ROWS > OUT")
    list.part_rows = part_rows(g.parts, function(part)
        return ceil(list.out, s.tall) * g.groups * ceil(g.B * part.h.places * part.w.places, s.columns)
    end)
end

local function weight_gradient(kernel, node, op, dtype)
    local list = conv.weight_gradient(node, op, "d[(size_t)j * PLACES + from[k]]")
    list.type = c_text.type_of(node.ins.x)
    local lanes = kernel.profile.vector // bytes_of(dtype)
    local K = list.channels * list.taps
    local s = matmul.sizes(math.min(K, TALL_TERMS), list.out, PLACES, bytes_of(dtype), kernel.profile)
    list.strip_rows, list.wide, list.depth = s.rows, s.columns, ceil(math.min(s.depth, PLACES), lanes) * lanes
    list.tall = ceil(math.min(K, TALL_TERMS), s.rows) * s.rows
    list.strips = matmul.strip_calls(K, list.out, s, "i + ROWS > K", "j0 + COLUMNS > OUT")
    list.part_rows = text.block(part_rows(op.gather(node).parts, no_tiles).text:sub(1, -2))
    return list
end

-- Sets the entries of convolution ops in the target's table.
return function(list)
    ops.add(list, "conv2d", add_product)
    ops.add(list, "conv2d_dx", add_product)
    ops.add(list, "conv2d_turned", function(arguments, node)
        arguments.type = c_text.type_of(node.ins.weight)
        arguments.parts, arguments.part_rows = #node.parts, part_rows(node.parts, no_tiles)
    end)
    list.conv2d_dw = { arguments = weight_gradient }
end
