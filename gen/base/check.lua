-- check: applies a schema, the declared fields of a word, layer, op or optimizer, to its arguments.
-- A schema is an array of { name, type, default = , position = , required = , min = , max = , above = , below = ,
-- values = , alternatives = , rest = , doc = }; types: int, num, bool, str, glob, size, name, any, list (values
-- without names), table (whose keys the field's owner checks). `alternatives` are values or Lua types that are
-- accepted as they are. A field with `rest` takes all positions that no other field has: { 2, 3 } is a list of two. By
-- its name it takes a list of them.
-- Invariant: an unknown field is refused, a missing required field is refused.
local diag = require "base.diag"
local ordered = require "base.ordered"

local check = {}

--- The largest value of a field that becomes a C int.
check.INT_MAX = 2147483647

local function range_text(field)
    if field.values then
        local names = {}
        for i, v in ipairs(field.values) do
            names[i] = type(v) == "string" and "'" .. v .. "'" or tostring(v)
        end
        return table.concat(names, ", ")
    end
    local low = field.above and ("> " .. field.above) or field.min and (">= " .. field.min)
    local high = field.below and ("< " .. field.below) or field.max and ("<= " .. field.max)
    if field.min and field.max then
        return ("%s..%s"):format(field.min == -check.INT_MAX - 1 and "-2^31" or field.min,
            field.max == check.INT_MAX and "2^31-1" or field.max)
    end
    return low and high and low .. " and " .. high or low or high
end

local NOUN = {
    int = "an integer", num = "a number", bool = "true or false", str = "a string",
    glob = "a name pattern", size = "a number of elements or a size such as \"25MiB\"",
    name = "a name", list = "a list", table = "a table",
}

-- Nouns for alternatives that name a Lua type.
local NOUN_OF_TYPE = { table = "a table", string = "a string", number = "a number", boolean = "true or false" }

local function describe(value)
    if type(value) == "string" then return "'" .. value .. "'" end
    if type(value) == "number" then return (tostring(value):gsub("%.0$", "")) end
    if type(value) == "table" then
        if value.tensor then return "a tensor" elseif value.layer then return "a layer" end
        return "a table"
    end
    return tostring(value)
end

local function alternatives_text(field)
    local text = ""
    for _, alternative in ipairs(field.alternatives or {}) do
        text = text .. " or " .. (NOUN_OF_TYPE[alternative] or '"' .. alternative .. '"')
    end
    return text
end

--- The values that a field accepts, in words: "a number >= 0", "'drop' or 'pad'", "an integer or \"last\"".
function check.expected(field)
    local range = range_text(field)
    local text = field.values and "one of " .. range
        or (NOUN[field.type] or "a value") .. (range and " " .. range or "")
    return text .. alternatives_text(field)
end

local function right_type(field, value)
    local kind = field.type
    if kind == "any" then return true end
    if kind == "int" then
        return math.type(value) == "integer" or
            (math.type(value) == "float" and math.tointeger(value) ~= nil)
    elseif kind == "num" then return type(value) == "number"
    elseif kind == "bool" then return type(value) == "boolean"
    elseif kind == "list" or kind == "table" then
        return type(value) == "table" and not value.tensor and not value.layer
    elseif kind == "size" then
        return math.type(value) == "integer" or
            (type(value) == "string" and value:match("^%d+[KMG]?i?B$") ~= nil)
    end
    return type(value) == "string"
end

local UNIT = { [""] = 1, K = 10 ^ 3, M = 10 ^ 6, G = 10 ^ 9, Ki = 2 ^ 10, Mi = 2 ^ 20, Gi = 2 ^ 30 }

-- { elements } of a number, { bytes } of a size such as "25MiB"; nil if it is 0 or overflows 64 bits.
local function size_value(value)
    if type(value) == "number" then return value > 0 and { elements = value } or nil end
    local n, unit = value:match("^(%d+)([KMG]?i?)B$")
    local bytes = math.tointeger(tonumber(n) * UNIT[unit])
    return bytes and bytes > 0 and { bytes = bytes } or nil
end

local function in_range(field, value)
    if field.values then return ordered.find(field.values, value) ~= nil end
    if type(value) ~= "number" then return true end
    return not (field.min and value < field.min) and not (field.max and value > field.max)
        and not (field.above and value <= field.above)
        and not (field.below and value >= field.below)
end

local function fail(context, field, value, suffix)
    local range = range_text(field)
    local expected = NOUN[field.type] or "one"
    if right_type(field, value) and field.min and field.max and not field.values then
        diag.fail(context.locate(field.name), ("%s: %s is %s, %s expected"):format(context.what,
            field.name, describe(value), range), {})
    elseif field.values then
        expected = "one of " .. range
    elseif range then
        expected = expected .. " " .. range
    end
    expected = expected .. alternatives_text(field)
    local hint
    if field.values and type(value) == "string" then hint = diag.suggest(value, field.values) end
    diag.fail(context.locate(field.name), ("%s: %s is %s, expected %s%s"):format(
        context.what, field.name, describe(value), expected, suffix or ""),
        { hint = hint, found = type(value) == "string" and value or nil })
end

-- Refuses a list with named values: nothing reads them.
local function check_positions(field, list, context)
    local n = 0
    for key in ordered.each(list) do
        n = n + 1
        if key ~= n then
            diag.fail(context.locate(field.name), ("%s: %s has the key %s, expected a list: values without names")
                :format(context.what, field.name, math.type(key) and "[" .. key .. "]" or "'" .. key .. "'"), {})
        end
    end
end

--- The value of one field, checked and made canonical (integers as integers, sizes as tables).
function check.value(field, value, context)
    if type(value) == "number" and (value ~= value or value == math.huge or value == -math.huge)
        and not field.infinite then
        diag.fail(context.locate(field.name), ("%s: %s is not finite"):format(
            context.what, field.name), {})
    end
    if field.alternatives then        -- "inf", "auto", a table: accepted as it is
        for _, alternative in ipairs(field.alternatives) do
            if value == alternative or type(value) == alternative then return value end
        end
    end
    if not right_type(field, value) or not in_range(field, value) then
        fail(context, field, value)
    end
    if field.type == "list" then check_positions(field, value, context) end
    if field.type == "int" then return math.tointeger(value) end
    if field.type == "size" then
        return size_value(value) or diag.fail(context.locate(field.name), ("%s: %s is %s, expected more than 0 and "
            .. "less than 2^63"):format(context.what, field.name, describe(value)), {})
    end
    return value
end

local function names(schema)
    local list = {}
    for i, field in ipairs(schema) do list[i] = field.name end
    return list
end

--- The context of a word at "path:line"; its errors point at the line of the field concerned.
function check.context(what, at)
    return { what = what, at = at, locate = function(name)
        if name then return diag.field(at, name) end
        return at
    end }
end

-- Checks a value and stores it in `out`; values of a field with `rest` are appended to its list.
local function take(out, field, value, context)
    local checked = check.value(field, value, context)
    if field.rest then
        out[field.name] = out[field.name] or {}
        table.insert(out[field.name], checked)
        return
    end
    if out[field.name] ~= nil then
        diag.fail(context.locate(field.name), ("%s: %s is given twice"):format(
            context.what, field.name), {})
    end
    out[field.name] = checked
end

-- The values of a field with `rest` that is given by its name, a list of such values; nil: it is one value.
local function listed(field, key, value)
    if not field.rest or math.type(key) or type(value) ~= "table" then return nil end
    if field.type == "table" and type(value[1]) ~= "table" then return nil end
    for place in ordered.each(value) do
        if not math.type(place) then return nil end
    end
    return value
end

--- Applies a schema to the arguments of a word or layer. Returns a new table with every field that has a value or
--- a default. context = { what = "optimizer 'adamw'", locate = function(field or nil) -> "path:line", foreign = what is
--- here in the place of fields that other systems have, by their names }.
function check.fields(schema, args, context)
    local known, positions, rest = {}, {}, nil
    for _, field in ipairs(schema) do
        known[field.name] = field
        if field.position then positions[field.position] = field end
        if field.rest then rest = field end
    end
    local out = {}
    for key, value in ordered.each(args) do
        local field = math.type(key) and (positions[key] or rest) or known[key]
        if not field then
            if math.type(key) then
                diag.fail(context.locate(), ("%s: unexpected value %s at position %d"):format(
                    context.what, describe(value), key), {})
            end
            local here = (context.foreign or {})[key]
            local none = #schema == 0 and (", %s takes none"):format(context.what) or ""
            diag.fail(context.locate(key), ("%s: unknown field '%s'%s%s"):format(context.what, key, none,
                here and "; " .. here or ""), {
                found = key, hint = diag.suggest(key, names(schema)),
                notes = #schema > 0 and { { at = false, message = context.what .. " takes: " ..
                    table.concat(names(schema), ", ") } } or nil,
            })
        end
        for _, each in ipairs(listed(field, key, value) or { value }) do take(out, field, each, context) end
    end
    for _, field in ipairs(schema) do
        if out[field.name] == nil then
            if field.required then
                diag.fail(context.locate(), ("%s: %s is missing, expected %s"):format(context.what,
                    field.name, NOUN[field.type] or range_text(field) or "a value"), {})
            end
            out[field.name] = field.default
        end
    end
    return out
end

return check
