-- options: applies options of the command line to a configuration.
local diag = require "base.diag"
local ordered = require "base.ordered"
local words = require "spec.words"

local options = {}

-- `value`, refused unless the field of the word target allows it; `name` is the option.
local function allowed(field, value, name)
    for _, f in ipairs(words.find("target").fields) do
        if f.name == field and not ordered.find(f.values, value) then
            diag.fail("gagen", ("%s: '%s', expected one of %s"):format(name, value,
                table.concat(f.values, ", ")), { hint = diag.suggest(value, f.values) })
        end
    end
    return value
end

--- Replaces fields of the word target by the options; config.read handles --ranks.
function options.apply(c, o)
    if o.target then c.target = allowed("kind", o.target, "--target") end
    if o.march then c.march = allowed("march", o.march, "--march") end
    if o.threads then c.threads = o.threads end
end

return options
