-- options: what an option of the command line changes in a configuration.
local diag = require "base.diag"
local ordered = require "base.ordered"
local words = require "spec.words"

local options = {}

local function allowed(field, value, name)
    for _, f in ipairs(words.find("target").fields) do
        if f.name == field and not ordered.find(f.values, value) then
            diag.fail("gagen", ("%s: '%s', expected one of %s"):format(name, value,
                table.concat(f.values, ", ")), { hint = diag.suggest(value, f.values) })
        end
    end
    return value
end

--- Options win over the spec's word target; --ranks is read with the words (config.read).
function options.apply(c, o)
    if o.target then c.target = allowed("kind", o.target, "--target") end
    if o.march then c.march = allowed("march", o.march, "--march") end
    if o.threads then c.threads = o.threads end
end

return options
