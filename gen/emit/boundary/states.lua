-- states: what the model's files say of an optimizer's state: the arrays, and what they hold of which parameter.
-- A state that all parameters have lies over the flat space; any other in an array of its own.
local ordered = require "base.ordered"
local text = require "base.text"

local states = {}

local function array_name(name) return "state_" .. name end

--- The fields of struct model.
function states.fields(g)
    return ordered.collect(g.state_names, function(name)
        local own = not g.states:get(name).dense
        local comment = own and (" /* of STATE_%s_PARAMS */"):format(name:upper()) or ""
        return ("real *%s;%s"):format(array_name(name), comment)
    end)
end

--- How these fields are set.
function states.places(g)
    return ordered.collect(g.state_names, function(name)
        return ("m->%s = (real *)m->memory[ARENA_%s].base;"):format(array_name(name), array_name(name):upper())
    end)
end

--- The row of a table of ga_param: a parameter, or its state, of this shape and at this place.
function states.row(p, shape, flat)
    return ("{%s, %d, %d, %d, {%s}, %d, %d, %d},"):format(text.string(p.name).text, p.first,
        p.count, #shape, table.concat(shape, ", "), flat.offset, flat.stride, flat.n)
end

--- The lines of a table for each state with an array of its own; and where a checkpoint finds all states.
function states.tables(g, params)
    local tables, saved = {}, {}
    for i, name in ipairs(g.state_names) do
        local place = "PARAMS, TRAINED_PARAMS"
        if not g.states:get(name).dense then
            local of, rows = array_name(name):upper() .. "_PARAMS", {}
            for _, p in ipairs(params) do
                local t = p.state[name]
                rows[#rows + 1] = t and "    " .. states.row(p, t.shape, p.kept[name])
            end
            tables[#tables + 1] = ("\n/* %s, of what has it: an array of its own. */"):format(name)
            tables[#tables + 1] = ("static const ga_param %s[] = {\n%s\n};"):format(of, table.concat(rows, "\n"))
            place = ("%s, %d"):format(of, #rows)
        end
        saved[i] = ("a->state[%d] = (ga_array){%s, %s, REAL, m->%s, NULL};"):format(i - 1, place,
            text.string("." .. name).text, array_name(name))
    end
    return tables, saved
end

return states
