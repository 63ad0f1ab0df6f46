-- step: the lines of forward, backward, the cycle and the boundary, as targets put them into their files. A role is
-- two decisions over the one backward body: add or write, reduce or not.
local batch = require "emit.program.batch"
local boundary = require "emit.boundary.boundary"
local by_layer = require "emit.boundary.by_layer"
local c_text = require "emit.targets.c_text"
local chunks = require "emit.boundary.chunks"
local clip = require "emit.boundary.clip"
local diag = require "base.diag"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local ordered = require "base.ordered"
local orthogonal = require "emit.boundary.orthogonal"
local outliers = require "emit.boundary.outliers"
local ranges = require "emit.boundary.ranges"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local sent = require "emit.boundary.sent"
local text = require "base.text"
local update = require "emit.boundary.update"
local windows = require "emit.boundary.windows"

local step = {}

local function collect(body, section, context, list)
    for _, node in ipairs(body) do
        if node.op == "times" then
            collect(node.body, section, context, list)
        elseif not node.twin then
            local kernel = kernels.make(node, section, context)
            node.kernel = kernel
            list[#list + 1] = kernel
        end
    end
end

--- The calls of kernels of the graph, in the order of the program; each node gets its record. One with a twin does
--- the same at another place, and has the twin's name in plans and profiles.
function step.kernels(g, context)
    local list = {}
    for _, section in ipairs { "forward", "evaluation", "backward", "views" } do
        collect(g[section], section, context, list)
    end
    graph.walk(g.evaluation, function(node)
        if node.twin then node.kernel = ordered.copy(node.twin.kernel, { node = node }) end
    end)
    return list
end

-- Whether all workers must have finished what stands before a node. Within a body the line of the node
-- before says so, at the beginning of a body a line of its own.
local function waits(node, target) return target.barrier and node and node.barrier end

-- The values of a loop's body that have names of their own there.
local function named_in(body)
    local list, seen = {}, {}
    local function see(t)
        if not seen[t] and c_text.is_named(t) then list[#list + 1] = t end
        seen[t] = true
    end
    for _, node in ipairs(body) do
        if node.op ~= "times" then
            for _, t in ipairs(graph.reads(node)) do see(t) end
            for _, out in ipairs(graph.writes(node)) do see(out.tensor) end
        end
    end
    return list
end

-- The line that starts a bucket; `when`: a further condition. A bucket of windows is exchanged in each micro-step.
local function start_of(exchange, number, when, target)
    local windows = exchange.window ~= nil
    local conditions = ordered.collect({ not windows and "reduces" or false, when }, function(c) return c or nil end)
    return ("%sbucket_start(%s, m, %s%s);"):format(#conditions > 0 and ("if (%s) "):format(table.concat(conditions,
        " && ")) or "", target.worker, number, windows and ", adds" or exchange.beside and ", false" or "")
end

-- The line that starts the bucket of the layers that iteration l of a loop, from the last layer down, completes.
local function start_of_layers(exchange, layered, target)
    local count, layers, first = c_text.count(layered.loop), layered.layers, layered.first - 1
    local last = c_text.last(layered.loop)
    if layers == 1 then return start_of(exchange, ("%d + %s - l"):format(first, last), false, target) end
    return start_of(exchange, ("%d + (%s - l) / %d"):format(first, last, layers),
        ("((%s - l) %% %d == 0 || l == 0)"):format(count, layers), target)
end

-- Appends the lines of what happens in some iterations: entries { loop, at } of a node; in C a number is at[l] - first.
-- what: of the names of tables; line(number, when, entry): the line with a number, as text; when: the condition, or
-- false. names: { [what] = how many tables the body has }.
local function add_by_layer(list, entries, first, what, names, line)
    for _, entry in ipairs(entries or {}) do
        local numbers = {}
        for l, number in ordered.each(entry.at) do numbers[l] = number - first end
        local number, when, rows = by_layer.number(entry.loop, numbers, ("%s_%d"):format(what, (names[what] or 0) + 1))
        if rows then
            names[what] = (names[what] or 0) + 1
            list[#list + 1] = rows
        end
        list[#list + 1] = line(number, when or false, entry)
    end
    return list
end

local function conditional(when, line) return when and ("if (%s) %s"):format(when, line) or line end

-- The lines before a node: the windows that it writes must be free.
local function needs_of(node, names, target)
    local list = ordered.collect(node.needs or {}, function(bucket)
        return ("bucket_wait(%s, m, %d);"):format(target.worker, bucket - 1)
    end)
    add_by_layer(list, node.needs_at, 1, "WAITS", names, function(bucket, when)
        return conditional(when, ("bucket_wait(%s, m, %s);"):format(target.worker, bucket))
    end)
    for _, layered in ipairs(node.needs_layers or {}) do
        local layers, last = layered.layers, c_text.last(layered.loop)
        local begins = layers > 1 and ("(%s - l) %% %d == 0 && "):format(last, layers) or ""
        local number = layers > 1 and ("(%s - l) / %d"):format(last, layers) or last .. " - l"
        local shift = layered.first - 3
        local bucket = shift == 0 and number or ("%s %s %d"):format(number, shift < 0 and "-" or "+", math.abs(shift))
        list[#list + 1] = ("if (%s%s - l >= %d) bucket_wait(%s, m, %s); // the last one in this window"):format(begins,
            last, 2 * layers, target.worker, bucket)
    end
    return list
end

-- The lines before a node: the chunks of parameters that it reads must be there.
local function gathers_of(node, names, target)
    return add_by_layer({}, node.gathers, 0, "NEEDS", names, function(place, when, entry)
        return conditional(when, ("chunk_need(%s, m, &%s_CHUNKS, %s);"):format(target.worker, entry.pass:upper(),
            place))
    end)
end

-- The first lines of a loop.
local function opening_of(region, target)
    return ranges.loop(region, target) or { region.step > 0
        and ("for (int l = 0; l < %s; l++) { // %s"):format(c_text.count(region), region.name)
        or ("for (int l = %s; l >= 0; l--) { // %s"):format(c_text.last(region), region.name) }
end

-- The lines behind a node: the buckets that it completes start.
local function starts_of(node, exchanges, names, target)
    local list = ordered.collect(node.completes or {}, function(bucket)
        return start_of(exchanges[bucket], tostring(bucket - 1), false, target)
    end)
    for _, layered in ipairs(node.completes_layers or {}) do
        list[#list + 1] = start_of_layers(exchanges[layered.first], layered, target)
    end
    return add_by_layer(list, node.completes_at, 1, "STARTS", names, function(bucket, when, entry)
        return start_of(exchanges[entry.at[ordered.keys(entry.at)[1]]], bucket, when, target)
    end)
end

-- Of a value that iterations of the loop `region` hand on: from which iteration to which. The loop backwards reads what
-- those forwards gave.
local function handed_on(region, t)
    if t.place.slot ~= "next" then return "from the iteration before" end
    return t.scope == region and "for the next iteration" or "what the forward pass gave to the next iteration"
end

-- The lines of a body. exchanges: those of the graph, nil outside of the backward pass; each bucket starts behind the
-- node that completes it.
local function lines_of(body, exchanges, pad, out, target)
    local names = {}
    local function append(lines)
        for _, line in ipairs(lines) do out[#out + 1] = pad .. line:gsub("\n", "\n" .. pad) end
    end
    for i, node in ipairs(body) do
        if exchanges then append(needs_of(node, names, target)) end
        append(gathers_of(node, names, target))
        local before, behind = body[i - 1], body[i + 1]
        for _, number in ipairs(node.joins or {}) do append { target.branch.joins:format(number - 1) } end
        if node.branch and not (before and before.branch) then append { target.branch.begins } end
        if waits(node, target) and not (before and before.op ~= "times") then append { target.barrier } end
        if node.op == "times" then
            append(opening_of(node, target))
            local inner = lines_of(node.body, exchanges, pad .. "    ", {}, target)
            for _, t in ipairs(named_in(node.body)) do
                out[#out + 1] = c_text.commented(pad .. "    ", pad .. "    " .. target.named(t) .. ";",
                    handed_on(node, t))
            end
            table.move(inner, 1, #inner, #out + 1, out)
            append { "}" }
        else
            local print = node.kernel.print or kernels.call
            local waiting = target.barrier and (node.fence or waits(behind, target))
            out[#out + 1] = print(node.kernel, pad, target, waiting and " " .. target.barrier or "")
        end
        if node.branch and not (behind and behind.branch) then
            if node.joined then append { target.branch.marks:format(node.branch - 1) } end
            append { target.branch.ends }
        end
        if exchanges then append(starts_of(node, exchanges, names, target)) end
    end
    return out
end

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- The lines of a body that is a function of its own.
function step.lines(body, target) return block_of(lines_of(body, nil, "", {}, target)) end

--- The lines of a backward pass: `body` is the graph's, or a part of it.
function step.backward_lines(g, body, target)
    local exchanges, reduces = g.ranks and g.collectives or nil, g.residues
    local out = { "const bool adds = ga_role_adds(role);" }
    for _, x in ipairs(exchanges or {}) do reduces = reduces or not x.window end
    if reduces then out[2] = "const bool reduces = ga_role_reduces(role);" end
    if g.sharded.gradients and target.barrier then
        out[#out + 1] = "if (adds) " .. target.services.buckets_finish.call .. " // of the micro-step before"
        out[#out + 1] = target.barrier
    end
    lines_of(body, exchanges, "", out, target)
    if g.branches then out[#out + 1] = target.branch.all end
    if g.sharded.gradients and not target.barrier then
        out[#out + 1] = target.services.buckets_finish.call .. " // a graph ends with all of its work"
    end
    return block_of(out)
end

-- The function of a cycle of a micro-steps, and one for tails whose length is known only later.
local function cycle_function(a, unroll, target)
    local out = { ("/* %d micro-step%s and one update. */"):format(a, a > 1 and "s" or ""),
        ("static void cycle_%d(%s) {"):format(a, target.cycle_parameters) }
    out[#out + 1] = target.cycle_opening
    local function micro(role, k)
        return ("    micro(%s, GA_%s);"):format(target.micro_arguments:format(k), role:upper())
    end
    if a == 1 then
        out[#out + 1] = micro("only", 0)
    else
        out[#out + 1] = micro("first", 0)
        if a <= unroll then
            for k = 1, a - 2 do out[#out + 1] = micro("next", k) end
        elseif a > 2 then
            out[#out + 1] = ("    for (int k = 1; k < %d; k++)"):format(a - 1)
                .. micro("next", "k"):sub(4)
        end
        out[#out + 1] = micro("last", a - 1)
    end
    out[#out + 1] = ("    boundary(%s, m);"):format(target.worker)
    out[#out + 1] = "}"
    return table.concat(out, "\n")
end

local function tail_function(g, target)
    local function micro(role, k)
        return ("micro(%s, GA_%s);"):format(target.micro_arguments:format(k), role:upper())
    end
    local out = { "/* The last cycle of an epoch: r micro-steps, fewer than a full one, and one update. */",
        ("static void cycle_tail(%s) {"):format(target.cycle_parameters), target.cycle_opening }
    if g.longest_tail == 1 then
        out[#out + 1] = "    " .. micro("only", 0)
    else
        table.move({ "    const int r = m->count.a;", "    if (r == 1) {", "        " .. micro("only", 0),
            "    } else {", "        " .. micro("first", 0),
            "        for (int k = 1; k < r - 1; k++) " .. micro("next", "k"),
            "        " .. micro("last", "r - 1"), "    }" }, 1, 8, #out + 1, out)
        if g.longest_tail == 2 then table.remove(out, #out - 2) end
    end
    out[#out + 1] = ("    boundary(%s, m);"):format(target.worker)
    out[#out + 1] = "}"
    return table.concat(out, "\n")
end

local function cycle_functions(g, unroll, target)
    local sizes = target.graph_sizes and target.graph_sizes(g) or g.sizes
    local list = ordered.collect(sizes, function(a) return cycle_function(a, unroll, target) end)
    if g.longest_tail and target.tail then list[#list + 1] = tail_function(g, target) end
    return text.block(table.concat(list, "\n\n"))
end

local SKIP = {
    ignore = "s->weight == 0", stop = "s->nonfinite > 0 || s->weight == 0",
    skip = "s->nonfinite > 0 || s->weight == 0",
}

--- How the last paragraph of the comment of backward() begins: behind one about chunked logits, or as the first.
function step.comment_begins(chunked) return text.block(chunked and " *" or "/*") end

--- Template arguments of step.c for the passes over a micro-batch and for the cycles, the same for all targets.
function step.passes(g, config, context)
    local target = context.target
    local function lines(body, otherwise)
        return block_of(#body > 0 and lines_of(body, nil, "", {}, target) or { otherwise })
    end
    return {
        forward = lines(g.forward, target.nothing), evaluation = lines(g.evaluation),
        backward = step.backward_lines(g, g.backward, target), cycles = cycle_functions(g, config.unroll, target),
        batch = block_of(batch.places(g, target)),
    }
end

-- Calls behind an update: they make copies of weights, and the parameters in 16 bits that a rank sends.
local function view_lines(g, list, target)
    if sent.is_used(g) then list[#list + 1] = ("sent_pack(%s, m);"):format(target.worker) end
    return #list > 0 and list or { target.no_views }
end

--- Template arguments of the boundary, the same for all targets; cut and buckets are there with ranks.
function step.boundary(g, config, context)
    local target = context.target
    local function lines(body, pad) return lines_of(body, nil, pad, {}, target) end
    return {
        ranges = sections.block(context.template("program/update.c"), "ranges",
            { rows = ranges.table(g, context.ranges) }),
        cut = (g.ranks or g.state_file ~= nil) and text.block((sections.render(context.template("program/update.c"),
            ranges.cutting(g, config, context.ranges, target)):gsub("\n$", ""))),
        buckets = #g.collectives > 0 and { overlap = config.overlap,
            parameters = chunks.first_saved(g, "m->saved."), windows = windows.table(g),
            gaps = windows.has_gaps(g), waits = g.windows ~= nil and g.windows.waits,
            collected = g.summed_elements > g.trained_elements } or nil,
        boundary_calls = block_of(lines(g.boundary, "")), iterations = orthogonal.functions(g, target, lines),
        view_calls = block_of(view_lines(g, lines(g.views, ""), target)),
    }
end

--- The sums of the cycle, by the block `totals` of a target's template.
function step.totals(config, template)
    return sections.block(template, "totals", { ranks = config.mode.ranks, by_sum = config.loss.weight == "sum",
        divisor = scaler.divisor(config), full = scaler.full_text(config) })
end

local function check_clip(config, updates)
    local c = config.clip
    if c and (c.per_group or c.norm and c.p ~= 2) and update.reads(updates, "grad_norm") then
        diag.fail(c.at, ("clip: optimizer '%s' reads the 2-norm of the whole gradient, expected no other: p = 2, "
            .. "per_group = false"):format(config.optimizer.rule.name), {})
    end
end

--- The function that decides about an update, by the blocks `norm`, `totals` and `decide` of a target's template: the
--- clipping, what skips the update, numbers that it computes once. threads: of a block, if it is a kernel.
function step.decision(g, config, updates, context, template, threads)
    check_clip(config, updates)
    local target, own = context.target, clip.decision(g, config)
    return sections.block(template, "decide", { threads = threads, ranks = g.ranks,
        norm = sections.block(template, "norm", { ranks = g.ranks, threads = threads, sum = own.sum,
            largest = own.largest,
            groups = own.groups, group_tiles = own.group_tiles }),
        totals = own.rewrites and text.block("") or g.handlers and text.block("const double mean = s->mean;")
            or step.totals(config, template), grad_norm = own.grad_norm,
        skip = text.block(SKIP[config.scaler and "skip" or config.train.on_nonfinite]),
        outliers = outliers.lines(config),
        factor = sections.block(context.template("program/update.c"), "factor", { groups = own.groups,
            clip = own.clip, rewrites = own.rewrites,
            has_factor = config.clip and config.clip.norm ~= nil or update.reads(updates, "grad_norm") }),
        rate_lines = rate.lines(config, update.reads(updates, "t"), target),
        scalars = update.scalars(updates, g.layer_rates).assignments, scale_moved = scaler.moved(config, target) })
end

--- The sums of a cycle or an evaluation (spec/metrics.lua), as the lines of an enum.
function step.sums(config)
    local names = ordered.collect(config.sums, function(name) return "SUM_" .. name:upper() end)
    names[#names + 1] = "SUMS"
    return c_text.wrap("", "enum { ", names, " };")
end

return step
