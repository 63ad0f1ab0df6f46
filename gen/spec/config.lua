-- config: turns the recorded words into one checked configuration. Every default is filled in,
-- every number that depends on others (updates per epoch, total length) is derived here.
local check = require "base.check"
local data = require "spec.data"
local diag = require "base.diag"
local ordered = require "base.ordered"
local words = require "spec.words"

local config = {}

-- Collects the config words; a word twice, or a missing required word, is refused.
local function collect(path, events)
    local given = ordered.map()
    for _, event in ipairs(events) do
        local name = event.event == "word" and event.name
        if event.event == "model" or event.event == "model_begin" then name = "model" end
        if event.event == "loss_begin" then name = "loss" end
        if name then
            local at = event.at or path .. ":" .. event.line
            if given:has(name) then
                diag.fail(at, ("%s: given twice, expected once"):format(name),
                    { notes = { { at = given:get(name).at, message = "the first one is here" } } })
            end
            given:set(name, { at = at, args = event.args or {}, traced = event.event ~= "word" })
        end
        if event.event == "schedule_begin" then
            diag.fail(path .. ":" .. event.line,
                "schedule: a function is not available, expected the name of a schedule", {})
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

local function simple(given, path, name)
    local word, entry = words.find(name), given:get(name)
    local at = entry and entry.at or path
    local fields = check.fields(word.fields, entry and entry.args or {}, context(name, at))
    return fields, at
end

-- A word that picks from a registry: its first position names the entry.
local function select(given, path, catalog, name, default, extra)
    local word, entry = words.find(name), given:get(name)
    local at = entry and entry.at or path
    local registry = catalog[word.select]
    local args = ordered.copy(entry and entry.args or { default })
    local chosen = table.remove(args, 1)
    if type(chosen) ~= "string" or not registry:has(chosen) then
        diag.fail(diag.field(at, 1), ("%s: %s is unknown, expected one of %s"):format(name,
            type(chosen) == "string" and "'" .. chosen .. "'" or "a " .. type(chosen),
            table.concat(registry.keys, ", ")), { found = type(chosen) == "string" and chosen or nil,
            hint = type(chosen) == "string" and diag.suggest(chosen, registry.keys) or nil })
    end
    local rule = registry:get(chosen)
    local own = {}
    for _, key in ipairs(extra) do
        own[key] = args[key]
        args[key] = nil
    end
    local schema = table.move(rule.fields, 1, #rule.fields, 1, {})
    table.move(word.fields or {}, 1, #(word.fields or {}), #schema + 1, schema)
    local where = context(("%s '%s'"):format(name, chosen), at)
    local fields = check.fields(schema, args, where)
    local complaint = rule.check and rule.check(fields)
    if complaint then diag.fail(at, ("%s '%s': %s"):format(name, chosen, complaint), {}) end
    return { rule = rule, fields = fields, at = at, own = own, where = where }
end

-- A group's fields are the rule's: what it refuses holds here too, and all groups keep one state.
local function check_group(optimizer, fields, what)
    local rule = optimizer.rule
    local complaint = rule.check and rule.check(fields)
    if complaint then diag.fail(optimizer.at, what .. ": " .. complaint, {}) end
    local kept, usual = rule.state(fields), rule.state(optimizer.fields)
    if table.concat(kept, ", ") ~= table.concat(usual, ", ") then
        local function named(list) return #list > 0 and table.concat(list, ", ") or "nothing" end
        diag.fail(optimizer.at, ("%s: keeps %s for each parameter, the optimizer's own fields keep %s: "
            .. "expected the same"):format(what, named(kept), named(usual)), {})
    end
end

-- optimizer.groups: { glob | rank = n, lr_scale =, field = } in order.
local function groups_of(optimizer)
    local list = {}
    local groups = optimizer.own.groups or {}
    if type(groups) ~= "table" then
        diag.fail(optimizer.where.locate("groups"), "optimizer: groups is a " .. type(groups) ..
            ", expected a list of { glob, ... }", {})
    end
    for i, group in ipairs(groups) do
        local where = context(("optimizer: group %d"):format(i), optimizer.at)
        if type(group) ~= "table" then
            diag.fail(optimizer.at, ("%s is a %s, expected { glob, ... }"):format(where.what,
                type(group)), {})
        end
        local schema = {
            { name = "glob", type = "glob", position = 1 },
            { name = "rank", type = "int", min = 0, max = 6 },
            { name = "lr_scale", type = "num", default = 1, min = 0 },
        }
        for _, field in ipairs(optimizer.rule.fields) do
            if field.name ~= "lr" then
                schema[#schema + 1] = ordered.copy(field)
                schema[#schema].default, schema[#schema].required = nil, nil
            end
        end
        local fields = check.fields(schema, group, where)
        if (fields.glob == nil) == (fields.rank == nil) then
            diag.fail(optimizer.at, where.what .. ": expected a glob or rank = n, one of them", {})
        end
        local own = ordered.copy(fields)
        own.glob, own.rank, own.lr_scale = nil, nil, nil
        check_group(optimizer, ordered.copy(optimizer.fields, own), where.what)
        list[i] = { glob = fields.glob, rank = fields.rank, lr_scale = fields.lr_scale, fields = own }
    end
    return list
end

-- A, from accumulate or batch.global.
local function accumulation(c, given, path)
    local batch, batch_at = simple(given, path, "batch")
    local acc, acc_at = simple(given, path, "accumulate")
    c.batch, c.accumulate, c.unroll, c.tail = batch.rows, acc.count, acc.unroll, acc.tail
    if batch.global then
        if given:has("accumulate") and given:get("accumulate").args[1] then
            diag.fail(acc_at, "accumulate: batch.global gives it, expected one of the two", {})
        end
        local per_step = batch.rows * c.ranks
        if batch.global % per_step ~= 0 then
            diag.fail(batch_at, ("batch: global is %d, which %d rows x %d ranks = %d does not divide")
                :format(batch.global, batch.rows, c.ranks, per_step), {})
        end
        c.accumulate = batch.global // per_step
    end
    c.batch_at = batch_at
end

--- Cycles of one epoch on each of `ranks` ranks: full cycles of full micro-batches.
function config.cycles_per_epoch(c, ranks)
    return c.data.train_rows // (c.batch * ranks) // c.accumulate
end

local function lengths(c, given, path)
    local train, at = simple(given, path, "train")
    if (train.updates == nil) == (train.epochs == nil) then
        diag.fail(at, "train: expected updates or epochs, one of them", {})
    end
    c.train = train
    local per_epoch = config.cycles_per_epoch(c, c.ranks)
    if per_epoch == 0 then
        diag.fail(c.batch_at, ("batch: an epoch of %d rows has %d micro-batches of %d rows x %d ranks, "
            .. "fewer than the %d of one update"):format(c.data.train_rows,
            c.data.train_rows // (c.batch * c.ranks), c.batch, c.ranks, c.accumulate), {})
    end
    c.cycles_per_epoch = per_epoch
    c.cycles = train.updates or math.floor(train.epochs * per_epoch)
    if c.cycles < 1 then
        diag.fail(at, ("train: %g epochs are %g updates, expected at least 1"):format(train.epochs,
            train.epochs * per_epoch), {})
    end
end

local function init_of(given, path)
    local entry, list = given:get("init"), {}
    if not entry then return list end
    local rules = entry.args
    if type(rules[1]) == "string" then rules = { rules } end
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

local function recompute_of(c, given, path)
    local memory, at = simple(given, path, "memory")
    for i, pattern in ipairs(memory.recompute) do
        if type(pattern) ~= "string" then
            diag.fail(at, ("memory: recompute %d is a %s, expected a name pattern"):format(i,
                type(pattern)), {})
        end
    end
    c.recompute, c.memory_at = memory.recompute, at
end

local function loss_of(c, given, path, catalog)
    local entry = given:get("loss")
    if entry.traced then
        c.loss = { at = entry.at, weight = "token" }
        return
    end
    local loss, at = simple(given, path, "loss")
    if not catalog.losses:has(loss.kind) then
        diag.fail(at, ("loss: '%s' is unknown, expected one of %s"):format(loss.kind,
            table.concat(catalog.losses.keys, ", ")),
            { found = loss.kind, hint = diag.suggest(loss.kind, catalog.losses.keys) })
    end
    c.loss = { rule = catalog.losses:get(loss.kind), at = at, weight = loss.weight }
end

local function evaluation_of(c, given, path)
    local eval, at = simple(given, path, "eval")
    for _, metric in ipairs(eval.metrics) do
        if metric ~= "loss" and metric ~= "accuracy" then
            diag.fail(at, ("eval: metric %s is unknown, expected \"loss\" or \"accuracy\""):format(
                type(metric) == "string" and "'" .. metric .. "'" or "a " .. type(metric)), {})
        end
    end
    c.eval = given:has("eval") and eval or nil
    c.wants_accuracy = ordered.find(eval.metrics, "accuracy") ~= nil
    if c.wants_accuracy and not (c.loss.rule and c.loss.rule.hits) then
        diag.fail(at, "eval: accuracy needs a loss over classes", {})
    end
end

local function warmup_of(c)
    local warmup = c.schedule.fields.warmup or 0
    if warmup > 0 and warmup < 1 then warmup = math.floor(warmup * c.cycles + 0.5) end
    if math.type(warmup) ~= "integer" then
        local whole = math.tointeger(warmup)
        if not whole then
            diag.fail(c.schedule.where.locate("warmup"),
                ("schedule: warmup is %g, expected an integer or a fraction below 1"):format(warmup), {})
        end
        warmup = whole
    end
    c.schedule.warmup = warmup
    c.schedule.total = c.schedule.fields.total or c.cycles
    if c.schedule.fields.total and c.schedule.fields.total < c.cycles then
        diag.warn(c.schedule.at, ("schedule: total is %d, training has %d updates: the last %d use the "
            .. "last rate"):format(c.schedule.total, c.cycles, c.cycles - c.schedule.total))
    end
    if warmup > 0 and warmup >= c.schedule.total then
        diag.fail(c.schedule.where.locate("warmup"),
            ("schedule: warmup is %d, expected less than the %d updates of the schedule"):format(
            warmup, c.schedule.total), {})
    end
end

local function check_name(c, given, path)
    local at = path
    if given:has("name") then
        local fields
        fields, at = simple(given, path, "name")
        c.name = fields.name
    end
    if not c.name:match("^[a-z][a-z0-9_]*$") or #c.name > 48 or c.name:find("__", 1, true) then
        diag.fail(at, ("name: '%s': letters, digits and _ expected, a small letter first, at most 48")
            :format(c.name), {})
    end
end

-- Each word by itself, in the order of the spec, before what words must agree on.
local function check_alone(given, path)
    for name, entry in given:each() do
        local word = words.find(name)
        if word and word.fields and not word.select and not entry.traced then
            simple(given, path, name)
        end
    end
end

--- Reads all words. overrides of options (threads, march, ranks) are applied by the driver before.
function config.read(path, events, catalog, default_name)
    local given = collect(path, events)
    local c = { path = path, catalog = catalog }
    c.name = default_name
    check_name(c, given, path)
    check_alone(given, path)
    require_words(given, path)
    c.precision = simple(given, path, "precision").compute
    local d, at = simple(given, path, "data")
    c.data = data.read(d, at, path)
    local parallel = simple(given, path, "parallel")
    c.parallel, c.ranks_required = parallel.mode, parallel.ranks
    c.ranks = parallel.ranks or 1
    if c.parallel == "none" and c.ranks > 1 then
        diag.fail(given:get("parallel").at, "parallel: ranks is given, but the mode is \"none\"", {})
    end
    accumulation(c, given, path)
    lengths(c, given, path)
    loss_of(c, given, path, catalog)
    c.optimizer = select(given, path, catalog, "optimizer", nil, { "groups" })
    c.groups = groups_of(c.optimizer)
    c.schedule = select(given, path, catalog, "schedule", "constant", {})
    warmup_of(c)
    c.clip = simple(given, path, "clip").norm
    local bytes = c.precision == "f64" and 8 or 4
    c.bucket_elements = parallel.bucket == "25MiB" and 25 * 2 ^ 20 // bytes
        or parallel.bucket.elements or parallel.bucket.bytes // bytes
    recompute_of(c, given, path)
    c.init = init_of(given, path)
    evaluation_of(c, given, path)
    c.checkpoint = given:has("checkpoint") and simple(given, path, "checkpoint") or nil
    c.log = simple(given, path, "log")
    local target = simple(given, path, "target")
    c.target, c.march, c.threads = target.kind, target.march, target.threads
    c.arch = target.arch
    return c
end

return config
