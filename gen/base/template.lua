-- template: renders template files of C, which have three rules.
--   //@ name(a, b)    opens a block with declared parameters
--   //% lua           a line of Lua, which leaves no line in the output
--   $name  $(expr)    inserts a typed value (base/text.lua) or an integer; $$ is a dollar sign.
--                     Alone on a line, each line of the text gets that line's indentation; an empty text
--                     leaves no line.
-- Files whose comments begin with # have `#@` and `#%` instead.
-- A parameter may be a table of values that belong together, or false where there are none: $(shape.rows) inserts one.
-- In the Lua of a block, the name of another block of its file is a function: $(name { a = 1 }) inserts that block.
-- One template line becomes one line of Lua, so errors name the template's file and line.
local ordered = require "base.ordered"
local text = require "base.text"

local template = {}

-- One template line as one line of Lua.
local function to_lua(line)
    local code = line:match("^%s*[/#]/?%%(.*)$")
    if code then return code end
    local pad, alone = line:match("^(%s*)%$(%b())%s*$")
    if not pad then pad, alone = line:match("^(%s*)%$([%a_][%w_]*)%s*$") end
    if alone then return ("_indented(%q, %s)"):format(pad, alone) end
    local out, pos = {}, 1
    while true do
        local from, to, inner = line:find("%$(%b())", pos)
        local from2, to2, name = line:find("%$([%a_$][%w_]*)", pos)
        if from2 and (not from or from2 < from) then from, to, inner = from2, to2, name end
        if not from then break end
        if from > pos then out[#out + 1] = ("%q"):format(line:sub(pos, from - 1)) end
        if inner:sub(1, 1) == "$" then
            out[#out + 1], to = '"$"', from + 1
        else
            out[#out + 1] = "_value(" .. inner .. ")"
        end
        pos = to + 1
    end
    out[#out + 1] = (("%q"):format(line:sub(pos) .. "\n"):gsub("\\\n", "\\n"))
    return "_put(" .. table.concat(out, " .. ") .. ")"
end

-- The line of Lua that begins a block, if the template line does; `open`: another block stands before it.
local function opening(line, open)
    local name, params = line:match("^[/#]/?@%s*([%a_][%w_]*)%s*%((.-)%)")
    return name and (open and "end " or "") ..
        ("_blocks[%q] = function(_arguments) local _ENV <const> = _open(_arguments, %q, %q)"):format(name, name, params)
end

-- The template as a Lua chunk that defines one function per block, and the chunk's name. The chunk has as many lines as
-- the template: neighbouring lines of plain text are one string of as many.
local function compile(source, file)
    local lua, open = { "local _put, _value, _indented, ipairs = _put, _value, _indented, ipairs " }, false
    local from, plain, dollar = 1, 1, 0     -- where the line begins, and the plain ones before it; the next dollar sign
    local function add_plain()
        if open and plain < from then lua[#lua + 1] = ("_put(%q) "):format(source:sub(plain, from - 1)) end
    end
    source = source:sub(-1) == "\n" and source or source .. "\n"
    while from <= #source do
        local to = source:find("\n", from, true)
        if dollar < from then dollar = source:find("$", from, true) or #source end
        if not open or dollar < to or source:find("^%s*[/#]/?[@%%]", from) then
            local line = source:sub(from, to - 1)
            local head = opening(line, open)
            add_plain()
            lua[#lua + 1] = (head or open and to_lua(line) or "") .. "\n"
            open, plain = open or head ~= nil, to + 1
        end
        from = to + 1
    end
    add_plain()
    if open then lua[#lua + 1] = "end" end
    return table.concat(lua), "@" .. file
end

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

--- Loads a template file. Returns render(block, arguments) -> text.block; a missing or undeclared argument, a field
--- that a table of values does not have and an unknown name are errors.
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
    local code, name = compile(source, file)
    local chunk, message = load(code, name, "t", env)
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
    return render
end

return template
