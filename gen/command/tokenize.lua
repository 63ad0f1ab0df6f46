-- tokenize: `gagen tokenize METHOD TEXT FILE`: writes the ids of a text's tokens into a file for the word `data`.
-- Each method is a module with its options beside the common ones, and run(o, text), which returns the bytes of FILE
-- and a line that describes them.
local diag = require "base.diag"
local ordered = require "base.ordered"
local written = require "command.written"

local tokenize = {}

local MOST_BYTES = 4294967296       -- of a text

local METHODS = ordered.map()
METHODS:set("bert", require "command.tokenize_bert")
METHODS:set("gpt2", require "command.tokenize_gpt2")

--- The names of the methods.
function tokenize.methods() return METHODS.keys end

local COMMON = { "--vocab", "--first", "--skip" }

local function check_options(o, name, method)
    local takes = table.move(method.options, 1, #method.options, #COMMON + 1, ordered.copy(COMMON))
    for given in o.given:each() do
        if not ordered.find(takes, given) then
            diag.fail("tokenize " .. name, ("takes no %s"):format(given), { notes = {
                "it takes: " .. table.concat(takes, ", ") } })
        end
    end
    if not o.vocab then
        diag.fail("tokenize " .. name, ("--vocab is missing, expected %s"):format(method.vocabulary), {})
    end
end

-- The text of a file; refuses invalid UTF-8.
local function read_text(path)
    local text, message = host.read(path, MOST_BYTES)
    if not text then diag.fail(path, (message:gsub("^.-: ", "", 1)), {}) end
    local whole, at = utf8.len(text)
    if not whole then
        local _, lines = text:sub(1, at - 1):gsub("\n", "")
        diag.fail(("%s:%d"):format(path, lines + 1), ("byte 0x%02x at offset %d begins no character, expected "
            .. "UTF-8"):format(text:byte(at), at - 1), {})
    end
    return text
end

--- Runs the command; o: its options, o.arguments = { METHOD, TEXT, FILE }.
function tokenize.run(o)
    local name, text, file = table.unpack(o.arguments)
    local method = METHODS:get(name)
    if not method then
        diag.fail("tokenize", ("unknown method '%s', expected one of %s"):format(name,
            table.concat(METHODS.keys, ", ")), { hint = diag.suggest(name, METHODS.keys) })
    end
    check_options(o, name, method)
    local bytes, said = method.run(o, read_text(text), text)
    written(file, bytes, { text, o.vocab })
    io.stderr:write(("wrote %s: %s\n"):format(diag.escape(file), said))
end

return tokenize
