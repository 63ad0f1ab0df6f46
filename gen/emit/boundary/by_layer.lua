-- by_layer: numbers that depend on the layer, as C expressions of l: in closed form where layer follows layer at equal
-- distances, else from a table.
--
--   places of an order    0, 1, 2, 3 of 4 layers       l
--                         none, 2, 3, 4                if (l >= 1) ... 1 + l
--                         none, none, 5, none          if (l == 2) ... 5
--                         0, none, 1, 2                static const int NEEDS_1[] = {0, -1, 1, 2};
--   elements              0, 96, 0, 96                 l % 2 * (int64_t)H_PARAMS
local c_text = require "emit.targets.c_text"

local by_layer = {}

-- A layer as text: the last two with the name of the loop's count.
local function layer_text(loop, l)
    local behind = loop.count - l
    return behind <= 2 and behind < loop.count and ("%s - %d"):format(c_text.count(loop), behind) or tostring(l)
end

-- The first and the last layer that have a number, how many have one, and the step from one layer to the next; the step
-- is nil if it is not the same everywhere.
local function progression(at, count)
    local first, last, n, step, equal = nil, nil, 0, nil, true
    for l = 0, count - 1 do
        if at[l] then
            local own = last and at[l] - at[last]
            equal = equal and (not last or last == l - 1 and own ~= 0 and (not step or own == step))
            first, last, n, step = first or l, l, n + 1, own or step
        end
    end
    return first, last, n, equal and (step or 0) or nil
end

-- "1 + l", "3 + 2 * l", "3 + 2 * (H_LAYERS - 1 - l)".
local function closed(loop, at, first, last, step)
    local number, layers, times = at[first] - step * first, "l", math.abs(step)
    if step < 0 then
        number, layers = at[last], layer_text(loop, last) .. " - l"
        if times > 1 then layers = "(" .. layers .. ")" end
    end
    if times > 1 then layers = ("%d * %s"):format(times, layers) end
    if number < 0 then return ("%s - %d"):format(layers, -number) end
    return number > 0 and ("%d + %s"):format(number, layers) or layers
end

local function condition(loop, first, last)
    local list = {}
    if first == last then return "l == " .. layer_text(loop, first) end
    if first > 0 then list[1] = "l >= " .. layer_text(loop, first) end
    if last < loop.count - 1 then list[#list + 1] = "l < " .. layer_text(loop, last + 1) end
    return #list > 0 and table.concat(list, " && ") or nil
end

--- How a number is found of which at[l] is that of layer l of a loop, nil: none; outside of loops at[0]. Returns its
--- text, the condition under which there is one or nil, and the line of a table `name` that both need or nil.
function by_layer.number(loop, at, name)
    if not loop then return tostring(at[0]) end
    local first, last, n, step = progression(at, loop.count)
    if n == 1 then return tostring(at[first]), condition(loop, first, last) end
    if step then return closed(loop, at, first, last, step), condition(loop, first, last) end
    local list, all = {}, true
    for l = 0, loop.count - 1 do list[l + 1], all = tostring(at[l] or -1), all and at[l] ~= nil end
    return name .. "[l]", not all and name .. "[l] >= 0" or nil,
        c_text.wrap("", ("static const int %s[] = {"):format(name), list, "}; // of each layer"
            .. (all and "" or "; -1: none"))
end

-- The least k with offsets[l] == l % k * offsets[1] for all layers; nil: there is none.
local function period_of(offsets, count)
    for k = 1, count do
        local all = true
        for l = 0, count - 1 do all = all and offsets[l] == l % k * offsets[1] end
        if all then return k end
    end
end

--- The lines of the function that finds the layers of a run (passes/layer_runs.lua), in elements from layer 0. says: of
--- its comment. stride: elements from layer to layer in the flat space; distance: the name of this number.
function by_layer.finder(run, says, stride, distance)
    local count, offsets = run.region.count, run.offsets
    local head, lines = { ("/* %s */"):format(says), ("static inline int64_t %s(int l) {"):format(run.name) }, nil
    local period = period_of(offsets, count)
    if period == 1 then
        lines = { "(void)l;", "return 0;" }
    elseif period then
        lines = { ("return %s * (int64_t)%s;"):format(period < count and "l % " .. period or "l",
            offsets[1] == stride and distance or offsets[1]) }
    else
        local list = {}
        for l = 0, count - 1 do list[l + 1] = tostring(offsets[l]) end
        lines = { c_text.wrap("    ", "static const int64_t at[] = {", list, "};"):sub(5), "return at[l];" }
    end
    for _, line in ipairs(lines) do head[#head + 1] = "    " .. line end
    head[#head + 1] = "}"
    return head
end

--- The lines of the functions that find the layers of runs, each once: run_of(param) is that of a parameter, says(run)
--- its comment, tensor_of(param) what lies there, with the name of the distance from layer to layer.
function by_layer.finders(g, run_of, says, tensor_of)
    local list, seen = {}, {}
    for _, param in ipairs(g.params) do
        local run = run_of(param)
        if run and not seen[run] then
            seen[run] = true
            if #list > 0 then list[#list + 1] = "" end
            for _, line in ipairs(by_layer.finder(run, says(run), param.flat.stride,
                tensor_of(param.joint or param).place.distance)) do list[#list + 1] = line end
        end
    end
    return list
end

--- "ln_1.weight to attn.c_attn.bias": the parameters of a run, without the name of their loop.
function by_layer.covered(run)
    local function name(param) return (param.name:gsub("^.*%%d%.", "")) end
    local first, last = run.params[1], run.params[#run.params]
    return name(first) .. (first ~= last and " to " .. name(last) or "")
end

return by_layer
