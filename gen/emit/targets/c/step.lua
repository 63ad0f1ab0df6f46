-- c_step: the text of step.c, update.c, kernels.c and math.c.
local batchnorm = require "emit.kernels.batchnorm"
local boundary = require "emit.boundary.boundary"
local chunks = require "emit.boundary.chunks"
local clip = require "emit.boundary.clip"
local handlers = require "emit.boundary.handlers"
local math_file = require "emit.targets.c.math"
local ordered = require "base.ordered"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local sent = require "emit.boundary.sent"
local state_file = require "emit.boundary.state_file"
local step = require "emit.program.step"
local text = require "base.text"
local update = require "emit.boundary.update"

local c_step = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

-- The cases of a switch over the micro-steps of a cycle.
local function cycle_cases(g)
    local list = ordered.collect(g.sizes, function(a)
        return ("case %d: GA_TRY(run_team(m, cycle_%d, m, e)); break;"):format(a, a)
    end)
    list[#list + 1] = g.longest_tail and "default: GA_TRY(run_team(m, cycle_tail, m, e));"
        or "default: return ga_fail(e, GA_BUG, \"a cycle of %d micro-steps\", r);"
    return block_of(list)
end

--- The functions of nodes.
function c_step.kernels(_, _, context) return context.functions.list end

--- All calls of step.c: of nodes, of the gradient's norm, of the updates. found: the result of boundary.kernels.
function c_step.calls(all, found)
    local list = ordered.copy(all)
    for _, more in ipairs { { found.measure }, found.updates, found.iterations } do
        table.move(more, 1, #more, #list + 1, list)
    end
    return list
end

local function kernels_text(g, context, found)
    local list = ordered.collect(context.functions.list, function(f, i)
        return i < (context.own_functions or math.huge) and f.text or nil
    end)
    list[#list + 1] = found.measure.text
    for _, kernel in ipairs(boundary.functions(found)) do list[#list + 1] = kernel.text end
    if g.residues then
        local settle = context.template("c/accumulate.c")("settle", { tile = update.TILE }).text:gsub("\n+$", "\n")
        list[#list + 1] = "#ifdef GA_LIBRARY\n" .. settle .. "#endif\n"
    end
    if batchnorm.moves(g) then
        list[#list + 1] = context.template("c/update.c")("batchnorm_move", { ranks = g.ranks }).text:gsub("\n+$", "\n")
    end
    list[#list + 1] = found.exchange and found.exchange.text
    return table.concat(list, "\n")
end

local function update_text(g, config, context, found, header)
    local template, b = context.template("program/update.c"), step.boundary(g, config, context)
    return sections.render(template, {
        { "head", { header = text.block(header("update.c",
            ("the boundary: one update of \"%s\"; part of step.c"):format(config.name))),
            scaler = scaler.moves(config) } },
        b.ranges, b.cut,
        g.ranks and { "buckets", ordered.copy(b.buckets or {}, { grouped = g.handlers ~= nil }) },
        g.sharded.parameters and { "chunk_order", chunks.tables(g) },
        g.sharded.parameters and { "chunks", { half = sent.is_used(g) and text.ident(g.half:upper()) } }
            or g.sharded.state and { "gather", {} },
        sent.is_used(g) and { "sent", {} }, { "views", { view_calls = b.view_calls } },
        rate.functions(config, context.target),
        g.ranks and { "small_sum", { split = clip.weights_first(g, config), largest = clip.takes_largest(config),
            lists = g.handlers and #config.rank_groups or 0 } },
        g.handlers and { "shares", handlers.shares(g, config, "m", function(number)
            return ("ga_comm_group_size(m->comm, %d)"):format(number)
        end) } or false,
        clip.weights_first(g, config) and { "sum_up", { totals = step.totals(config, template),
            shares = g.handlers ~= nil } },
        scaler.definition(config), step.decision(g, config, found.updates, context, template), { "handlers", {} },
        b.iterations, { "boundary", { boundary_calls = b.boundary_calls } },
    })
end

local function step_text(g, config, context, bodies, header)
    local p, name, chunked = step.passes(g, config, context), text.ident(config.name), g.head ~= nil
    return sections.render(context.template("program/step.c"), {
        { "head", { header = text.block(header("step.c",
            ("forward, backward and the cycles of \"%s\""):format(config.name))), sample = bodies ~= nil,
            statistics = config.sync_batchnorm, handlers = handlers.listed(g, config) } },
        { "passes", { forward = p.forward, evaluation = p.evaluation, backward = p.backward, chunked = chunked,
            begins = step.comment_begins(chunked),
            buckets = #g.collectives, windows = g.windows ~= nil } },
        { "micro", { batch = p.batch } }, { "cycles", { functions = p.cycles } }, { "bodies", {} },
        { "run_team", {} }, { "model", { name = name, cycle_cases = cycle_cases(g) } },
        config.optimizer.own.ema and { "averages", { name = name, sharded = g.sharded.state or false,
            filed = g.state_file ~= nil, average = g.state_file and state_file.average(g) or false,
            gathers = g.sharded.state and not g.sharded.parameters } } or false,
        { "evaluations", { name = name } },
        { "library", { name = name } },
    })
end

--- The functions that kernels of these texts share, for a file that stands alone.
function c_step.alone(functions, context)
    return math_file.render(functions, context, function() return "" end) or ""
end

-- one_row.c: the forward pass for one row and, with its keys and values, for one position.
local function one_row_text(config, context, bodies, own, header)
    local name = text.ident(config.name)
    local function lines(body) return step.lines(body, context.target) end
    return sections.render(context.template("program/one_row.c"), {
        { "row", { header = text.block(header("one_row.c", "the forward pass for one row, for --sample")),
            name = name, functions = text.block(own), calls = lines(bodies.row) } },
        bodies.position and { "position", { name = name, calls = lines(bodies.position) } } or false,
    })
end

--- kernels.c, update.c and step.c, in a map of files.
function c_step.render(g, config, context, _, found, header, files)
    local bodies = g.one_row
    local kernel_texts = kernels_text(g, context, found)
    local own = table.concat(ordered.collect(context.functions.list, function(f, i)
        return bodies and i >= context.own_functions and f.text or nil
    end), "\n")
    local shared = math_file.render(kernel_texts .. own, context, header)
    if shared then files:set("math.c", shared) end
    files:set("kernels.c", header("kernels.c", "a function for each op and shape; step.c calls them")
        .. (shared and "#include \"math.c\"\n\n" or "\n") .. kernel_texts)
    files:set("update.c", update_text(g, config, context, found, header))
    if bodies then files:set("one_row.c", one_row_text(config, context, bodies, own, header)) end
    files:set("step.c", step_text(g, config, context, bodies, header))
end

return c_step
