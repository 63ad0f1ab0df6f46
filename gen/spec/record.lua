-- record: the words of a spec inside its sandboxed process, where each only records that it was called.
-- This file runs in the child process (gen/host/box_prelude.c) before the user's chunk and makes
-- its environment; the recorded events are sent through a pipe and checked again by gagen.
-- Invariant: values are copied into an event when the word is called, so that recorded events never change.
--
-- Events in order; tensors and layers are numbered from 1, by the event that defines them:
--   word            name, line, args         a config word: data, batch, optimizer, ...
--   layer           id, kind, name?, count?, line, args, body?    body = true: a function for args
--   enter           layer, arg, ins, line    a body begins: its arguments are arg, arg + 1, ...
--   leave           layer, result, out
--   apply           layer, ins, out, line
--   op              op, ins, out, line       an operand is { tensor = id } or a number
--   field           name, of?, out, line     batch.name, or a field of tensor `of`
--   model           form = "list", args, line
--   model_begin     line, args           model_end      result    (args: without the function)
--   loss_begin      line, out, args      loss_end       result
--   metric_begin    name, line, out      metric_end     result    (before its word eval)
--   schedule_begin  line, t, base, args  schedule_end   result
--   gradient_begin  line, g, w, args     gradient_end   result
--   handler_begin   line, g, w           handler_end    result    (before its word parallel)
-- Values in args and result: numbers, strings, booleans, tables, { layer = id }, { tensor = id }.

local math, ipairs, next, type, select, setmetatable = math, ipairs, next, type, select, setmetatable
local format, sort, unpack = string.format, table.sort, table.unpack

local MATH = { "abs", "acos", "asin", "atan", "ceil", "cos", "exp", "floor", "log", "max", "min",
               "sin", "sqrt", "tan" }
local RESULT = { model = "a tensor or a table of named tensors", loss = "a tensor", metric = "a tensor",
                 schedule = "a number or an expression", gradient = "an expression", handler = "an expression" }

-- The single argument of a word.
local function one(what, nodes, line, ...)
    if select("#", ...) > 1 then
        local hint = format("put them in a table, %s { ... }", what)
        local count = select("#", ...)
        nodes.fail(line, format("%s: found %d values, expected one: %s", what, count, hint))
    end
    return (...)
end

-- The single result of a function of the spec; expected: in words.
local function single(what, nodes, line, expected, ...)
    local count = select("#", ...)
    if count > 1 then
        nodes.fail(line, format("%s: the function must return %s, found %d values", what, expected, count))
    end
    return (...)
end

-- === layers ======================================================================================

-- Returns the functions that record layers: make(kind, line, value, ...) and named(kind, line, count, with_body).
local function layer_words(box, nodes)
    local fail, layers = nodes.fail, 0

    local function apply(layer, r, ...)
        local line = box.line() or r.line
        local what, count, ins = r.text, select("#", ...), { ... }
        if count == 0 then
            fail(line, format("attempt to call %s with nothing: expected a tensor", what))
        end
        for i = 1, count do nodes.check_tensor(ins[i], what, line) end
        if not r.body then
            local out = nodes.tensor()
            nodes.record { event = "apply", layer = layer, ins = ins, out = out, line = line }
            return out
        end
        local result = nodes.inside(what, line, function()
            local inner = {}
            for i = 1, count do inner[i] = nodes.tensor() end
            nodes.record { event = "enter", layer = layer, arg = inner[1], ins = ins, line = line }
            local value = single(what, nodes, line, "a tensor", r.body(unpack(inner)))
            nodes.check_tensor(value, what .. ": result of the function", line)
            return value
        end)
        local out = nodes.tensor()
        nodes.record { event = "leave", layer = layer, result = result, out = out }
        return out
    end

    local function make(kind, line, value, name, count, with_body)
        local text = name and format("%s '%s'", kind, name) or kind
        local body
        if with_body and type(value) == "function" then body, value = value, {} end
        if nodes.is_tensor(value) then
            fail(line, format("%s: expected its fields before the tensor: %s%s {} (x)", text, kind,
                name and format(" \"%s\"", name) or ""))
        end
        if value == nil then fail(line, text .. ": expected a value or a table of fields") end
        if type(value) ~= "table" then value = { value } end
        local args = box.copy(value, text, line)
        layers = layers + 1
        local r = { kind = "layer", id = layers, body = body, line = line, text = text }
        local layer = nodes.node(r)
        r.call = function(...)
            local out = apply(layer, r, ...)
            return out
        end
        nodes.record { event = "layer", id = layer, kind = kind, name = name, count = count,
                       line = line, args = args, body = body and true or nil }
        return layer
    end

    -- The tensor that a layer gives without any.
    local function value_of(layer, text, line)
        if not nodes.scope then
            fail(line, text .. ": gives a tensor, which stands in a function: model (function(batch) ... end)")
        end
        local out = nodes.tensor()
        nodes.record { event = "apply", layer = layer, ins = {}, out = out, line = line }
        return out
    end

    local function named(kind, line, count, with_body, alone)
        return function(...)
            local name = one(kind, nodes, line, ...)
            if type(name) ~= "string" then
                fail(line, format("%s: expected a name, found %s: %s \"name\" { ... }", kind,
                    nodes.describe(name), kind))
            end
            name = box.copy({ name }, kind .. ": name", line)[1]
            return nodes.waiting(format("%s \"%s\" without its fields", kind, name), function(...)
                local layer = make(kind, line, one(kind, nodes, line, ...), name, count, with_body)
                if alone then layer = value_of(layer, format("%s '%s'", kind, name), line) end
                return layer
            end)
        end
    end

    return make, named
end

local function times_word(nodes, named, line)
    return function(...)
        local count = one("times", nodes, line, ...)
        if not math.type(count) or count % 1 ~= 0 or count < 1 or count > 2^31 - 1 then
            nodes.fail(line, format("times: expected a whole number from 1, found %s",
                math.type(count) and format("%.14g", count) or nodes.describe(count)))
        end
        count = math.tointeger(count)
        return nodes.waiting("times(n) without its name", named("times", line, count, true))
    end
end

-- A pointwise word: computes with numbers, records an op of tensors, or makes a layer of its fields.
local function pointwise_word(nodes, make, name, line)
    return function(...)
        local result
        if nodes.any_tensor(...) then
            result = nodes.operation(name, line, ...)
        elseif nodes.all_numbers(...) then
            result = nodes.number(name, ...)
            if not result then
                nodes.fail(line, name .. " of a number is not available: expected a tensor")
            end
        else
            result = make(name, line, one(name, nodes, line, ...))
        end
        return result
    end
end

-- === config words ================================================================================

-- Runs the function of a model, loss, metric, schedule, gradient or handler between its begin and end events; begin:
-- further fields of the first.
local function trace(box, nodes, name, line, body, begin)
    local result = nodes.inside(name, line, function()
        local value
        local shown = begin.name and "eval: " .. begin.name or name
        local function call(...) return single(shown, nodes, line, RESULT[name], body(...)) end
        begin.event, begin.line = name .. "_begin", line
        local batch = nodes.node { kind = "fields", text = "the batch", fields = {} }
        nodes.record(begin)
        if name == "model" then
            value = call(batch)
        elseif name == "loss" or name == "metric" then
            begin.out = nodes.tensor()
            box.record(begin.out).fields = {}
            value = call(begin.out, batch)
        elseif name == "schedule" then
            begin.t, begin.base = nodes.tensor(), nodes.tensor()
            value = call(begin.t, begin.base)
        else
            begin.g, begin.w = nodes.tensor(), nodes.tensor()
            value = call(begin.g, begin.w)
        end
        if not (nodes.is_tensor(value) or name == "model" and type(value) == "table"
                or name == "schedule" and math.type(value)) then
            nodes.fail(line, format("%s: the function must return %s, found %s", shown, RESULT[name],
                nodes.describe(value)))
        end
        return box.copy({ value }, name .. ": result", line)[1]
    end)
    nodes.record { event = name .. "_end", result = result }
end

-- The function of a metric given by name, alone or in a table of fields.
local function metric_function(metric)
    if type(metric) == "table" then metric = metric[1] end
    return type(metric) == "function" and metric
end

-- eval.metrics with the functions traced, in the order of their names, and the other fields of each in its place.
local function trace_metrics(box, nodes, metrics, line)
    local plain, names = {}, {}
    for key, metric in next, metrics do
        local body = metric_function(metric)
        if body and type(key) ~= "string" then
            nodes.fail(line, "eval: a metric is a function without a name, expected metrics = { NAME = function("
                .. "out, batch) ... end }")
        end
        if body then names[#names + 1] = key end
        plain[key] = metric
    end
    sort(names)
    for _, name in ipairs(names) do
        local metric = metrics[name]
        plain[name] = {}
        for key, value in next, type(metric) == "table" and metric or {} do
            if key ~= 1 then plain[name][key] = value end
        end
        local checked = box.copy({ name }, "eval: name of a metric", line)[1]
        trace(box, nodes, "metric", line, metric_function(metric), { name = checked })
    end
    return plain
end

-- parallel.handlers with the functions traced, in the order of the list.
local function trace_handlers(box, nodes, list, line)
    local plain = {}
    for key, entry in next, list do plain[key] = entry end
    for i, entry in ipairs(list) do
        if type(entry) == "function" then
            trace(box, nodes, "handler", line, entry, {})
            plain[i] = { expression = true }
        end
    end
    return plain
end

-- Words with functions in the list of a field, and how these are traced.
local LISTS = { eval = { "metrics", trace_metrics }, parallel = { "handlers", trace_handlers } }

-- The value of one of these words with its functions traced.
local function without_functions(box, nodes, name, value, line)
    local field, trace_list = LISTS[name][1], LISTS[name][2]
    if type(value[field]) ~= "table" then return value end
    local plain = {}
    for key, given in next, value do plain[key] = given end
    plain[field] = trace_list(box, nodes, value[field], line)
    return plain
end

local function config_word(box, nodes, name, line)
    local done = nodes.waiting(format("the word '%s'", name), function()
        nodes.fail(line, format("%s takes one value or one table: %s { \"name\", field = value }",
            name, name))
    end)
    return function(...)
        local value = one(name, nodes, line, ...)
        if value == nil then nodes.fail(line, name .. ": expected a value or a table of fields") end
        if nodes.scope then
            nodes.fail(line, name .. ": stands outside of functions" .. (math[name] and "; in one, math." .. name
                .. "(x) is meant" or ""))
        end
        if type(value) ~= "table" then value = { value } end
        if LISTS[name] then value = without_functions(box, nodes, name, value, line) end
        local body = RESULT[name] and type(value[1]) == "function" and value[1]
        local args = box.copy(value, name, line, body and true or false)
        if body then
            trace(box, nodes, name, line, body, { args = args })
        elseif name == "model" then
            nodes.record { event = "model", form = "list", args = args, line = line }
        else
            nodes.record { event = "word", name = name, line = line, args = args }
        end
        return done
    end
end

-- For each word, the function that makes it for the line on which it is used.
local function vocabulary(box, nodes, words)
    local known = {}
    local make, named = layer_words(box, nodes)
    local function define(name, maker) known[name] = known[name] or maker end

    for _, name in ipairs(words.config) do
        define(name, function(line) return config_word(box, nodes, name, line) end)
    end
    for _, entry in ipairs(words.layers) do
        local kind = entry.name
        define(kind, function(line)
            if kind == "times" then return times_word(nodes, named, line) end
            if entry.named then return named(kind, line, nil, kind == "block", entry.alone) end
            return function(...)
                local layer = make(kind, line, one(kind, nodes, line, ...))
                return layer
            end
        end)
    end
    for _, name in ipairs(words.pointwise) do
        define(name, function(line) return pointwise_word(nodes, make, name, line) end)
    end
    return known
end

-- === the environment of the chunk ================================================================

-- A table whose fields come from `index` and cannot be set; advice(name, value) completes the message.
local function closed(nodes, prefix, index, advice)
    return setmetatable({}, {
        __index = index,
        __newindex = function(_, key, value)
            local text = nodes.text(key)
            local message = format("may not set '%s%s': %s", prefix, text, advice(text, value))
            nodes.fail(nodes.here(), message, text)
        end,
        __metatable = false,
    })
end

local function math_table(nodes, words)
    local fields = { pi = math.pi, huge = math.huge, maxinteger = math.maxinteger,
                     mininteger = math.mininteger, tointeger = math.tointeger, type = math.type }
    local traced = {}
    for _, name in ipairs(words.pointwise) do traced[name] = true end
    for _, name in ipairs(MATH) do
        fields[name] = function(...)
            local line, result = nodes.here(), nil
            local numbers, other = nodes.all_numbers(...)
            if numbers then
                result = nodes.number(name, ...)
            elseif traced[name] and nodes.any_tensor(...) then
                result = nodes.operation(name, line, ...)
            else
                nodes.fail(line, format("math.%s: expected a number%s, found %s", name,
                    traced[name] and " or a tensor" or "", nodes.describe(other)))
            end
            return result
        end
    end
    return closed(nodes, "math.", function(_, key)
        if fields[key] == nil then
            nodes.fail(nodes.here(), format("math has no field '%s' in a spec", nodes.text(key)))
        end
        return fields[key]
    end, function() return "math is the same for every spec" end)
end

-- box: functions of the host; words: those of load.words. Returns the chunk's environment and the list of events.
return function(box, words)
    local nodes = require "spec.record_nodes" (box)
    local known = vocabulary(box, nodes, words)
    local math_of_spec = math_table(nodes, words)
    for _, name in ipairs(MATH) do
        known[name] = known[name] or function() return math_of_spec[name] end
    end

    local environment = closed(nodes, "", function(_, key)
        nodes.named = nodes.here()
        if key == "math" then return math_of_spec end
        if key == "ipairs" then return ipairs end
        local maker = known[key]
        if not maker then
            local text = nodes.text(key)
            nodes.fail(nodes.named, format("unknown word '%s'", text), text, true)
        end
        return nodes.waiting(format("the word '%s'", key), maker(nodes.named))
    end, function(text, value)
        if not known[text] then return "use local" end
        local shown = math.type(value) and format("(%.14g)", value) or "{ ... }"
        return format("use local; a word is called: %s %s", text, shown)
    end)
    return environment, nodes.events
end
