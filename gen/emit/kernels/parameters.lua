-- parameters: the parameters of a node's kernel: its results and inputs, and what else it gets.
local ordered = require "base.ordered"

local parameters = {}

-- Names of inputs and outputs in templates, if other than in the op's signature.
local PARAMETER_NAME = {
    linear = { y = "c", x = "a", weight = "b" },
    linear_in_out = { y = "c", x = "a", weight = "b" },
    linear_in_out_dx = { y = "c", dy = "a", weight = "b" },
    linear_in_out_dw = { y = "c", x = "a", dy = "b" },
    linear_dx = { y = "c", dy = "a", weight = "b" },
    linear_dw = { y = "c", dy = "a", x = "b" },
}

local function parameter_name(node, name)
    local map = PARAMETER_NAME[node.op]
    return map and map[name] or name
end

--- The name of an input array of a pointwise kernel.
function parameters.array_name(k) return "in" .. k end

--- The inputs of a node's kernel: { tensor, parameter, input name }; a pointwise kernel has each tensor once.
function parameters.operands(node)
    local list, seen = {}, {}
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t and not (node.statements and seen[t]) then
            seen[t] = true
            local own = node.statements and parameters.array_name(#list + 1) or parameter_name(node, name)
            list[#list + 1] = { t, own, name }
        end
    end
    return list
end

--- A list of result(name) of each result of a kernel, input(operand) of each of its operands, and missing(parameter) of
--- each input that the kernel may do without and the node does (targets/ops.lua), in the order of the parameters. A
--- missing one is at its place, or behind the others.
function parameters.arrays(kernel, node, result, input, missing)
    local list, by_name = {}, {}
    local left = ordered.copy(kernel.sizes and kernel.sizes.missing or {})
    for _, operand in ipairs(parameters.operands(node)) do by_name[operand[3]] = operand end
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name] then list[#list + 1] = result(name) end
    end
    for _, name in ipairs(node.signature.ins) do
        local parameter = left[name]
        if by_name[name] or parameter then
            list[#list + 1] = by_name[name] and input(by_name[name]) or missing(parameter)
        end
        left[name] = nil
    end
    for _, name in ipairs(ordered.keys(left)) do list[#list + 1] = missing(left[name]) end
    return list
end

--- Flags of a kernel that say which results it adds to: their names in order, the name for each result that has one,
--- and the conditions of the call. Results that are added under the same condition share a flag.
function parameters.flags(node, target)
    local flags = { conditions = {} }
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        local condition = out and target.adds(out)
        if condition then
            local known = ordered.find(flags.conditions, condition)
            if not known then
                known = #flags + 1
                flags[known], flags.conditions[known] = known == 1 and "add" or "add_" .. name, condition
            end
            flags[name] = flags[known]
        end
    end
    return flags
end

--- The parameters of a kernel, as text, without its sizes.
function parameters.of(kernel, node, target)
    local list = table.move(target.first_parameters, 1, #target.first_parameters, 1, {})
    if kernel.exchanges then
        table.move(target.gather_parameters, 1, #target.gather_parameters, #list + 1, list)
    end
    local arrays = parameters.arrays(kernel, node, function(name)
        local t = node.outs[name].tensor
        return target.parameter(t, node.statements and "out" or parameter_name(node, name), true)
    end, function(operand) return target.parameter(operand[1], operand[2], false) end,
        function(parameter) return parameter end)
    table.move(arrays, 1, #arrays, #list + 1, list)
    if kernel.draws then list[#list + 1] = target.iteration end
    for _, flag in ipairs(kernel.flags) do list[#list + 1] = "bool " .. flag end
    if kernel.ends then list[#list + 1] = "bool last" end
    if node.attrs.position then list[#list + 1] = "size_t position" end
    return list
end

return parameters
