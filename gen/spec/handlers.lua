-- handlers: how the gradients of parameters are reduced over the ranks: the fields `handlers` and `groups` of the word
-- parallel.
--
--   groups = { ep = { { 0, 1 }, { 2, 3 } } }     each list of ranks reduces for itself; a rank in none is alone
--   handlers = { { "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }, function(g, w) ... end }
--
-- The first entry that fits a parameter reduces it. A function changes each element of the mean gradient behind that.
local check = require "base.check"
local diag = require "base.diag"
local expr = require "base.expr"
local glob = require "base.glob"
local groups = require "spec.groups"
local ordered = require "base.ordered"
local traced = require "spec.traced"

local handlers = {}

--- The named entries: op is how copies are reduced over a group, nil: over all ranks, as the mode does it.
handlers.PRESETS = {
    data_parallel = { doc = "the mean over all ranks" },
    zero = { doc = "the mean over all ranks, divided as the mode says" },
    sequence_parallel = { op = "mean", doc = "the mean over the ranks that share a sequence" },
    moe = { op = "mean", doc = "the mean over the ranks that have the same experts" },
    pipeline_shared = { op = "sum", doc = "the sum over the stages that have a copy of a parameter" },
}

-- runtime/ranks/comm.h: groups; and numbers of a small sum and files of a checkpoint, one for each list of ranks.
local MOST_GROUPS, MOST_LISTS = 8, 48

-- === groups ======================================================================================

-- Notes the ranks of list i in `of`, rank -> number of its list.
local function add_list(where, i, list, ranks, of)
    if type(list) ~= "table" or #list == 0 then
        diag.fail(where.at, ("%s: list %d is empty or no list, expected ranks such as { 0, 1 }"):format(where.what, i),
            {})
    end
    for _, rank in ipairs(list) do
        if math.type(rank) ~= "integer" or rank < 0 or rank >= ranks then
            diag.fail(where.at, ("%s: list %d: %s is no rank, expected 0 to %d"):format(where.what, i,
                type(rank) == "table" and "a table" or tostring(rank), ranks - 1), {})
        elseif of[rank] then
            diag.fail(where.at, ("%s: rank %d is in lists %d and %d, expected once"):format(where.what, rank, of[rank],
                i), {})
        end
        of[rank] = i
    end
end

-- A group: { name, lists = ranks of each, of = rank -> number of its list, from 1, alone = no list has two }.
local function group_of(where, name, given, ranks)
    local group = { name = name, lists = {}, of = {}, alone = true }
    if type(given) ~= "table" or #given == 0 then
        diag.fail(where.at, where.what .. ": expected lists of ranks, { { 0, 1 }, { 2, 3 } }", {})
    end
    for i, list in ipairs(given) do
        add_list(where, i, list, ranks, group.of)
        group.lists[i] = table.move(list, 1, #list, 1, {})
        table.sort(group.lists[i])
        group.alone = group.alone and #list == 1
    end
    for rank = 0, ranks - 1 do
        if not group.of[rank] then
            table.insert(group.lists, { rank })
            group.of[rank] = #group.lists
        end
    end
    return group
end

local function read_groups(c, parallel, at)
    local list, lists = {}, 0
    for name, given in ordered.each(parallel.groups or {}) do
        local where = { at = diag.field(at, "groups"), what = ("parallel: group '%s'"):format(tostring(name)) }
        if type(name) ~= "string" or not name:match "^[a-z][a-z0-9_]*$" or #name > 24 then
            diag.fail(where.at, "parallel: groups: expected names = lists of ranks, a name of small letters, digits "
                .. "and _, at most 24", {})
        end
        list[#list + 1] = group_of(where, name, given, c.ranks)
        list[#list].number, list[#list].first = #list, lists
        lists = lists + #list[#list].lists
    end
    if #list > MOST_GROUPS or lists > MOST_LISTS then
        diag.fail(diag.field(at, "groups"), ("parallel: %d groups with %d lists of ranks in all, expected at most %d "
            .. "and %d; a rank in no list counts as one"):format(#list, lists, MOST_GROUPS, MOST_LISTS), {})
    end
    return list, lists
end

-- === entries =====================================================================================

local NAMES = { "data_parallel", "zero", "sequence_parallel", "moe", "pipeline_shared" }

local SCHEMA = {
    { name = "name", type = "str", position = 1, values = NAMES },
    { name = "params", type = "glob", default = "*" },
    { name = "group", type = "name" },
    { name = "op", type = "str", values = { "mean", "sum" } },
}

-- Refuses an entry that the mode cannot do.
local function check_mode(c, entry, where)
    if entry.name == c.mode.handler then return end
    if not c.mode.grouped then
        diag.fail(where.at, ('%s: with "%s" each gradient is reduced over all ranks: expected { "%s" } or a function '
            .. 'of g and w'):format(where.what, c.parallel, c.mode.handler), {})
    elseif entry.name and not handlers.PRESETS[entry.name].op then
        diag.fail(where.at, ('%s: "%s" with "%s", which reduces otherwise: expected "%s"'):format(where.what,
            entry.name, c.parallel, c.mode.handler), {})
    end
end

-- The group of an entry and how it is reduced there; nothing: the mean over all ranks.
local function reduction_of(entry, known, where)
    local preset = handlers.PRESETS[entry.name]
    if preset and entry.op then
        diag.fail(where.at, ('%s: op is given, and "%s" has its own: expected none'):format(where.what, entry.name), {})
    elseif preset and not preset.op and entry.group then
        diag.fail(where.at, ('%s: group is given, and "%s" reduces over all ranks: expected none'):format(where.what,
            entry.name), {})
    elseif not preset and not (entry.group and entry.op) then
        diag.fail(where.at, ('%s: expected a name such as "moe", or group and op'):format(where.what), {})
    elseif preset and preset.op and not entry.group then
        diag.fail(where.at, ('%s: "%s" without group: expected a name of parallel.groups'):format(where.what,
            entry.name), {})
    end
    if not entry.group then return nil end
    for _, group in ipairs(known) do
        if group.name == entry.group then
            local op = entry.op or preset.op
            if op == "mean" and #group.lists == 1 then return nil end      -- as data_parallel
            return group, op
        end
    end
    local names = ordered.collect(known, function(group) return group.name end)
    diag.fail(where.at, ("%s: group '%s' is unknown, expected one of parallel.groups: %s"):format(where.what,
        entry.group, #names > 0 and table.concat(names, ", ") or "there are none"), { found = entry.group,
        hint = diag.suggest(entry.group, names) })
end

local function read_entry(c, given, where)
    if type(given) ~= "table" then
        diag.fail(where.at, where.what .. (': a %s, expected { "data_parallel" }, ... or a function of g and w'):format(
            type(given)), {})
    end
    local entry = check.fields(SCHEMA, given, check.context(where.what, where.at))
    check_mode(c, entry, where)
    local group, op = reduction_of(entry, c.rank_groups, where)
    return { number = #c.handlers + 1, name = entry.name or op, params = entry.params, group = group, op = op or "mean",
        given_group = entry.group, what = where.what, at = where.at }
end

-- The functions of the list, one behind the other, as one expression of the mean gradient.
local function made_by(c, events, at)
    local made
    for i, event in ipairs(events) do
        if event.event == "handler_begin" then
            local e = traced("parallel: handlers", { "g", "w" }, events, i, c.catalog, at, "handler")
            if expr.evaluate(e, { g = 0, w = 0 }) ~= 0 then
                diag.fail(at, ("parallel: handlers: of g = 0 and w = 0 the function makes %g, expected 0"):format(
                    expr.evaluate(e, { g = 0, w = 0 })), {})
            end
            made = made and expr.substitute(e, { g = made }) or e
        end
    end
    return made and { e = made, at = at }
end

--- Reads both fields. Sets c.rank_groups and c.rank_lists, how many lists they have in all; c.handlers, the entries in
--- order, nil: the mode's own; c.handled, whether some reduce over groups; c.gradient, if there are functions.
function handlers.read(c, parallel, at, events)
    local given, place, functions = parallel.handlers, diag.field(at, "handlers"), 0
    if (given or parallel.groups) and not c.mode.ranks then
        diag.fail(given and place or diag.field(at, "groups"), ('parallel: %s is given, but the mode is "%s"'):format(
            given and "handlers" or "groups", c.parallel), {})
    elseif parallel.groups and not (c.ranks_required or c.ranks > 1) then
        diag.fail(diag.field(at, "groups"), "parallel: groups name ranks: expected ranks = n beside them, or the "
            .. "option --ranks n", {})
    end
    c.rank_groups, c.rank_lists = read_groups(c, parallel, at)
    if #c.rank_groups > 0 then c.ranks_required = c.ranks end
    if not given then return end
    c.handlers, c.handlers_at, c.handled = {}, place, false
    for _, event in ipairs(events) do functions = functions + (event.event == "handler_begin" and 1 or 0) end
    for i, entry in ipairs(given) do
        if functions > 0 and type(entry) == "table" and entry.expression then
            functions = functions - 1       -- what stands in the place of a function (record.lua)
        else
            entry = read_entry(c, entry, { at = place, what = ("parallel: handler %d"):format(i) })
            table.insert(c.handlers, entry)
            c.handled = c.handled or entry.group ~= nil
        end
    end
    local made = made_by(c, events, place)
    if made and c.gradient then
        diag.fail(c.gradient.at, "gradient: given beside functions of parallel.handlers: expected one of both", {})
    end
    c.gradient = made or c.gradient
end

-- === parameters ==================================================================================

--- The entry that reduces a parameter; nil: none fits.
function handlers.of(c, param)
    for _, entry in ipairs(c.handlers or {}) do
        if glob.takes(entry.params, param, entry.at, entry.what) then return entry end
    end
end

local function is_frozen(c, param)
    for _, run in ipairs(groups.runs(c, param)) do
        if groups.form(c, run.of) ~= "frozen" then return false end
    end
    return true
end

--- Refuses a list that leaves out a trained parameter, or has an entry for none.
function handlers.check(c, params)
    if not c.handlers then return end
    for _, entry in ipairs(c.handlers) do glob.check(entry.params, params, entry.at, entry.what) end
    for _, param in ipairs(params) do
        if not param.buffer and not is_frozen(c, param) and not handlers.of(c, param) then
            diag.fail(c.handlers_at, ("parallel: no handler fits %s, so that ranks would have different copies: "
                .. 'expected { "%s" } as the last entry'):format((param.name:gsub("%%d", "*")),
                c.mode.handler), {})
        end
    end
end

return handlers
