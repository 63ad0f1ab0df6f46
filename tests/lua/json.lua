-- A reader of JSON for the tests: objects and arrays become tables, null becomes nil.
-- Invariant: text that is not JSON is an error with its position.
local json = {}

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function fail(text, at, expected)
    error(("JSON: %s expected at byte %d: %q"):format(expected, at, text:sub(at, at + 30)), 0)
end

local function skip(text, at) return text:find("[^ \t\r\n]", at) or #text + 1 end

local function read_string(text, at)
    local last = at
    repeat
        last = text:find('["\\]', last + 1) or fail(text, at, "the end of a string")
        local escaped = text:sub(last, last) == "\\"
        if escaped then last = last + 1 end
    until not escaped
    local raw = text:sub(at + 1, last - 1)
    return raw:gsub("\\u(%x%x%x%x)", function(hex) return utf8.char(tonumber(hex, 16)) end)
        :gsub("\\(.)", ESCAPES), last + 1
end

local read_value

local function read_list(text, at, close, read_entry)
    local list = {}
    at = skip(text, at + 1)
    if text:sub(at, at) == close then return list, at + 1 end
    while true do
        at = skip(text, read_entry(list, at))
        local byte = text:sub(at, at)
        if byte == close then return list, at + 1 end
        if byte ~= "," then fail(text, at, ", or " .. close) end
        at = skip(text, at + 1)
    end
end

local function read_array(text, at)
    return read_list(text, at, "]", function(list, from)
        local next_at
        list[#list + 1], next_at = read_value(text, from)
        return next_at
    end)
end

local function read_object(text, at)
    return read_list(text, at, "}", function(list, from)
        if text:sub(from, from) ~= '"' then fail(text, from, "a name") end
        local name, colon = read_string(text, from)
        colon = skip(text, colon)
        if text:sub(colon, colon) ~= ":" then fail(text, colon, ":") end
        local value, next_at = read_value(text, skip(text, colon + 1))
        list[name] = value
        return next_at
    end)
end

function read_value(text, at)
    local byte = text:sub(at, at)
    if byte == "{" then return read_object(text, at) end
    if byte == "[" then return read_array(text, at) end
    if byte == '"' then return read_string(text, at) end
    local word = text:match("^[%w.+-]+", at) or fail(text, at, "a value")
    if word == "true" or word == "false" then return word == "true", at + #word end
    if word == "null" then return nil, at + 4 end
    return tonumber(word) or fail(text, at, "a number"), at + #word
end

--- The value of a whole text.
function json.read(text)
    local value, at = read_value(text, skip(text, 1))
    at = skip(text, at)
    if at <= #text then fail(text, at, "the end") end
    return value
end

--- One value per line (JSON lines).
function json.lines(text)
    local list = {}
    for line in text:gmatch("[^\n]+") do list[#list + 1] = json.read(line) end
    return list
end

return json
