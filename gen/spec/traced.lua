-- traced: turns a function of numbers in the spec into an expression, from the events between NAME_begin and
-- NAME_end: the arithmetic and pointwise functions that it applied.
local check = require "base.check"
local diag = require "base.diag"
local expr = require "base.expr"
local ordered = require "base.ordered"

local function operand(value, values)
    if type(value) == "number" then return expr.lift(value) end
    return values[value.tensor]
end

--- The function of the word `word`, whose events begin at number `first`, as an expression of the variables `names`
--- (fields of the begin event). kind: of the events, if not the word.
return function(word, names, events, first, catalog, at, kind)
    local values = {}
    for _, name in ipairs(names) do values[events[first][name]] = expr.var(name) end
    for i = first + 1, #events do
        local event = events[i]
        if event.event == (kind or word) .. "_end" then return operand(event.result, values) end
        local rule = event.event == "op" and catalog.pointwise:get(event.op)
        if not rule or not rule.value then
            diag.fail(at, ("%s: the function takes arithmetic and pointwise functions of %s"):format(word,
                table.concat(names, " and ")), {})
        end
        local ins = ordered.collect(event.ins, function(x) return operand(x, values) end)
        local fields = check.fields(rule.fields, event.args or {}, check.context(event.op, at))
        values[event.out] = expr.lift(rule.value(fields, table.unpack(ins)))
    end
end
