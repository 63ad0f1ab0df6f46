-- kind: kernels that take their time alike: each structured op, convolutions by each form of squares of results
-- (templates/c/conv_squares.c) apart, pointwise kernels with and without functions like exp, and updates.
local kind = {}

local FUNCTIONS = { exp = true, log = true, tanh = true, erf = true, sin = true, cos = true, log1p = true,
    expm1 = true }

local function has_function(e)
    if FUNCTIONS[e.op] then return true end
    for _, part in ipairs(e) do
        if has_function(part) then return true end
    end
    return false
end

--- The kind of a node's kernel.
function kind.of(kernel)
    local node = kernel.node
    if not node.statements then
        return kernel.squares and ("%s_squares_of_%s"):format(node.op, kernel.squares.name.text) or node.op
    end
    for _, statement in ipairs(node.statements) do
        if has_function(statement[2]) then return "functions" end
    end
    return "pointwise"
end

--- The kind of a function of the boundary, by its name.
function kind.of_boundary(name) return name:find "^update" and "update" or name end

return kind
