-- c_step: the text of step.c, update.c, kernels.c and math.c.
local batchnorm = require "emit.kernels.batchnorm"
local clip = require "emit.boundary.clip"
local math_file = require "emit.targets.c.math"
local ordered = require "base.ordered"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local step = require "emit.program.step"
local text = require "base.text"
local update = require "emit.boundary.update"

local c_step = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

-- The cases of a switch over the micro-steps of a cycle.
local function cycle_cases(g)
    local list = ordered.collect(g.sizes, function(a)
        return ("case %d: GA_TRY(run(m, cycle_%d, m, e)); break;"):format(a, a)
    end)
    list[#list + 1] = g.longest_tail and "default: GA_TRY(run(m, cycle_tail, m, e));"
        or "default: return ga_fail(e, GA_BUG, \"a cycle of %d micro-steps\", r);"
    return block_of(list)
end

--- All kernels that step.c calls: those of nodes, that of the gradient's norm, the updates.
function c_step.kernels(g, config, _, all, sweeps)
    local list = table.move(all, 1, #all, 1, {})
    local flops, bytes = clip.work(g, config)
    list[#list + 1] = { name = "gradient_partials", flops = flops, bytes = bytes }
    return table.move(sweeps, 1, #sweeps, #list + 1, list)
end

local function small_sum(config)
    if not config.mode.ranks then
        return text.block("const double *sums = m->sums;\nm->stop = ga_stop_requested() != 0;\n"
            .. "(void)e; /* one rank: nothing here can fail */")
    end
    return text.block("/* the one small sum over the ranks: loss, weight, rows, a request to stop */\n"
        .. "double sums[8] = {m->sums[SUM_LOSS], m->sums[SUM_WEIGHT], m->sums[SUM_ROWS],\n"
        .. "                  ga_stop_requested() != 0};\n"
        .. "GA_TRY(ga_comm_small(m->comm, sums, 8, e));\nm->stop = sums[3] > 0;")
end

local function kernels_text(g, config, context, all, sweeps)
    local list, target = ordered.collect(all, function(kernel) return kernel.text end), context.target
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
    arguments.lr, arguments.scaler = rate.functions(config, context.target), scaler.definition(config)
    arguments.totals = text.block((template("totals", { small = small_sum(config),
        by_sum = config.loss.weight == "sum", divisor = scaler.divisor(config), full = scaler.full_text(config) })
        .text:gsub("\n+$", "")))
    return template("update", arguments).text
end

--- kernels.c, update.c and step.c, in a map of files.
function c_step.render(g, config, context, all, sweeps, header, files)
    local kernel_texts = kernels_text(g, config, context, all, sweeps)
    local shared = math_file.render(kernel_texts, context, header)
    if shared then files:set("math.c", shared) end
    files:set("kernels.c", header("kernels.c", "one function per kernel; step.c calls them in order")
        .. (shared and "#include \"math.c\"\n\n" or "\n") .. kernel_texts)
    files:set("update.c", update_text(g, config, context, sweeps, header))
    local arguments = step.passes(g, config, context)
    arguments.header = text.block(header("step.c",
        ("forward, backward and the cycles of \"%s\""):format(config.name)))
    arguments.cycle_cases = cycle_cases(g)
    arguments.ema = config.optimizer.own.ema ~= nil
    files:set("step.c", context.template("program/step.c")("step", arguments).text)
end

return c_step
