-- update: the boundary as a body of the graph, like forward and backward: from the gradient of a cycle to the
-- parameters of the next.
--
--   partials = gradient_partials(g)          sums over tiles of the gradient: its norm, elements that are not finite
--   step = decide(partials, sums)            one number each: skip or not, clip factor, rate
--   w, m, v = update(w, g, m, v, step)       for each run of the flat space with one rule; over layers in a loop
--
-- A rule that needs sums over each tensor has three steps, and all tensors take a step before the next begins:
-- update_sums, update_scales, update. One with factors of matrices has update_rows, update_columns and
-- update_factors before. Scope "matrix" goes over one matrix after another: update_start, orthogonalize, update.
--
-- Operands are ranges: tensors that lie in an array of the flat space from `offset` on, in iteration l of a loop
-- over layers `stride` further. Node.attrs.range is the run that a node goes over, a row of the program's table
-- (emit/boundary/ranges.lua): { offset, n, count, stride, group, covers, from, layers, numbers }; of the parameters in
-- `covers` the layers from `from` on, `layers` of them.
--
-- With ranks each measures its own part of the flat space, and the sums are added up; where the state is divided too,
-- each rank updates its own part, and all gather the parameters, unless these are divided too. A loop over the parts of
-- a run has `part`: "own", or "others", those of all other ranks, or "swept", own parts whose state lies together where
-- the last of it is in a file (state_file.lua).
local graph = require "graph.graph"
local matrices = require "passes.matrices"
local ordered = require "base.ordered"
local state_file = require "passes.state_file"
local update_names = require "passes.update_names"
local update_rule = require "passes.update_rule"

local update = { name = "update", doc = "the boundary: measure, decide, update" }

--- Elements of a tile, of which each has its own sums.
update.TILE = 4096

local function tiles_of(n) return (n + update.TILE - 1) // update.TILE end

-- === operands ====================================================================================

-- n elements at `offset` of an array, { kind, name } as targets spell it; `count` times, `stride` apart.
local function range(context, array, arena, dtype, n, offset, stride)
    return { name = array[2], kind = "range", array = array, shape = { n }, dtype = dtype, at = context.at,
        scope = context.region, place = { arena = arena, offset = offset,
        stride = context.region and (context.region.count > 1 and stride or n) or 0,
        slots = context.region and context.region.count or 1 } }
end

local ARENA = { w = "parameters", g = "gradients" }

-- The elements of a run in the flat array `name`: "w", "g" or a state, which may have an array of its own.
local function elements(g, context, s, name, is_state)
    local state = is_state and g.states:get(name)
    if state and not state.dense then
        local kept = s.param.kept[name]
        return range(context, { "state", name }, "state_" .. name, g.real, kept.n,
            kept.offset + s.from * kept.stride, kept.stride)
    end
    return range(context, { is_state and "state" or "flat", name }, is_state and "state_" .. name or ARENA[name],
        name == "g" and g.half_sums and "bf16" or g.real, s.n, s.offset, s.stride)
end

-- n doubles in the arena "partials", for each iteration.
local function doubles(g, context, n)
    local count, offset = context.region and context.region.count or 1, g.partials
    g.partials = offset + n * count
    return range(context, { "partials", "partials" }, "partials", "f64", n, offset, n)
end

-- A value of the boundary, in the memory of activations.
local function value(g, context, name, shape)
    return graph.tensor(g, { name = name, shape = shape, dtype = g.real, kind = "value", at = context.at,
        scope = context.region })
end

-- === nodes =======================================================================================

-- Appends a node; ins, outs: lists of { name, tensor }. fence: all workers wait behind it.
local function add(context, op, ins, outs, attrs, fence)
    local node = { op = op, ins = {}, outs = {}, attrs = attrs or {}, at = context.at, scope = context.region,
        path = "", size = {}, signature = { ins = {}, outs = {} }, fence = fence }
    for _, pair in ipairs(ins) do
        node.ins[pair[1]] = pair[2]
        table.insert(node.signature.ins, pair[1])
    end
    for _, pair in ipairs(outs) do
        node.outs[pair[1]] = { tensor = pair[2] }
        if pair[2].kind == "value" then pair[2].def = pair[2].def or node end
        table.insert(node.signature.outs, pair[1])
    end
    context.body[#context.body + 1] = node
    return node
end

-- The context of a run over `count` layers: a loop where there are several, or parts of a run.
local function over_layers(g, config, s, part)
    if s.count == 1 and not part then return { at = config.optimizer.at, body = g.boundary } end
    local of = s.param and s.param.region
    local region = { op = "times", name = of and of.name or "parts", count = s.count, first = 0, step = 1, body = {},
        carries = {}, at = config.optimizer.at, range = s.n and s, part = part }
    g.boundary[#g.boundary + 1] = region
    return { at = region.at, body = region.body, region = region }
end

--- Parts of a run, at most: a rank has one of each bucket in each layer, and two have what is left of the bucket.
function update.parts(g, s, part)
    local count = 0
    for l = 0, s.count - 1 do
        local first = s.offset + l * s.stride
        for _, bucket in ipairs(g.buckets) do
            if bucket.offset < first + s.n and first < bucket.offset + bucket.n then count = count + 1 end
        end
    end
    return part == "others" and 2 * count or count
end

-- === the gradient is measured ====================================================================

-- Whether the spec changes the mean gradient before it is measured: then it is written back.
local function rewrites(config) return (config.clip and config.clip.value or config.gradient) ~= nil end

-- Whether the weights of the cycle are summed up before the gradient is measured: it is changed, or parameters have
-- means over several groups of ranks.
local function weights_first(g, config) return rewrites(config) or g.handlers ~= nil end

-- The index of the handler of a run, which decides the share of its gradient; nil: there are none.
local function handler_of(s) return s.covers[1].handler and s.covers[1].handler - 1 end

-- The runs that are measured together, { group, ... }: all, or those of each parameter group.
local function measured(g, config)
    local per_group = config.clip and config.clip.per_group
    if not per_group and g.handlers then
        return { ordered.collect(g.segments, function(s)
            return ordered.copy(s, { group = g.groups:get(s.group), numbers = { handler = handler_of(s) } })
        end) }
    elseif not per_group then
        return { { { offset = 0, n = g.trained_elements, count = 1, stride = 0, numbers = {} } } }
    end
    local list = {}
    for position = 0, g.norm_groups - 1 do
        list[position + 1] = ordered.collect(g.segments, function(s)
            return g.groups:get(s.group).position == position
                and ordered.copy(s, { group = g.groups:get(s.group), numbers = { handler = handler_of(s) } }) or nil
        end)
    end
    return list
end

-- Appends the node that measures a run, or parts of it; returns its tensor of sums.
local function measure_run(g, config, s, step, part)
    local context = over_layers(g, config, s, part)
    local tiles = tiles_of(s.n)
    if part then tiles = tiles + (update.parts(g, s, part) + s.count - 1) // s.count end
    local gradient, out = elements(g, context, s, "g"), doubles(g, context, 2 * tiles)
    local ins, outs = { { "g", gradient } }, { { "partials", out } }
    if weights_first(g, config) then ins[2] = { "step", step } end
    if rewrites(config) then outs[2] = { "g", gradient } end
    if config.gradient and update_rule.uses({}, { config.gradient.e }).w then
        ins[3] = { "w", elements(g, context, s, "w") }
    end
    add(context, "gradient_partials", ins, outs, { range = s })
    g.norm.tiles = g.norm.tiles + tiles * s.count
    return out
end

-- g.norm = { tiles, groups = the runs of each, ends = the first tile behind those of each group }. Other ranges are
-- measured only where that writes a gradient that all ranks have.
local function measure(g, config, step)
    local partials, ranks = {}, config.mode.ranks
    g.norm = { tiles = 0, ends = {}, groups = measured(g, config) }
    for _, group in ipairs(g.norm.groups) do
        for _, s in ipairs(group) do
            partials[#partials + 1] = measure_run(g, config, s, step, ranks and "own" or nil)
        end
        table.insert(g.norm.ends, g.norm.tiles)
    end
    g.norm.others = ranks and rewrites(config) and not g.sharded.state
    for _, group in ipairs(g.norm.others and g.norm.groups or {}) do
        for _, s in ipairs(group) do measure_run(g, config, s, step, "others") end
    end
    return partials
end

-- Everything before the update: the sums of the ranks, the norm, the decision.
local function decide(g, config, step)
    local context = { at = config.optimizer.at, body = g.boundary }
    local function fenced(op, partials)
        local ins = { { "sums", g.sums } }
        for i, out in ipairs(partials or {}) do ins[i + 1] = { "partials" .. i, out } end
        add(context, op, ins, { { "step", step } }, nil, true)
    end
    if config.mode.ranks then add(context, "buckets_finish", {}, {}, nil, true) end
    add(context, "handler", {}, {}, nil, true)
    if weights_first(g, config) then
        if config.mode.ranks then fenced "small_sum" end
        fenced "sum_up"
    end
    local partials = measure(g, config, step)
    if config.mode.ranks then fenced(weights_first(g, config) and "norm_sum" or "small_sum", partials) end
    fenced("decide", not config.mode.ranks and partials or nil)
end

-- === the update ==================================================================================

-- The runs: segments of rules over elements first, then the tensors of all others.
local function runs_of(g)
    local list = {}
    for _, s in ipairs(g.segments) do
        if g.groups:get(s.group).rule.scope == "element" then
            list[#list + 1] = ordered.copy(s, { group = g.groups:get(s.group) })
        end
    end
    for _, param in ipairs(g.params) do
        for _, run in ipairs(param.used and param.groups or {}) do
            local group, f = g.groups:get(run.index), param.flat
            if group.rule.scope ~= "element" then
                list[#list + 1] = { group = group, param = param, offset = f.offset + run.from * f.stride, n = f.n,
                    count = run.count, stride = f.stride, layer = param.layer and param.layer + run.from,
                    covers = { param }, from = run.from, layers = run.count }
            end
        end
    end
    return list
end

-- Numbers of a range that kernels read, beside the places of its arrays.
local function numbers_of(s)
    local numbers = { layer = s.layer, handler = handler_of(s) }
    if s.group.rule.scope == "matrix" then
        numbers.adjust = s.group.rule.adjust(s.group.fields, matrices.whole(s.param.shape))
    end
    if s.group.rule.factors then
        numbers.rows, numbers.columns, numbers.matrices = matrices.last_two(s.param.shape)
        numbers.tall = math.max(1, update.TILE // numbers.columns)
    end
    return numbers
end

-- How many tiles the sums of a tensor have.
local function sums_of(s, numbers)
    if not s.group.rule.factors then return tiles_of(s.n) end
    return (numbers.rows * numbers.matrices + numbers.tall - 1) // numbers.tall
end

-- The context of an update of a run: all of it, the rank's own parts, or the parts that its state is read in.
local function updated(g, config, s)
    return over_layers(g, config, s, g.state_file and "swept" or g.sharded.state and "own" or nil)
end

-- The context of the sums over the tensors of a run, which read no state that lies in a file.
local function summed(g, config, s) return over_layers(g, config, s, g.sharded.state and "own" or nil) end

-- Appends the node that does `part` ("", "_sums", ...) of the rule to run s; more_ins, more_outs: operands beside w,
-- g, states and the step, which statements and expressions name.
local function add_part(g, context, s, part, statements, expressions, step, more)
    local reads, writes = update_rule.uses(statements, expressions)
    local ins, outs = { { "step", step } }, {}
    local function operand(key, name, is_state)
        if not reads[name] and not writes[name] then return end
        local t = elements(g, context, s, name, is_state)
        ins[#ins + 1] = { key, t }
        if writes[name] then outs[#outs + 1] = { key, t } end
    end
    operand("w", "w")
    operand("g", "g")
    for _, name in ipairs(g.state_names) do
        if s.param.state[name] then operand("state." .. name, name, true) end
    end
    table.move(more.ins or {}, 1, #(more.ins or {}), #ins + 1, ins)
    table.move(more.outs or {}, 1, #(more.outs or {}), #outs + 1, outs)
    return add(context, "update" .. part, ins, outs,
        { group = s.group, part = part, range = s })
end

-- The kernels of a rule with factors that come first: of rows and columns, then of both.
local function add_factors(g, config, list, step)
    local function kept(context, s, name) return { "state." .. name, elements(g, context, s, name, true) } end
    for _, s in ipairs(list) do
        if s.rule.factors then
            local context, rows = updated(g, config, s), s.numbers.rows
            local chunks = (rows + matrices.CHUNK - 1) // matrices.CHUNK
            s.chunks = value(g, context, "column_sums_" .. s.param.value.name,
                { s.numbers.matrices * chunks, s.numbers.columns })
            local row_var = kept(context, s, "row_var")
            add_part(g, context, s, "_rows", {}, { s.rule.factors.term }, step,
                { ins = { row_var }, outs = { row_var } })
            context = updated(g, config, s)
            add_part(g, context, s, "_columns", {}, { s.rule.factors.term }, step,
                { outs = { { "chunks", s.chunks } } })
        end
    end
    for _, s in ipairs(list) do
        if s.rule.factors then
            local context = updated(g, config, s)
            s.row_factor = value(g, context, "row_factor_" .. s.param.value.name,
                { s.numbers.matrices, s.numbers.rows })
            local col_var = kept(context, s, "col_var")
            add_part(g, context, s, "_factors", {}, {}, step, { ins = { kept(context, s, "row_var"), col_var,
                { "chunks", s.chunks } }, outs = { col_var, { "row", s.row_factor } } })
        end
    end
end

-- The operands of an element's row and column.
local function of_matrix(g, context, s)
    if not s.rule.factors then return {} end
    return { { "row", s.row_factor }, { "state.col_var", elements(g, context, s, "col_var", true) } }
end

-- Sums over each tensor and the numbers that follow from them.
local function add_sums(g, config, list, step)
    for _, s in ipairs(list) do
        local before = s.rule.before
        if before then
            local context = summed(g, config, s)
            s.numbers.tiles = sums_of(s, s.numbers)
            s.sums = doubles(g, context, s.numbers.tiles * #before.sums)
            add_part(g, context, s, "_sums", before.statements,
                ordered.collect(before.sums, function(sum) return sum[2] end), step,
                { ins = of_matrix(g, context, s), outs = { { "sums", s.sums } } })
        end
    end
    for _, s in ipairs(list) do
        if s.rule.before then
            local context = summed(g, config, s)
            s.scales = doubles(g, context, #s.rule.before.scales)
            add_part(g, context, s, "_scales", {}, {}, step,
                { ins = { { "sums", s.sums } }, outs = { { "scales", s.scales } } })
        end
    end
end

-- An operand that a function is called with.
local function argument(g, name, shape, arena)
    return { name = name, kind = "argument", shape = shape, dtype = g.real,
        place = { arena = arena or name, offset = 0, slots = 1 } }
end

-- The function of an iteration for matrices of this shape, in g.iterations: { name, steps, body, x, y, gram, square }.
--   gram = x x', square = gram gram, square = a I + b gram + c square, y = square x; then x and y change places
-- A matrix with more rows than columns is multiplied from the other side: gram = x' x, y = x square.
local function iteration_of(g, config, group, rows, columns)
    local name = ("orthogonalize_%s_%dx%d"):format(group.word, rows, columns)
    for _, known in ipairs(g.iterations) do
        if known.name == name then return known end
    end
    local side, wide = math.min(rows, columns), rows <= columns
    local f = { name = name, steps = group.fields.ns_steps, group = group, rows = rows, columns = columns,
        x = argument(g, "x", { rows, columns }, "xy"), y = argument(g, "y", { rows, columns }, "xy"),
        gram = argument(g, "gram", { side, side }), square = argument(g, "square", { side, side }) }
    local region = { op = "times", name = "steps", count = f.steps, first = 0, step = 1, body = {}, carries = {},
        at = config.optimizer.at }
    local context = { at = region.at, body = region.body, region = region }
    local function product(called, op, left, right, out, size)
        local names = config.ops[op].signature.ins
        local node = add(context, op, { { names[1], left }, { names[2], right } }, { { "y", out } })
        node.signature, node.size, node.kernel_name = config.ops[op].signature, size, called
    end
    local shape = ("%dx%d"):format(rows, columns)
    product("gram_" .. shape, wide and "linear" or "linear_dw", f.x, f.x, f.gram,
        { lead = { rows }, N = side, K = columns })
    product("square_" .. side, "linear_in_out", f.gram, f.gram, f.square, { lead = { side }, N = side, K = side })
    add(context, "polynomial", { { "square", f.square }, { "gram", f.gram } }, { { "square", f.square } },
        { group = group, side = side })
    if wide then
        product("apply_" .. shape, "linear_in_out", f.square, f.x, f.y, { lead = { side }, N = columns, K = side })
    else
        product("apply_" .. shape, "linear_in_out", f.x, f.square, f.y, { lead = { rows }, N = side, K = side })
    end
    f.region = region
    table.insert(g.iterations, f)
    return f
end

-- One matrix after another: start, the iteration, the update.
local function add_matrix(g, config, s, step)
    local context = updated(g, config, s)
    local name, rows, columns = s.param.value.name, matrices.whole(s.param.shape)
    local side, scales = math.min(rows, columns), { "scales", s.scales }
    local x, y = value(g, context, "x_" .. name, { rows, columns }), value(g, context, "y_" .. name, { rows, columns })
    local gram = value(g, context, "gram_" .. name, { side, side })
    local square = value(g, context, "square_" .. name, { side, side })
    add_part(g, context, s, "_start", s.rule.start, {}, step, { ins = { scales }, outs = { { "started", x } } })
    add(context, "orthogonalize", { { "x", x } }, { { "x", x }, { "y", y }, { "gram", gram }, { "square", square } },
        { iteration = iteration_of(g, config, s.group, rows, columns) })
    local result = s.group.fields.ns_steps % 2 == 1 and y or x
    add_part(g, context, s, "", s.rule.statements, {}, step, { ins = { { "x", result } } })
end

local function sweep(g, config, s, step)
    local context = updated(g, config, s)
    local more = of_matrix(g, context, s)
    if s.scales then more[#more + 1] = { "scales", s.scales } end
    local copies = g.narrows and range(context, { "views", "narrow_w" }, "views", g.half, s.n, s.offset, s.stride)
    add_part(g, context, s, "", s.rule.statements, {}, step, { ins = more,
        outs = copies and { { "narrow_w", copies } } })
end

-- Running statistics that follow those of a whole cycle.
local function move_statistics(g, config, step)
    graph.walk(g.forward, function(node)
        if node.op ~= "batchnorm_collect" and node.op ~= "batchnorm_add" then return end
        local mean = node.outs.running_mean.tensor.param
        local context = over_layers(g, config, { count = mean.count, param = mean })
        local ins, outs = { { "step", step } }, {}
        for _, name in ipairs { "running_mean", "running_var", "batches" } do
            local param = node.outs[name].tensor.param
            outs[#outs + 1] = { name, param.value }
            ins[#ins + 1], ins[#ins + 2] = { name, param.value }, { "cycle_" .. name, param.collected }
        end
        add(context, "batchnorm_move", ins, outs,
            { channels = node.size.C, values = node.attrs.n, momentum = node.attrs.momentum })
    end)
end

-- All ranks get the parameters that each has updated.
local function gather(g, config)
    local context, all = { at = config.optimizer.at, body = g.boundary }, { offset = 0, n = g.trained_elements }
    local w = elements(g, context, all, "w")
    add(context, "parameters_gather", { { "w", w } }, { { "w", w } }, nil, true)
end

--- Sets g.boundary; g.iterations, the functions that its nodes call; g.norm; g.partials, how many doubles they need;
--- g.state_file.
function update.run(g, config)
    g.boundary, g.iterations, g.partials = {}, {}, 0
    g.state_file = state_file.of(g, config)
    update_names.set(g, config)
    local step = { name = "step", kind = "scalar", shape = { 1 }, dtype = "f64",
        place = { arena = "step", offset = 0, slots = 1 } }
    decide(g, config, step)
    local list = runs_of(g)
    for _, s in ipairs(list) do
        s.rule = update_rule.of(g, config, s.group)
        s.numbers = numbers_of(s)
    end
    add_factors(g, config, list, step)
    add_sums(g, config, list, step)
    for _, s in ipairs(list) do
        if s.group.rule.scope == "matrix" then add_matrix(g, config, s, step) end
    end
    for _, s in ipairs(list) do
        if s.group.rule.scope ~= "matrix" then sweep(g, config, s, step) end
    end
    if g.state_file then
        add({ at = config.optimizer.at, body = g.boundary }, "state_finish", {}, {}, nil, true)
    end
    move_statistics(g, config, step)
    if g.sharded.state and not g.sharded.parameters then gather(g, config) end
end

return update
