-- states: what the model's files say of an optimizer's state: the arrays, and what they hold of which parameter.
-- A state that all parameters have lies over the flat space; any other in an array of its own.
local ordered = require "base.ordered"
local text = require "base.text"

local states = {}

local function array_name(name) return "state_" .. name end

--- The table of the parameters that a state with an array of its own has something of, and the number of its rows, as
--- arguments.
function states.table_of(g, name)
    local rows = ordered.collect(g.params, function(p) return p.state[name] end)
    return ("%s_PARAMS, %d"):format(array_name(name):upper(), #rows)
end

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
    if g.sharded.state then return {} end       -- a rank's part is known when there are ranks
    return ordered.collect(g.state_names, function(name)
        if g.state_file and g.states:get(name).dense then return nil end        -- it has memory when its file is open
        return ("m->%s = (real *)m->memory[ARENA_%s].base;"):format(array_name(name), array_name(name):upper())
    end)
end

--- The row of a table of ga_param: a parameter, or its state, of this shape and at this place.
function states.row(p, shape, flat)
    return ("{%s, %d, %d, %d, {%s}, %d, %d, %d},"):format(text.string(p.name).text, p.first,
        p.count, #shape, table.concat(shape, ", "), flat.offset, flat.stride, flat.n)
end

-- The lines of a table of what a cycle collects, if that has an array of its own.
local function collected_table(g, params)
    local list = {}
    if not g.sharded.gradients or g.summed_elements == g.trained_elements then return list end
    list[1] = "\n/* The sums for running statistics: an array of its own. */"
    list[2] = "static const ga_param COLLECTED_PARAMS[] = {"
    for _, p in ipairs(params) do
        local at = p.collected and ordered.copy(p.flat, { offset = p.flat.offset - g.trained_elements })
        list[#list + 1] = at and "    " .. states.row(p, p.shape, at)
    end
    list[#list + 1] = "};"
    return list
end

-- The lines of a table of the parameters that are not trained, if they have an array of their own.
local function untrained_table(g, params, list)
    if not g.sharded.parameters or g.flat_elements == g.trained_elements then return list end
    list[#list + 1] = "\n/* Parameters that are not trained have an array of their own. */"
    list[#list + 1] = "static const ga_param UNTRAINED_PARAMS[] = {"
    for _, p in ipairs(params) do
        local at = not p.used and ordered.copy(p.flat, { offset = p.flat.offset - g.trained_elements })
        list[#list + 1] = at and "    " .. states.row(p, p.saved_shape or p.shape, at) or nil
    end
    list[#list + 1] = "};"
    return list
end

--- The lines of a table for each array that does not lie over the flat space.
function states.tables(g, params)
    local tables = untrained_table(g, params, collected_table(g, params))
    for _, name in ipairs(g.state_names) do
        if not g.states:get(name).dense then
            tables[#tables + 1] = ("\n/* %s, of what has it: an array of its own. */"):format(name)
            tables[#tables + 1] = ("static const ga_param %s_PARAMS[] = {"):format(array_name(name):upper())
            for _, p in ipairs(params) do
                local t = p.state[name]
                tables[#tables + 1] = t and "    " .. states.row(p, t.shape, p.kept[name])
            end
            tables[#tables + 1] = "};"
        end
    end
    return tables
end

--- Whether the averages of the parameters and these change places where they lie, for an evaluation. On a device whose
--- averages lie in a file the host keeps the parameters meanwhile: it has a copy of theirs for files.
function states.exchanged(g, target)
    return g.states:has "ema" and not (g.state_file and target.device)
end

--- Where a checkpoint finds the last elements of a state.
function states.rest(g, name)
    local i = g.state_file and ordered.find(g.state_file.arrays, name)
    return i and ("a->rest[%d]"):format(i - 1) or "NULL"
end

--- Where a checkpoint finds all states.
function states.saved(g)
    local saved = {}
    for i, name in ipairs(g.state_names) do
        local place = "PARAMS, TRAINED_PARAMS"
        local shard = g.sharded.state and "&m->division.own" or "NULL"
        if not g.states:get(name).dense then
            place = states.table_of(g, name)
            shard = g.sharded.state and "&m->shard_" .. array_name(name) or "NULL"
        end
        saved[i] = ("a->state[%d] = (ga_array){%s, %s, REAL, m->%s, %s, %s};"):format(i - 1, place,
            text.string("." .. name).text, array_name(name), shard, states.rest(g, name))
    end
    return saved
end

return states
