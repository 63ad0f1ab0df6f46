-- columns: sums over rows. A block sums its columns of its part of the rows, a warp for each of 8 groups of these.
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"

local columns = {}

local LANES, WIDE = 32, 128        -- of a warp; columns of a block whose elements have 4 bytes
local NARROW = 32                  -- columns of a block, at least
local PROCESSORS = launches.MULTIPROCESSORS
local BLOCKS, LEAST = 4 * PROCESSORS, 64    -- of a kernel; rows of a part, at least
local MOST, AT_ONCE = 1024, 8      -- threads of a block; rows that a thread reads at once

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

--- The launch of a kernel with a block for some columns of a part, of `outer` parts; how many neighbouring columns a
--- thread has, and how many threads have those of a row. With n rows in each part, a kernel of less than a block for
--- each multiprocessor has narrower and larger ones.
function columns.launch(node, outer, width, real, n)
    local count, lanes, threads = columns.few(node, width, real), LANES, launches.THREADS
    local function blocks() return outer * launches.ceil(width, lanes * count) end
    if n and blocks() < PROCESSORS then
        while lanes * count > NARROW and blocks() < PROCESSORS do lanes = lanes // 2 end
        while threads < MOST and n * lanes > AT_ONCE * threads do threads = 2 * threads end
    end
    return { blocks = blocks(), threads = threads }, count, lanes
end

return columns
