-- c_text: text shared by all targets that emit C: math functions, 16-bit elements, addresses of the values of an
-- iteration, breaking of long lines.
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local c_text = {}

-- Functions of the C library by the op of an expression.
local F32_CALL = { sqrt = "sqrtf", exp = "expf", log = "logf", tanh = "tanhf", erf = "erff",
    sin = "sinf", cos = "cosf", abs = "fabsf", pow = "powf", min = "fminf", max = "fmaxf",
    floor = "floorf", log1p = "log1pf", expm1 = "expm1f" }
local F64_CALL = { abs = "fabs", min = "fmin", max = "fmax" }

--- spelling(dtype, variable, at) and call(name, dtype) of a target (targets/interface.lua), with the target's `own`
--- f32 functions instead of the library's.
function c_text.functions(own)
    local f32_call = ordered.copy(F32_CALL, own)
    return function(dtype, variable, at)
        return { number = function(x) return expr.literal(x, dtype, at) end,
            call = dtype == "f32" and f32_call or F64_CALL, variable = variable }
    end, function(name, dtype)
        return text.ident((dtype == "f32" and f32_call or F64_CALL)[name] or name)
    end
end

--- The C type of the elements of a tensor of numbers.
function c_text.type_of(t) return text.ident(graph.is_half(t) and t.dtype or "real") end

--- The C text that converts `value`, the text of an element of a tensor, to the type of arithmetic.
function c_text.load(t, value)
    return graph.is_half(t) and ("%s_widen(%s)"):format(t.dtype, value) or value
end

--- The C text that converts `value` to the type of the tensor's elements. exact: it is a number of 16 bits already.
function c_text.stored(t, value, exact)
    if not graph.is_half(t) then return value end
    return (exact and t.dtype == "bf16" and "bf16_cut(%s)" or t.dtype .. "_narrow(%s)"):format(value)
end

--- The statement that writes `value` to `target`, an element of the first result such as "y[i]". It adds to the element
--- if the kernel can add. exact: `value` is a number of 16 bits already.
function c_text.store(kernel, target, value, exact)
    local y = graph.result(kernel.node)
    if kernel.can_add then value = ("add ? %s + %s : %s"):format(c_text.load(y, target), value, value) end
    return text.block(("%s = %s;"):format(target, c_text.stored(y, value, exact and not kernel.can_add)))
end

--- The name of a tensor in the structures of model.h (program/names.lua).
function c_text.field(t) return t.place.field or t.name end

--- How often a loop runs: the name of its constant, or a number; and the index of the last layer.
function c_text.count(region) return region.constant or tostring(region.count) end
function c_text.last(region) return region.constant and region.constant .. " - 1" or tostring(region.count - 1) end

--- The number of the present layer, whose index in its loop is l; "0" outside loops.
function c_text.layer(region)
    if not region then return "0" end
    local first = graph.first_layer(region)
    return first == 0 and "l" or "l + " .. first
end

-- Number of iterations of `region` that are finished when its loop variable is l, or with the present one.
local function finished(region, with_present)
    if region.step > 0 then return with_present and "l + 1" or "l" end
    return (with_present and c_text.count(region) or c_text.last(region)) .. " - l"
end

--- The index of the present iteration's slot of a tensor, and the name of the distance between slots, in elements; nil
--- if the tensor has one slot.
function c_text.slot(t)
    local p = t.place
    if not t.scope or p.slots == 1 then return nil end
    if not p.carry then return "l", p.distance end
    local k = finished(p.carry.region, p.slot == "next")
    if k ~= "l" then k = "(" .. k .. ")" end
    return p.carry.kept and k or ("(%s & 1)"):format(k), p.distance
end

-- " + h_window(l)": the offset of layer l in windows, in elements; nil where layers lie as in the flat space. place: of
-- a parameter, by the pass windows or chunks.
local function turn(place)
    local turns = place and (place.ring or place.run)
    return turns and (" + %s(l)"):format(turns.name) or nil
end

--- " + h_window(l)": the offset of the gradients of layer l from those of the first window, or of layer 0, in elements;
--- nil where layers do not take turns in windows.
function c_text.window(param) return turn(param.window) end

--- " + h_chunk(l)": that of the values of layer l, where layers take turns in the memory of chunks.
function c_text.chunk(param) return turn(param.chunk) end

--- Whether a value gets a pointer variable in the loop body: it is carried from the last iteration or to the next.
function c_text.is_named(t)
    local index = t.place and c_text.slot(t)
    return index ~= nil and index ~= "l"
end

--- The condition under which a kernel adds to an output instead of writing it; `adds` is the role's flag. nil: the
-- kernel never adds.
function c_text.adds(out)
    local acc = out.acc
    if not acc then return nil end
    if not acc.first then return "true" end
    local loop
    for _, region in ipairs(acc.regions) do
        loop = "l != " .. (region.step > 0 and "0" or c_text.last(region))
    end
    local summed = out.tensor.kind == "gradient" and not out.tensor.param.window    -- micro-steps in its own memory
    if summed then return loop and "adds || " .. loop or "adds" end
    return loop or "false"
end

-- Most columns of a line, and of a line with a barrier or comment after the call. Templates indent lines by 4 more.
local COLUMNS, MOST_COLUMNS = 100, 106

--- A call or declaration, broken after commas into lines of at most 100 columns. `pad`: indentation of the first line.
-- `tail`: text after the last item; a last line over 106 columns is broken after the first "; " of the tail.
function c_text.wrap(pad, open, list, tail)
    local rows, row = {}, pad .. open
    local whole = row .. table.concat(list, ", ")
    if #whole <= math.min(COLUMNS, MOST_COLUMNS - #tail) then return whole .. tail end
    for i, item in ipairs(list) do
        local piece = item .. (i < #list and ", " or "")
        local most = i < #list and COLUMNS or math.min(COLUMNS, MOST_COLUMNS - #tail)
        if #row + #piece > most and #row > #pad + #open then
            rows[#rows + 1] = (row:gsub("%s+$", ""))
            row = pad .. "    " .. piece
        else
            row = row .. piece
        end
    end
    if #row + #tail > MOST_COLUMNS then tail = tail:gsub("; ", ";\n" .. pad, 1) end
    rows[#rows + 1] = row .. tail
    return table.concat(rows, "\n")
end

--- "left = right" as lines of the comment over a kernel, broken before operators outside of brackets.
function c_text.formula(left, right)
    local rows, row, piece, depth = {}, " *   " .. left .. " =", "", 0
    local function put()
        if #row + #piece > COLUMNS then
            rows[#rows + 1] = row
            row = " *      "
        end
        row, piece = row .. piece, ""
    end
    for word in right:gmatch("%S+") do
        if depth == 0 and word:find "^[-+*/]$" then put() end
        piece = piece .. " " .. word
        depth = depth + select(2, word:gsub("%(", "")) - select(2, word:gsub("%)", ""))
    end
    put()
    rows[#rows + 1] = row
    return table.concat(rows, "\n")
end

--- A call with its comment: behind the call where both fit on its last line, else on the line before.
function c_text.commented(pad, call, comment)
    local last = call:match("[^\n]*$")
    local is_end = last == call or last:sub(#pad + 1, #pad + 1) == " "
    if is_end and #last + #" // " + #comment <= MOST_COLUMNS then return ("%s // %s"):format(call, comment) end
    return ("%s// %s\n%s"):format(pad, comment, call)
end

--- "(16, 64)" for comments.
function c_text.shape(t) return graph.shape_text(t.shape) end

return c_text
