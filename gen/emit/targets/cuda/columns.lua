-- columns: sums over rows. A block sums its columns of its part of the rows, a warp for each of 8 groups of these.
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"

local columns = {}

local LANES, WIDE = 32, 128        -- of a warp; columns of a block whose elements have 4 bytes
local BLOCKS, LEAST = 528, 64      -- four for each multiprocessor of a device with 132; rows of a part, at least

--- In how many parts of equal size a node sums its rows: enough for many blocks, of enough rows.
function columns.parts(node)
    local count, width = graph.elements(node.size.lead), node.size.N or node.size.C
    local most = math.min(BLOCKS // launches.ceil(width, WIDE), count // LEAST)
    for parts = most, 2, -1 do
        if count % parts == 0 then return parts end
    end
    return 1
end

--- How many neighbouring columns a thread has.
function columns.few(node, width, real)
    local tensors = {}
    for _, t in ipairs(graph.reads(node)) do
        if #t.shape > 0 and t.shape[#t.shape] == node.ins.x.shape[#node.ins.x.shape] then tensors[#tensors + 1] = t end
    end
    return few.of_rows(tensors, node.ins.x.row or width, real)
end

--- The launch of a kernel with a block for some columns of a part, of `outer` parts.
function columns.launch(node, outer, width, real)
    return { blocks = outer * launches.ceil(width, LANES * columns.few(node, width, real)),
        threads = launches.THREADS }
end

return columns
