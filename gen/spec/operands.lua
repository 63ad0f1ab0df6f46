-- operands: what layers and ops of a model are applied to. Numbers become a part of a pointwise rule, so that its node
-- has tensors alone; parameters, which have no axis of the rows, meet values that have one.
local diag = require "base.diag"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local operands = {}

--- The pointwise rule with its number operands bound, so that only tensors are inputs of the node; and the tensors.
function operands.bind(entry, list)
    local tensors, constants = {}, {}
    for i, operand in ipairs(list) do
        if type(operand) == "number" then
            constants[i] = operand
        else
            tensors[#tensors + 1] = operand
        end
    end
    if #tensors == #list then return entry, tensors end
    local function with_constants(values)
        local all, next_value = {}, 0
        for i = 1, #list do
            if constants[i] then
                all[i] = expr.lift(constants[i])
            else
                next_value = next_value + 1
                all[i] = values[next_value]
            end
        end
        return all
    end
    return { name = entry.name, arity = #tensors, doc = entry.doc,
        value = function(fields, ...) return entry.value(fields, table.unpack(with_constants { ... })) end,
        grad = function(fields, dy, ...)
            local values = { ... }
            local y = table.remove(values)
            local all = with_constants(values)
            all[#all + 1] = y
            local partials = table.pack(entry.grad(fields, dy, table.unpack(all)))
            local kept, n = {}, 0
            for i = 1, #list do
                if not constants[i] then n, kept[n + 1] = n + 1, partials[i] end
            end
            return table.unpack(kept, 1, n)
        end }, tensors
end

--- Refuses parameters that have the axis of the rows of the values beside them. Where tensors are of both kinds it
--- returns one of the values with most axes, else nil.
function operands.beside(at, what, tensors)
    local rows, mixed
    for _, t in ipairs(tensors) do
        if not graph.rowless(t) and (not rows or #t.shape > #rows.shape) then rows = t end
    end
    for _, t in ipairs(rows and tensors or {}) do
        mixed = mixed or graph.rowless(t)
        if graph.rowless(t) and #t.shape >= #rows.shape and (#t.shape > #rows.shape or t.shape[1] ~= 1) then
            diag.fail(at, ("%s: parameters of shape %s beside rows of shape %s found, expected no axis for the rows: "
                .. "%d at most"):format(what, graph.shape_text(t.shape), graph.shape_text(rows.shape),
                #rows.shape - 1), {})
        end
    end
    return mixed and rows or nil
end

--- The tensors, those without rows repeated for each row where others have rows.
function operands.spread(b, what, tensors)
    local rows = operands.beside(b.at, what, tensors)
    if not rows then return tensors end
    return ordered.collect(tensors, function(t)
        if not graph.rowless(t) then return t end
        local shape, missing = { rows.shape[1] }, #rows.shape - #t.shape
        for axis = 2, #rows.shape do shape[axis] = t.shape[axis - missing] or 1 end
        return b:value("each_row", { x = t }, { shape = shape })
    end)
end

return operands
