-- list: `gagen list`: everything that a spec may use, with one line for each entry and its fields below.
local diag = require "base.diag"
local ordered = require "base.ordered"
local reference = require "command.reference"

local function fields_text(fields)
    local parts = ordered.collect(fields, function(f)
        local default = reference.default(f)
        return f.name .. (default and " = " .. default or f.required and "*" or "")
    end)
    return #parts > 0 and "\n      " .. table.concat(parts, ", ") or ""
end

--- The text for one kind of entry, or for all kinds if it is nil.
return function(kind)
    local kinds = reference.kinds()
    if kind and not ordered.find(kinds, kind) then
        diag.fail("list", ("unknown kind '%s', expected one of %s"):format(kind, table.concat(kinds, ", ")),
            { hint = diag.suggest(kind, kinds) })
    end
    local out = {}
    for _, name in ipairs(kind and { kind } or kinds) do
        out[#out + 1] = name .. ":"
        for _, entry in ipairs(reference.entries(name)) do
            out[#out + 1] = ("  %-18s %s%s%s"):format(entry.name .. (entry.required and "*" or ""), entry.doc,
                fields_text(entry.fields), entry.note and "\n      " .. entry.note or "")
        end
    end
    return table.concat(out, "\n") .. "\n"
end
