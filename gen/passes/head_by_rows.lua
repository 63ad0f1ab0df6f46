-- head_by_rows: computes the head (the last layer), its loss and their gradients for a run of rows at a time, so
-- that memory never holds all logits (rows, classes). Enabled by `memory { logits = "chunked" }`.
--
--   forward    logits = linear(x, w)              backward     d_loss = seed
--              loss, lse = cross_entropy(logits)               for each run of rows:
--   backward   d_loss = seed                                       logits = linear(x, w)
--              d_logits = cross_entropy_dx(...)   ->               loss, lse = cross_entropy(logits)
--              d_x = linear_dx(d_logits, w)                        d_logits, d_x, d_w +=
--              d_w = linear_dw(d_logits, x)       evaluation   for each run of rows: logits, loss, hits
--
-- The gradient of a loss does not depend on the losses, so one loop over the rows computes both, and no logit is
-- computed twice. A node of that loop has node.run = { first, rows, whole, scope }: of operands with `whole` rows it
-- sees `rows` rows from row first + l * rows on, in iteration l of the loop.
local diag = require "base.diag"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local head_by_rows = { name = "head_by_rows", optional = true,
    doc = "the last layer and its loss over some rows at a time" }

local LAYERS = { linear = true, linear_in_out = true }
local GRADIENTS = { linear_dx = true, linear_dw = true, linear_in_out_dx = true, linear_in_out_dw = true,
    column_sum = true }
local HITS = { hit = true, top_hit = true }

local function readers(body, tensor)
    local list = {}
    graph.walk(body, function(node)
        for _, t in ipairs(graph.reads(node)) do
            if t == tensor then list[#list + 1] = node end
        end
    end)
    return list
end

-- Finds the nodes of the head: { layer, loss, tally, hits, d_logits, gradients }. d_logits is the node that computes
-- the gradient of the logits, and `gradients` are its readers. For another kind of head: nil and the reason.
local function find(g)
    local found = { loss = g.loss.rows.def, gradients = {} }
    if not found.loss or found.loss.op ~= "cross_entropy" or not g.loss.target then
        return nil, "the loss is no cross_entropy"
    end
    local logits = found.loss.ins.logits
    found.layer = logits.def
    if not found.layer or not LAYERS[found.layer.op] or found.layer.scope then
        return nil, "the model does not end in linear or unembed"
    end
    if #readers(g.forward, logits) > 1 then return nil, "the model's output is read by more than the loss" end
    found.tally = readers(g.forward, g.loss.rows)[1]
    found.hits = readers(g.evaluation, logits)
    for _, node in ipairs(found.hits) do
        if not HITS[node.op] then return nil, "a metric of the spec reads the model's output" end
    end
    found.d_logits = readers(g.backward, logits)[1]
    if not found.d_logits then return nil, "no parameter is trained" end
    for _, node in ipairs(readers(g.backward, found.d_logits.outs.y.tensor)) do
        assert(GRADIENTS[node.op], "an unknown gradient of the logits")
        table.insert(found.gradients, node)
    end
    return found
end

-- Divides the rows into a loop over runs of equal length, at most `most`, and maybe a shorter last run.
local function cut(rows, most)
    local each = -(-rows // -(-rows // most))
    local why = ("logits of %d rows at a time"):format(each)
    local runs = { { first = 0, rows = each, count = rows // each, whole = rows, why = why } }
    if rows % each > 0 then
        runs[2] = { first = rows - rows % each, rows = rows % each, count = 1, whole = rows, why = why, rest = true }
    end
    return runs
end

-- Removes a tensor from the graph and frees its name.
local function forget(g, tensor)
    g.names[tensor.name:lower()] = nil
    table.remove(g.tensors, ordered.find(g.tensors, tensor))
end

local function has_rows(node, name) return node.signature.shape[name]:sub(1, 3) == "..." end

-- A copy of the node that works on a run. `inner` maps tensors to their counterparts within one run.
local function over_run(node, run, inner, ops)
    local copy = ordered.copy(node, { ins = {}, outs = {}, run = run, scope = run.scope,
        size = ordered.copy(node.size, { lead = { run.rows } }), why = run.why })
    local op = ops[node.op]
    if op.letters then op.letters(copy, copy.size) end
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        copy.ins[name] = inner[t] or t
    end
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        if inner[out.tensor] then
            copy.outs[name] = { tensor = inner[out.tensor] }
            inner[out.tensor].def = copy
        elseif has_rows(node, name) then
            copy.outs[name] = { tensor = out.tensor, acc = out.acc, run = run }
            out.tensor.def = copy
        else
            copy.outs[name] = { tensor = out.tensor, acc = { first = out.acc.first and not run.rest,
                regions = run.scope and { run.scope } or {} } }
        end
    end
    return copy
end

-- The counterpart of a tensor within one run, of run.rows rows.
local function of_run(g, tensor, run, suffix)
    return graph.tensor(g, { name = tensor.name .. suffix .. (run.rest and "_rest" or ""), kind = "value",
        shape = { run.rows, tensor.shape[#tensor.shape] }, dtype = tensor.dtype, at = tensor.at,
        scope = run.scope, keep_full = tensor.keep_full })
end

-- Appends copies of the nodes that work on a run to a body; returns them.
local function append(g, body, run, nodes, within, suffix, ops)
    local region, inner, list = nil, {}, {}
    local each = ordered.copy(run)
    if run.count > 1 then
        region = { op = "times", name = ("%d rows of %s"):format(run.rows, within[1].name), count = run.count,
            first = 0, step = 1, body = {}, carries = {}, at = nodes[1].at }
        each.scope = region
        body[#body + 1] = region
    end
    for _, t in ipairs(within) do inner[t] = of_run(g, t, each, suffix) end
    for i, node in ipairs(nodes) do
        list[i] = over_run(node, each, inner, ops)
        table.insert(region and region.body or body, list[i])
    end
    return list
end

local function without(body, nodes)
    return ordered.collect(body, function(node)
        if not ordered.find(nodes, node) then return node end
    end)
end

-- Training: moves the nodes of the head to the backward pass, to the place of the gradient of the logits.
local function train(g, found, runs, config)
    local logits, d_logits = found.loss.ins.logits, found.d_logits.outs.y.tensor
    local nodes = { found.layer, found.loss, found.d_logits, table.unpack(found.gradients) }
    local body, made = {}, {}
    forget(g, logits)
    forget(g, d_logits)
    for _, node in ipairs(g.backward) do
        if node.op == "loss_seed" and node.ins.sums then
            local b = config.builder
            b.at, b.path, b.body, b.scope = node.at, {}, body, nil
            local weight = b:node("micro_weight", { target = node.ins.target, micro = g.micro }, node.attrs,
                { sums = "sums" })
            weight.outs.sums.tensor = g.sums
        end
        if node == found.d_logits then
            for i, run in ipairs(runs) do
                made[i] = append(g, body, run, nodes, { logits, d_logits }, "", config.ops)
                for k = 1, 2 do made[i][k].section = "forward" end
            end
            body[#body + 1] = ordered.copy(found.tally, { section = "forward" })
            made.tally = body[#body]
        elseif not ordered.find(nodes, node) then
            body[#body + 1] = node
        end
    end
    g.backward = body
    return made
end

-- Evaluation: losses and hits over runs of rows. Nodes use the kernels of their training counterparts (twin).
local function evaluate(g, found, runs, made, config)
    local body, nodes = {}, { found.layer, found.loss, table.unpack(found.hits) }
    for i, run in ipairs(runs) do
        local list = append(g, body, run, nodes, { found.loss.ins.logits }, "_measured", config.ops)
        for k = 1, 2 do list[k].twin = made[i][k] end
    end
    body[#body + 1] = ordered.copy(found.tally, { twin = made.tally })
    for _, node in ipairs(without(g.evaluation, found.hits)) do body[#body + 1] = node end
    g.evaluation = body
end

function head_by_rows.run(g, config)
    local chunked, found, why = config.logits == "chunked", nil, nil
    if chunked or config.budget then found, why = find(g) end
    local rows = graph.elements(g.loss.rows.shape)
    config.logits_possible = found and rows > config.logits_rows       -- for the message of a memory budget too small
    if not chunked then
        graph.decide(g, "logits", "whole", 'memory: logits is not "chunked"')
        return true
    end
    if not found and not config.logits_open then
        diag.fail(diag.field(config.memory_at, "logits"), ('memory: logits = "chunked" is for loss "cross_entropy" '
            .. "of a model that ends in linear or unembed, here %s"):format(why), {})
    end
    if not config.logits_possible then
        graph.decide(g, "logits", "whole", why or ("%d rows are one run"):format(rows))
        return true
    end
    graph.decide(g, "logits", ("%d rows at a time"):format(config.logits_rows), 'memory: logits is "chunked"')
    local runs = cut(rows, config.logits_rows)
    local logits = found.loss.ins.logits
    logits.keep_full = logits.keep_full or config.force_outputs_fp32 and logits == g.output or nil
    local made = train(g, found, runs, config)
    evaluate(g, found, runs, made, config)
    g.forward = without(g.forward, { found.layer, found.loss, found.tally })
    for _, name in ipairs { "y", "lse" } do found.loss.outs[name].tensor.def = made[1][2] end
    g.output, g.d_output = nil, nil
    g.head = { x = found.layer.ins.x, weight = found.layer.ins.weight.param, classes = found.layer.size.N,
        bias = found.layer.ins.bias and found.layer.ins.bias.param, in_out = found.layer.op == "linear_in_out",
        shape = g.loss.rows.shape }
end

return head_by_rows
