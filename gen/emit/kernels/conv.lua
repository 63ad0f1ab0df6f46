-- kernels_conv: the template arguments of convolutions and pools, for both targets.
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local matmul = require "emit.targets.c.matmul"
local text = require "base.text"

local conv = { arguments = {}, launch = {} }
local arguments, launch = conv.arguments, conv.launch

local PLACES = 128      -- of a panel of the weight's gradient: templates/c/planes.c has room for so many
local THREADS = 256
local TALL_TERMS = 48   -- rows that are gathered at once there

local function ceil(a, b) return (a + b - 1) // b end

-- "{place, places, tap, taps, from}".
local function axis_text(axis)
    return ("{%d, %d, %d, %d, %d}"):format(axis.place, axis.places, axis.tap, axis.taps, axis.from)
end

-- CUDA: the part of a block, `part`; tiles are the blocks of those before it. tiles_of as below.
local function part_choice(parts, tiles_of)
    local lines, tiles = {}, 0
    for i, part in ipairs(parts) do
        local value = ("{%s, %s, %d, %d};"):format(axis_text(part.h), axis_text(part.w), part.weight, tiles)
        lines[i] = i == 1 and "conv_part part = " .. value or ("if (blockIdx.x >= %d) part = %s"):format(tiles, value)
        tiles = tiles + tiles_of(part)
    end
    return text.block(table.concat(lines, "\n")), tiles
end

-- C: the rows of a table of parts; `tiles_of(part)` counts the pieces of work of one.
local function part_rows(parts, tiles_of)
    local rows, tiles = {}, 0
    for i, part in ipairs(parts) do
        tiles = tiles + tiles_of(part)
        rows[i] = ("{%s, %s, %d, %d},"):format(axis_text(part.h), axis_text(part.w), part.weight, tiles)
    end
    return text.block(table.concat(rows, "\n")), tiles
end

local function most_taps(parts)
    local most = 1
    for _, part in ipairs(parts) do most = math.max(most, part.h.taps * part.w.taps) end
    return most
end

-- What planes are read, and how: the same for both targets.
local function reading(g)
    return { B = g.B, groups = g.groups, height = g.height, width = g.width, read_h = g.read_step[1],
        read_w = g.read_step[2], tap_h = g.tap_step[1], tap_w = g.tap_step[2], taps = most_taps(g.parts) }
end

-- CUDA: a tile of a product of `rows` rows.
local function add_tile(list, rows)
    local side = rows <= 32 and 32 or 64
    list.tile_rows, list.tile_columns, list.depth = side, side, side == 32 and 32 or 16
    list.tall, list.wide = side // 16, side // 16
    return side
end

function arguments.conv2d(kernel, node, op, dtype, target)
    local g = op.gather(node)
    local list = reading(g)
    list.x = text.ident(node.ins.x and "x" or "dy")
    list.weight = text.block(c.load(node.ins.weight, "weight[part.weight + (ga_int64)(g * OUT + i) * K + k]"))
    list.channels, list.out, list.rows, list.columns = g.channels // g.groups, g.out // g.groups, g.rows, g.columns
    list.place_h, list.place_w = g.place_step[1], g.place_step[2]
    list.bias = text.block(node.ins.bias and " + bias[g * OUT + i]" or "")
    list.store = c.store(kernel, "y[k]", "value")
    if target.folder == "cuda" then
        local side = add_tile(list, list.out)
        list.part_choice, kernel.launch.blocks = part_choice(g.parts, function(part)
            return ceil(list.out, side) * g.groups * ceil(g.B * part.h.places * part.w.places, side)
        end)
        return list
    end
    list.weight, list.half, list.type = nil, graph.is_half(node.ins.weight), c.type_of(node.ins.weight)
    list.parts = #g.parts
    local s = matmul.sizes(list.out, 16 * g.rows * g.columns, list.channels * list.taps, dtype == "f64" and 8 or 4,
        kernel.profile)
    list.strip_rows, list.wide, list.tall, list.depth = s.rows, s.columns, s.tall, s.depth
    list.strips = matmul.strip_calls(list.out, s.columns, s, "i + ROWS > OUT")
    list.part_rows = part_rows(g.parts, function(part)
        return ceil(list.out, s.tall) * g.groups * ceil(g.B * part.h.places * part.w.places, s.columns)
    end)
    return list
end

arguments.conv2d_dx = arguments.conv2d

function arguments.conv2d_turned(kernel, node, _, _, target)
    local a, parts = node.attrs, node.parts
    local list = { groups = a.groups, channels = a.channels // a.groups, out = a.out // a.groups,
        window_h = a.window[1], window_w = a.window[2], step_h = parts[1].h.tap_step, step_w = parts[1].w.tap_step }
    list.type = c.type_of(node.ins.weight)
    if target.folder == "cuda" then
        list.type = nil
        list.blocks_each = math.min(ceil(node.size.N, #parts * THREADS), 1024)
        list.part_choice, kernel.launch.blocks = part_choice(parts, function() return list.blocks_each end)
    else
        list.parts, list.part_rows = #parts, (part_rows(parts, function() return 0 end))
    end
    return list
end

function arguments.conv2d_dw(kernel, node, op, dtype, target)
    local g = op.gather(node)
    local list = reading(g)
    list.channels, list.out, list.rows, list.columns = g.channels // g.groups, g.out // g.groups, g.rows, g.columns
    list.partials = node.size.N
    list.d = text.block(c.load(node.ins.dy, target.folder == "c" and "d[(size_t)j * PLACES + from[k]]"
        or "dy[((p / PLACES * GROUPS + g) * OUT + j) * PLACES + p % PLACES]"))
    if target.folder == "cuda" then
        local side = add_tile(list, math.min(list.channels * list.taps, list.out))
        list.part_choice = part_choice(g.parts, function() return 0 end)
        kernel.launch.blocks = ceil(list.channels * list.taps, side) * ceil(list.out, side) * g.groups * list.partials
        return list
    end
    list.type = c.type_of(node.ins.x)
    local lanes = kernel.profile.vector // (dtype == "f64" and 8 or 4)
    local K = list.channels * list.taps
    local s = matmul.sizes(math.min(K, TALL_TERMS), list.out, PLACES, dtype == "f64" and 8 or 4, kernel.profile)
    list.strip_rows, list.wide, list.depth = s.rows, s.columns, ceil(math.min(s.depth, PLACES), lanes) * lanes
    list.tall = ceil(math.min(K, TALL_TERMS), s.rows) * s.rows
    list.strips = matmul.strip_calls(K, list.out, s, "i + ROWS > K", "j0 + COLUMNS > OUT")
    list.part_rows = text.block((part_rows(g.parts, function() return 0 end)).text:sub(1, -2))
    return list
end

function arguments.conv2d_dw_sum(kernel, node)
    local s = node.size
    return { partials = s.N, groups = s.G, terms = s.K, out = s.L, store = c.store(kernel, "y[i]", "value") }
end

-- The number of blocks follows from the tiles, above.
function launch.conv2d() return { threads = THREADS } end
launch.conv2d_dx, launch.conv2d_turned, launch.conv2d_dw = launch.conv2d, launch.conv2d, launch.conv2d

function launch.conv2d_dw_sum(node)
    return { blocks = math.min(ceil(node.size.O * node.size.I * node.size.R * node.size.S, THREADS), 65535),
        threads = THREADS }
end

return conv
