-- cuda_ops_batchnorm: template arguments of batchnorm of the CUDA target besides the shared ones: how many channels a
-- block has and how many neighbours a thread moves at once, and in how many parts of the rows blocks share them.
local behind = require "emit.targets.behind"
local c_text = require "emit.targets.c_text"
local cuda_behind = require "emit.targets.cuda.behind"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local kernels_batchnorm = require "emit.kernels.batchnorm"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local ops = require "emit.targets.ops"
local text = require "base.text"

local LARGEST = 1024            -- threads of a block
local OCTET = 8                 -- channels of planes that lie by octets (passes/octets.lua)

local LEAST = 4 * launches.THREADS      -- runs of neighbours that threads move in a part of the rows, at least

local BEHIND = { kept = "decltype(ga_read<FEW>(%s)) %s;", early = "of.%s = %s;", element = "of.%s.at[k]" }

local batchnorm = {}

-- Blocks that a multiprocessor has at once: four, by whose registers a thread can keep what it reads of one array.
local function resident(node)
    return (node.op == "batchnorm_dx" or node.ins.with_1) and 3 or 4
end

local function blocks_at_once(node) return resident(node) * launches.MULTIPROCESSORS end

-- The planes that a node reads and writes.
local function planes_of(node)
    local list = { node.ins.x, node.ins.dy }
    for _, name in ipairs { "y", "behind" } do
        list[#list + 1] = node.outs[name] and node.outs[name].tensor
    end
    return list
end

-- How many neighbouring channels a block has.
local function wide_of(node) return node.octets and OCTET or 1 end

local function few_of(node, dtype)
    return node.octets and OCTET or few.of_rows(planes_of(node), node.size.S, dtype)
end

local function several_of(node) return node.size.B > node.attrs.rows end

-- The blocks of one part: for the channels of each group; and what they move, in runs of `few` neighbours each.
local function shares(node, neighbours)
    local s = node.size
    local blocks = s.G * s.C // wide_of(node)
    return blocks, graph.elements(s.X) // neighbours // blocks
end

-- In how many parts blocks share the rows where nothing is summed.
local function split_of(node, dtype)
    local blocks, runs = shares(node, few_of(node, dtype))
    return math.max(1, math.min(blocks_at_once(node) // blocks, runs // LEAST))
end

--- In how many equal parts of the rows of a group a node sums the values of a channel: enough for many blocks, of
--- enough values. The shape alone decides.
function batchnorm.parts(node)
    local blocks, runs = shares(node, wide_of(node))
    for parts = math.min(blocks_at_once(node) // blocks, runs // LEAST), 2, -1 do
        if runs % parts == 0 and runs // parts % OCTET == 0 then return parts end
    end
    return 1
end

-- Whether the gradient of a parameter is added to what is there, in C; false: the node does not sum it.
local function adds_to(kernel, node, name)
    return node.outs[name] and text.ident(kernel.flags[name] or "false") or false
end

local MORE = {}

function MORE.batchnorm_stats(list, node)
    if node.ins.tiles then list.eps, list.sqrt = nil, nil end
end

-- For planes by octets; by itself NVRTC would spill registers to have more.
local function at_least(node) return text.block(node.octets and (", %d"):format(resident(node)) or "") end

function MORE.batchnorm_sums(list, node) list.at_least = at_least(node) end

function MORE.batchnorm(list, node, kernel, dtype, target)
    list.at_least = at_least(node)
    list.behind, list.out = cuda_behind.early(kernel, list.shape.few, dtype, BEHIND),
        c_text.type_of(node.outs.y.tensor)
    list.last = c_text.type_of((behind.result(node)))
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    list.moves = node.outs.moved_mean ~= nil
        and kernels_batchnorm.arguments.batchnorm_running(kernel, node, nil, dtype)
    if list.moves then list.moves.unbiased = nil end
end

function MORE.batchnorm_dx(list, node, kernel)
    list.at_least = at_least(node)
    list.n = text.block(node.ins.count and "count[0]" or "(real)s.values")
    list.adds, list.out = kernel.flags.y ~= nil, c_text.type_of(node.outs.y.tensor)
    list.store = c_text.store({ node = node, can_add = list.adds }, "to.at[e]", "value")
    list.sums = (node.outs.d_weight or node.outs.d_bias) and { weight = adds_to(kernel, node, "d_weight"),
        bias = adds_to(kernel, node, "d_bias") } or false
end

-- shape:
--   wide, few    channels of a block; neighbours that a thread moves at once
--   parts        whether the rows of a group come in parts whose sums are apart
--   several      whether there are several groups
local function shape_of(node, dtype)
    return { wide = wide_of(node), few = few_of(node, dtype), parts = node.attrs.parts ~= nil,
        several = several_of(node) }
end

-- The sizes that a kernel gets (templates/cuda/channel_sizes.cu).
local function sizes_of(name)
    return function(_, node, _, dtype)
        local s, a, wide, neighbours = node.size, node.attrs, wide_of(node), few_of(node, dtype)
        local rows, tiles = a.rows, node.ins.tiles and node.ins.tiles.shape[1]
        local row = s.S * wide // neighbours
        local sums_nothing = name == "batchnorm" or name == "batchnorm_dx"
        local blocks = sums_nothing and split_of(node, dtype) or a.parts or 1
        local averages = name == "batchnorm_dx" and 1 or tiles or a.parts or 1
        assert(rows * s.S < 1 << 31, "a channel has less than 2^31 values in a group of rows")
        local fields = {
            (".channels = %d, .image = %d"):format(s.C, s.C * s.S), (".planes = divisor(%d)"):format(s.C // wide),
            (".groups = divisor(%d)"):format(s.B // rows), (".row = divisor(%d)"):format(row),
            (".rows = %d, .runs = %d, .share = %d"):format(rows, rows * row, launches.ceil(rows * row, blocks)),
            (".parts = %d, .values = %d"):format(tiles and tiles // a.parts or a.parts or 1, rows * s.S // averages),
            node.outs.moved_mean and (".unbiased = %s"):format(text.number(a.n / (a.n - 1), dtype).text) or nil }
        return { kind = ("_by_%d%s"):format(neighbours, several_of(node) and "_groups" or ""),
            types = "divisor channel_sizes", list = { { "channel_sizes s", fields } } }
    end
end

local function launch_of(name)
    return function(node, dtype)
        local blocks, runs = shares(node, few_of(node, dtype))
        if name == "batchnorm" or name == "batchnorm_dx" then
            return { blocks = blocks * split_of(node, dtype), threads = launches.THREADS }
        end
        local parts = node.attrs.parts
        local many = not (parts or node.octets) and runs >= LARGEST     -- few blocks are under way
        return { blocks = blocks * (parts or 1), threads = many and LARGEST or launches.THREADS }
    end
end

-- The launch of a kernel behind a gather, to which the rank gives two inputs of each channel and the count of its
-- values, 0: none.
local function gathering(node, first, second, values)
    return ordered.copy(launches.full(node.size.C), { gathers = { first, second, node.size.C, values } })
end

--- Sets the entries of batchnorm ops in the target's table.
function batchnorm.set(list)
    for _, name in ipairs { "batchnorm_stats", "batchnorm", "batchnorm_sums", "batchnorm_dx" } do
        ops.add(list, name, function(arguments, node, kernel, _, dtype, target)
            arguments.shape = shape_of(node, dtype)
            for _, key in ipairs { "B", "C", "S", "rows", "x", "dy" } do arguments[key] = nil end
            MORE[name](arguments, node, kernel, dtype, target)
        end)
        list[name].launch, list[name].helper = launch_of(name), "elements:half channels"
        list[name].sizes = sizes_of(name)
    end
    list.batchnorm_stats.blocks = { "batchnorm_stats", "batchnorm_joined" }
    list.batchnorm_stats.block = function(kernel)
        return kernel.node.ins.tiles and "batchnorm_joined" or "batchnorm_stats"
    end
    list.batchnorm_join.launch = function(node) return gathering(node, "own_mean", "own_var", node.attrs.n) end
    list.batchnorm_join_sums.launch = function(node) return gathering(node, "own_sum", "own_moment", 0) end
    for _, name in ipairs { "batchnorm_running", "batchnorm_collect", "batchnorm_add" } do
        list[name].launch = function(node) return launches.full(node.size.C) end
    end
end

return batchnorm
