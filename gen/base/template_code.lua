-- template_code: template files as Lua. A template file has three rules.
--   //@ name(a, b)    opens a block with declared parameters
--   //% lua           a line of Lua, which leaves no line in the output
--   $name  $(expr)    inserts a typed value (base/text.lua) or an integer; $$ is a dollar sign.
--                     Alone on a line, each line of the text gets that line's indentation; an empty text
--                     leaves no line.
-- Files whose comments begin with # have `#@` and `#%` instead. One template line becomes one line of Lua, so errors
-- name the template's file and line. The build runs this file for the templates inside gagen, gagen for those of --dev.

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

-- Returns the text of a Lua chunk that defines one function per block. The chunk has as many lines as the template:
-- neighbouring lines of plain text are one string of as many.
return function(source)
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
    return table.concat(lua)
end
