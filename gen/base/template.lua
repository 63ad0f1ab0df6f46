-- template: renders the blocks of template files, base/template_code.lua has their rules.
-- A parameter may be a table of values that belong together, or false where there are none: $(shape.rows) inserts one.
-- In the Lua of a block, the name of another block of its file is a function: $(name { a = 1 }) inserts that block.
local ordered = require "base.ordered"
local template_code = require "base.template_code"
local text = require "base.text"

local template = {}

local function interpolate(v)
    if text.is(v) then return v.text end
    if math.type(v) == "integer" then return tostring(v) end
    error("template value is a " .. (math.type(v) or type(v)) ..
        ", expected an identifier, literal, block or integer", 3)
end

local function indent(out, pad, v)
    local s, from = interpolate(v), 1
    while from <= #s do
        local to = s:find("\n", from, true) or #s + 1
        if to > from then out[#out + 1] = pad .. s:sub(from, to - 1) end
        out[#out + 1] = "\n"
        from = to + 1
    end
end

local function names_in(params)
    local names = {}
    for name in params:gmatch("[%a_][%w_]*") do names[name] = true end
    return names
end

-- The block that is rendered, and its arguments.
local opened

-- A table of values while a block reads it: to read a field that it does not have is an error. Integers are the places
-- of a list.
local STRICT = { __index = function(group, field)
    if math.type(field) then return nil end
    local argument
    for name, value in pairs(opened.arguments) do argument = value == group and name or argument end
    error(("%s: argument '%s' has no field '%s'"):format(opened.name, argument, field), 2)
end }

-- Makes the tables of values among the arguments strict; returns a list of those that were not.
local function make_strict(arguments)
    local list = {}
    for _, value in pairs(arguments) do
        if type(value) == "table" and getmetatable(value) == nil then list[#list + 1] = setmetatable(value, STRICT) end
    end
    return list
end

-- Calls a block with its arguments.
local function call(block, name, arguments)
    local outer, tables = opened, make_strict(arguments)
    opened = { name = name, arguments = arguments }
    block(arguments)
    for _, values in ipairs(tables) do setmetatable(values, nil) end
    opened = outer
end

--- Loads a template, given as its text or as the chunk that the build made from it. Returns the function
--- render(block, arguments) -> text.block, and a table with a key for each block. A missing or undeclared argument, a
--- field that a table of values does not have and an unknown name are errors.
function template.load(source, file)
    local out
    local blocks, inserted, declared = {}, {}, {}
    local env = { _blocks = blocks, ipairs = ipairs }
    env._value = function(v) local s = interpolate(v) return s end
    env._put = function(line) out[#out + 1] = line end
    env._indented = function(pad, v) indent(out, pad, v) end
    env._open = function(arguments, block, params)
        declared[block] = declared[block] or names_in(params)
        local missing = ordered.first_missing(declared[block], arguments)
        if missing then error(("%s: missing argument '%s'"):format(block, missing), 3) end
        local unknown = ordered.first_missing(arguments, declared[block])
        if unknown then error(("%s: unknown argument '%s'"):format(block, unknown), 3) end
        return setmetatable({}, {
            __index = function(_, key)
                local v = arguments[key]
                if v == nil then v = inserted[key] end
                if v == nil then error("undefined template name '" .. key .. "'", 2) end
                return v
            end,
            __newindex = function(_, key)
                error("template assigns to the global '" .. key .. "'", 2)
            end,
        })
    end
    local made = source:sub(1, 1) == "\27"       -- the first byte of every chunk
    local chunk, message = load(made and source or template_code(source), "@" .. file, "bt", env)
    if not chunk then error(message, 2) end
    chunk()
    local function render(block, arguments)
        if not blocks[block] then error(file .. ": no block '" .. block .. "'", 2) end
        local saved = out
        out = {}
        call(blocks[block], block, arguments)
        local result = text.block(table.concat(out))
        out = saved
        return result
    end
    for block in ordered.each(blocks) do
        inserted[block] = function(arguments) return text.block((render(block, arguments).text:gsub("\n+$", "\n"))) end
    end
    return render, blocks
end

local embedded = {}     -- templates that are loaded, by name

--- template.load of a file inside gagen, "templates/...".
function template.embedded(file)
    if not embedded[file] then embedded[file] = table.pack(template.load(host.embedded(file), file)) end
    return table.unpack(embedded[file])
end

return template
