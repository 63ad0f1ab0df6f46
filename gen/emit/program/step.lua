-- step: the text of step.c, update.c and kernels.c: forward, backward, the cycle; the boundary. A role is
-- two decisions over the one backward body: add or write, reduce or not.
local batch = require "emit.program.batch"
local batchnorm = require "emit.kernels.batchnorm"
local clip = require "emit.boundary.clip"
local diag = require "base.diag"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local math_file = require "emit.targets.c.math"
local ordered = require "base.ordered"
local outliers = require "emit.boundary.outliers"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local text = require "base.text"
local update = require "emit.boundary.update"

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

-- The lines of a body. With `reduces` each bucket starts behind the node that completes it.
local function lines_of(body, reduces, pad, out, target)
    for i, node in ipairs(body) do
        if node.op == "times" then
            local last = node.count - 1
            out[#out + 1] = pad .. (node.step > 0
                and ("for (int l = 0; l < %d; l++) { // %s"):format(node.count, node.name)
                or ("for (int l = %d; l >= 0; l--) { // %s"):format(last, node.name))
            local inner = lines_of(node.body, reduces, pad .. "    ", {}, target)
            out[#out + 1] = target.strides and target.strides(inner, pad .. "    ")
            table.move(inner, 1, #inner, #out + 1, out)
            out[#out + 1] = pad .. "}"
        else
            local before = body[i - 1]
            if waits(node, target) and not (before and before.op ~= "times") then
                out[#out + 1] = pad .. target.barrier
            end
            out[#out + 1] = kernels.call(node.kernel, pad, target,
                waits(body[i + 1], target) and " " .. target.barrier or "")
        end
        for _, bucket in ipairs(reduces and node.completes or {}) do
            out[#out + 1] = ("%sif (reduces) bucket_start(%s, m, %d);"):format(pad, target.worker, bucket - 1)
        end
    end
    return out
end

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- The lines of a backward pass: `body` is the graph's, or a part of it.
function step.backward_lines(g, body, target)
    local reduces = #g.collectives > 0
    local out = { "const bool adds = ga_role_adds(role);" }
    if reduces or g.residues then out[2] = "const bool reduces = ga_role_reduces(role);" end
    return block_of(lines_of(body, reduces, "", out, target))
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
    local list = ordered.collect(g.sizes, function(a) return cycle_function(a, unroll, target) end)
    if g.longest_tail and target.tail then list[#list + 1] = tail_function(g, target) end
    return text.block(table.concat(list, "\n\n"))
end

-- The cases of a switch over the micro-steps of a cycle.
local function cycle_cases(g)
    local list = ordered.collect(g.sizes, function(a)
        return ("case %d: GA_TRY(run(m, cycle_%d, m, e)); break;"):format(a, a)
    end)
    list[#list + 1] = g.longest_tail and "default: GA_TRY(run(m, cycle_tail, m, e));"
        or "default: return ga_fail(e, GA_BUG, \"a cycle of %d micro-steps\", r);"
    return block_of(list)
end

local function bucket_rows(g)
    local out = {}
    for _, x in ipairs(g.collectives) do out[#out + 1] = ("{%d, %d},"):format(x.offset, x.n) end
    return block_of(out)
end

--- All kernels that step.c calls: those of nodes, that of the gradient's norm, the updates.
function step.calls(g, config, all, sweeps)
    local list = table.move(all, 1, #all, 1, {})
    local flops, bytes = clip.work(g, config)
    list[#list + 1] = { name = "gradient_partials", flops = flops, bytes = bytes }
    return table.move(sweeps, 1, #sweeps, #list + 1, list)
end

local function small_sum(config)
    if config.parallel == "none" then
        return text.block("const double *sums = m->sums;\nm->stop = ga_stop_requested() != 0;\n"
            .. "(void)e; /* one rank: nothing here can fail */")
    end
    return text.block("/* the one small sum over the ranks: loss, weight, rows, a request to stop */\n"
        .. "double sums[8] = {m->sums[SUM_LOSS], m->sums[SUM_WEIGHT], m->sums[SUM_ROWS],\n"
        .. "                  ga_stop_requested() != 0};\n"
        .. "GA_TRY(ga_comm_small(m->comm, sums, 8, e));\nm->stop = sums[3] > 0;")
end

local SKIP = {
    ignore = "s->weight == 0", stop = "s->nonfinite > 0 || s->weight == 0",
    skip = "s->nonfinite > 0 || s->weight == 0",
}

--- The arguments of step.c's template that both targets' steps have: the passes over a micro-batch and
-- the cycles.
function step.passes(g, config, context)
    local target = context.target
    local function lines(body, otherwise)
        return block_of(#body > 0 and lines_of(body, false, "", {}, target) or { otherwise })
    end
    return {
        name = text.ident(config.name), buckets = #g.collectives,
        forward = lines(g.forward, target.nothing), evaluation = lines(g.evaluation, target.nothing),
        backward = step.backward_lines(g, g.backward, target),
        chunked = g.head ~= nil, cycle_functions = cycle_functions(g, config.unroll, target),
        batch = block_of(batch.places(g, target)),
    }
end

--- What both targets send at the boundary.
function step.boundary(g, config, context, sweeps)
    local target = context.target
    return {
        buckets = #g.collectives, bucket_rows = bucket_rows(g),
        measure_calls = clip.calls(g, config, target), rewrites = clip.writes(config),
        sweep_calls = block_of { update.calls(g, config, sweeps, target).text,
            table.unpack(batchnorm.moves(g, target)) },
        matrices = update.functions(g, target),
        view_calls = block_of(#g.views > 0 and lines_of(g.views, false, "", {}, target) or { "(void)m;" }),
    }
end

--- What the decision about an update needs: the clipping, what skips it, and the hoisted scalars.
function step.decision(g, config, sweeps, target)
    local c = config.clip
    if c and (c.per_group or c.norm and c.p ~= 2) and update.reads(sweeps, "grad_norm") then
        diag.fail(c.at, ("clip: optimizer '%s' reads the 2-norm of the whole gradient, expected no other: p = 2, "
            .. "per_group = false"):format(config.optimizer.rule.name), {})
    end
    return ordered.copy(clip.decision(g, config), { rate_lines = rate.lines(config, update.reads(sweeps, "t"), target),
        has_factor = config.clip and config.clip.norm ~= nil or update.reads(sweeps, "grad_norm"),
        skip = text.block(SKIP[config.scaler and "skip" or config.train.on_nonfinite]),
        scale_moved = scaler.moved(config, target), outliers = outliers.lines(config),
        scalars = update.scalars(sweeps, g.layer_rates).assignments })
end

local function kernels_text(g, config, context, sweeps)
    local list = ordered.collect(context.functions.list, function(f) return f.text end)
    local target = context.target
    local open = target.open("gradient_partials")
    local arguments = clip.measure(g, config, target)
    list[#list + 1] = context.template("c/update.c")("gradient_partials", ordered.copy(arguments, {
        params = text.block(target.wrap("", open, target.sweep(nil, clip.parameters(config)), ""):sub(#open + 1)) }))
        .text:gsub("\n+$", "\n")
    for _, sweep in ipairs(sweeps) do list[#list + 1] = sweep.text end
    if g.residues then
        local settle = context.template("c/accumulate.c")("settle", { tile = update.TILE }).text:gsub("\n+$", "\n")
        list[#list + 1] = "#ifdef GA_LIBRARY\n" .. settle .. "#endif\n"
    end
    if #batchnorm.moves(g, target) > 0 then
        list[#list + 1] = context.template("c/update.c")("batchnorm_move", {}).text:gsub("\n+$", "\n")
    end
    if config.optimizer.own.ema then
        list[#list + 1] = context.template("c/update.c")("exchange", { tile = update.TILE }).text:gsub("\n+$", "\n")
    end
    return table.concat(list, "\n")
end

local function update_text(g, config, context, sweeps, header)
    local arguments = ordered.copy(step.boundary(g, config, context, sweeps),
        step.decision(g, config, sweeps, context.target))
    arguments.header = text.block(header("update.c",
        ("the boundary: one update of \"%s\"; part of step.c"):format(config.name)))
    arguments.name = text.ident(config.name)
    local template = context.template("program/update.c")
    arguments.lr, arguments.scaler = rate.c(config), scaler.definition(config)
    arguments.totals = text.block((template("totals", { small = small_sum(config),
        by_sum = config.loss.weight == "sum", divisor = scaler.divisor(config), full = scaler.full_text(config) })
        .text:gsub("\n+$", "")))
    return template("update", arguments).text
end

--- kernels.c, update.c and step.c, in a map of files.
function step.render(g, config, context, _, sweeps, header, files)
    local kernel_texts = kernels_text(g, config, context, sweeps)
    local shared = math_file.render(kernel_texts, context, header)
    if shared then files:set("math.c", shared) end
    files:set("kernels.c", header("kernels.c", "a function for each op and shape; step.c calls them")
        .. (shared and "#include \"math.c\"\n\n" or "\n") .. kernel_texts)
    files:set("update.c", update_text(g, config, context, sweeps, header))
    local arguments = step.passes(g, config, context)
    arguments.header = text.block(header("step.c",
        ("forward, backward and the cycles of \"%s\""):format(config.name)))
    arguments.cycle_cases = cycle_cases(g)
    arguments.ema = config.optimizer.own.ema ~= nil
    files:set("step.c", context.template("program/step.c")("step", arguments).text)
end

--- The sums of a cycle or an evaluation, as enum constants: losses, their weight, rows; counted targets
-- and hits among them; the weight of the present micro-step alone; targets of class 1 that were hit, and
-- those that were not.
step.SUMS = "SUM_LOSS, SUM_WEIGHT, SUM_ROWS, SUM_COUNT, SUM_HITS, SUM_MICRO, SUM_FOUND, SUM_MISSED, SUMS = 8"

return step
