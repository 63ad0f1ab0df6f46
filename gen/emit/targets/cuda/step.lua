-- cuda_step: the text of step.c, launch.c and kernels.cu. The host launches the same kernels that the C target
-- calls; one thread of the device makes the decisions of the boundary.
-- Invariant: the struct step of host and device is printed from one list.
local batchnorm = require "emit.kernels.batchnorm"
local boundary = require "emit.boundary.boundary"
local chunks = require "emit.boundary.chunks"
local clip = require "emit.boundary.clip"
local cuda = require "emit.targets.cuda.cuda"
local division = require "emit.boundary.division"
local gradients = require "emit.program.gradients"
local graphs = require "emit.targets.cuda.graphs"
local handlers = require "emit.boundary.handlers"
local hopper = require "emit.targets.cuda.hopper"
local hopper_text = require "emit.targets.cuda.hopper_text"
local host_update = require "emit.targets.cuda.host_update"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local outliers = require "emit.boundary.outliers"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local statistics = require "emit.program.statistics"
local sections = require "emit.program.sections"
local step = require "emit.program.step"
local text = require "base.text"
local transfers = require "emit.targets.cuda.transfers"
local update = require "emit.boundary.update"
local windows = require "emit.boundary.windows"

local cuda_step = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

local THREADS = 256

-- Rows { type, text, comment, count }; a row without comment is a whole declaration. Doubles come first.
local function step_rows(g, config, scalars)
    local rows = { { "double", "sums[SUMS + SUMS % 2]", "of the present cycle, or of an evaluation",
        (#config.sums + 1) // 2 * 2 } }
    local shares
    for _, row in ipairs(division.step_rows(g, config)) do
        if row[1] == "real" then shares = row else
            rows[#rows + 1] = { row[1] == "integer" and "long long" or row[1], row[2], row[3], row[4] }
        end
    end
    local groups = g.handlers and #config.rank_groups
    if groups then
        rows[#rows + 1] = { "long long", ("lists[%d]"):format(groups), "this rank's list of each group", groups }
        rows[#rows + 1] = { "long long", ("list_ranks[%d]"):format(groups), "ranks of that list", groups }
    end
    local rest = {
        { "double", "nominal", "weight of a full cycle over all ranks", 1 },
        { "double", "schedule_total", "updates (epochs) of the schedule", 1 },
        { "double", "loss", "of the cycle and all ranks: the mean, or the sum", 1 },
        { "double", "weight, rows", "sums over the cycle and all ranks", 2 },
        { "double", "grad_norm", clip.norm_text(config), 1 },
        { "double", "lr", "of the update", 1 },
        { "double", "nonfinite", "elements of the gradient that are not finite", 1 },
        { "double", "stop", "sum of the ranks' requests to stop or save", 1 },
        { "long long", "update, cycle", "updates done, cycles done", 2 },
        { "long long", "skip", "not 0: leave parameters and state as they are", 1 },
    }
    table.move(rest, 1, #rest, #rows + 1, rows)
    local factor, factors = clip.factor_field(g, config)
    local reals = {
        { "real", "seed", scaler.times(config)
            .. "gradient of the cycle's mean loss with respect to one row's loss", 1 },
        { "real", factor, ("nominal / true weight%s, times the clip factor"):format(scaler.over(config)), factors },
    }
    if clip.writes(config) then reals[2][3] = "of clipping by the norm" end
    if clip.weights_first(g, config) then
        table.insert(reals, 2, { "real", "mean", "nominal / true weight" .. scaler.over(config), 1 })
    end
    reals[#reals + 1] = shares
    if config.schedule.fields.by == "epoch" then
        rows[#rows + 1] = { "long long", "epoch_cycles", "cycles of an epoch", 1 }
        rows[#rows + 1] = { "long long", "epoch_shift", "cycles that this run's epochs would not have had", 1 }
    end
    for _, list in ipairs { rate.fields(config), outliers.fields(config) } do
        for _, field in ipairs(list) do rows[#rows + 1] = { "double", field[1], field[2], 1 } end
    end
    for _, row in ipairs(scaler.rows(config)) do
        rows[#rows + 1] = { row[1] == "integer" and "long long" or row[1], row[2], row[3], row[4] }
    end
    for i = 1, scalars.doubles do rows[#rows + 1] = { "double", scalars.fields[i], nil, 1 } end
    table.move(reals, 1, #reals, #rows + 1, rows)
    for i, n in ipairs(scalars.reals) do
        rows[#rows + 1] = { "real", scalars.fields[scalars.doubles + i], nil, n }
    end
    return rows
end

--- The fields of the struct step, as text, and its size in bytes, a multiple of 16.
function cuda_step.block(g, config, sweeps)
    local out, bytes, reals = {}, 0, 0
    for _, row in ipairs(step_rows(g, config, update.scalars(sweeps, g.layer_rates))) do
        local declaration = row[1] .. " " .. row[2] .. ";"
        out[#out + 1] = row[3] and declaration .. (" "):rep(24 - #declaration) .. " /* " .. row[3] .. " */"
            or row[2]
        if row[1] == "real" then reals = reals + row[4] else bytes = bytes + 8 * row[4] end
    end
    bytes = bytes + reals * (g.real == "f64" and 8 or 4)
    return block_of(out), (bytes + 15) // 16 * 16
end

-- The kernel that decides about an update, with the functions that it calls.
local function decide_kernel(g, config, context, found)
    local template = context.template("cuda/update.cu")
    return { name = "decide", launch = { blocks = 1, threads = THREADS },
        parameters = { "step *all", not g.ranks and "const double *partials" or nil },
        text = sections.render(template, {
            rate.functions(config, context.target),
            scaler.moves(config) and { "scaler", scaler.device(config) },
            step.decision(g, config, found.updates, context, template, THREADS),
        }) }
end

-- Kernels that no node stands for: { name, launch, parameters, text }.
local function boundary_kernels(g, config, context, found)
    local template = context.template("cuda/update.cu")
    local list = { found.measure }
    local function add(name, launch, parameters, arguments)
        list[#list + 1] = { name = name, launch = launch, parameters = parameters,
            text = template(name, arguments).text:gsub("\n+$", "\n") }
    end
    if clip.weights_first(g, config) then
        local shares = g.handlers and handlers.shares(g, config, "s", function(number)
            return ("s->list_ranks[%d]"):format(number - 1)
        end)
        add("sum_up", { blocks = 1, threads = 32 }, { "step *s" }, { totals = step.totals(config, template),
            ranks = config.ranks, by_sum = shares and shares.by_sum or false,
            shares = shares and shares.lines or false })
    end
    if config.mode.ranks then
        add("small_values", { blocks = 1, threads = 32 }, { "step *s" },
            { lists = g.handlers and #config.rank_groups or 0 })
        add("own_norms", { blocks = 1, threads = THREADS }, { "step *s", "const double *partials" },
            { threads = THREADS, largest = clip.takes_largest(config) })
    end
    if config.sync_batchnorm then
        add("give_statistics", { blocks = ("(unsigned)((channels + %d) / %d)"):format(THREADS - 1, THREADS),
            threads = THREADS }, { "double *own", "const real *first", "const real *second", "int channels",
            "double values" }, { threads = THREADS })
    end
    if g.sharded.gradients then
        add("take_part", { blocks = ("(unsigned)((n + %d) / %d)"):format(THREADS - 1, THREADS), threads = THREADS },
            { "real *kept", "const real *window", "ga_int64 n", "bool adds" }, { threads = THREADS })
    end
    if windows.has_gaps(g) then
        add("clear_gaps", { blocks = "(unsigned)count", threads = 32 }, { "real *window", "int first" },
            { threads = 32, rows = windows.gap_tables(g) })
        list[#list].more = { "int count" }
    end
    list[#list + 1] = found.exchange
    if g.narrows then
        add("narrow_all", { threads = THREADS }, { g.half .. " *copies", "const real *w", "ga_int64 count" },
            { threads = THREADS, half = text.ident(g.half) })
    end
    if batchnorm.moves(g) then
        local kernel, launch = batchnorm.move_kernel(cuda), { blocks = 1, threads = THREADS }
        local head = cuda.open("batchnorm_move", launch)
        add("batchnorm_move", launch, kernel.parameters, { threads = THREADS, ranks = g.ranks,
            params = text.block(cuda.wrap("", head, kernel.parameters, ""):sub(#head + 1)) })
    end
    list[#list + 1] = decide_kernel(g, config, context, found)
    return list
end

local function constants(g, config)
    local list = {
        "typedef " .. (g.real == "f64" and "double" or "float") .. " real;", "",
        ("enum { IGNORE = %d }; /* a target that does not count */"):format(config.loss.fields.ignore or -100),
        step.sums(config),
        "struct alignas(16) ga_sums { double at[SUMS + SUMS % 2]; };",
        ("enum { NORM_TILE = %d, NORM_TILES = %d };"):format(clip.TILE, g.norm.tiles),
    }
    if g.ranks then list[#list + 1] = division.small(g, config).text end
    return table.concat(list, "\n") .. "\n"
end

-- Kernels with the line that waits for the one in front of them.
local function begun(kernels)
    return (kernels:gsub("(\nGA_KERNEL%b()[^{;]*{)", "%1\n    ga_begin();"))
end

local function kernels_text(g, config, context, kernels, sweeps, header)
    local fields, bytes = cuda_step.block(g, config, sweeps)
    local half, of_half = gradients.half(g), context.template "cuda/half.cu"
    local out = {
        header("kernels.cu", "the kernels, compiled for the device at start; launch.c has their launches"),
        context.embedded("cuda/prelude.cu") .. (half and of_half(half, {}).text .. of_half("functions", {}).text or ""),
        constants(g, config),
        "/* Numbers of an update beside the gradient, as model.h has them. */",
        "typedef struct alignas(16) step {\n    " .. fields.text:gsub("\n", "\n    ") .. "\n} step;",
        ("static_assert(sizeof(step) == %d, \"step: as the host has it\");\n"):format(bytes),
    }
    for _, kernel in ipairs(cuda_step.distinct(kernels)) do out[#out + 1] = kernel.text end
    if #hopper.of(kernels) > 0 then out[#out + 1] = hopper_text(kernels, context) end
    return begun(table.concat(out, "\n"))
end

--- The kernels that functions of launch.c launch, in their order: those with sizes share one.
function cuda_step.distinct(launching)
    local list, seen = {}, {}
    for _, f in ipairs(launching) do
        local kernel = f.kernel or f
        if not seen[kernel] then list[#list + 1] = kernel end
        seen[kernel] = true
    end
    return list
end

-- Adds the sizes that a kernel gets: lines that declare them, and arguments. Those of one with a twin are a constant.
local function add_sizes(kernel, out, arguments)
    if kernel.sizes and kernel.launch.twin then
        arguments[#arguments + 1] = "&" .. hopper.size_name(kernel)
        return
    end
    for _, size in ipairs(kernel.sizes and kernel.sizes.list or {}) do
        local parameter, value = size[1], size[2]
        out[#out + 1] = type(value) == "table"
            and cuda.wrap("    ", cuda.operand_parameter(parameter) .. " = {", value, "};")
            or "    " .. cuda.operand_number(parameter, value)
        arguments[#arguments + 1] = "&" .. parameter:match "[%w_]+$"
    end
end

-- The parameters of arrays that a kernel's node has not got.
local function missing_of(kernel)
    local missing = kernel.sizes and kernel.sizes.missing or {}
    return ordered.collect(ordered.keys(missing), function(name) return missing[name] end)
end

-- The host's side of a kernel: its parameters, its place in KERNEL_NAMES, its launch.
local function launcher(kernel)
    local run, l = kernel.over_run, kernel.launch
    local parameters, arguments, out = { "queue *q", l.gathers and "model *m" or nil }, {}, {}
    local missing = missing_of(kernel)
    for i, p in ipairs(kernel.parameters) do
        local found = ordered.find(missing, p) or l.gathers and ordered.find(cuda.gather_parameters, p)
            or run and p ~= "const step *s"
        if not found then parameters[#parameters + 1] = cuda.operand_parameter(p) end
        arguments[i] = "&" .. p:match("([%a_][%w_]*)$")
    end
    if l.gathers then
        out = { ("    ga_address all = gather_statistics(q, m, %s);"):format(table.concat(l.gathers, ", ")),
            "    int ranks = ga_nccl_size(m->nccl);" }
    end
    for _, p in ipairs(kernel.more or {}) do parameters[#parameters + 1] = p end   -- for the number of blocks alone
    if run then
        table.move(run.parameters, 1, #run.parameters, #parameters + 1, parameters)
        for i, line in ipairs(run.lines) do out[i] = "    " .. line end
    end
    for _, p in ipairs(missing) do out[#out + 1] = "    " .. cuda.operand_number(p, "0") end
    add_sizes(kernel, out, arguments)
    table.insert(out, 1, cuda.wrap("", ("static void %s("):format(kernel.name), parameters, ") {"))
    out[#out + 1] = cuda.wrap("    ", "void *args[] = {", arguments, "};")
    if l.twin then
        out[#out + 1] = ("    launch_chosen(q, %s, args);\n}\n"):format(hopper.number(kernel))
        return table.concat(out, "\n")
    end
    local list = { "q", "K_" .. (kernel.kernel or kernel).name:upper(),
        l.blocks and tostring(l.blocks) or "blocks_over(count)", tostring(l.threads), "args" }
    if l.shared then table.insert(list, 5, tostring(l.shared)) end
    out[#out + 1] = cuda.wrap("    ", l.shared and "launch_sharing(" or "launch(", list, ");")
    return table.concat(out, "\n") .. "\n}\n"
end

local BLOCKS_OVER = [[
/* Blocks of an update over n elements; a thread goes on where the grid ends. */
static unsigned blocks_over(int64_t n) {
    const int64_t blocks = (n + 1023) / 1024;
    return blocks < 65535 ? (unsigned)blocks : 65535;
}

]]

-- The kernels with dynamic shared memory, the most of all launches, as the rows of a table, or nil.
local function sharing_rows(kernels)
    local most = {}
    for _, kernel in ipairs(kernels) do
        local name, bytes = (kernel.kernel or kernel).name, kernel.launch.shared
        most[name] = bytes and math.max(bytes, most[name] or 0)
    end
    local rows = ordered.collect(cuda_step.distinct(kernels), function(kernel)
        local bytes = most[kernel.name]
        return bytes and ("[K_%s] = %d,"):format(kernel.name:upper(), bytes)
    end)
    return #rows > 0 and block_of(rows) or nil
end

-- The types of the sizes that kernels get, with functions that make them.
local function types_text(kernels, context)
    local out, seen = {}, {}
    for _, kernel in ipairs(kernels) do
        for name in (kernel.sizes and kernel.sizes.types or ""):gmatch "[%w_]+" do
            if not seen[name] then
                out[#out + 1] = context.template(("cuda/%s.cu"):format(name))(name .. "_launch", {}).text .. "\n"
            end
            seen[name] = true
        end
    end
    return table.concat(out)
end

local function launch_text(kernels, context, header)
    local numbers, names, functions, over = {}, {}, {}, types_text(kernels, context)
    for i, kernel in ipairs(cuda_step.distinct(kernels)) do
        numbers[i] = "K_" .. kernel.name:upper()
        names[i] = '"' .. kernel.name .. '"'
    end
    if #hopper.of(kernels) > 0 then over = over .. hopper.table(kernels) end
    local by_count
    for i, kernel in ipairs(kernels) do
        functions[i] = launcher(kernel)
        by_count = by_count or not kernel.launch.blocks
    end
    if by_count then over = over .. BLOCKS_OVER end
    return table.concat({
        header("launch.c", "how each kernel of kernels.cu is launched: its arguments, sizes, blocks, threads"),
        cuda.wrap("", "enum { ", numbers, " };"), "",
        cuda.wrap("", "static const char *const KERNEL_NAMES[KERNELS] = {", names, "};"), "",
        over .. table.concat(functions, "\n") }, "\n")
end

--- All kernels, including those of the boundary, in the order of kernels.cu.
function cuda_step.kernels(g, config, context, found)
    if placed.is_used(g) then context.host_updates = host_update.part(g) end
    context.device_updates = placed.updates_all(g) and {} or found.updates
    local list = ordered.copy(context.functions.list)
    context.boundary_kernels = boundary_kernels(g, config, context, found)
    local own = ordered.copy(found, { updates = context.device_updates })
    for _, more in ipairs { context.boundary_kernels, boundary.functions(own) } do
        table.move(more, 1, #more, #list + 1, list)
    end
    return list
end

--- All calls of step.c: those of nodes, then the kernels of the boundary.
function cuda_step.calls(all, found, context)
    local list = ordered.copy(all)
    for _, more in ipairs { context.boundary_kernels, context.device_updates, found.iterations } do
        table.move(more, 1, #more, #list + 1, list)
    end
    return list
end

-- How buckets are exchanged, from the flat space or from windows.
local function bucket_section(g, arguments)
    if not g.sharded.gradients then
        return { "buckets", { overlap = arguments.overlap, grouped = g.handlers ~= nil } }
    end
    local _, first = windows.gap_tables(g)
    local own = ordered.copy(arguments, { gap_rows = first, placed = placed.is_used(g) })
    own.parameters = nil            -- the host clears no gaps
    return { "windows", own }
end

-- The numbers that a rank gives when statistics of batchnorm are gathered.
local function statistics_sizes(g, config)
    return text.block(table.concat(ordered.collect(statistics.list(g, config.ops), function(x)
        return tostring(x.bytes // 8)
    end), ", "))
end

-- Exchanges of ranks in micro-steps and at the boundary, in front of their callers.
local function exchanges(g, config, context, buckets)
    if not g.ranks then return false end
    local divided = g.sharded.parameters
    local list = sections.render(context.template("program_cuda/exchanges.c"), {
        placed.is_used(g) and { "values_of", {} }, bucket_section(g, buckets),
        divided and sections.block(context.template("program/update.c"), "chunk_order", chunks.tables(g)),
        divided and { "chunks", { placed = placed.is_used(g), pool = placed.pool(g) } }
            or g.sharded.state and { "gather", {} },
        config.sync_batchnorm and { "statistics", { sizes = statistics_sizes(g, config) } },
        divided and { "connect_parts", { collected = g.summed_elements > g.trained_elements,
            statistics = config.sync_batchnorm } }
            or { "connect", { sharded = g.sharded.state, grouped = g.handlers ~= nil,
                statistics = config.sync_batchnorm } },
        { "small_sum", { split = clip.weights_first(g, config) } },
    })
    return text.block((list:gsub("\n+$", "")))
end

-- The functions of an update that sweeps over a file, and the calls of the boundary: `all`, or those up to the sweep
-- over what lies on the device.
local function sweep_of(g, context, all)
    if not g.state_file then return false, all end
    local parts, template = graphs.parts(g), context.template("program_cuda/state_file.c")
    local behind = graphs.has_after(g) and { #parts.after > 0 and step.lines(parts.after, cuda).text
        or "pack_views(q, m);", #parts.after > 0 and "pack_views(q, m);" or nil }
    return text.block((sections.render(template, {
        { "windows", { addresses = text.block(table.concat(ordered.collect(g.state_file.arrays, function(name)
            return "m->device_state_" .. name
        end), ", ")) } },
        { "sweep", { calls = step.lines(parts.swept, cuda) } },
        behind and { "after_sweep", { calls = block_of(behind) } },
    }):gsub("\n$", ""))), block_of { step.lines(parts.before, cuda).text, "sweep(q, m, false);" }
end

-- The host's part of an update: of chunks in host memory, or of a state that lies in a file.
local function host_part(g, context)
    if placed.is_used(g) then return text.block('#include "update.c" /* the host\'s part of an update */') end
    return g.state_file ~= nil and sections.block(context.template("program_cuda/state_file.c"), "host_update",
        { after = graphs.has_after(g) })
end

-- The function that makes all copies of weights.
local function pack_of(g) return text.ident(g.narrows and "pack_all" or "pack_views") end

-- How an evaluation gets the averages of the parameters.
local function averages(g, config, context)
    if not g.states:has "ema" then return false end
    local name, sharded = text.ident(config.name), g.sharded.state or false
    local gathers = sharded and not g.sharded.parameters
    if not g.state_file then
        return { "averages", { name = name, sharded = sharded, gathers = gathers, placed = placed.is_used(g),
            pack = pack_of(g) } }
    end
    return sections.block(context.template("program_cuda/state_file.c"), "averages", { name = name,
        average = ordered.find(g.state_names, "ema") - 1, gathers = gathers,
        index_of = text.block(g.sharded.parameters and "h.at" or "ga_layout_index(p, l, h.i)"),
        elements = text.block(g.sharded.parameters and "(size_t)m->division.own.elements" or "FLAT") })
end

local function step_text(g, config, context, header)
    local sharing = sharing_rows(context.kernels) or false
    local p, b, name = step.passes(g, config, context), step.boundary(g, config, context), text.ident(config.name)
    local micro, micro_graphs = graphs.micro_cases(g)
    local play, cycle_graphs = graphs.cycle_cases(g)
    local ranks, chunked, filed = config.mode.ranks or false, g.head ~= nil, g.state_file ~= nil
    local hosted = filed or placed.is_used(g)
    local twins, narrows, branches = #hopper.of(context.kernels) > 0, g.narrows or false, g.branches or false
    assert(not (twins and branches), "twins share memory for parts of their results (passes/branch.lua)")
    local packs, joins = not narrows or #g.views > 0, g.joins or false
    local sweep, calls = sweep_of(g, context, b.boundary_calls)
    return sections.render(context.template("program_cuda/step.c"), {
        { "head", { header = text.block(header("step.c",
            ("forward, backward, boundary: one update of \"%s\""):format(config.name))), sharing = sharing,
            twins = twins, statistics = config.sync_batchnorm, branches = branches, joins = joins } },
        (ranks or branches) and { "order", {} },
        branches and sections.block(context.template("program_cuda/branches.c"), "branch", { joins = joins }),
        { "includes", { statistics = config.sync_batchnorm } },
        b.ranges, b.cut, exchanges(g, config, context, b.buckets),
        { "views", { view_calls = b.view_calls, packs = packs, narrows = narrows } }, b.iterations,
        { "forward", { forward = p.forward, evaluation = p.evaluation, chunked = chunked,
            branches = g.forks or false } },
        { "backward", { backward = p.backward, chunked = chunked, begins = step.comment_begins(chunked) } },
        { "micro", { batch = p.batch } }, sweep,
        { "boundary", { boundary_calls = calls, filed = filed, packs = packs } },
        #graphs.sizes(g) > 0 and { "cycles", { functions = p.cycles } },
        { "graphs", { play_cases = play, micro_cases = micro } },
        host_part(g, context), { "transfers", { parallel = ranks, hosted = hosted } },
        { "starts", { cycle_graphs = cycle_graphs, micro_graphs = micro_graphs } },
        { "cycle", { name = name, hosted = hosted } }, { "micro_step", { name = name } },
        { "evaluations", { name = name, chunked = chunked, statistics = config.sync_batchnorm,
            branches = g.forks or false } },
        averages(g, config, context),
        { "memory", { name = name, by_epoch = config.schedule.fields.by == "epoch", uploads = transfers(g, true),
            downloads = transfers(g, false), parallel = ranks,
            split = ranks and clip.weights_first(g, config),
            lists = g.handlers and #config.rank_groups or 0, some = placed.has_some(g), pack = pack_of(g) } },
    }) .. "\n" .. sections.render(context.template("program_cuda/load.c"), {
        { "load", { name = name, sharing = sharing, twins = twins } },
    })
end

--- kernels.cu, launch.c and step.c, in a map of files.
function cuda_step.render(g, config, context, _, found, header, files)
    local kernels = context.kernels
    files:set("kernels.cu", kernels_text(g, config, context, kernels, found.updates, header))
    files:set("launch.c", launch_text(kernels, context, header))
    if placed.is_used(g) then files:set("update.c", host_update.render(g, config, context, header)) end
    files:set("step.c", step_text(g, config, context, header))
end

return cuda_step
