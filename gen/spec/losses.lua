-- losses: applies a loss of the catalog to a tensor and its targets: as the word `loss` with the model's output, or as
-- a call inside a function of the word. Checks shapes, classes and fields.
local data = require "spec.data"
local diag = require "base.diag"
local expr = require "base.expr"
local graph = require "graph.graph"

local losses = {}

-- Refuses logits that do not fit their targets, and targets that are neither classes nor ignored; returns the number of
-- classes and one more than the greatest target that is not above them.
local function check_classes(at, what, output, target, known, ignore)
    local shape, wanted = output.shape, graph.shape_text(target.shape)
    local lead = table.move(shape, 1, #shape - 1, 1, {})
    if graph.shape_text(lead) ~= wanted then
        diag.fail(at, ("%s: %s shape %s, expected (%s, classes)"):format(what.loss, what.output,
            graph.shape_text(shape), #target.shape == 1 and "rows" or table.concat(target.shape, ", ")), {})
    end
    local classes = shape[#shape]
    local above = ignore and ignore >= classes
    if above and not target.next_limit then
        local place = known - 1 == ignore and target.high_place or nil
        diag.fail(diag.field(at, "ignore"), ("%s: ignore is %d, %s %d classes: expected one of them, or a number "
            .. "below 0"):format(what.loss, ignore, what.output, classes), { notes = { place } })
    end
    local limit = above and known - 1 == ignore and target.next_limit or known
    if limit > classes then
        local alone = not above and target.next_limit and target.next_limit <= classes
        diag.fail(at, ("%s: %s %d classes, the data has the class %d%s"):format(what.loss, what.output, classes,
            limit - 1, alone and ("; if it stands for what does not count, say ignore = %d"):format(limit - 1) or ""),
            { notes = { limit == known and target.high_place or nil } })
    end
    return classes, limit
end

-- The model's output: (rows, 1) becomes (rows) for targets of one number per row, other shapes stay.
local function like_targets(b, output, target)
    if #output.shape ~= 2 or output.shape[2] ~= 1 or #target.shape ~= 1 then return output end
    return b:value("reshape", { x = output }, { shape = target.shape })
end

local ERRORS = { name = "errors", arity = 2, value = function(_, x, y) return expr.abs(x - y) end }

--- |output - target|, for an evaluation.
function losses.errors(b, output, target)
    return b:map({ like_targets(b, output, target), target }, function(x, y) return ERRORS.value({}, x, y) end,
        "errors", { entry = ERRORS })
end

-- The losses, one or more per row, of `rule` with these fields. what: { loss, output }, how messages begin: "loss" and
-- "the model gives". known: the classes that targets have, from 0. Returns the number of classes too.
local function rows(b, rule, fields, output, target, o)
    local at, classes, limit = o.at, nil, nil
    if rule.target == "class" then
        classes, limit = check_classes(at, o.what, output, target, o.known, fields.ignore)
        if rule.check_model then
            local complaint, field = rule.check_model(fields, classes, target.low, limit - 1)
            if complaint then diag.fail(diag.field(at, field), o.what.loss .. ": " .. complaint, {}) end
        end
        return rule.rows(b, fields, output, target, o.masked), classes
    end
    output = like_targets(b, output, target)
    if graph.shape_text(output.shape) ~= graph.shape_text(target.shape) then
        diag.fail(at, ("%s: %s shape %s, the targets have %s, expected the same"):format(o.what.loss, o.what.output,
            graph.shape_text(output.shape), graph.shape_text(target.shape)), {})
    end
    return rule.rows(b, fields, output, target)
end

--- The losses of the word's rule for the model's output; sets c.classes.
function losses.of_word(b, c, target, output)
    local rule, at = c.loss.rule, c.loss.at
    if output.named then
        diag.fail(at, ("loss: '%s' takes one tensor, the model gives the tensors %s: return one, "
            .. "or write the loss as a function"):format(rule.name,
            table.concat(output.named.keys, ", ")), {})
    end
    if rule.target == "class" then data.check_classes(c.data) end
    local list, classes = rows(b, rule, c.loss.fields, output, target,
        { at = at, what = { loss = "loss", output = "the model gives" }, known = c.data.classes })
    c.classes = classes
    return list
end

-- Refuses a target of classes that is no field of whole numbers of the batch, or has others than classes. The target of
-- the data may have the value that is ignored (spec/data.lua).
local function check_target(at, what, target)
    if target.dtype ~= "i32" then
        diag.fail(at, what .. ": the targets are real numbers, expected class numbers: a field of whole numbers", {})
    elseif not target.limit then
        diag.fail(at, what .. ": the range of these targets is not known, expected a field of the batch", {})
    elseif target.low < 0 and target.name ~= "target" then
        diag.fail(at, ("%s: the targets begin at %d, expected class numbers from 0"):format(what, target.low),
            { notes = { target.low_place } })
    end
end

--- The losses of a call inside the function of the word. called: what calls have fixed so far, { ignore, classes }.
function losses.of_call(b, called, rule, fields, output, target, at)
    local what = rule.name
    local complaint = rule.check and rule.check(fields)
    if complaint then diag.fail(at, what .. ": " .. complaint, {}) end
    if rule.target ~= "class" then
        local list = rows(b, rule, fields, output, target,
            { at = at, what = { loss = what, output = "the first has" } })
        if #list.shape > 2 or list.shape[2] ~= 1 then return list end
        return b:value("reshape", { x = list }, { shape = { list.shape[1] } })      -- as those of classes are
    end
    check_target(at, what, target)
    if called.ignore and called.ignore ~= fields.ignore then
        diag.fail(at, ("%s: ignore is %d, but %d in an earlier call: expected one value for all"):format(what,
            fields.ignore, called.ignore), {})
    end
    called.ignore = fields.ignore
    local list, classes = rows(b, rule, fields, output, target, { at = at, known = target.limit, masked = true,
        what = { loss = what, output = "the first has" } })
    if target.name == "target" then called.classes = math.min(called.classes or classes, classes) end
    return list
end

return losses
