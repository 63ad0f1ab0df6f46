-- ops_embedding: embeddings on the CUDA target: rows of a table, the order of the ids, the gradient of the table.
local c_text = require "emit.targets.c_text"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local ops = require "emit.targets.ops"
local shape = require "emit.kernels.shape"

local ceil = launches.ceil

-- Neighbours of a row of a table of embeddings that a thread moves at once.
local function few_of_embedding(node, dtype)
    return few.of_rows({ node.ins.weight, node.outs.y.tensor }, node.size.C, dtype)
end

local ORDER_THREADS = 512    -- of a block that orders ids; it has as many rows of the table

local function own_rows(node) return math.min(node.size.F - 1, ORDER_THREADS) end

-- Of the gradient: blocks to have at least, two for each multiprocessor; threads of a slice of a
-- row at least, whose elements fill 64 bytes; threads of a block, at least and at most; places of a thread on average.
local BLOCKS, LANES, THREADS, MOST, PLACES = 2 * launches.MULTIPROCESSORS, 4, 128, 512, 4

local function few_of_gradient(node, dtype)
    return few.of_rows({ node.outs.y.tensor, node.ins.dy }, node.size.C, dtype)
end

-- How blocks share the rows of the table and the places. Few rows are cut into narrow slices, whose blocks have many
-- groups of threads. The shapes alone decide, so that the order of a sum over places does not depend on the others.
--   count, lanes, groups    slices of a row; threads of a slice; groups of these in a block
--   at_once                 places that a thread reads at once; fewer where many blocks are to be there at once
local function slice_of(node, dtype)
    local rows, across = node.size.R, ceil(node.size.C, few_of_gradient(node, dtype))
    local lanes = LANES
    while lanes < THREADS and lanes < across and rows * ceil(across, 2 * lanes) >= BLOCKS do lanes = 2 * lanes end
    local places, threads = ceil(node.size.N, rows), THREADS
    while threads < MOST and places > PLACES * (threads // lanes) do threads = 2 * threads end
    local groups = threads // lanes
    return { count = ceil(across, lanes), lanes = lanes, groups = groups, at_once = groups > 1 and 8 or 4 }
end

--- Sets the entries of embeddings in the target's table.
return function(list)
    list.embedding = { arguments = function(_, node, _, dtype)
        return { ids = graph.elements(node.size.lead), C = node.size.C, few = few_of_embedding(node, dtype),
            out = c_text.type_of(node.outs.y.tensor) }
    end, helper = "elements:half", launch = function(node, dtype)
        return launches.over(graph.elements(node.size.lead) * node.size.C // few_of_embedding(node, dtype))
    end }
    ops.add(list, "id_order", function(arguments, node) arguments.own = own_rows(node) end)
    list.id_order.helper = "block_before"
    list.id_order.launch = function(node)
        return { blocks = ceil(node.size.F - 1, own_rows(node)), threads = ORDER_THREADS }
    end
    list.embedding_dw = { arguments = function(kernel, node, _, dtype)
        local arguments, y = shape.embedding_dw(kernel, node, "dy"), node.outs.y.tensor
        arguments.few, arguments.out, arguments.term = few_of_gradient(node, dtype), c_text.type_of(y), nil
        arguments.store, arguments.slice = c_text.store(kernel, "row.at[e]", "value"), slice_of(node, dtype)
        return arguments
    end, helper = "elements:half", launch = function(node, dtype)
        local slice = slice_of(node, dtype)
        return { blocks = node.size.R * slice.count, threads = slice.lanes * slice.groups }
    end }
end
