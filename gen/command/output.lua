-- output: names the folder of a program without -o. Each choice of options has a folder of its own, so that a sweep is
-- many programs and none overwrites another.
local literal = require "base.literal"
local ordered = require "base.ordered"
local set = require "spec.set"

local output = {}

-- Options with one value that give a program another folder.
local OPTIONS = { "target", "march", "ranks" }

local MOST_VALUE, MOST_NAME = 24, 199       -- bytes

local function hash(text) return host.sha256(text):sub(1, 8) end

-- A value as a part of a name: a number as it was typed, a string without quotes unless it reads as another literal.
local function shown(value, typed)
    local text = literal.write(value)
    local short = math.type(value) and typed:match("^%s*(.-)%s*$") or text
    if type(value) == "string" and not literal.read(value) then short = value end
    return #short <= MOST_VALUE and short:find("^[%w._+-]+$") and short or hash(text)
end

-- The parts WORD.FIELD=VALUE, sorted, each once.
local function parts_of(o)
    local found = ordered.map()
    local function add(name, value) found:set(name .. "=" .. value, true) end
    for _, s in ipairs(set.read_all(o.set or {})) do
        add(s.text:match("^[^=]*"), shown(s.value, s.typed))
    end
    for _, name in ipairs(OPTIONS) do
        if o[name] then add(name, shown(o[name], tostring(o[name]))) end
    end
    for _, pass in ipairs(o.without or {}) do add("without", shown(pass, pass)) end
    table.sort(found.keys)
    return found.keys
end

--- The folder for the program `name` and the options `o` of the command line: -o, or out/NAME, or out/NAME followed by
--- `--WORD.FIELD=VALUE` for each value that the options change. A value that is long, or has signs other than letters,
--- digits and ._+-, is shown by a hash; so are all values where the name would be too long.
function output.folder(name, o)
    if o.output then return o.output end
    local parts = parts_of(o)
    local whole = table.concat({ name, table.unpack(parts) }, "--")
    return "out/" .. (#whole <= MOST_NAME and whole or name .. "--" .. hash(table.concat(parts, "--")))
end

return output
