-- text: makes the typed values that templates accept: identifiers, literals and blocks of C text.
-- Templates refuse plain strings, so text of a spec reaches C, make or a shell only as a checked identifier
-- or an escaped literal.
local expr = require "base.expr"

local text = {}

local typed = {}
typed.__index = typed
typed.__tostring = function(v) return v.text end

local function value(kind, s) return setmetatable({ kind = kind, text = s }, typed) end

--- Words that the compiler takes for no name, a space before and behind each.
text.KEYWORDS = " asm auto break case char const continue default do double else enum extern float for goto if inline "
    .. "int linux long register restrict return short signed sizeof static struct switch typedef typeof union unix "
    .. "unsigned void volatile while "

--- Whether v is a typed value.
function text.is(v) return getmetatable(v) == typed end

--- A word for a shell as a plain string, quoted if necessary.
function text.shell_word(word)
    if word:find("^[%w_./=+,:@-]+$") then return word end
    return "'" .. word:gsub("'", "'\\''") .. "'"
end

--- The words of a line of words that text.shell_word has written.
function text.shell_words(line)
    local words, at = {}, 1
    while at <= #line do
        local word = ""
        repeat                      -- a word is made of parts: quoted, one quote, or without any
            local quoted, after = line:match("^'([^']*)'()", at)
            if not quoted then quoted, after = line:match("^\\(.)()", at) end
            if not quoted then quoted, after = line:match("^([^ '\\]+)()", at) end
            word, at = word .. (quoted or ""), after or at
        until not quoted
        words[#words + 1], at = word, at + 1
    end
    return words
end

--- A C identifier; another string is an error of the caller.
function text.ident(s)
    if not s:match("^[%a_][%w_]*$") then error("not an identifier: " .. s, 2) end
    return value("ident", s)
end

--- A floating constant of type "f32" or "f64"; `at` is the place named if the type cannot hold it.
function text.number(x, dtype, at) return value("literal", expr.literal(x, dtype, at)) end

--- A C string literal: printable ASCII unchanged, other bytes in three-digit octal.
function text.string(s)
    if s:find("^[%w_ ./:]*$") then return value("literal", '"' .. s .. '"') end
    local body = s:gsub('[^%w !#-&(-/:-@%[%]^_`{-~]', function(c)
        return ("\\%03o"):format(c:byte())
    end)
    return value("literal", '"' .. body:gsub("%?", "\\077") .. '"')
end

--- C text made by gen/emit: expressions, declarations, calls, rendered templates.
function text.block(s) return value("block", s) end

--- Text that is safe in a C comment: ASCII, without comment delimiters, trigraphs or a trailing backslash.
function text.comment(s)
    if not s:find("[^ !-)+-.0->@-%[%]-~]") then return value("block", s) end
    s = s:gsub("[^\32-\126]", "?"):gsub("%*/", "* /"):gsub("/%*", "/ *"):gsub("%?%?", "? ?")
    return value("block", (s:gsub("\\+$", "")))
end

--- A number with commas between groups of three digits: 1,167,360.
function text.commas(n)
    local s = tostring(n)
    repeat
        local k
        s, k = s:gsub("^(%-?%d+)(%d%d%d)", "%1,%2")
    until k == 0
    return s
end

--- Bytes for people: 512 B, 1.5 KiB, 3.4 GiB.
function text.bytes(n)
    if n < 1024 then return n .. " B" end
    local unit = n < 2 ^ 20 and "Ki" or n < 2 ^ 30 and "Mi" or "Gi"
    return ("%.1f %sB"):format(n / ({ Ki = 2 ^ 10, Mi = 2 ^ 20, Gi = 2 ^ 30 })[unit], unit)
end

return text
