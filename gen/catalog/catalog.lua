-- catalog: loads the ops, layers, losses, optimizers and schedules that gagen knows: one folder per kind, one file
-- per family, in sorted order. An entry without a required part (doc, gradient, sample ...) is an error at start.
local expr = require "base.expr"
local ordered = require "base.ordered"

local catalog = {}

-- "bias f64 (N) ?" -> name, dtype, shape, whether it is optional.
local function parse_operand(line)
    local name, dtype, shape, mark = line:match("^([%w_]+)%s+(%w*)%s*%(([^)]*)%)%s*(%??)$")
    if not name then error("bad operand '" .. line .. "'") end
    return name, dtype ~= "" and dtype or "real", shape, mark == "?"
end

-- The operands and results of an op, such as "x (..., K)", "bias (N) ?", "target i32 (...)": names in order, shapes,
-- dtypes and optional ones by name. A result of dtype "full" is never stored in 16 bits.
local function signature(ins, outs)
    local s = { ins = {}, outs = {}, shape = {}, dtype = {}, optional = {} }
    for key, list in ordered.each { ins = ins, outs = outs } do
        for i, line in ipairs(list) do
            local name, dtype, shape, optional = parse_operand(line)
            s[key][i], s.shape[name], s.dtype[name] = name, shape, dtype
            s.optional[name] = optional or nil
        end
    end
    return s
end
catalog.signature = signature

local function require_parts(kind, name, entry, parts)
    for _, part in ipairs(parts) do
        if entry[part] == nil then
            error(("%s '%s' has no %s"):format(kind, name, part))
        end
    end
end

-- Runs the files of a folder of the catalog; they see the names of `env` and the functions of base/expr.lua.
local function run_folder(folder, env)
    for key in ordered.each(expr) do
        if env[key] == nil then env[key] = expr[key] end
    end
    local scope = setmetatable({}, { __index = function(_, key)
        local v = env[key]
        if v == nil then error("undefined name '" .. key .. "'", 2) end
        return v
    end })
    for _, name in ipairs(host.embedded_names("gen/catalog/" .. folder .. "/")) do
        local chunk, message = load(host.embedded(name), "@" .. name, "bt", scope)
        if not chunk then error(message) end
        chunk()
    end
end

local function lua_names()
    return { ipairs = ipairs, table = table, math = math, require = require, error = error,
        string = string, type = type, ordered = ordered, expr = expr }
end

-- "x y" as a set: the operands that the templates of an op can read or write in 16 bits. An op that `rounds` reads
-- these inputs in 16 bits even if they are stored in 32.
local function operand_set(names)
    local set = {}
    for name in (names or ""):gmatch("%S+") do set[name] = true end
    return set
end

-- The structured ops, each with a template, and the pointwise ops, which are expressions.
local function load_ops()
    local ops, words = ordered.map(), ordered.map()
    local env = lua_names()
    function env.op(name)
        return function(entry)
            require_parts("op", name, entry, { "doc", "ins", "outs", "cost", "lower" })
            entry.name, entry.signature = name, signature(entry.ins, entry.outs)
            entry.half = operand_set(entry.half)
            if not entry.internal then require_parts("op", name, entry, { "grad", "sample" }) end
            ops:set(name, entry)
        end
    end
    function env.pointwise(name)
        return function(entry)
            require_parts("pointwise op", name, entry, { "doc", "arity", "value", "grad", "sample" })
            entry.name, entry.fields = name, entry.fields or {}
            words:set(name, entry)
        end
    end
    run_folder("ops", env)
    return ops, words
end

-- The entries of a folder whose files say `word "name" { ... }`; each must have the named parts.
local function load_plain(folder, word, parts)
    local entries = ordered.map()
    local env = lua_names()
    env[word] = function(name)
        return function(entry)
            require_parts(word, name, entry, parts)
            entry.name = name
            entries:set(name, entry)
        end
    end
    run_folder(folder, env)
    return entries
end

-- How several processes share the work. The entry of a mode (word `parallel`):
--   ranks     whether there may be more than one process
--   engines   the engines of runtime/comm.h that can do its collectives; a target takes one that it has
--   sharded   what each rank has only a part of: { parameters =, gradients =, state = }, each a boolean
--   reduces   { collective, of, role }: what is summed over the ranks, by which collective, in which micro-steps: the
--             "last" of a cycle or "every" one
--   undivided of one that divides parameters: the mode of models that are too small for that
--   handler   what reduces its gradients (spec/handlers.lua); grouped: whether others may, over groups of ranks
--   default   whether it is the mode of a spec without the word: of one
local function load_modes()
    local modes = load_plain("parallel", "mode", { "doc", "engines" })
    for _, mode in modes:each() do
        mode.ranks, mode.sharded = mode.ranks or false, mode.sharded or {}
        for _, what in ipairs { "parameters", "gradients", "state" } do
            mode.sharded[what] = mode.sharded[what] or false
        end
        if mode.default then modes.default = mode.name end
        if mode.ranks and not mode.reduces then
            error(("mode '%s' has ranks, but does not say what it reduces"):format(mode.name))
        end
    end
    return modes
end

--- Settings that tests try for a rule: its defaults, then one setting for each flag inverted and each number 0 or 1
--- replaced by 0.5. A list of { name of the changed field or nil, fields }.
function catalog.settings(rule)
    local function defaults()
        local o = {}
        for _, f in ipairs(rule.fields) do o[f.name] = f.default end
        return o
    end
    local list = { { nil, defaults() } }
    for _, f in ipairs(rule.fields) do
        local o = defaults()
        if type(f.default) == "boolean" then o[f.name] = not f.default end
        if f.default == 0 or f.default == 1 then o[f.name] = 0.5 end
        local refused = rule.check and rule.check(o)
        if o[f.name] ~= f.default and not refused then list[#list + 1] = { f.name, o } end
    end
    return list
end

local loaded

-- The metrics of an evaluation (spec/metrics.lua lists the fields of an entry).
local function load_metrics()
    local metrics = load_plain("metric", "metric", { "doc", "better", "value" })
    for name, metric in metrics:each() do
        if metric.better ~= "lower" and metric.better ~= "higher" then
            error(("metric '%s' says better = %s, expected \"lower\" or \"higher\""):format(name,
                tostring(metric.better)))
        end
    end
    return metrics
end

--- The whole catalog { ops, pointwise, layers, losses, metrics, optimizers, schedules, modes }, each an ordered map by
--- name.
function catalog.load()
    if not loaded then
        local ops, words = load_ops()
        loaded = {
            ops = ops, pointwise = words,
            layers = load_plain("layers", "layer", { "doc", "fields", "apply" }),
            losses = load_plain("loss", "loss", { "doc", "fields", "rows" }),
            metrics = load_metrics(),
            optimizers = load_plain("optim", "optimizer", { "doc", "fields", "scope", "zero", "state", "update" }),
            schedules = load_plain("schedule", "schedule", { "doc", "fields", "factor" }),
            modes = load_modes(),
        }
    end
    return loaded
end

return catalog
