-- registry: `gagen list`: what a spec may use, printed from the catalog itself.
local diag = require "base.diag"
local ordered = require "base.ordered"
local words = require "spec.words"

local registry = {}

local function fields_text(fields)
    local out = {}
    for _, f in ipairs(fields or {}) do
        local default = f.default
        if type(default) == "table" then default = "{ " .. table.concat(default, ", ") .. " }" end
        out[#out + 1] = f.name .. (default ~= nil and " = " .. tostring(default) or
            f.required and "*" or "")
    end
    return #out > 0 and "\n      " .. table.concat(out, ", ") or ""
end

local KINDS = ordered.map()

local function from_map(kind, key)
    KINDS:set(kind, function(known, out)
        for name, entry in known[key]:each() do
            out[#out + 1] = ("  %-18s%s%s"):format(name, entry.doc, fields_text(entry.fields))
        end
    end)
end

KINDS:set("words", function(_, out)
    for _, word in ipairs(words.list) do
        out[#out + 1] = ("  %-18s%s%s"):format(word.name .. (word.required and "*" or ""), word.doc,
            fields_text(word.fields))
    end
end)
KINDS:set("layers", function(known, out)
    for _, entry in ipairs(words.structure) do
        out[#out + 1] = ("  %-18s%s"):format(entry.name, entry.doc)
    end
    for name, entry in known.layers:each() do
        out[#out + 1] = ("  %-18s%s%s"):format(name, entry.doc, fields_text(entry.fields))
    end
end)
KINDS:set("ops", function(known, out)
    for name, entry in known.pointwise:each() do
        out[#out + 1] = ("  %-18s%s%s"):format(name, entry.doc, fields_text(entry.fields))
    end
    for name, entry in known.ops:each() do
        if entry.word then out[#out + 1] = ("  %-18s%s"):format(name, entry.doc) end
    end
end)
from_map("optimizers", "optimizers")
from_map("schedules", "schedules")
from_map("losses", "losses")

--- The text for one kind, or for all.
function registry.text(known, kind)
    if kind and not KINDS:has(kind) then
        diag.fail("list", ("unknown kind '%s', expected one of %s"):format(kind,
            table.concat(KINDS.keys, ", ")), { hint = diag.suggest(kind, KINDS.keys) })
    end
    local out = {}
    for name, print_kind in KINDS:each() do
        if not kind or kind == name then
            out[#out + 1] = name .. ":"
            print_kind(known, out)
        end
    end
    return table.concat(out, "\n") .. "\n"
end

return registry
