-- grouped_files: the files of a checkpoint where handlers reduce over groups of ranks: what all ranks have in common in
-- the usual ones, and for each list of a group that handlers name a file group-NAME-I.safetensors of its own values.
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local states = require "emit.boundary.states"

local grouped_files = {}

-- The groups that some parameters have, and the parameters of each: { { group, params }, ... }, group nil first: those
-- that all ranks have in common.
local function classes_of(g, params)
    local list, by_group = { { params = {} } }, {}
    for _, param in ipairs(params) do
        local group = param.handler and g.handlers[param.handler].group
        if group and not by_group[group] then
            by_group[group] = { group = group, params = {} }
            list[#list + 1] = by_group[group]
        end
        table.insert((group and by_group[group] or list[1]).params, param)
    end
    return list
end

local function table_name(class, state)
    local of_state = state and "STATE_" .. state:upper() .. "_" or ""
    return (class.group and "GROUP_" .. class.group.name:upper() or "COMMON") .. "_" .. of_state .. "PARAMS"
end

-- The arrays of a class, as { state or nil, table, count, field }; a class may have none of a state.
local function arrays_of(g, class)
    local list = {}
    local function add(state, params, dense)
        if #params == 0 then return end
        list[#list + 1] = { state = state, table = table_name(class, not dense and state or nil), count = #params,
            field = state and "state_" .. state or "flat_w" }
    end
    add(nil, class.params, true)
    for _, name in ipairs(g.state_names) do
        local holders = ordered.collect(class.params, function(p) return p.state[name] and p or nil end)
        add(name, holders, g.states:get(name).dense)
    end
    return list
end

-- The lines of a table of parameters.
local function add_table(out, name, rows)
    if #rows == 0 then return end
    out[#out + 1] = ("static const ga_param %s[] = {"):format(name)
    for _, row in ipairs(rows) do out[#out + 1] = "    " .. row end
    out[#out + 1] = "};"
end

--- The tables of parameters that these files hold, as lines behind PARAMS; params: in the order of the flat space.
function grouped_files.tables(g, params)
    local out = { "\n/* The same by the ranks that have them in common: all, or those of a list of a group. */" }
    for _, class in ipairs(classes_of(g, params)) do
        add_table(out, table_name(class), ordered.collect(class.params, function(p)
            return states.row(p, p.saved_shape or p.shape, p.flat)
        end))
        for _, name in ipairs(g.state_names) do
            if not g.states:get(name).dense then
                add_table(out, table_name(class, name), ordered.collect(class.params, function(p)
                    return p.state[name] and states.row(p, p.state[name].shape, p.kept[name]) or nil
                end))
            end
        end
    end
    return out
end

-- Adds the arrays of a class, and the line of each file.
local function add_class(g, class, lines, files, at)
    local arrays = arrays_of(g, class)
    local count = 0
    for i, a in ipairs(arrays) do
        lines[#lines + 1] = ('a->in_files[%d] = (ga_array){%s, %d, "%s", REAL, m->%s, NULL, %s};'):format(at + i - 1,
            a.table, a.count, a.state and "." .. a.state or "", a.field, a.state and states.rest(g, a.state) or "NULL")
        count = count + (a.state and 0 or 1)
    end
    local function file(name, first, n)
        if n > 0 then
            files[#files + 1] = ('{"%s.safetensors", &a->in_files[%d], %d}'):format(name, first, n)
        end
    end
    if not class.group then
        file("model", at, count)
        file("optimizer", at + count, #arrays - count)
    end
    for i = 1, class.group and #class.group.lists or 0 do
        file(("group-%s-%d"):format(class.group.name, i - 1), at, #arrays)
    end
    return at + #arrays
end

local function lines_of(g, params)
    local lines, files, at = {}, {}, 0
    for _, class in ipairs(classes_of(g, params)) do at = add_class(g, class, lines, files, at) end
    return lines, files, at
end

--- How many arrays and files a checkpoint has.
function grouped_files.counts(g, params)
    local _, files, arrays = lines_of(g, params)
    return arrays, #files
end

--- The lines that set them, in the function that describes a checkpoint.
function grouped_files.saved(g, params)
    local lines, files = lines_of(g, params)
    for i, file in ipairs(files) do lines[#lines + 1] = ("a->files[%d] = (ga_ckpt_file)%s;"):format(i - 1, file) end
    return sections.lines(lines)
end

return grouped_files
