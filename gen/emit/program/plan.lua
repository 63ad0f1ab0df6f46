-- plan: every byte, kernel and collective of the program, before it runs. The emitted program
-- takes its sizes from here, so what `gagen plan` prints is what it allocates.
local accumulation = require "spec.accumulation"
local batch = require "emit.program.batch"
local boundary = require "emit.boundary.boundary"
local columns = require "base.columns"
local division = require "emit.boundary.division"
local film = require "emit.program.film"
local graph = require "graph.graph"
local kind = require "emit.program.kind"
local layers = require "emit.program.layers"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local placement = require "emit.program.placement"
local profile = require "emit.program.profile"
local sent = require "emit.boundary.sent"
local state_file = require "emit.boundary.state_file"
local statistics = require "emit.program.statistics"
local targets = require "emit.targets.targets"
local text = require "base.text"
local threads = require "emit.program.threads"

local plan = {}

local PAGE = 4096

-- Bytes that the loader keeps of a micro-batch beside its rows.
local SLOT = 64

local function pages(bytes) return (bytes + PAGE - 1) // PAGE * PAGE end

-- Bytes of the runtime's own objects: team, communicator, log and checkpoint tables.
local RUNTIME = 512 * 1024

local function runtime_bytes(g)
    local names = 0
    for _, param in ipairs(g.params) do names = names + param.count end
    return RUNTIME + names * (1 + #g.state_names + (g.residues and 1 or 0)) * 512
end

--- The arenas of the program: { name, bytes, what, memory = "host" | "pinned" | "device" }; sharded: its bytes depend
--- on the ranks. filed: { held, windows } of states whose last elements lie in a file (state_file.arena).
function plan.arenas(g, config)
    local data, target = config.data, targets.of(config)
    local list = {}
    local function add(name, bytes, what, memory, sharded, by_rank, filed)
        local element = g.real == "f64" and 8 or 4
        if by_rank then bytes = bytes * config.ranks end
        if sharded then
            what = ("%s: a rank's part"):format(what)
            local n = division.most_elements(g, sharded, config.ranks, memory == "device")
            bytes = n > 0 and pages(n * element + 1) or 0
        end
        if filed then what, bytes = state_file.arena(g, config, what, element, filed) end
        list[#list + 1] = { name = name, bytes = pages(bytes), what = what, memory = memory or "host",
            sharded = (sharded or by_rank or filed) and true }
    end
    target.arenas(g, config, add)
    local rows = 0
    for _, source in ipairs(data.sources) do rows = rows + source.bytes end
    add("data", rows, data.stream and "the rows of evaluation; buffers of the stream" or "the rows of the data files")
    add("loader", 4096 + 2 * config.largest * SLOT + (2 * config.largest + 1) * batch.layout(g).bytes,
        "read-ahead: two cycles of batches",
        target.loader_memory)
    add("runtime", runtime_bytes(g), "threads, log, checkpoint tables")
    return list
end

--- Bytes of these arenas in the memory of a device.
function plan.device_bytes(arenas)
    local sum = 0
    for _, arena in ipairs(arenas) do sum = sum + (arena.memory == "device" and arena.bytes or 0) end
    return sum
end

local function calls_of(g)
    local calls = {}
    local function count(body, times, section)
        for _, node in ipairs(body) do
            if node.op == "times" then
                count(node.body, times * node.count, section)
            else
                calls[node.kernel] = times
            end
        end
    end
    count(g.forward, g.accumulate, "forward")
    count(g.backward, g.accumulate, "backward")
    count(g.views, 1, "views")
    count(g.evaluation, 0, "evaluation")
    return calls
end

-- Microseconds of one call on one core or on the device: the slower of arithmetic and memory. matrix: whether it is a
-- product on the matrix registers, or the name of a rate of its own; squares: the form of a convolution's squares, of
-- which each takes n^2 multiplications in place of those of 9 taps for each result, a quarter of them for the gradient
-- of the input of a stride.
local function predicted(config, device, flops, bytes, matrix, squares)
    local rates = device or profile.get(config.profile)
    local rate = rates[matrix] or matrix and rates.matrix_flops or rates.flops
    if squares then rate = rates.flops * 9 * (squares.side / squares.place / squares.n) ^ 2 end
    return math.max(flops / rate, bytes / rates.bytes) * 1e6
end

-- The cycles of an epoch. tail_rows: rows behind the last full cycle, over all ranks.
local function cycle_facts(config)
    local of_step = config.batch * config.ranks
    local rows = config.data.train_rows
    local used = (accumulation.batches(config, config.ranks) - config.left_over) * of_step
    return { accumulate = config.accumulate, later = #config.table > 1 and
            table.move(config.table, 2, #config.table, 1, {}) or nil,
        rows = config.batch, global_rows = of_step * config.accumulate,
        updates_per_epoch = config.cycles_per_epoch, tail = config.tail,
        tail_rows = math.max(rows - used, 0), stream = config.data.stream or nil }
end

-- Appends a parameter to the list, a row for each run of layers with one group; those that are not trained have none.
local function add_parameter(g, param, list)
    for _, run in ipairs(param.groups or { { from = 0, count = param.count } }) do
        list[#list + 1] = { name = param.name, shape = param.shape,
            group = run.index and g.groups:get(run.index).of or -1, layout = "plain",
            offset = param.flat.offset + run.from * param.flat.stride, stride = param.flat.stride,
            first = param.first + run.from, count = run.count, trainable = param.used }
    end
end

-- How often a micro-step gathers each bucket: in its forward and in its backward pass.
local function gathers_of(g)
    local times = {}
    for _, name in ipairs { "forward", "backward" } do
        for _, bucket in ipairs(g.chunks.orders[name]) do times[bucket] = (times[bucket] or 0) + 1 end
    end
    return times
end

-- The exchanges of an update, each with its calls, and the bytes of the large ones.
local function collectives_of(g, config, size)
    local list, sum = {}, 0
    local function add(kind, role, dtype, bytes, times)
        local calls = (role == "every" and g.accumulate or 1) * (times or 1)
        list[#list + 1] = { kind = kind, role = role, dtype = dtype, bytes = bytes, calls = calls }
        if kind ~= "small" then sum = sum + calls * bytes end
    end
    for _, x in ipairs(statistics.list(g, config.ops)) do add("statistics", "every", "f64", x.bytes, x.calls) end
    for _, x in ipairs(g.collectives) do
        if not (x.group and x.group.alone) then         -- where each rank is alone, nothing is reduced
            add(x.kind, g.accumulate == 1 and "only" or x.role, x.wire, x.n * (x.wire == g.real and size or 2))
        end
    end
    for _, n in ipairs(g.ranks and division.small_sums(g, config) or {}) do add("small", "boundary", "f64", 8 * n) end
    local gathers = g.chunks and gathers_of(g)
    for _, x in ipairs(g.collectives) do
        if x.kind == "reduce_scatter" and not gathers then
            add("all_gather", "boundary", g.real, x.n * size)
        elseif gathers and gathers[x.bucket] then
            local bucket = g.buckets[x.bucket]
            add("all_gather", g.accumulate == 1 and "only" or "every", bucket.half and g.half or g.real,
                sent.bytes(g, bucket), gathers[x.bucket])
        end
    end
    return list, sum
end

--- All facts of a lowered graph. `kernel_list` is what emit.step made.
function plan.facts(g, config, kernel_list)
    local target = targets.of(config)
    local size = g.real == "f64" and 8 or 4
    local facts = { format = 1, name = config.name, target = config.target,
        profile = config.profile, precision = g.half or g.real, ranks = config.ranks,
        threads = config.threads, parameters = {}, layers = layers.facts(g), arenas = plan.arenas(g, config),
        tensors = {}, kernels = {}, collectives = {}, outside = {
            "thread stacks", "the C library, zlib and jansson while files are opened",
        } }
    local parameters, trained, total = 0, 0, 0
    for _, arena in ipairs(facts.arenas) do total = total + arena.bytes end
    for _, param in ipairs(g.params) do
        local n = graph.elements(param.shape) * param.count
        parameters, trained = parameters + (param.buffer and 0 or n), trained + (param.used and n or 0)
        add_parameter(g, param, facts.parameters)
    end
    for _, t in ipairs(g.tensors) do
        if t.place and t.place.arena == "activations" then
            facts.tensors[#facts.tensors + 1] = { name = t.name, arena = "activations", dtype = t.dtype,
                offset = t.place.offset * size, bytes = graph.room(t) * graph.bytes(t),
                stride = (t.place.stride or 0) * size, slots = t.place.slots,
                from = t.place.from or 0, to = t.place.to or 0 }
        end
    end
    local device = target.rates and target.rates(g.real)
    facts.device = device and { like = device.like, call_us = device.call_us }
    local calls, flops = calls_of(g), 0
    for _, kernel in ipairs(kernel_list) do
        local n = calls[kernel]
        flops = flops + kernel.flops * n
        facts.kernels[#facts.kernels + 1] = { name = kernel.name, fn = kernel.fn.name, at = kernel.node.at,
            kernel = kernel.fn.kernel and kernel.fn.kernel.name,
            kind = kind.of(kernel), role = kernel.section, calls = n, flops = kernel.flops, bytes = kernel.bytes,
            predicted_us = predicted(config, device, kernel.flops, kernel.bytes, kernel.matrix, kernel.squares),
            shared_bytes = kernel.launch and kernel.launch.shared, why = kernel.node.why or kernel.node.op }
    end
    for _, work in ipairs(boundary.work(g)) do
        facts.kernels[#facts.kernels + 1] = { name = work.name, fn = work.name, at = work.at, role = "boundary",
            kind = kind.of_boundary(work.name), calls = 1,
            flops = work.flops, bytes = work.bytes, why = config.optimizer.rule.name,
            predicted_us = predicted(config, device, work.flops, work.bytes) }
        flops = flops + work.flops
    end
    local bytes
    facts.film, facts.warnings = film.of(g, size), setmetatable(config.warnings, { array = true })
    facts.collectives, bytes = collectives_of(g, config, size)
    if g.ranks then
        facts.outside[#facts.outside + 1] = target.ranks_library
        facts.division = division.balance(g, config.ranks)
    end
    facts.cycle, facts.state_file = cycle_facts(config), state_file.facts(g, config, target)
    facts.placement = placement.facts(g, config, facts.arenas, device)
    facts.graph = target.graph_facts and target.graph_facts(g)
    facts.busy = target.threads and threads.busy(facts.kernels, config.accumulate)
        or placed.is_used(g) and threads.of_host(placed.updated(g) // config.ranks) or nil
    facts.update = { form = "boundary", why = "the gradient norm of the whole update is taken first" }
    facts.totals = { parameters = parameters, trained = trained, bytes = total, flops_per_cycle = flops,
        comm_bytes_per_cycle = bytes }
    return facts
end

--- Decisions of passes as text: about what, the choice, the reason. width: of the terminal, or nil.
function plan.decisions(g, width)
    local rows = ordered.collect(g.decisions, function(d) return { d.what, d.choice, d.why } end)
    local lines = columns.aligned(rows, { columns = { { name = true }, { name = true }, { prose = true } }, indent = 2,
        width = width })
    return table.concat({ "decisions", table.unpack(lines) }, "\n") .. "\n"
end

local commas = text.commas

local TAIL = { drop = "dropped", flush = "make a shorter one", carry = "carried into the next" }

-- The lines about what goes over the ranks in an update.
local function network_lines(facts, line)
    local all, every = 0, 0
    for _, x in ipairs(facts.collectives) do
        all, every = all + x.calls, every + (x.role == "every" and x.calls // facts.cycle.accumulate or 0)
    end
    line("%-12s%d collectives per update, %s bytes in buckets; %s", "network", all,
        commas(facts.totals.comm_bytes_per_cycle),
        every > 0 and ("each micro-step has %d"):format(every) or "none in other micro-steps")
    for _, x in ipairs(facts.collectives) do
        line("  %-14s in %-10s %s, %s bytes%s", x.kind, x.role, x.dtype, commas(x.bytes),
            x.calls > 1 and (", %d times"):format(x.calls) or "")
    end
    local d = facts.division
    if d.ranks > 1 then
        line("  %d ranks: the fullest has %s of %s trained elements, %.2f times the mean", d.ranks, commas(d.most),
            commas(math.tointeger(d.mean * d.ranks)), d.most / d.mean)
    end
end

-- One sentence about the graphs of a cycle.
local function graph_text(f)
    local after = f.after_sweep and (", and one of %d behind the sweep over the file"):format(f.after_sweep) or ""
    if f.of == "cycle" then return ("a cycle is one graph of %s nodes%s"):format(commas(f.nodes), after) end
    return ("a cycle has %s nodes: each micro-step is a graph of at most %s, launched behind the one before%s"):format(
        commas(f.nodes_per_cycle), commas(f.nodes), after)
end

local ARENAS = { { least = 12 }, { least = 14, right = true }, { prose = true } }

local KERNELS = { { name = true, least = 18 }, { least = 10 }, { least = 8, right = true },
    { least = 12, right = true }, { least = 10, right = true }, { least = 8, right = true },
    { name = true, least = 18 }, { name = true } }

-- times: microseconds of a call of each.
local function kernel_rows(kernels, times)
    local rows = { { "call", "section", "calls", "FLOP", "bytes", "us", "function", "from" } }
    for i, k in ipairs(kernels) do
        rows[i + 1] = { k.name, k.role, tostring(k.calls), commas(k.flops), text.bytes(k.bytes),
            ("%.3g"):format(times[i]), k.fn, k.at }
    end
    return rows
end

-- Milliseconds that the kernels of an update take.
local function update_ms(kernels, times)
    local sum = 0
    for i, k in ipairs(kernels) do sum = sum + k.calls * times[i] end
    return sum / 1e3
end

--- The plan as text for people. prediction: that of calibration.times. width: of the terminal that shows it, which may
--- shorten names and break lines; nil: all is whole.
function plan.text(facts, prediction, width)
    local out = {}
    local function add_table(rows, kinds)
        local lines = columns.aligned(rows, { columns = kinds, indent = 2, width = width })
        table.move(lines, 1, #lines, #out + 1, out)
    end
    local function line(...) out[#out + 1] = string.format(...) end
    local parameters, trained = facts.totals.parameters, facts.totals.trained
    line("%-10s  %s parameters%s   target %s, %s, profile %s", facts.name, commas(parameters),
        trained < parameters and (", %s trained"):format(commas(trained)) or "", facts.target, facts.precision,
        facts.profile)
    local cycle = facts.cycle
    line("%-12s%d micro-step%s of %d rows x %d rank%s; %d updates per epoch, %d rows of its tail %s%s",
        "update", cycle.accumulate, cycle.accumulate > 1 and "s" or "", cycle.rows, facts.ranks,
        facts.ranks > 1 and "s" or "", cycle.updates_per_epoch, cycle.tail_rows, TAIL[cycle.tail],
        cycle.stream and ", as the stream is now" or "")
    for _, entry in ipairs(cycle.later or {}) do
        line("%-12s%d micro-steps from cycle %d on", "", entry.a, entry.from)
    end
    if facts.graph then line("%-12s%s", "graph", graph_text(facts.graph)) end
    line("%-12sresults of a micro-step, FLOP of an update", "model")
    for _, row in ipairs(layers.lines(facts.layers, width)) do line("%s", row) end
    line("%-12s%s bytes, all allocated at start, nothing afterwards", "memory",
        commas(facts.totals.bytes))
    add_table(ordered.collect(facts.arenas, function(a) return { a.name, commas(a.bytes), a.what } end), ARENAS)
    for i, text_of in ipairs(facts.state_file and state_file.lines(facts.state_file) or {}) do
        line("%-12s%s", i == 1 and "file" or "", text_of)
    end
    if facts.placement then
        line("%-12s%s", "placement", placement.line(facts.placement))
        if facts.placement.chunks then add_table(placement.rows(facts.placement)) end
        if facts.placement.moved then line("  %s", placement.link(facts.placement)) end
    end
    if facts.predict then
        line("%-12s%s bytes of weights and %s of values predict a row: make predict", "alone",
            commas(facts.predict.weight_bytes), commas(facts.predict.value_bytes))
    end
    line("%-12s%s FLOP per update", "work", commas(facts.totals.flops_per_cycle))
    if facts.busy then line("%-12s%s", "threads", threads.text(facts.threads, facts.busy)) end
    line("%-12s%.3g ms of an update predicted%s: %s", "time", update_ms(facts.kernels, prediction.us),
        prediction.threads and (" with %d thread%s"):format(prediction.threads, prediction.threads > 1 and "s" or "")
        or "", prediction.source)
    add_table(kernel_rows(facts.kernels, prediction.us), KERNELS)
    if #facts.collectives == 0 then
        line("%-12snone", "network")
    else
        network_lines(facts, line)
    end
    line("%-12s%s: %s", "boundary", facts.update.form, facts.update.why)
    line("%-12s%s", "outside", table.concat(facts.outside, "; "))
    return columns.wrapped(table.concat(out, "\n") .. "\n", width)
end

return plan
