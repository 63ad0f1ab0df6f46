-- launches: blocks and threads of a kernel for an amount of work.
-- MULTIPROCESSORS: of an H100 or H200, which parts and blocks keep busy. The number is the same on each device, as bits
-- depend on it.
local launches = { THREADS = 256, MULTIPROCESSORS = 132 }

local BLOCKS_MAX = 65535     -- beyond this, grid-stride loops
local THREADS = launches.THREADS

function launches.ceil(a, b) return (a + b - 1) // b end

local ceil = launches.ceil

--- A launch over n elements: one per thread, or several beyond the largest grid.
function launches.over(n)
    local threads = n < THREADS and ceil(n, 32) * 32 or THREADS
    return { blocks = math.min(ceil(n, threads), BLOCKS_MAX), threads = threads }
end

--- The same in full blocks.
function launches.full(n) return { blocks = math.min(ceil(n, THREADS), BLOCKS_MAX), threads = THREADS } end

--- One block per row, with as many warps as a row of this width can use.
function launches.per_row(rows, width)
    local threads = width <= 256 and 32 or width <= 2048 and 128 or THREADS
    return { blocks = rows, threads = threads }
end

--- Full blocks, one or several per tile; the template arguments set the number of tiles.
function launches.by_tiles() return { threads = THREADS } end

--- The launch that an op of the catalog describes: { over = n }, { rows =, width = } or { blocks =, threads = }.
function launches.described(how)
    return how.over and launches.over(how.over) or how.rows and launches.per_row(how.rows, how.width) or how
end

return launches
