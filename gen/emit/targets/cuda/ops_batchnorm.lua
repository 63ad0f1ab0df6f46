-- cuda_ops_batchnorm: template arguments of batchnorm of the CUDA target besides the shared ones: how many neighbours
-- of a plane a thread moves at once.
local behind = require "emit.targets.behind"
local c_text = require "emit.targets.c_text"
local cuda_behind = require "emit.targets.cuda.behind"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local ops = require "emit.targets.ops"

local LARGEST = 1024      -- threads of a block

-- The planes that a node reads and writes.
local function planes_of(node)
    local list = { node.ins.x, node.ins.dy }
    for _, out in ipairs { node.outs.y, node.outs.behind } do list[#list + 1] = out.tensor end
    return list
end

local function few_of(node, dtype) return few.of_rows(planes_of(node), node.size.S, dtype) end

local function chunks_of(node, dtype) return graph.elements(node.size.X) // few_of(node, dtype) end

-- One block for each channel of a group; with as many threads as have something to read, as few blocks are under way.
local function by_channels(node, dtype)
    local blocks = node.size.G * node.size.C
    return { blocks = blocks, threads = chunks_of(node, dtype) // blocks >= LARGEST and LARGEST or launches.THREADS }
end

local function by_chunks(node, dtype) return launches.full(chunks_of(node, dtype)) end

-- Sets the entries of batchnorm ops in the target's table.
return function(list)
    for _, name in ipairs { "batchnorm_stats", "batchnorm", "batchnorm_sums", "batchnorm_dx" } do
        local writes = name == "batchnorm" or name == "batchnorm_dx"
        ops.add(list, name, function(arguments, node, kernel, _, dtype)
            arguments.few, arguments.x, arguments.dy = few_of(node, dtype), nil, nil
            if writes then arguments.out = c_text.type_of(node.outs.y.tensor) end
            if name == "batchnorm" then
                arguments.behind = cuda_behind.few(kernel, arguments.few, dtype)
                arguments.last = c_text.type_of((behind.result(node)))
            end
            if name == "batchnorm_dx" then
                arguments.adds, arguments.store = kernel.can_add or false, c_text.store(kernel, "to.at[e]", "value")
            end
        end)
        list[name].launch = writes and by_chunks or by_channels
        list[name].helper = writes and "rows:half" or "rows:half channels"
    end
    for _, name in ipairs { "batchnorm_running", "batchnorm_collect", "batchnorm_add" } do
        list[name].launch = function(node) return launches.full(node.size.C) end
    end
end
