-- reference: everything that a spec may use, from words, catalog and warnings, as one list of entries. It is read by
-- `gagen list`, `gagen help WORD`, the annotations for editors and the completions of shells.
--
-- An entry: { kind, name, doc, note, usage, fields, example, required, alone }. usage: its syntax; fields: a schema of
-- base/check.lua; example: a valid line of a spec, a word or a layer in a list of layers or, if it begins with
-- "local y", a line in a function of x; alone: whether a layer gives a tensor without taking one.
local catalog = require "catalog.catalog"
local check = require "base.check"
local formats = require "spec.formats"
local literal = require "base.literal"
local ordered = require "base.ordered"
local warnings = require "spec.warnings"
local words = require "spec.words"

local reference = {}

-- The arguments as text, "{ out*, bias = true }": positions by name, required fields with a star.
local function arguments_of(fields)
    local parts = ordered.collect(fields, function(f)
        local text = f.name .. (f.required and "*" or "")
        return f.default ~= nil and text .. " = " .. literal.write(f.default) or text
    end)
    return #parts > 0 and "{ " .. table.concat(parts, ", ") .. " }" or "{}"
end

-- A value that the field accepts, for a generated example.
local function value_of(f)
    if f.default ~= nil then return f.default end
    if f.values then return f.values[1] end
    if f.type == "int" then return math.max(f.min or 8, math.min(8, f.max or 8)) end
    if f.type == "num" then return f.above and f.above + 0.1 or f.min and f.min + 0.1 or 0.1 end
    return ({ bool = true, list = {}, table = {}, str = "name", glob = "*", size = 1024 })[f.type]
end

-- The arguments of a generated example: the required fields and a learning rate.
local function example_of(fields, first)
    local args = { first }
    for _, f in ipairs(fields) do
        if f.required or f.name == "lr" then args[f.position or f.name] = value_of(f) end
    end
    return #ordered.keys(args) == 1 and type(first) == "string" and literal.write(first)
        or literal.write(args)
end

-- The state that an optimizer keeps, per element of a parameter or per row and column.
local function state_text(rule)
    local parts, usual = {}, nil
    for _, setting in ipairs(catalog.settings(rule)) do
        local names = rule.state(setting[2])
        local kept = #names > 0 and table.concat(names, ", ") or "nothing"
        if not usual then
            usual = kept
            parts[1] = #names == 0 and "keeps nothing per parameter"
                or ("keeps %s: %d bytes per parameter in f32, %d in f64"):format(kept, 4 * #names, 8 * #names)
        elseif kept ~= usual then
            parts[#parts + 1] = ("with %s %s: %d, %d"):format(setting[1], kept, 4 * #names, 8 * #names)
        end
    end
    local all = table.concat(parts, "; ")
    if rule.least_rank then return all .. ", of what it updates; the rest as its optimizer" end
    if not rule.matrix then return all end
    return ("keeps %s: 4 bytes per row and 4 per column in f32, 8 and 8 in f64; for vectors %s"):format(
        table.concat(rule.matrix.state(), ", "), (all:gsub("^keeps ", "")))
end

-- The compat switches of a schedule.
local function compat_text(rule)
    local parts = ordered.collect(ordered.keys(rule.compat), function(name)
        return ("compat = { \"%s\" }: %s"):format(name, rule.compat[name])
    end)
    return table.concat(parts, "; ")
end

local function selected(word, kind)
    return function(name, entry)
        local fields = entry.fields
        local usage = fields[1] and ('%s { "%s", %s'):format(word, name, arguments_of(fields):sub(3))
            or ('%s "%s"'):format(word, name)
        return { kind = kind, name = name, doc = entry.doc, fields = fields, usage = usage,
            note = entry.state and state_text(entry) or entry.compat and compat_text(entry)
                or kind == "loss" and ("in a function of the word loss: %s%s (out.a, batch.target)"):format(name,
                    fields[1] and " { ... }" or "") or nil,
            example = entry.example or word .. " " .. example_of(fields, name) }
    end
end

-- The example of an op from its sample: of a function of x its single line; nil if it has several lines.
local function op_example(sample)
    if not sample:find("^function") then return sample end
    local result = sample:gsub("%s+", " "):match("^function%(x%) return (.*) end$")
    return result and "local y = " .. result
end

local function layer(name, entry, ops)
    local head = entry.named and name .. ' "name" ' or name .. " "
    local op = ops:get(name)
    local sample = entry.sample or op and op.sample
    return { kind = "layer", name = name, doc = entry.doc, fields = entry.fields,
        alone = entry.takes ~= nil and entry.takes[1] == 0,
        usage = entry.usage or head .. arguments_of(entry.fields) .. (entry.word and " | " .. name .. "(x)" or ""),
        example = entry.example or sample and op_example(sample) or head .. example_of(entry.fields) }
end

local OPERATORS = { add = "a + b", sub = "a - b", mul = "a * b", div = "a / b", neg = "-x", pow = "a ^ b" }

local function pointwise(name, entry)
    local usage = entry.arity == 1 and ("%s %s | %s(x)"):format(name, arguments_of(entry.fields), name)
        or ("%s(a, b)"):format(name)
    return { kind = "op", name = name, doc = entry.doc, fields = entry.fields,
        usage = usage .. (OPERATORS[name] and " | " .. OPERATORS[name] or ""),
        example = op_example(entry.example or entry.sample) }
end

local function word(entry)
    local fields, own = ordered.copy(entry.fields or {}), entry.own or {}
    table.move(own, 1, #own, #fields + 1, fields)
    local head = entry.select and '{ "name", ' .. arguments_of(fields):sub(3) or arguments_of(fields)
    return { kind = "word", name = entry.name, doc = entry.doc, fields = fields, required = entry.required,
        usage = entry.usage or entry.name .. " " .. (head == '{ "name", ' and '{ "name", ... }' or head),
        select = entry.select, example = entry.example }
end

-- The kinds of `gagen list` in order, each with the function that makes its entries.
local KINDS = ordered.map()
KINDS:set("words", function(_, out)
    out(word(words.model))
    for _, entry in ipairs(words.list) do out(word(entry)) end
end)
KINDS:set("layers", function(known, out)
    for _, s in ipairs(words.structure) do
        out { kind = "layer", name = s.name, doc = s.doc, usage = s.usage, fields = {}, example = s.example }
    end
    for name, entry in known.layers:each() do out(layer(name, entry, known.ops)) end
end)
KINDS:set("ops", function(known, out)
    for name, entry in known.pointwise:each() do out(pointwise(name, entry)) end
end)
for _, from in ipairs { { "losses", "loss", "loss" }, { "optimizers", "optimizer", "optimizer" },
    { "schedules", "schedule", "schedule" } } do
    KINDS:set(from[1], function(known, out)
        local make = selected(from[2], from[3])
        for name, entry in known[from[1]]:each() do out(make(name, entry)) end
    end)
end

KINDS:set("data", function(_, out)
    local word = words.find("data")
    for _, format in ipairs(formats.list) do
        local fields = ordered.collect(word.fields, function(f)
            local taken = ordered.find(formats.common, f.name) or ordered.find(format.takes, f.name)
            return taken and f.name ~= "kind" and f or nil
        end)
        out { kind = "data", name = format.name, doc = format.doc, fields = fields, example = format.example,
            usage = ('data { "%s", %s'):format(format.name, arguments_of(fields):sub(3)) }
    end
end)

KINDS:set("warnings", function(_, out)
    for _, warning in ipairs(warnings.list) do
        local usage = ('train { ..., allow = { "%s" } }'):format(warning.name)
        out { kind = "warning", name = warning.name, doc = warning.doc, fields = {}, usage = usage,
            example = (usage:gsub("%.%.%.", "epochs = 9")) }
    end
end)

--- The names of the kinds in order: words, layers, ops, losses, optimizers, schedules, data, warnings.
function reference.kinds() return KINDS.keys end

--- The entries of one kind, in order.
function reference.entries(kind)
    local list = {}
    KINDS:get(kind)(catalog.load(), function(entry) list[#list + 1] = entry end)
    return list
end

--- All entries of that name, and the names of all entries without repetition.
function reference.find(name)
    local found, names = {}, ordered.map()
    for kind in KINDS:each() do
        for _, entry in ipairs(reference.entries(kind)) do
            if entry.name == name then found[#found + 1] = entry end
            names:set(entry.name, true)
        end
    end
    return found, names.keys
end

--- The default of a field in the syntax of a spec, or nil.
function reference.default(field)
    return field.default ~= nil and literal.write(field.default) or nil
end

reference.expected = check.expected

return reference
