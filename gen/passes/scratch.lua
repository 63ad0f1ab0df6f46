-- scratch: what an update of matrices needs while it runs. It lies where the results of a micro-step lie, which
-- are not needed at a boundary.
--
--   orthogonal   of one matrix at a time: itself twice, its products with itself twice
--   factored     of each matrix: a factor per row, and the sums of its columns over chunks of its rows
local graph = require "graph.graph"

local scratch = {}

--- Rows that a sum of a column goes over before it is kept.
scratch.CHUNK = 256

--- A tensor of rank 2 or more as one matrix: its first axis by all others.
function scratch.whole(shape)
    return shape[1], graph.elements(shape) // shape[1]
end

--- The same as matrices of its last two axes: rows, columns, how many.
function scratch.last_two(shape)
    local rows, columns = shape[#shape - 1], shape[#shape]
    return rows, columns, graph.elements(shape) // (rows * columns)
end

-- Sets param.factors: where the scratch of a matrix with factors begins, behind `at`; returns its end.
local function place_factors(param, at, aligned)
    local rows, columns, matrices = scratch.last_two(param.shape)
    local chunks = (rows + scratch.CHUNK - 1) // scratch.CHUNK
    local row_size, sum_size = aligned(rows * matrices), aligned(columns * chunks * matrices)
    param.factors = { rows = rows, columns = columns, matrices = matrices, row = at, row_stride = row_size,
        sums = at + row_size * param.count, sums_stride = sum_size }
    return at + (row_size + sum_size) * param.count
end

--- Sets g.scratch, in elements; g.orthogonal: where x, y, gram and square lie; and param.factors.
function scratch.place(g, aligned)
    local widest, narrowest = 0, 0
    for _, param in ipairs(g.params) do
        if param.used and g.groups:get(param.group).rule.scope == "matrix" then
            local rows, columns = scratch.whole(param.shape)
            widest, narrowest = math.max(widest, rows * columns), math.max(narrowest, math.min(rows, columns) ^ 2)
        end
    end
    local n, side = aligned(widest), aligned(math.tointeger(narrowest))
    g.orthogonal = { x = 0, y = n, gram = 2 * n, square = 2 * n + side }
    g.scratch = 2 * n + 2 * side
    for _, param in ipairs(g.params) do
        if param.used and g.groups:get(param.group).rule.factors then
            g.scratch = place_factors(param, g.scratch, aligned)
        end
    end
end

return scratch
