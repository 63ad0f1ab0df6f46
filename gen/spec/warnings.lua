-- warnings: mistakes that a spec may contain and a program can be written for. Each warning says its fix and ends with
-- its name; train { allow = { "NAME" } } silences it.
local diag = require "base.diag"
local expr = require "base.expr"
local glob = require "base.glob"
local graph = require "graph.graph"
local groups = require "spec.groups"
local ordered = require "base.ordered"
local schedule = require "spec.schedule"
local text = require "base.text"

local warnings = {}

-- The first node of the forward pass for which `holds` is true, or nil.
local function first_node(g, holds)
    local found
    graph.walk(g.forward, function(node)
        if not found and holds(node) then found = node end
    end)
    return found
end

local IMAGES = { idx = true, cifar10 = true }
local NORMS = { layernorm = true, rmsnorm = true, batchnorm_stats = true, batchnorm = true }

-- Whether a layer computes with the input as the file has it: not scaled by a pointwise op or a norm before.
local function reads_raw(g, c)
    local raw = { [g.inputs[1]] = true }
    return first_node(g, function(node)
        local reads = false
        for _, tensor in ipairs(graph.reads(node)) do reads = reads or raw[tensor] end
        if not reads or node.op == "map" or NORMS[node.op] then return false end
        if node.op == "times" then
            for _, carry in ipairs(node.carries) do raw[carry.arg] = raw[carry.init] end
            return false
        end
        if c.ops[node.op].view then raw[node.outs.y.tensor] = true end
        return not c.ops[node.op].view
    end) ~= nil
end

local function unscaled_images(g, c)
    local d = c.data
    if not IMAGES[d.kind] or d.norm.scale ~= 1 or d.scale or d.mean or d.std or not reads_raw(g, c) then return nil end
    return d.at, "data: images have values up to 255, and no scale, mean or std: add scale = 1/255"
end

local SOFTMAX = { softmax = true, log_softmax = true }

local function softmax_before_cross_entropy(g, c)
    local softmax
    first_node(g, function(node)
        if node.op ~= "cross_entropy" then return false end
        local def = node.ins.logits.def
        while def and c.ops[def.op] and c.ops[def.op].view do def = def.ins.x.def end
        softmax = def and SOFTMAX[def.op] and def
        return softmax ~= nil
    end)
    if not softmax then return nil end
    return softmax.at, ("model: it ends with %s, and cross_entropy has a softmax of its own: leave %s out"):format(
        softmax.op, softmax.op)
end

local function not_causal(g, c)
    local attend = c.data.context and first_node(g, function(node)
        return node.op == "attend" and not node.attrs.causal
    end)
    if not attend then return nil end
    return attend.at, "attend: the target is the next id, and each query sees it: add causal = true"
end

-- The rule of init that draws the values of a parameter, or nil.
local function drawn_by(c, param)
    for _, rule in ipairs(c.init) do
        if glob.takes(rule.glob, param, rule.at, "init") then
            return ((rule.normal or rule.uniform or 0) > 0) and rule or nil
        end
    end
end

local function random_norm_weights(g, c)
    local of_norms = {}
    graph.walk(g.forward, function(node)
        local weight = NORMS[node.op] and node.ins.weight
        if weight and weight.param then of_norms[weight.param] = true end
    end)
    for _, param in ipairs(g.params) do
        local rule = of_norms[param] and drawn_by(c, param)
        if rule then
            local name = param.name:gsub("%%d", "*")
            return rule.at, ("init: '%s' draws '%s', the weight of a norm, at random: put { \"%s\", value = 1 } before "
                .. "it"):format(rule.glob, name, name)
        end
    end
end

-- Cycles for which the rate is computed at most, and the last one of a function whose values are multiplied.
local SAMPLES, LAST_FACTOR = 100, 1000

-- The highest rate of the run.
local function highest_rate(c)
    local rate, most = schedule.expressions(c), -math.huge
    local last = (c.schedule.fields.product and math.min(c.cycles, LAST_FACTOR) or c.cycles) - 1
    local steps = math.min(last, SAMPLES)
    for i = 0, steps do
        local env = { t = schedule.time(c, steps > 0 and i * last // steps or 0), total = c.schedule.total,
            plateau_rate = c.optimizer.fields.lr }
        most = math.max(most, expr.evaluate(rate, env))
    end
    return most
end

-- The bounds of usual rates of an optimizer, or nil.
local function usual_rates(rule)
    for _, field in ipairs(rule.fields) do
        if field.usual then return table.unpack(field.usual) end
    end
end

-- By optimizer, also the rest, the largest factor of the schedule's rate for a trained parameter: { scale, group = the
-- spec's entry that gives the factor, nil if none does }.
local function largest_scales(g, c)
    local found = {}
    for _, param in ipairs(g.params) do
        for _, run in ipairs(param.buffer and {} or groups.runs(c, param)) do
            local update = groups.update_of(c, param, run.of)
            local chosen = update.rest and c.optimizer.rest or c.optimizer
            local before = found[chosen]
            if groups.form(c, run.of) ~= "frozen" and not (before and before.scale >= update.lr_scale) then
                found[chosen] = { scale = update.lr_scale, group = c.groups[run.of] }
            end
        end
    end
    return found
end

local function unusual_rate(g, c)
    local highest, scales = highest_rate(c), largest_scales(g, c)
    for _, chosen in ipairs { c.optimizer, c.optimizer.rest } do
        local most, least, greatest = scales[chosen], usual_rates(chosen.rule)
        local rate = most and highest * most.scale
        if most and least and (rate < least or rate > greatest) then
            local scaled = most.group and most.group.lr_scale ~= 1
            return chosen.where.locate(scaled and "groups" or "lr"), ("%s: the highest rate of the run is %.3g, usual "
                .. "ones are %g to %g: change %s, or what the schedule makes of it"):format(scaled and most.group.what
                or chosen.where.what, rate, least, greatest, scaled and "lr or lr_scale" or "lr")
        end
    end
end

local function dropout_short_training(g, c)
    local train = c.train
    if train.epochs and train.epochs >= 1 or train.updates and train.updates >= c.cycles_per_epoch then return nil end
    local dropout = first_node(g, function(node)
        return node.op == "dropout" or node.op == "attend" and node.attrs.dropout > 0
    end)
    if not dropout then return nil end
    return dropout.at, ("dropout: training ends after %s of the %s updates of an epoch, so that no row is seen twice: "
        .. "leave dropout out, or train for longer"):format(text.commas(c.cycles), text.commas(c.cycles_per_epoch))
end

-- Files up to this size are compared by content.
local SMALL = 16 * 2 ^ 20

local function same_file(a, b)
    if a.path == b.path then return true end
    local content = a.count == b.count and host.read(a.path, SMALL)
    return content and content == host.read(b.path, SMALL)
end

local function eval_on_training_rows(_, c)
    local train, eval = c.data.sources[1], c.data.sources[2]
    for _, file in ipairs(eval and eval.files or {}) do
        for _, trained in ipairs(train.files) do
            if same_file(trained, file) then
                local how = trained.path == file.path and "too" or "as '" .. trained.name .. "'"
                return eval.at, ("data: eval has the rows of '%s', and train has them %s: name other rows, or split = "
                    .. "{ eval = N } instead of eval"):format(file.name, how)
            end
        end
    end
end

--- All warnings in order: { name, doc, find }. find(g, c), of the forward graph and the configuration, returns the
--- place and the message of the first mistake, or nil.
warnings.list = {
    { name = "unscaled_images", find = unscaled_images,
      doc = "images of bytes, 0 to 255, reach a layer without data.scale, mean or std" },
    { name = "softmax_before_cross_entropy", find = softmax_before_cross_entropy,
      doc = "the model ends with softmax or log_softmax, and the loss cross_entropy has one of its own" },
    { name = "not_causal", find = not_causal,
      doc = "data are text or tokens, so the target is the next id, and attend is not causal" },
    { name = "random_norm_weights", find = random_norm_weights,
      doc = "init draws the weights of layernorm, rmsnorm or batchnorm at random; they start at 1 otherwise" },
    { name = "unusual_rate", find = unusual_rate,
      doc = "the highest learning rate of the run, with the lr_scale of groups, is outside of what the optimizer is "
          .. "used with" },
    { name = "dropout_short_training", find = dropout_short_training,
      doc = "the model has dropout, and training is shorter than an epoch" },
    { name = "eval_on_training_rows", find = eval_on_training_rows,
      doc = "a file of data.eval is also one of data.train, by its path or, up to 16 MiB, by its content" },
}

--- Refuses names in train.allow that no warning has; `at` is the place of the word train.
function warnings.check_allowed(allow, at)
    local names = ordered.collect(warnings.list, function(w) return w.name end)
    for _, name in ipairs(allow) do
        if not ordered.find(names, name) then
            local is_name = type(name) == "string"
            diag.fail(diag.field(at, "allow"), ("train: allow has %s, expected names of warnings: %s"):format(
                is_name and "'" .. name .. "'" or "a " .. type(name), table.concat(names, ", ")),
                { found = is_name and name or nil, hint = is_name and diag.suggest(name, names) or nil })
        end
    end
end

--- Prints the warnings that the spec does not allow; c.warnings has them, { name, line = of the spec, message }.
function warnings.give(g, c)
    c.warnings = {}
    for _, warning in ipairs(warnings.list) do
        if not ordered.find(c.train.allow, warning.name) then
            local at, message = warning.find(g, c)
            if at then
                local _, line = diag.place(at)
                c.warnings[#c.warnings + 1] = { name = warning.name, line = line, message = message }
                diag.warn(at, ("%s [%s]"):format(message, warning.name))
            end
        end
    end
end

return warnings
