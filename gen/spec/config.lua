-- config: turns the recorded words into one checked configuration: fills in every default and derives every
-- number that depends on others (updates per epoch, total length).
local accumulation = require "spec.accumulation"
local check = require "base.check"
local checkpoint = require "spec.checkpoint"
local data = require "spec.data"
local diag = require "base.diag"
local expr = require "base.expr"
local groups = require "spec.groups"
local handlers = require "spec.handlers"
local metrics = require "spec.metrics"
local nvme = require "spec.nvme"
local ordered = require "base.ordered"
local placement = require "spec.placement"
local program_name = require "spec.program_name"
local scaler = require "spec.scaler"
local schedule = require "spec.schedule"
local sums = require "spec.sums"
local traced = require "spec.traced"
local warnings = require "spec.warnings"
local words = require "spec.words"

local config = {}

-- The config words by name, as { at, args, traced = defined by a function, event = number }; refuses a word that is
-- given twice.
local function collect(path, events)
    local given = ordered.map()
    for i, event in ipairs(events) do
        local name = event.event == "word" and event.name
        if event.event == "model" or event.event == "model_begin" then name = "model" end
        if event.event == "loss_begin" then name = "loss" end
        if event.event == "schedule_begin" then name = "schedule" end
        if event.event == "gradient_begin" then name = "gradient" end
        if name then
            local at = event.at or path .. ":" .. event.line
            if given:has(name) then
                diag.fail(at, ("%s: given twice, expected once"):format(name),
                    { notes = { { at = given:get(name).at, message = "the first one is here" } } })
            end
            given:set(name, { at = at, args = event.args or {}, traced = event.event ~= "word", event = i })
        end
    end
    return given
end

local function require_words(given, path)
    for _, name in ipairs { "data", "batch", "model", "loss", "optimizer", "train" } do
        if not given:has(name) then
            diag.fail(path, ("%s: the word is missing"):format(name),
                { notes = { "a spec needs data, batch, model, loss, optimizer and train" } })
        end
    end
end

local context = check.context

-- The checked fields of a word, defaults if it is not given, and its place.
local function simple(given, path, name)
    local word, entry = words.find(name), given:get(name)
    local at = entry and entry.at or path
    local where = ordered.copy(context(name, at), { foreign = word.foreign })
    return check.fields(word.fields, entry and entry.args or {}, where), at
end

-- The choice of a word whose first position names an entry of a registry: { rule = entry, fields, own, at, where }.
local function select(word, entry, path, catalog, default)
    local name, at = word.name, entry and entry.at or path
    local registry = catalog[word.select]
    local args = ordered.copy(entry and entry.args or {})
    local chosen = table.remove(args, 1)
    if chosen == nil then chosen = default end
    if type(chosen) ~= "string" or not registry:has(chosen) then
        diag.fail(diag.field(at, 1), ("%s: %s, expected one of %s"):format(name, chosen == nil and "no name"
            or (type(chosen) == "string" and "'" .. chosen .. "'" or "a " .. type(chosen)) .. " is unknown",
            table.concat(registry.keys, ", ")), { found = type(chosen) == "string" and chosen or nil,
            hint = type(chosen) == "string" and diag.suggest(chosen, registry.keys) or nil })
    end
    local rule = registry:get(chosen)
    local own = {}
    for _, f in ipairs(word.own or {}) do
        own[f.name] = args[f.name]
        args[f.name] = nil
    end
    local schema = table.move(rule.fields, 1, #rule.fields, 1, {})
    table.move(word.fields or {}, 1, #(word.fields or {}), #schema + 1, schema)
    local where = context(("%s '%s'"):format(name, chosen), at)
    local fields = check.fields(schema, args, where)
    local complaint = rule.check and rule.check(fields)
    if complaint then diag.fail(at, ("%s '%s': %s"):format(name, chosen, complaint), {}) end
    for _, f in ipairs(word.own or {}) do
        if own[f.name] ~= nil then own[f.name] = check.value(f, own[f.name], where) end
    end
    return { rule = rule, fields = fields, at = at, own = own, where = where }
end

-- optimizer.rest: the optimizer of the parameters that the chosen one cannot update, or nil. The schedule changes its
-- rate in proportion to the chosen optimizer's.
local function rest_of(optimizer, path, catalog)
    local given, rule = optimizer.own.rest, optimizer.rule
    if not rule.least_rank then
        if given ~= nil then
            diag.fail(optimizer.where.locate("rest"), ("optimizer: rest is given, but '%s' updates all parameters "
                .. "itself"):format(rule.name), {})
        end
        return nil
    end
    if given == nil then given = rule.rest end
    if type(given) ~= "table" then given = { given } end
    local at = optimizer.where.locate("rest")
    local rest = select({ name = "optimizer: rest", select = "optimizers" }, { at = at, args = given }, path, catalog)
    if rest.rule.least_rank then
        diag.fail(at, ("optimizer: rest is '%s', which does not update all parameters: expected one that does")
            :format(rest.rule.name), {})
    end
    if optimizer.fields.lr <= 0 then
        diag.fail(optimizer.at, ("optimizer '%s': lr is 0, expected a number > 0: the rate of the rest is a "
            .. "multiple of it"):format(rule.name), {})
    end
    rest.lr_ratio = rest.fields.lr / optimizer.fields.lr
    return rest
end

-- The micro-steps per cycle, from accumulate or batch.global.
local function cycles_of(c, given, path, choice)
    local batch, batch_at = simple(given, path, "batch")
    local acc, acc_at = simple(given, path, "accumulate")
    accumulation.read(c, batch, batch_at, acc, context("accumulate", acc_at), choice.rows, c.ranks)
    if c.global and c.mode.ranks then
        if not c.ranks_required and not choice.ranks then
            diag.fail(diag.field(batch_at, "global"), "batch: global is divided by the number of processes: expected "
                .. 'parallel { "' .. c.parallel .. '", ranks = n }, or the option --ranks n', {})
        end
        c.ranks_required = c.ranks
    end
end

-- parallel.bucket if the spec has none.
local BUCKET = words.default("parallel", "bucket")

-- 'parallel "a" or "b"': the modes with several processes.
local function modes_with_ranks(catalog)
    local list = {}
    for name, mode in catalog.modes:each() do
        if mode.ranks then list[#list + 1] = '"' .. name .. '"' end
    end
    return "parallel " .. table.concat(list, " or ")
end

-- Words about chunks, and whether they are about the search for their size.
local CHUNKS = { { "chunks" }, { "prefetch" }, { "chunk_size" }, { "chunk_search_range", true },
    { "chunk_search_n_grids", true }, { "min_chunk_size", true }, { "enable_distributed_storage" } }

-- A size in elements.
local function elements_of(c, size)
    return size and (size.elements or size.bytes // (c.precision == "f64" and 8 or 4))
end

-- The chunks of a mode that divides the parameters, how many gathers run ahead of the kernels, and whether chunks are
-- owned as a whole. Where each process keeps all of them the mode is another one, whose buckets they are.
local function chunks_of(c, parallel, at)
    local divides = c.mode.sharded.parameters
    local searches = (parallel.chunks or "layer") ~= "layer" and not parallel.chunk_size
    for _, word in ipairs(CHUNKS) do
        local name, given = word[1], parallel[word[1]] ~= nil
        if given and not divides then
            diag.fail(diag.field(at, name), ('parallel: %s is given, and with "%s" each process has all parameters: '
                .. "expected none"):format(name, c.parallel), {})
        elseif given and word[2] and not searches then
            diag.fail(diag.field(at, name), ('parallel: %s is given, and no size of chunks is searched: expected '
                .. 'chunks = "search" or "utilization", and no chunk_size'):format(name), {})
        end
    end
    if divides and parallel.bucket ~= BUCKET then
        diag.fail(diag.field(at, "bucket"), ('parallel: bucket is given, and with "%s" a chunk of parameters is what '
            .. "collectives move: expected none"):format(c.parallel), {})
    end
    if not divides then return end
    local stored = parallel.enable_distributed_storage
    if stored == false and parallel.prefetch then
        diag.fail(diag.field(at, "prefetch"), "parallel: prefetch is given, and with enable_distributed_storage = "
            .. "false nothing is gathered: expected none", {})
    elseif stored == false then
        c.mode = c.catalog.modes:get(c.mode.undivided)
    end
    c.prefetch, c.owned = parallel.prefetch or 1, stored == "owner"
    c.prefetch_open = not parallel.prefetch
    c.chunks = { rule = searches and parallel.chunks or "layer", size = elements_of(c, parallel.chunk_size),
        range = elements_of(c, parallel.chunk_search_range) or 1 << 26, grids = parallel.chunk_search_n_grids or 4096,
        least = elements_of(c, parallel.min_chunk_size) }
    if c.chunks.rule == "utilization" and c.chunks.range % c.chunks.grids ~= 0 then
        diag.fail(at, ("parallel: chunk_search_range is %d elements, expected a multiple of chunk_search_n_grids, %d")
            :format(c.chunks.range, c.chunks.grids), {})
    end
end

-- The mode, and the number of processes: that of the option --ranks if given, else the spec's.
local function ranks_of(c, given, path, option)
    local parallel, at = simple(given, path, "parallel")
    c.parallel, c.ranks = parallel.mode, option or parallel.ranks or 1
    c.mode = c.catalog.modes:get(c.parallel)
    c.ranks_required, c.ranks_of_spec = parallel.ranks and c.ranks, parallel.ranks
    c.force_outputs_fp32, c.parallel_at = parallel.force_outputs_fp32, at
    c.wire, c.overlap = parallel.comm ~= "f32" and parallel.comm or nil, parallel.overlap
    if c.wire and c.precision == "f64" then
        diag.fail(diag.field(at, "comm"), ('parallel: comm is "%s", and the precision is "f64": expected no comm')
            :format(c.wire), {})
    end
    c.sync_batchnorm = parallel.sync_batchnorm
    if c.sync_batchnorm and not c.mode.ranks then
        diag.fail(diag.field(at, "sync_batchnorm"), ('parallel: sync_batchnorm is given, but the mode is "%s", '
            .. "expected %s"):format(c.parallel, modes_with_ranks(c.catalog)), {})
    end
    chunks_of(c, parallel, at)
    placement.read(c, parallel, at, option)
    if not c.mode.ranks and (parallel.ranks or 1) > 1 then
        diag.fail(at, ('parallel: ranks is given, but the mode is "%s"'):format(c.parallel), {})
    end
    if not c.mode.ranks and c.ranks > 1 then
        local modes = modes_with_ranks(c.catalog)
        diag.fail("gagen", "--ranks: the spec has no " .. modes, { notes = { modes
            .. " in the spec makes a program for several; so does --set 'parallel=...'" } })
    end
    return parallel
end

-- The length of the training, from the word train.
local function lengths(c, given, path, option)
    local train, at = simple(given, path, "train")
    if (train.updates == nil) == (train.epochs == nil) then
        diag.fail(at, "train: expected updates or epochs, one of them", {})
    end
    if train.epochs and c.data.stream then
        diag.fail(diag.field(at, "epochs"), "train: epochs: the length of a stream is not known, expected updates",
            {})
    end
    if train.skip_z and train.on_nonfinite == "ignore" then
        diag.fail(diag.field(at, "skip_z"), 'train: skip_z needs norms that are finite, expected on_nonfinite = '
            .. '"stop" or "skip"', {})
    end
    warnings.check_allowed(train.allow, at)
    c.train, c.train_at = train, at
    config.set_length(c, function(complaint)
        diag.fail(option and "gagen" or c.batch_at, (option and "--ranks: " or "batch: ") .. complaint, {})
    end)
    if c.cycles > words.MOST_CYCLES then
        diag.fail(diag.field(at, "epochs"), ("train: %g epochs are %g updates, expected at most %d"):format(
            train.epochs, c.cycles, words.MOST_CYCLES), {})
    elseif c.cycles < 1 then
        diag.fail(at, ("train: %g epochs are %g updates, expected at least 1"):format(train.epochs,
            train.epochs * c.cycles_per_epoch), {})
    end
end

--- Sets the lengths that depend on the number of ranks: cycles per epoch, micro-batches left over, cycles of the
--- run. Calls `refuse` with a complaint if an epoch never fills a cycle.
function config.set_length(c, refuse)
    local complaint = accumulation.divide(c) or accumulation.complaint(c, c.ranks)
    if complaint then refuse(complaint) end
    c.cycles_per_epoch, c.left_over = accumulation.epoch(c, c.ranks, 0)
    c.epoch_times, c.epoch_cycles = 1, c.cycles_per_epoch   -- epoch = cycle * epoch_times // epoch_cycles
    if c.tail == "carry" then c.epoch_times, c.epoch_cycles = c.accumulate, accumulation.batches(c, c.ranks) end
    c.cycles = c.train.updates or accumulation.cycles(c, c.ranks, c.train.epochs)
end

-- The rules of the word init, checked.
local function init_of(given, path)
    local entry, list = given:get("init"), {}
    if not entry then return list end
    local rules = entry.args
    if type(rules[1]) == "string" then rules = { rules } end
    for key in ordered.each(rules) do
        if type(key) == "string" then
            diag.fail(entry.at, ("init: unknown field '%s', expected { { glob, normal | uniform | value = }, ... }")
                :format(key), { found = key })
        end
    end
    for i, rule in ipairs(rules) do
        local where = context(("init: entry %d"):format(i), entry.at)
        if type(rule) ~= "table" then
            diag.fail(entry.at, where.what .. ": expected { glob, normal | uniform | value = }", {})
        end
        local f = check.fields({
            { name = "glob", type = "glob", position = 1, required = true },
            { name = "kind", type = "str", position = 2, values = { "torch" } },
            { name = "normal", type = "num", min = 0 }, { name = "uniform", type = "num", min = 0 },
            { name = "value", type = "num" },
        }, rule, where)
        local given_kinds = 0
        for _, kind in ipairs { "kind", "normal", "uniform", "value" } do
            if f[kind] ~= nil then given_kinds = given_kinds + 1 end
        end
        if given_kinds ~= 1 then
            diag.fail(entry.at, where.what .. ": expected one of normal, uniform, value, \"torch\"", {})
        end
        f.at = entry.at
        list[i] = f
    end
    return list
end

-- Refuses "auto" without a budget, and batch.rows = "auto" where the rows of a micro-step change the result.
local function check_open(c, given)
    local at = given:get("batch").at
    local open = c.rows_open and 'batch: rows is "auto"' or c.recompute_open and 'memory: recompute is "auto"'
        or c.logits_open and 'memory: logits is "auto"'
    if open and not c.budget then
        diag.fail(c.rows_open and at or c.memory_at, open
            .. ", expected memory { budget = \"2GiB\" } beside it: gagen does not ask the machine", {})
    end
    if c.rows_open and c.loss.weight == "micro" then
        diag.fail(at, 'batch: rows is "auto", but loss.weight = "micro" depends on them: expected a number', {})
    elseif c.rows_open and c.tail == "flush" and c.data.last ~= "pad" then
        diag.fail(at, 'batch: rows is "auto", but with accumulate.tail = "flush" they decide which rows an '
            .. 'epoch has: expected a number, or data.last = "pad"', {})
    end
end

local function memory_of(c, given, path, choice)
    local memory, at = simple(given, path, "memory")
    c.memory_at, c.recompute = at, memory.recompute == "auto" and {} or memory.recompute
    c.recompute_open, c.recompute_depth = memory.recompute == "auto", choice.depth
    c.logits_open, c.logits_rows = memory.logits == "auto", memory.logits_rows
    c.logits = c.logits_open and (choice.logits or "whole") or memory.logits
    for i, pattern in ipairs(c.recompute) do
        if type(pattern) ~= "string" then
            diag.fail(at, ("memory: recompute %d is a %s, expected a name pattern"):format(i,
                type(pattern)), {})
        end
    end
    if memory.budget and not memory.budget.bytes then
        diag.fail(diag.field(at, "budget"), "memory: budget is a number, expected bytes such as \"2GiB\"", {})
    end
    c.budget = memory.budget and memory.budget.bytes
    check_open(c, given)
    placement.check_budget(c)
end

-- The loss: an entry of the catalog or a function of the spec, and the weights of the mean over a cycle.
local function loss_of(c, given, path, catalog)
    local entry = given:get("loss")
    if entry.traced then
        local fields = check.fields(words.find("loss").fields, entry.args, context("loss", entry.at))
        c.loss = { at = entry.at, weight = fields.weight, fields = {} }
        return
    end
    local chosen = select(words.find "loss", entry, path, catalog)
    c.loss = { rule = chosen.rule, at = chosen.at, weight = chosen.fields.weight, fields = chosen.fields }
end

local function evaluation_of(c, given, path, events)
    local eval, at = simple(given, path, "eval")
    metrics.read(c, eval, at, events)
    c.eval = given:has("eval") and eval or nil
    if c.eval and not data.has_eval_rows(c.data) then
        diag.fail(at, "eval: data has no rows for it: expected data.eval = FILE, or data.split = { eval = N }", {})
    end
end

local function name_of(given, path, default)
    local at, name = path, default
    if given:has("name") then
        local fields
        fields, at = simple(given, path, "name")
        name = fields.name
    end
    local instead = given:has("name") and "" or ", by the word name or the name of the file"
    local obstacle, of_library = program_name.obstacle(name), program_name.obstacle_of_library(name)
    if obstacle then diag.fail(at, "name: " .. obstacle .. instead, {}) end
    if of_library then diag.warn(at, "name: " .. of_library .. instead, {}) end
    return name
end

-- The schedule: an entry of the catalog or a function of the spec.
local function schedule_of(given, path, catalog, events)
    local entry = given:get("schedule")
    if not entry or not entry.traced then return select(words.find "schedule", entry, path, catalog, "constant") end
    local where = context("schedule", entry.at)
    local fields = check.fields(words.find("schedule").fields, entry.args, where)
    return { rule = schedule.traced(events, entry.event, catalog, entry.at, fields.product), at = entry.at,
        where = where, fields = fields }
end

-- The word gradient: the new value of each element of the mean gradient, as an expression of g and w. It is applied
-- to the whole flat space, so it must keep the zeros in the gaps between parameters.
local function gradient_of(given, catalog, events)
    local entry = given:get("gradient")
    if not entry then return nil end
    check.fields({}, entry.args, context("gradient", entry.at))
    local e = traced("gradient", { "g", "w" }, events, entry.event, catalog, entry.at)
    local of_zero = expr.evaluate(e, { g = 0, w = 0 })
    if of_zero ~= 0 then
        diag.fail(entry.at, ("gradient: of g = 0 and w = 0 the function makes %g, expected 0"):format(of_zero), {})
    end
    return { e = e, at = entry.at }
end

-- Checks each word by itself, in the order of the spec, before words are checked against each other.
local function check_alone(given, path)
    for name, entry in given:each() do
        local word = words.find(name)
        if word and word.takes_function and not entry.traced then
            diag.fail(entry.at, ("%s: expected a function of %s"):format(name, word.takes_function), {})
        end
        if word and word.fields and not word.select and not entry.traced then
            simple(given, path, name)
        end
    end
end

local function clip_of(given, path)
    local clip, at = simple(given, path, "clip")
    if not clip.norm and not clip.value then diag.fail(at, "clip: expected norm or value", {}) end
    for _, name in ipairs { "p", "per_group" } do
        if not clip.norm and clip[name] ~= (name == "p" and 2) then
            diag.fail(diag.field(at, name), ("clip: %s without norm: it says how the norm is taken"):format(name), {})
        end
    end
    clip.p, clip.at = clip.p == "inf" and math.huge or clip.p, at
    return clip
end

--- The program's name alone: that of the word `name`, or the default.
function config.name(path, events, default_name)
    return name_of(collect(path, events), path, default_name)
end

--- Reads all words. `choice` decides what the spec leaves to its memory budget: rows of a micro-step, depth of
--- recomputation (passes/recompute.lua), logits "chunked"; choice.ranks is the option --ranks.
function config.read(path, events, catalog, default_name, choice)
    local given = collect(path, events)
    local c = { path = path, catalog = catalog }
    c.name = name_of(given, path, default_name)
    check_alone(given, path)
    require_words(given, path)
    local precision, precision_at = simple(given, path, "precision")
    c.precision, c.accum, c.stochastic = precision.compute, precision.accum, precision.stochastic
    c.f32, c.f32_at = precision.f32, diag.field(precision_at, "f32")
    if c.precision ~= "f32" and c.f32 ~= "auto" then
        diag.fail(c.f32_at, ('precision: f32 = "%s" with "%s": expected it with "f32", whose products it is about')
            :format(c.f32, c.precision), {})
    end
    local d, at = simple(given, path, "data")
    c.data = data.read(d, at, path, c.precision == "f64" and "f64" or "f32")
    local parallel = ranks_of(c, given, path, choice.ranks)
    cycles_of(c, given, path, choice)
    lengths(c, given, path, choice.ranks)
    c.scaler = scaler.read(given:get "scaler", c.precision, c.train, c.train_at)
    loss_of(c, given, path, catalog)
    c.optimizer = select(words.find "optimizer", given:get "optimizer", path, catalog)
    c.optimizer.rest = rest_of(c.optimizer, path, catalog)
    c.groups = groups.read(c.optimizer)
    c.schedule = schedule_of(given, path, catalog, events)
    c.clip = given:has("clip") and clip_of(given, path) or nil
    c.gradient = gradient_of(given, catalog, events)
    handlers.read(c, parallel, c.parallel_at, events)
    nvme.read(c, parallel, c.parallel_at)
    local bytes = c.precision == "f64" and 8 or 4
    c.bucket_elements = parallel.bucket == BUCKET and (25 << 20) // bytes
        or parallel.bucket.elements or parallel.bucket.bytes // bytes
    memory_of(c, given, path, choice)
    c.init = init_of(given, path)
    evaluation_of(c, given, path, events)
    schedule.read(c, catalog.schedules)
    checkpoint.read(c, simple(given, path, "checkpoint"))
    c.log = simple(given, path, "log")
    local target = simple(given, path, "target")
    c.target, c.march, c.threads = target.kind, target.march, target.threads
    c.arch = target.arch
    sums.check(c, precision_at)
    return c
end

return config
