-- literal: reads and writes Lua literals: numbers, strings, booleans and tables of them.
-- Nothing is evaluated: operators are refused, and names except as keys.
local ordered = require "base.ordered"

local literal = {}

local MOST_DEPTH, MOST_ENTRIES = 16, 10000

local Reader = {}
Reader.__index = Reader

-- Raises { refused = message }, the next 24 bytes of the text in the place of %s.
local function refuse(reader, message)
    error({ refused = message:format(reader.text:sub(reader.at, reader.at + 23)) }, 0)
end

function Reader:skip() self.at = self.text:find("%S", self.at) or #self.text + 1 end

-- Consumes and returns the text that matches the pattern at the current position, or returns nil.
function Reader:take(pattern)
    self:skip()
    local first, last = self.text:find("^" .. pattern, self.at)
    if not first then return nil end
    self.at = last + 1
    return self.text:sub(first, last)
end

local ESCAPES = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ['"'] = '"', ["'"] = "'" }

-- The rest of a string whose opening quote has been read.
function Reader:string(quote)
    local parts = {}
    while true do
        local plain = self.text:match("^[^\\\"'\n]+", self.at)
        local sign = plain or self.text:sub(self.at, self.at)
        if sign == quote then
            self.at = self.at + 1
            return table.concat(parts)
        elseif sign == "" or sign == "\n" then
            refuse(self, "a string that does not end")
        elseif sign == "\\" then
            local escaped = ESCAPES[self.text:sub(self.at + 1, self.at + 1)]
            if not escaped then refuse(self, "unknown escape '%s'") end
            sign, self.at = escaped, self.at + 1
        end
        parts[#parts + 1] = sign
        self.at = self.at + (plain and #plain or 1)
    end
end

function Reader:number()
    local from = self.at
    local token = self:take("%-?%s*0[xX][%x%.]*[pP]?[+-]?%d*") or self:take("%-?%s*[%d%.]+[eE]?[+-]?%d*")
    local value = token and tonumber((token:gsub("%s", "")))
    if not value or self.text:find("^[%w_.]", self.at) then
        self.at = from
        refuse(self, "'%s' is no number")
    end
    return value
end

-- `name =` or `[key] =`, or nil if the entry has no key.
function Reader:key()
    local name = self:take("[%a_][%w_]*%s*=%f[^=]")
    if name then return name:match("^[%w_]+") end
    if not self:take("%[") then return nil end
    local key = self:value()
    if type(key) ~= "string" and math.type(key) ~= "integer" then
        refuse(self, "before '%s': a key is a string or a whole number")
    end
    if not self:take("%]%s*=") then refuse(self, "'] =' expected at '%s'") end
    return key
end

function Reader:table()
    local t, positions = {}, 0
    self.depth = self.depth + 1
    if self.depth > MOST_DEPTH then refuse(self, "tables nested too deep at '%s'") end
    while not self:take("}") do
        local key = self:key()
        if not key then
            positions = positions + 1
            key = positions
        end
        if t[key] ~= nil then refuse(self, "before '%s': " .. key .. " is given twice") end
        t[key] = self:value()
        self.entries = self.entries + 1
        if self.entries > MOST_ENTRIES then refuse(self, "too many entries") end
        if not self:take("[,;]") and not self.text:find("^%s*}", self.at) then
            refuse(self, "',' or '}' expected at '%s'")
        end
    end
    self.depth = self.depth - 1
    return t
end

function Reader:value()
    self:skip()
    local sign = self.text:sub(self.at, self.at)
    if sign == '"' or sign == "'" then
        self.at = self.at + 1
        return self:string(sign)
    elseif sign == "{" then
        self.at = self.at + 1
        return self:table()
    end
    local word = self.text:match("^[%a_][%w_.]*", self.at)
    if word == "true" or word == "false" then
        self.at = self.at + #word
        return word == "true"
    elseif word then
        error({ refused = ("%s is no Lua literal"):format(word), word = word }, 0)
    elseif sign == "" then
        refuse(self, "a value is missing")
    end
    return self:number()
end

--- Reads `text`. Returns true and the value, or false, the complaint and the bare word if that is the fault.
function literal.read(text)
    local reader = setmetatable({ text = text, at = 1, depth = 0, entries = 0 }, Reader)
    local done, value = pcall(function()
        local result = reader:value()
        reader:skip()
        if reader.at <= #text then refuse(reader, "'%s' stands behind the value") end
        return result
    end)
    if done then return true, value end
    if type(value) ~= "table" then error(value, 0) end
    return false, value.refused, value.word
end

local function quoted(text)
    return '"' .. text:gsub('[%c"\\]', function(c)
        if c == "\n" then return "\\n" elseif c == "\t" then return "\\t" elseif c == "\r" then return "\\r" end
        return (c == '"' or c == "\\") and "\\" .. c or c
    end) .. '"'
end

--- The value as one line of Lua that reads back as the same value: positions first, then sorted keys.
function literal.write(value)
    if type(value) == "string" then return quoted(value) end
    if math.type(value) == "float" then
        for digits = 1, 17 do
            local text = ("%." .. digits .. "g"):format(value)
            if tonumber(text) == value then return (text:gsub("e([+-]?)0+(%d)", "e%1%2"):gsub("e%+", "e")) end
        end
    end
    if type(value) ~= "table" then return tostring(value) end
    local parts = {}
    for key, entry in ordered.each(value) do
        local name = ""
        if not math.type(key) then
            name = (key:match("^[%a_][%w_]*$") or "[" .. quoted(key) .. "]") .. " = "
        elseif key ~= #parts + 1 then
            name = "[" .. key .. "] = "
        end
        parts[#parts + 1] = name .. literal.write(entry)
    end
    return #parts > 0 and "{ " .. table.concat(parts, ", ") .. " }" or "{}"
end

return literal
