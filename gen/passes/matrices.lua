-- matrices: tensors of rank 2 or more as the matrices that update rules of scope "matrix", or with factors, see.
local graph = require "graph.graph"

local matrices = {}

--- Rows that one partial sum of a column goes over.
matrices.CHUNK = 256

--- A tensor as one matrix, its first axis by all others: rows, columns.
function matrices.whole(shape)
    return shape[1], graph.elements(shape) // shape[1]
end

--- A tensor as matrices of its last two axes: rows, columns, how many.
function matrices.last_two(shape)
    local rows, columns = shape[#shape - 1], shape[#shape]
    return rows, columns, graph.elements(shape) // (rows * columns)
end

return matrices
