-- load: turns a spec file into a configuration and the forward graph.
local batchnorm = require "spec.batchnorm"
local build = require "graph.build"
local catalog = require "catalog.catalog"
local config = require "spec.config"
local data = require "spec.data"
local diag = require "base.diag"
local glob = require "base.glob"
local graph = require "graph.graph"
local groups = require "spec.groups"
local handlers = require "spec.handlers"
local losses = require "spec.losses"
local metrics = require "spec.metrics"
local model = require "spec.model"
local ordered = require "base.ordered"
local set = require "spec.set"
local warnings = require "spec.warnings"
local words = require "spec.words"

local load_spec = {}

--- The words that a spec may use, for the sandbox (host.evaluate).
function load_spec.words(known)
    local layers, pointwise = {}, {}
    for _, entry in ipairs(words.structure) do
        layers[#layers + 1] = { name = entry.name, named = entry.named }
    end
    for name in known.pointwise:each() do pointwise[#pointwise + 1] = name end
    for name in known.losses:each() do pointwise[#pointwise + 1] = name end
    for name, layer in known.layers:each() do
        if layer.word then
            pointwise[#pointwise + 1] = name
        elseif not known.pointwise:has(name) then
            layers[#layers + 1] = { name = name, named = layer.named or false,
                alone = layer.takes ~= nil and layer.takes[1] == 0 }
        end
    end
    local names = ordered.collect(words.list, function(word) return word.name end)
    return { config = table.move({ "model" }, 1, 1, #names + 1, names), layers = layers,
        pointwise = pointwise, keyed = { "later" } }
end

local function default_name(path)
    local name = path:match("([^/]*)$"):gsub("%.lua$", "")
    return name
end

-- Classes that a target may name where the loss does not say how many there are: numbers that f32 holds exactly.
local MOST_CLASSES = 16777216

-- Adds the losses, their sums and the metrics of an evaluation to the graph.
-- played: what model.play gives: { output, rows, measured }.
local function add_loss(g, b, c, target, played)
    b.at, b.path, b.keep_full = c.loss.at, {}, true
    local rows = played.rows or losses.of_word(b, c, target, played.output)
    local classes = c.loss.rule and c.loss.rule.target == "class"
    if not classes then c.classes = c.loss.called.classes or c.data.classes and MOST_CLASSES or 0 end
    if rows.shape[1] ~= c.batch or graph.rowless(rows) then
        diag.fail(c.loss.at, ("loss: the function gives shape %s, expected one value or more per row, (%d, ...)")
            :format(graph.shape_text(rows.shape), c.batch), {})
    end
    g.loss = { rows = rows, target = classes and target or nil, at = c.loss.at,
        attrs = { weight = c.loss.weight, weights = c.loss.fields.class_weights } }
    c.losses_per_row = graph.elements(rows.shape) // c.batch
    local function tally(op, ins, attrs)
        local node = b:node(op, ins, attrs, { sums = "sums" })
        node.outs.sums.tensor = g.sums
    end
    tally("tally", { loss = rows, target = g.loss.target, micro = g.micro }, g.loss.attrs)
    metrics.add(g, b, c, { output = played.output, target = target, measured = played.measured }, tally)
    b.keep_full = nil
end

local function check_patterns(g, c)
    for _, rule in ipairs(c.init) do
        glob.check(rule.glob, g.params, rule.at, "init")
        for _, param in ipairs(g.params) do glob.takes(rule.glob, param, rule.at, "init") end
    end
    for i, group in ipairs(c.groups) do
        if group.glob then
            glob.check(group.glob, g.params, c.optimizer.at, ("optimizer: group %d"):format(i))
        end
    end
    groups.check_used(c, g.params)
    handlers.check(c, g.params)
end

-- Elements at most: kernels index a value with an int, and the flat space of parameters with 64 bits.
local VALUE_LIMIT, PARAM_LIMIT = 2.0 ^ 31 - 65536, 2.0 ^ 40

local function check_sizes(g, c)
    local function check(what, shape, count, at, limit)
        local n = count * 1.0
        for _, extent in ipairs(shape) do n = n * extent end
        if n > limit then
            diag.fail(at, ("model: %s has %.4g elements, expected at most %.0f: a smaller batch or layer")
                :format(what, n, limit), {})
        end
    end
    for _, p in ipairs(g.params) do
        check("'" .. p.name:gsub("%%d", "*") .. "'", p.shape, p.count, p.at, PARAM_LIMIT)
    end
    for _, t in ipairs(g.tensors) do
        if t.kind ~= "param" then
            check("the result of this", t.shape, 1, t.at or c.batch_at, VALUE_LIMIT)
        end
    end
end

-- Adds the fields of a batch and its facts to the graph's inputs; returns the fields by name.
local function add_inputs(g, c)
    local fields = {}
    for i, field in ipairs(c.data.fields) do
        local t = graph.tensor(g, { name = field.name, kind = "input", dtype = field.dtype,
            shape = { c.batch, table.unpack(field.shape) }, low = field.low, limit = field.limit,
            next_limit = data.next_limit(c.data, field), low_place = field.low_place, high_place = field.high_place,
            file_name = field.file_name })
        g.inputs[i], fields[field.name] = t, t
    end
    g.micro = graph.tensor(g, { name = "micro", kind = "input", dtype = "micro", shape = { 1 } })
    return fields
end

-- The hash of a program's origin: the text of the spec and the --set options.
local function hash_of(source, sets)
    local lines = ordered.collect(sets, function(s) return "\n--set " .. s.text end)
    return host.sha256(source .. table.concat(lines))
end

-- The text of the spec and what it records.
local function recorded(path, known)
    local source, message = host.read(path, 256 * 1024)
    if not source then diag.fail(path, (message:gsub("^.*: ", "")), {}) end
    local events, problem = host.evaluate { path = path, text = source, words = load_spec.words(known) }
    if not events then
        if problem.among and not diag.suggest(problem.found, problem.among) then
            problem.notes = { "gagen list shows what a spec may use" }
        end
        diag.raise(problem)
    end
    return source, events
end

--- The name of the program that a spec describes; its other words may be wrong.
function load_spec.name(path)
    local _, events = recorded(path, catalog.load())
    return config.name(path, events, default_name(path))
end

--- Evaluates and checks a spec and builds its forward graph. sets: the result of set.read_all; choice: that of
--- config.read. Returns the graph and the configuration.
function load_spec.load(path, sets, choice)
    local known = catalog.load()
    local source, events = recorded(path, known)
    set.apply(path, events, sets)
    local c = config.read(path, events, known, default_name(path), choice or {})
    c.text, c.sha256 = source, hash_of(source, sets)
    c.ops = ordered.copy(known.ops.values)
    c.ops.map = { lower = "pointwise" }
    local g = graph.new(c.name)
    g.ranks, g.sharded = c.mode.ranks or false, c.mode.sharded
    local fields = add_inputs(g, c)
    g.seed = graph.tensor(g, { name = "seed", shape = {}, kind = "scalar",
        moves = c.scaler ~= nil and c.scaler.static == nil })
    g.sums = graph.tensor(g, { name = "sums", shape = { #c.sums }, dtype = "f64", kind = "scalar" })
    local b = build.new(g, c.ops)
    c.builder = b
    c.loss.called = { ignore = c.loss.fields.ignore }
    local output, rows, measured = model.play(b, known, path, events, fields, c.loss.called, metrics.functions(c))
    c.loss.fields.ignore = c.loss.fields.ignore or c.loss.called.ignore
    data.check_ignored(c.data, c.loss.fields.ignore or -100, c.loss.rule and c.loss.rule.target == "class"
        or c.loss.called.ignore ~= nil)
    g.output = not output.named and output or nil
    add_loss(g, b, c, fields.target, { output = output, rows = rows, measured = measured })
    check_patterns(g, c)
    check_sizes(g, c)
    model.measure(g, c.ops)
    batchnorm.check(g, c)
    warnings.give(g, c)
    return g, c
end

return load_spec
