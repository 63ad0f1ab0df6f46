-- record_nodes: the opaque values that a spec handles: tensors, layers, the batch and words; and the operations on
-- tensors. Part of the sandbox of gen/spec/record.lua, which lists the events.
-- Invariant: a spec cannot read the contents of a node; only the sandbox has its record.

local math, type, select, error, ipairs, tostring = math, type, select, error, ipairs, tostring
local format, match = string.format, string.match

local function square(x) return x * x end
local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
local function tanh(x)
    local e = math.exp(-2 * math.abs(x))
    return (x < 0 and -1 or 1) * (1 - e) / (1 + e)
end

-- pointwise words that are computed at once if all arguments are numbers
local NUMERIC = {
    abs = math.abs, acos = math.acos, asin = math.asin, atan = math.atan, ceil = math.ceil,
    cos = math.cos, exp = math.exp, floor = math.floor, log = math.log, max = math.max,
    min = math.min, sin = math.sin, sqrt = math.sqrt, tan = math.tan,
    square = square, sigmoid = sigmoid, tanh = tanh,
    relu = function(x) return math.max(x, 0) end,
}
local OPERATORS = { { "__add", "add" }, { "__sub", "sub" }, { "__mul", "mul" }, { "__div", "div" },
                    { "__pow", "pow" } }
local MOST_DEPTH = 32 -- of functions inside functions

-- box: functions of the host (gen/host/box_child.c).
return function(box)
    local nodes = { events = {}, scope = nil, named = 0 } -- named: the line of the last word used
    local metatable = { __metatable = false, __name = "node" }
    local tensors = 0

    function nodes.fail(line, message, found, among)
        error({ line = line, message = message, found = found, among = among }, 0)
    end
    local fail = nodes.fail

    function nodes.record(event) nodes.events[#nodes.events + 1] = event end

    -- The current line of the spec; after a tail call, which loses it, the line of the last word used.
    function nodes.here()
        local line = box.line()
        return line or nodes.named
    end
    local here = nodes.here

    function nodes.describe(value)
        local r = box.record(value)
        if r then return r.text end
        if value == nil then return "nothing" end
        return "a " .. type(value)
    end
    local describe = nodes.describe

    function nodes.node(record)
        record.scope = record.scope or nodes.scope
        return box.node(metatable, record)
    end

    -- A word whose call is not complete; `text` names it in messages if it is used as a value.
    function nodes.waiting(text, call)
        return nodes.node { kind = "word", text = text, call = call }
    end

    function nodes.tensor()
        tensors = tensors + 1
        return nodes.node { kind = "tensor", id = tensors, text = "a tensor" }
    end

    function nodes.is_tensor(value)
        local r = box.record(value)
        return r ~= nil and r.kind == "tensor"
    end
    local is_tensor = nodes.is_tensor

    function nodes.any_tensor(...)
        for i = 1, select("#", ...) do
            if is_tensor((select(i, ...))) then return true end
        end
        return false
    end

    -- Whether there are arguments and all are numbers; if not, also the first other value.
    function nodes.all_numbers(...)
        for i = 1, select("#", ...) do
            local value = select(i, ...)
            if not math.type(value) then return false, value end
        end
        return select("#", ...) > 0
    end

    function nodes.check_tensor(value, what, line)
        if not is_tensor(value) then
            fail(line, format("%s: expected a tensor, found %s", what, describe(value)))
        end
        if not box.record(value).scope.open then
            fail(line, what .. ": this tensor belongs to a function that has ended")
        end
        return value
    end

    -- Records an op of tensors and numbers and returns its result.
    function nodes.operation(name, line, ...)
        local ins = { ... }
        for i = 1, select("#", ...) do
            local value = ins[i]
            if not math.type(value) and not is_tensor(value) then
                fail(line, format("%s: operand %d is %s, expected a tensor or a number", name, i,
                    describe(value)))
            end
            if is_tensor(value) then
                nodes.check_tensor(value, name, line)
            elseif value ~= value or value == math.huge or value == -math.huge then
                fail(line, format("%s: operand %d is not finite", name, i))
            end
        end
        local out = nodes.tensor()
        nodes.record { event = "op", op = name, ins = ins, out = out, line = line }
        return out
    end

    -- The word `name` computed for numbers, or nil if it only takes tensors.
    function nodes.number(name, ...)
        return NUMERIC[name] and (NUMERIC[name](...))
    end

    -- Runs body() in a scope of its own: its tensors cannot be used afterwards.
    function nodes.inside(what, line, body)
        local outer = nodes.scope
        local depth = outer and outer.depth + 1 or 1
        if depth > MOST_DEPTH then
            fail(line, format("%s: functions nested deeper than %d", what, MOST_DEPTH))
        end
        nodes.scope = { open = true, depth = depth }
        local result = body()
        nodes.scope.open = false
        nodes.scope = outer
        return result
    end

    -- === operations of a spec on a node ==========================================================

    local function locked() fail(here(), "a node cannot be read or changed by a spec") end

    -- A field of the batch, or of the model's output inside the loss: always the same tensor for a name.
    function metatable.__index(self, key)
        local r = box.record(self)
        if not r.fields then locked() end
        local line = here()
        if type(key) ~= "string" or not match(key, "^[%a_][%w_]*$") then
            fail(line, format("%s has fields with names, found %s", r.text, describe(key)))
        end
        if not r.scope.open then fail(line, r.text .. " belongs to a function that has ended") end
        if not r.fields[key] then
            r.fields[key] = nodes.tensor()
            box.record(r.fields[key]).scope = r.scope     -- valid as long as its owner
            local of = r.kind == "tensor" and self or nil
            nodes.record { event = "field", name = key, of = of, out = r.fields[key], line = line }
        end
        return r.fields[key]
    end
    metatable.__newindex = locked

    function metatable.__call(self, ...)
        local r = box.record(self)
        if not r.call then fail(here(), "attempt to call " .. r.text) end
        local result = r.call(...)
        return result
    end

    for _, pair in ipairs(OPERATORS) do
        metatable[pair[1]] = function(a, b)
            local out = nodes.operation(pair[2], here(), a, b)
            return out
        end
    end

    function metatable.__unm(a)
        local out = nodes.operation("neg", here(), a)
        return out
    end

    local function compared()
        fail(here(),
            "tensors cannot be compared while the program is written: use where(lt(a, b), x, y)")
    end
    metatable.__lt, metatable.__le, metatable.__eq = compared, compared, compared

    function nodes.text(key)
        return (type(key) == "string" or math.type(key)) and tostring(key) or describe(key)
    end

    return nodes
end
