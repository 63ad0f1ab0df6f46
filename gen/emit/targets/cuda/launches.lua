-- launches: blocks and threads of a kernel, by how much work of one kind there is.
local launches = { THREADS = 256 }

local BLOCKS_MAX = 65535     -- grid-stride loops go on from there
local THREADS = launches.THREADS

function launches.ceil(a, b) return (a + b - 1) // b end

local ceil = launches.ceil

--- A launch over n elements, each thread one or, beyond the largest grid, several.
function launches.over(n)
    local threads = n < THREADS and ceil(n, 32) * 32 or THREADS
    return { blocks = math.min(ceil(n, threads), BLOCKS_MAX), threads = threads }
end

--- The same in full blocks.
function launches.full(n) return { blocks = math.min(ceil(n, THREADS), BLOCKS_MAX), threads = THREADS } end

--- One block per row, with as many warps as the row can use.
function launches.per_row(rows, width)
    local threads = width <= 256 and 32 or width <= 2048 and 128 or THREADS
    return { blocks = rows, threads = threads }
end

--- Full blocks, one or several for each tile: their number follows from the tiles that the arguments choose.
function launches.by_tiles() return { threads = THREADS } end

--- The launch that an op of the catalog describes: { over = n }, { rows =, width = } or { blocks =, threads = }.
function launches.described(how)
    return how.over and launches.over(how.over) or how.rows and launches.per_row(how.rows, how.width) or how
end

return launches
