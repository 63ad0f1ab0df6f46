-- matrices: views tensors of rank 2 or more as matrices, for update rules of scope "matrix" and for factored state.
local graph = require "graph.graph"

local matrices = {}

--- Rows in one partial sum of a column.
matrices.CHUNK = 256

--- A tensor as one matrix: its first axis by the product of all others. Returns rows, columns.
function matrices.whole(shape)
    return shape[1], graph.elements(shape) // shape[1]
end

--- A tensor as matrices of its last two axes. Returns rows, columns, number of matrices.
function matrices.last_two(shape)
    local rows, columns = shape[#shape - 1], shape[#shape]
    return rows, columns, graph.elements(shape) // (rows * columns)
end

return matrices
