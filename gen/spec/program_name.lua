-- program_name: names that a program may have: its library has a type of that name.
local text = require "base.text"

local program_name = {}

-- The types, functions and variables that every program has.
local OWN = "a b e m o p w activations batch bf16 f16 field gradients main offsets out own parameters range ranges "
    .. "real saved step train views "

local TAKEN = text.KEYWORDS .. OWN

--- The reason why a program cannot have this name, as a message; nil: it can.
function program_name.obstacle(name)
    if not name:match "^[a-z][a-z0-9_]*$" or #name > 48 or name:find("__", 1, true) then
        return ("'%s': letters, digits and _ expected, a small letter first, no two _ together, at most 48"):format(
            name)
    elseif TAKEN:find(" " .. name .. " ", 1, true) then
        return ("'%s' is a word of C, or one that every program has: expected another"):format(name)
    end
end

return program_name
