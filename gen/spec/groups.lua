-- groups: the optimizer's groups of parameters, and the rule and fields that update each parameter: the optimizer's,
-- or `rest` for parameters that the optimizer cannot update, changed by the fields of the group.
local check = require "base.check"
local diag = require "base.diag"
local glob = require "base.glob"
local ordered = require "base.ordered"

local groups = {}

-- Refuses fields of a group that the rule refuses, or that need another state than the optimizer's own fields.
local function check_group(optimizer, fields, what, at)
    local rule = optimizer.rule
    local complaint = rule.check and rule.check(fields)
    if complaint then diag.fail(at, what .. ": " .. complaint, {}) end
    local kept, usual = rule.state(fields), rule.state(optimizer.fields)
    if table.concat(kept, ", ") ~= table.concat(usual, ", ") then
        local function named(list) return #list > 0 and table.concat(list, ", ") or "nothing" end
        diag.fail(at, ("%s: keeps %s for each parameter, the optimizer's own fields keep %s: "
            .. "expected the same"):format(what, named(kept), named(usual)), {})
    end
end

-- The fields of a rule that a group may change: all except lr, without defaults.
local function changeable(rule)
    return ordered.collect(rule.fields, function(field)
        if field.name == "lr" then return nil end
        local copy = ordered.copy(field)
        copy.default, copy.required = nil, nil
        return copy
    end)
end

-- Whether the group's own fields say that `rest` updates all its parameters.
local function all_rest(optimizer, group)
    return optimizer.rest and (group.rest == true
        or math.type(group.rank) == "integer" and group.rank < optimizer.rule.least_rank)
end

local function read_group(optimizer, i, group)
    local where = check.context(("optimizer: group %d"):format(i), optimizer.at)
    if type(group) ~= "table" then
        diag.fail(optimizer.at, ("%s is a %s, expected { glob, ... }"):format(where.what, type(group)), {})
    end
    if group.lr ~= nil then
        diag.fail(optimizer.at, where.what .. ": lr is the same for all groups, expected lr_scale: what it is "
            .. "multiplied with", {})
    end
    local chosen = all_rest(optimizer, group) and optimizer.rest or optimizer
    local schema = {
        { name = "glob", type = "glob", position = 1 },
        { name = "rank", type = "int", min = 0, max = 6 },
        { name = "lr_scale", type = "num", default = 1, min = 0 },
        { name = "frozen", type = "bool", default = false },
    }
    if optimizer.rest then schema[#schema + 1] = { name = "rest", type = "bool", default = false } end
    local own_fields = changeable(chosen.rule)
    local fields = check.fields(table.move(own_fields, 1, #own_fields, #schema + 1, schema), group, where)
    if (fields.glob == nil) == (fields.rank == nil) then
        diag.fail(optimizer.at, where.what .. ": expected a glob or rank = n, one of them", {})
    end
    local own = ordered.copy(fields)
    own.glob, own.rank, own.lr_scale, own.frozen, own.rest = nil, nil, nil, nil, nil
    check_group(chosen, ordered.copy(chosen.fields, own), where.what, optimizer.at)
    return { glob = fields.glob, rank = fields.rank, lr_scale = fields.lr_scale, frozen = fields.frozen,
        rest = chosen == optimizer.rest, fields = own, what = where.what }
end

--- The checked groups of an optimizer in order: { glob | rank, lr_scale, frozen, rest, fields, what = for messages }.
function groups.read(optimizer)
    return ordered.collect(optimizer.own.groups or {}, function(group, i) return read_group(optimizer, i, group) end)
end

-- The number of the first group that contains layer l of the parameter, or 0 if none does.
local function group_of(config, param, l)
    for i, entry in ipairs(config.groups) do
        if entry.rank and #param.shape == entry.rank then return i end
        if entry.glob and glob.takes_layer(entry.glob, param, l) then return i end
    end
    return 0
end

--- The groups of a parameter by layer, as runs of layers: { of = number of the group, 0 if none contains them, from =
--- first layer, counted from 0, count }.
function groups.runs(config, param)
    local runs = {}
    for l = 0, param.count - 1 do
        local of, last = group_of(config, param, l), runs[#runs]
        if last and last.of == of then
            last.count = last.count + 1
        else
            runs[#runs + 1] = { of = of, from = l, count = 1 }
        end
    end
    return runs
end

-- The fields for a parameter that `rest` updates, in a group that also has parameters of the optimizer itself.
local function shared_fields(config, entry, param)
    local optimizer, schema = config.optimizer, changeable(config.optimizer.rest.rule)
    local known = ordered.collect(schema, function(f) return f.name end)
    for name, value in ordered.each(entry.fields) do
        local at = ordered.find(known, name)
        if not at then
            diag.fail(optimizer.at, ("%s: '%s' takes %s too, which '%s' updates, and that has no %s: expected "
                .. "groups of their own for both, rest = true for these"):format(entry.what, entry.glob
                or "rank = " .. entry.rank, param.name, optimizer.rest.rule.name, name), {})
        end
        check.value(schema[at], value, check.context(entry.what, optimizer.at))
    end
    local fields = ordered.copy(optimizer.rest.fields, entry.fields)
    check_group(optimizer.rest, fields, entry.what, optimizer.at)
    return fields
end

--- The update of a parameter in group `index`: { rest = whether `rest` updates it, rule, fields, lr_scale = the factor
--- of the schedule's rate }.
function groups.update_of(config, param, index)
    local optimizer = config.optimizer
    local entry = config.groups[index] or { fields = {}, lr_scale = 1 }
    local rest = optimizer.rest and (entry.rest or #param.shape < optimizer.rule.least_rank)
    if not rest then
        return { rest = false, rule = optimizer.rule, lr_scale = entry.lr_scale,
            fields = ordered.copy(optimizer.fields, entry.fields) }
    end
    return { rest = true, rule = optimizer.rest.rule,
        lr_scale = entry.lr_scale * optimizer.rest.lr_ratio,
        fields = entry.rest and ordered.copy(optimizer.rest.fields, entry.fields)
            or shared_fields(config, entry, param) }
end

--- Warns of groups without a parameter.
function groups.check_used(config, params)
    local taken = {}
    for _, param in ipairs(params) do
        for _, run in ipairs(groups.runs(config, param)) do taken[run.of] = true end
    end
    for i, entry in ipairs(config.groups) do
        local fits = entry.glob ~= nil
        for _, param in ipairs(params) do fits = fits or #param.shape == entry.rank end
        if not taken[i] then
            diag.warn(config.optimizer.at, ("%s changes nothing: %s"):format(entry.what, fits
                and "the groups before it take all that fits" or "no parameter has rank " .. entry.rank))
        end
    end
end

--- The form that a group gives its parameters, beside numbers: "frozen", updated by the "rest" or "trained".
function groups.form(config, of)
    local entry = config.groups[of]
    return entry and (entry.frozen and "frozen" or entry.rest and "rest") or "trained"
end

return groups
