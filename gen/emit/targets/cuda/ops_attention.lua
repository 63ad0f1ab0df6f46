-- cuda_ops_attention: template arguments of attention of the CUDA target besides the shared ones, and its forms: on
-- tensor cores (templates/cuda/attention_tensor.cu), or by threads that have some scores each (attention_tiles.cu).
local attention = require "emit.kernels.attention"
local c_text = require "emit.targets.c_text"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local hopper = require "emit.targets.cuda.hopper"
local launches = require "emit.targets.cuda.launches"
local ops = require "emit.targets.ops"
local tensor = require "emit.targets.cuda.tensor"
local text = require "base.text"

local ceil = launches.ceil

-- The C condition that hides pairs in a tile of keys from j0 on; the tile may reach beyond the last key. mask: the
-- condition that the mask hides key j.
--   visible.hidden    whether query i does not see key j
--   visible.edge      whether a tile with queries from i0 on and KEYS keys from j0 on has pairs that are hidden
local function add_hidden(arguments, node, mask)
    local shape = arguments.shape
    local hidden = { "j >= " .. shape.keys.text }
    local edge = { "j0 + KEYS > " .. shape.keys.text }
    if node.attrs.causal then hidden[2], edge[2] = "j > i", "j0 + KEYS > i0 + 1" end
    if node.ins.mask then
        hidden[#hidden + 1] = mask or ("mask[%s + j] == 0"):format(shape.key_row.text)
        edge = { "true" }
    end
    arguments.visible.hidden = text.block("(" .. table.concat(hidden, " || ") .. ")")
    arguments.visible.edge = text.block("(" .. table.concat(edge, " || ") .. ")")
end

-- The name of the number of tiles of keys, in C.
local function of_keys(shape) return text.ident(shape.S and "KEY_TILES" or "TILES") end

-- Blocks of a kernel whose blocks have `side` queries, and those that have as many keys.
local function blocks_of(node, side)
    local s, a = node.size, node.attrs
    return s.B * a.heads * ceil(s.T, side), s.B * a.kv_heads * ceil(s.S, side)
end

-- === by threads ==================================================================================

local SIDE = 16      -- a tile is square and has 256 threads (attention_tiles.cu)

-- Side of a tile: 64 if it fits 48 KiB of shared memory, smaller for short sequences.
local function side_of(node, dtype)
    local largest, longest = dtype == "f64" and 32 or 64, math.max(node.size.T, node.size.S)
    return math.min(largest, longest <= SIDE and SIDE or longest <= 32 and 32 or 64)
end

--   tile.side         queries, and keys
--   tile.depth        elements of a head at once
--   tile.of_keys      name of the number of tiles of keys, in C
--   tile.blocks       of a multiprocessor at least: draws, f64, gradients, sums of several slices need more registers
local function by_threads(arguments, node, kernel, dtype)
    local shape, side, backward = arguments.shape, side_of(node, dtype), node.op == "attend_dx"
    local queries, keys = blocks_of(node, side)
    local depth, draws = shape.d <= SIDE and SIDE or 2 * SIDE, node.ins.micro ~= nil
    local crowded = draws or dtype == "f64" or shape.d > depth
    arguments.tile = { side = side, depth = depth, of_keys = of_keys(shape),
        blocks = (crowded and 2 or 4) // (backward and 2 or 1) }
    kernel.launch = { blocks = queries + (backward and keys or 0), threads = launches.THREADS }
end

-- === on tensor cores =============================================================================

-- As in attention_tensor.cu: warps of a block; rows of one of their blocks.
local WARPS, ROW_BLOCK = 4, 16

-- Heads whose elements are whole chunks of 16 bytes, up to those whose sums fit the registers; the least rows: fewer
-- would be a tile of zeros for the most part.
local CHUNK, LEAST_D, MOST_D, LEAST = 8, 16, 128, 32

local function fits(node)
    local d, s = node.attrs.d, node.size
    local whole = d % CHUNK == 0 and s.Q % CHUNK == 0 and (s.K or 0) % CHUNK == 0
    return whole and d >= LEAST_D and d <= MOST_D and math.min(s.T, s.S) >= LEAST
end

-- The bytes of a row in shared memory.
local function row_bytes(d) return 2 * ceil(d, 16) * 16 + 16 end

-- Blocks of 16 rows of a warp, rows of the other side at once, blocks of a multiprocessor at least: so that the sums
-- and scores of heads of d elements, and what draws need, fit the registers of a thread.
local function forward_tile(node, d, draws)
    local T, side = node.size.T, 2 * ROW_BLOCK * WARPS
    local pads = ceil(T, side) * 2 > ceil(T, side // 2)
    local tall = d <= 64 and not draws and not pads and blocks_of(node, side) >= tensor.ENOUGH
    return { tall = tall and 2 or 1, rows = d <= 64 and 64 or 32, blocks = (tall or draws) and 2 or 3 }
end

local function backward_tile(_, d, draws)
    return { tall = 1, rows = d <= 96 and 32 or 16, blocks = d <= 64 and not draws and 3 or 2 }
end

-- tile: as above, and
--   tile.of_keys      name of the number of tiles of keys, in C
--   tile.mask         whether a mask comes beside the keys, 16 bytes at a time
local function on_tensor_cores(arguments, node, kernel)
    local backward = node.op == "attend_dx"
    local d = node.attrs.d
    local tile = (backward and backward_tile or forward_tile)(node, d, node.ins.micro ~= nil)
    local own, bytes = tile.tall * ROW_BLOCK * WARPS, row_bytes(d)
    local queries, keys = blocks_of(node, own)
    kernel.matrix = backward and "gradient" or true
    kernel.launch = { blocks = queries + (backward and keys or 0), threads = 32 * WARPS, arch = tensor.ARCH,
        shared = backward and 2 * (own + 2 * tile.rows) * bytes + 16 * tile.rows or (own + 4 * tile.rows) * bytes }
    tile.of_keys = of_keys(arguments.shape)
    tile.mask = node.ins.mask ~= nil and node.size.S % 4 == 0
    if tile.mask then
        kernel.launch.shared = kernel.launch.shared + 4 * math.max(2 * tile.rows, backward and own or 0)
    end
    add_hidden(arguments, node, tile.mask and "of_keys[j - j0] == 0")
    arguments.tile = tile
end

-- The twin of a kernel for sm_90a (targets/cuda/hopper.lua), which has its mask as bits of registers. Those of the
-- gradient:
--   visible.hidden_key    visible.hidden for a tile of keys, where keys are rows
local function add_twin(arguments, node, kernel, op)
    local visible = arguments.visible
    local own = { shape = arguments.shape, softmax = arguments.softmax, dropout = arguments.dropout,
        visible = { stop = visible.stop, first = visible.first } }
    if node.op == "attend_dx" then
        add_hidden(own, node, "!(seen >> (own + down) / 4 & 1)")
        own.visible.hidden_key = own.visible.hidden
        own.out = c_text.type_of(node.outs.dq.tensor)
    end
    add_hidden(own, node, "!(seen[across % 2] >> across / 8 * 2 & 1)")
    kernel.launch.twin = hopper.attention(kernel, op.cost(node).flops, own)
    if kernel.launch.twin then kernel.matrix = node.op == "attend_dx" and "walks" or "attends" end
end

local function add_form(arguments, node, kernel, op, dtype)
    if tensor.takes(kernel) and fits(node) then
        on_tensor_cores(arguments, node, kernel)
        add_twin(arguments, node, kernel, op)
    else
        add_hidden(arguments, node)
        by_threads(arguments, node, kernel, dtype)
    end
end

-- === the entries =================================================================================

local function helper(node, kernel)
    local draws = node.ins.micro and " rng draws" or ""
    if not kernel.matrix then return "attention_tiles:half" .. draws end
    return "tensor:half eights:half tensor_strips:half attention_tensor:half" .. draws
end

-- Elements of a head that a thread of attend_delta moves at once; threads of a head, a power of 2.
local function of_delta(node, dtype)
    local count, lanes = few.of_rows({ node.ins.y, node.ins.dy }, node.attrs.d, dtype), 1
    while lanes < 32 and lanes * count < node.attrs.d do lanes = 2 * lanes end
    return count, lanes
end

-- Sets the entries of attention in the target's table.
return function(list)
    ops.add(list, "attend", add_form)
    ops.add(list, "attend_dx", function(arguments, node, ...)
        add_form(arguments, node, ...)
        arguments.out = c_text.type_of(node.outs.dq.tensor)
    end)
    for _, name in ipairs { "attend", "attend_dx" } do
        local entry = list[name]
        entry.launch, entry.helper, entry.blocks = launches.by_tiles, helper, { name, name .. "_tensor" }
        entry.block = function(kernel) return kernel.matrix and name .. "_tensor" or name end
    end
    ops.add(list, "attend_delta", function(arguments, node, _, _, dtype)
        arguments.few, arguments.lanes = of_delta(node, dtype)
    end)
    list.attend_delta.helper = "elements:half"
    list.attend_delta.launch = function(node, dtype)
        local _, lanes = of_delta(node, dtype)
        return { blocks = launches.ceil(graph.elements(node.outs.delta.tensor.shape) * lanes, launches.THREADS),
            threads = launches.THREADS }
    end
    list.rotary = { arguments = function(kernel, node) return attention.rotary(kernel, node, "at", "at + HALF") end,
        launch = function(node) return launches.over(node.size.T * node.attrs.d // 2) end }
end
