-- watch: the text of train_watch.h, train_watch.c and compared.c, which make train-watch of a program: step.c is a
-- module there, and another one takes its place when kernels.c was edited and computes the same.
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local plan = require "emit.program.plan"
local sections = require "emit.program.sections"
local text = require "base.text"

local watch = {}

--- Whether a program has train-watch. Kernels of a device are compiled at its start, ranks would have to take the same
--- kernels at the same boundary, and a comparison would change what is in the file of a state.
function watch.possible(config, target) 
    return not target.device and not config.mode.ranks and not config.nvme
end

--- Why a program has none, as the program says it.
function watch.refusal(config, target)
    if watch.possible(config, target) then return nil end
    if config.nvme then
        return "a comparison would write to the file of the optimizer's state: generate without parallel.nvme"
    end
    return target.device and "the kernels of this program are those of a device: edit kernels.cu, and go on with make "
        .. "and --resume latest" or "the ranks of this program would have to take the same kernels at the same "
        .. "boundary: generate without parallel"
end

-- The functions of step.c that the rest of the program calls: { name, parameters, arguments, type }.
local function functions_of(g, config)
    local row, list = g.one_row, {}
    local function add(name, parameters, arguments)
        list[#list + 1] = { name, ("model *m, %sga_err *e"):format(parameters or ""),
            ("m, %se"):format(arguments or ""), "int" }
    end
    add("cycle", "int r, ", "r, ")
    add("micro", "int k, ", "k, ")
    add "boundary"
    add "refresh"
    add "evaluate_batch"
    if row then add "forward_row" end
    if row and row.position ~= false then add("forward_position", "size_t position, ", "position, ") end
    if config.optimizer.own.ema then add "exchange" end
    list[#list + 1] = { "lr", "const model *m, int64_t t", "m, t", "double" }
    return list
end

local TYPE = { f32 = "GA_F32", f64 = "GA_F64", bf16 = "GA_BF16", f16 = "GA_F16", i32 = "GA_I32" }

-- The types of results in memory; sums are double.
local function types_of(results)
    local list = ordered.collect(results, function(result)
        return result.tensor.kind == "scalar" and "GA_F64" or TYPE[result.tensor.dtype]
    end)
    return text.block(c_text.wrap("", "", list, ""))
end

local function partial_sums(g, config)
    for _, arena in ipairs(plan.arenas(g, config)) do
        if arena.name == "partials" then return arena.bytes // 8 end
    end
end

local function count_views(g)
    local count = 0
    graph.walk(g.views, function(node) count = count + (node.kernel and node.kernel.fn and 1 or 0) end)
    return count
end

-- Micro-steps of a comparison: two where any cycle has more than one.
local function steps_of(config)
    for _, entry in ipairs(config.table) do
        if entry.a > 1 then return 2 end
    end
    return 1
end

--- train_watch.h, train_watch.c and compared.c, in a map of files. results: the rows of RESULTS in probes.c.
function watch.render(g, config, context, header, files, results)
    local name, template, list = text.ident(config.name), context.template("program/watch.c"), functions_of(g, config)
    local function lines(format)
        return sections.lines(ordered.collect(list, function(f)
            return (format:gsub("%u+", { NAME = f[1], PARAMETERS = f[2], ARGUMENTS = f[3], TYPE = f[4],
                PROGRAM = config.name }))
        end))
    end
    files:set("train_watch.h", sections.render(template, { { "header", { name = name,
        header = text.block(header("train_watch.h", "what train-watch has beyond train")),
        guard = text.ident(config.name:upper() .. "_TRAIN_WATCH_H"), fields = lines "TYPE (*NAME)(PARAMETERS);" } } }))
    files:set("train_watch.c", sections.render(template, {
        { "head", { header = text.block(header("train_watch.c", "train-watch: edited kernels are compared and taken")),
            stubs = lines "TYPE PROGRAM_model_NAME(PARAMETERS) { return used->NAME(ARGUMENTS); }" } },
        { "work", { steps = steps_of(config), ema = config.optimizer.own.ema ~= nil } },
        { "watch", { name = name } }, { "functions", { name = name } } }))
    files:set("compared.c", sections.render(template, { { "compared", { name = name, types = types_of(results),
        header = text.block(header("compared.c", "what train-watch compares behind each call of a kernel")),
        partials = partial_sums(g, config), views = count_views(g),
        rows = lines ".NAME = PROGRAM_model_NAME," } } }))
end

return watch
