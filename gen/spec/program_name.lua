-- program_name: names that a program may have: its library has a type of that name, and functions that begin with it.
local c_names = require "spec.c_names"
local text = require "base.text"

local program_name = {}

-- The types, functions and variables that every program has, and those that only its library has beside its type.
local OWN = "a b e m o p w activations batch bf16 f16 field gradients main model offsets out own parameters range "
    .. "ranges real saved step train views "
local OF_LIBRARY = " arg argc argv role "

local TAKEN, TAKEN_IN_LIBRARY = text.KEYWORDS .. OWN, OF_LIBRARY .. c_names.LIBRARY:gsub("%s+", " ")

--- The reason why a program cannot have this name, as a message; nil: it can.
function program_name.obstacle(name)
    if not name:match "^[a-z][a-z0-9_]*$" or #name > 48 or name:find("__", 1, true) then
        return ("'%s': small letters, digits and _ expected, a letter first, no two _ together, at most 48"):format(
            name)
    elseif TAKEN:find(" " .. name .. " ", 1, true) then
        return ("'%s' is a word of C, or one that every program has: expected another"):format(name)
    elseif name:find "^ga_" or name == "ga" then
        return ("'%s': names with ga_ are those of the runtime, expected another"):format(name)
    end
end

--- The reason why the library of a program of this name does not compile, as a message; nil: it does.
function program_name.obstacle_of_library(name)
    if TAKEN_IN_LIBRARY:find(" " .. name .. " ", 1, true) or name:find "_t$" then
        return ("'%s' is a name of C: the library of the program (make lib) needs another"):format(name)
    end
end

-- The static function or variable, or the type, that a line at the edge of a page of C declares.
local function declared(line)
    line = line:gsub("__attribute__%b()", "")
    if not line:find "^static " then return line:match "([%w_]+) *;" end
    return line:match "([%w_]+)%(" or line:match "([%w_]+)%[" or line:match "([%w_]+) ="
end

--- The name that a page of C of a program declares for itself, if the program's library has it too: the program's own
--- name, or one that begins with it and is in `face`, the headers. nil: there is none.
function program_name.clash(name, face, page)
    for line in page:gmatch "\n([st}][^\n]*)" do
        local other = declared(line)
        local begins = other and other:sub(1, #name + 1) == name .. "_"
        if other == name or begins and face:find("%f[%w_]" .. other .. "%f[^%w_]") then return other end
    end
end

return program_name
