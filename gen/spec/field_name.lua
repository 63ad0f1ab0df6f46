-- field_name: names that fields of a batch may have: members of structures in C, and constants in capitals (AT_NAME).
local c_names = require "spec.c_names"
local text = require "base.text"

local field_name = {}

-- Words of C, and members of the structures of a batch that are no fields.
local TAKEN = text.KEYWORDS .. c_names.MACROS .. " batch micro real rows "

--- The reason why a field beside the others cannot have this name, as a message; nil: it can.
function field_name.obstacle(name, others)
    if TAKEN:find(" " .. name .. " ", 1, true) or name:upper() == "MICRO" then
        return "the name has a meaning in C or in each program"
    end
    for _, other in ipairs(others) do
        if name:upper() == other:upper() then return ("'%s' has the same name but for capitals"):format(other) end
    end
end

return field_name
