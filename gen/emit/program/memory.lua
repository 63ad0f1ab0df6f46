-- memory: the text of memory.c: where each parameter, gradient, state and value lies in the planned arenas, and
-- the values that parameters start with.
local chunks = require "emit.boundary.chunks"
local expr = require "base.expr"
local glob = require "base.glob"
local gradients = require "emit.program.gradients"
local grouped_files = require "emit.boundary.grouped_files"
local handlers = require "emit.boundary.handlers"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local sections = require "emit.program.sections"
local sent = require "emit.boundary.sent"
local division = require "emit.boundary.division"
local state_file = require "emit.boundary.state_file"
local states = require "emit.boundary.states"
local text = require "base.text"
local windows = require "emit.boundary.windows"

local memory = {}
local lines = sections.lines

--- The parameters in the order of files: the trained ones first.
function memory.params(g)
    local list = ordered.copy(g.params)
    table.sort(list, function(a, b) return a.number < b.number end)
    return list
end

--- The fields of the struct of parameters: these parameters, then the joint ones.
function memory.with_joints(g, params) return table.move(g.joints, 1, #g.joints, #params + 1, ordered.copy(params)) end

--- The values of one micro-step, or the copies of weights, that have a place of their own.
function memory.placed(g, arena)
    return ordered.collect(g.tensors, function(t)
        if t.place and t.place.arena == arena then return t end
    end)
end

local function param_rows(params)
    return ordered.collect(params, function(p) return states.row(p, p.saved_shape or p.shape, p.flat) end)
end

local KIND = { uniform = "UNIFORM", normal = "NORMAL", value = "VALUE" }

local function init_rows(params, config, real)
    return ordered.collect(params, function(p)
        local kind, value, at = p.init.kind, p.init.bound or p.init.value, p.at
        for _, rule in ipairs(config.init) do
            if not p.buffer and glob.takes(rule.glob, p, rule.at, "init") then
                for _, name in ipairs { "uniform", "normal", "value" } do
                    if rule[name] then kind, value, at = name, rule[name], rule.at end
                end
                break
            end
        end
        expr.literal(value, real, at)          -- refuses what the type cannot hold
        return ("{%s, %s}, /* %s */"):format(KIND[kind], expr.literal(value, "f64"), p.name)
    end)
end

-- The rows of padding, which start at 0 whatever the others do.
local function zero_lines(g, params)
    local list = {}
    for i, p in ipairs(params) do
        local zero = p.init.zero
        if zero then
            list[#list + 1] = ("for (int l = 0; l < %d; l++) /* %s: padding */"):format(p.count, p.name)
        end
        if zero and g.sharded.parameters then
            list[#list + 1] = ("    clear(m, %d, l, %d, %d);"):format(i - 1, zero.from, zero.n)
        elseif zero then
            list[#list + 1] = ("    memset(m->flat_w + %d + (int64_t)l * %d, 0, sizeof(real) * %d);"):format(
                p.flat.offset + zero.from, p.flat.stride, zero.n)
        end
    end
    return lines(list)
end

-- The function that gives parameters their first values; of divided ones those that the rank has.
local function initial_values(g, params)
    local zeros = zero_lines(g, params)
    if not g.sharded.parameters then return { "initial_values", { zeros = zeros } } end
    return { "initial_parts", { zeros = zeros, clears = zeros.text ~= "", untrained = chunks.has_untrained(g) } }
end

-- The flat space of parameters, of gradients and of each state; of what is divided a rank's part has its place later.
local function flat_places(g, target)
    local list = {}
    if not g.sharded.parameters then list[1] = "m->flat_w = (real *)m->memory[ARENA_PARAMETERS].base;" end
    if not g.sharded.gradients then
        list[#list + 1] = ("m->flat_g = (%s *)m->memory[ARENA_GRADIENTS].base;"):format(g.half_sums and "bf16"
            or "real")
    end
    if g.residues then list[#list + 1] = "m->flat_residue = (real *)m->memory[ARENA_RESIDUES].base;" end
    for _, more in ipairs { states.places(g), target.flat_places(g) } do
        table.move(more, 1, #more, #list + 1, list)
    end
    return list
end

-- Copies of weights.
local function view_places(g, target)
    local views = memory.placed(g, "views")
    if #views == 0 then return text.block("") end
    local list = { target.views, "m->v = (views){" }
    for _, t in ipairs(views) do list[#list + 1] = "    " .. target.place(t, "v", t.place.offset) end
    list[#list + 1] = "};"
    return lines(list)
end

-- Where gradients lie: as parameters do, in 16 bits, or in windows.
local function gradients_placed(g, form, device)
    local function arena(name) return ("m->%smemory[%s_%s]"):format(device and "device_" or "",
        device and "DEVICE" or "ARENA", name) end
    local function base(name) return device and arena(name) or ("(real *)%s.base"):format(arena(name)) end
    if not g.sharded.gradients then
        return lines { ("m->g = %s_at(m->%s);"):format(form, device and "device_g" or "flat_g") }
    end
    local list = { ("m->windows = %s;"):format(base "WINDOWS") }
    if g.summed_elements > g.trained_elements then
        if device then list[2] = "m->collected = (real *)m->memory[ARENA_COLLECTED].base;" end
        local field = device and "device_collected" or "collected"
        list[#list + 1] = ("m->%s = %s;"):format(field, base "COLLECTED")
        list[#list + 1] = ("m->g = windows_at(m->windows, m->%s);"):format(field)
    else
        list[2] = "m->g = windows_at(m->windows);"
    end
    return lines(list)
end

-- The lines of place() for the flat space and for the parameters that kernels read.
local function parameters_placed(g, target, device)
    local list = flat_places(g, target)
    local placed = g.sharded.parameters and chunks.placed(g, device)
        or { ("m->w = parameters_at(m->%s_w);"):format(device and "device" or "flat") }
    return lines(table.move(placed, 1, #placed, #list + 1, list))
end

local function places(g, target, form, device)
    local rows = ordered.collect(memory.placed(g, "activations"), function(t)
        return target.place(t, "a", t.place.offset)
    end)
    return { flat_places = parameters_placed(g, target, device), gradients = gradients_placed(g, form, device),
        residues = g.residues, view_places = view_places(g, target), activation_places = lines(rows) }
end

-- One row per arena of the host, in the order of the plan. One without bytes here depends on the ranks.
local function arena_rows(facts, device)
    return lines(ordered.collect(facts.arenas, function(a)
        if a.memory == "device" then return nil end
        return ("{%s, %d%s},"):format(text.string(a.name).text, a.sharded and 0 or a.bytes,
            not device and "" or a.memory == "pinned" and ", true" or ", false")
    end))
end

-- The tables of what lies elsewhere than the flat space, and of the files that groups of ranks have.
local function table_lines(g, params)
    local list = states.tables(g, params)
    for _, line in ipairs(g.handlers and grouped_files.tables(g, params) or {}) do list[#list + 1] = line end
    for _, line in ipairs(sent.table(g, params)) do list[#list + 1] = line end
    return list
end

--- memory.c.
function memory.render(g, config, facts, context, header)
    local params, target = memory.params(g), context.target
    local fields = memory.with_joints(g, params)
    local own, sums = context.target.model(config, facts), gradients.model(g, context.target, fields)
    local device = own.device
    local address = text.block(device and "ga_address " or "real *")
    local parameter_places = ordered.collect(fields, function(p)
        return target.place(p.value, "flat", p.flat.offset)
    end)
    return sections.render(context.template("program/memory.c"), {
        { "head", { header = text.block(header("memory.c",
            "where everything lies, and how parameters start; part of model.c")) } },
        { "tables", { params = lines(param_rows(params)), init = lines(init_rows(params, config, g.real)),
            states = lines(table_lines(g, params)) } },
        g.sharded.parameters and { "chunked", ordered.copy(chunks.places(g, target, fields), { address = address }) }
            or { "spaces", { form = text.ident("parameters"), places = lines(parameter_places), address = address } },
        g.half_sums and { "spaces", { form = text.ident("gradients"),
            address = text.block(device and "ga_address " or "bf16 *"), places = sums.gradient_places } },
        g.sharded.gradients and { "windows", ordered.copy(windows.places(g, target, fields), { address = address }) },
        { device and "place_device" or "place", places(g, target, sums.gradient_form.text, device) },
        device and { "open_device", { device_arenas = own.device_arenas, arenas = arena_rows(facts, true),
            parallel = own.parallel, branches = g.branches or false, joins = g.joins or false,
            left = windows.events(g), gathered = chunks.events(g), here = placed.is_mixed(g) and #g.buckets or 0 } }
            or { "open", { arenas = arena_rows(facts, false) } },
        #config.rank_groups > 0 and { "groups", handlers.groups(config) },
        g.ranks and { "division", division.tables(g, config, target, sections.block(
            context.template("program/memory.c"), placed.is_used(g) and "open_placed" or device and "open_device_shard"
                or "open_shard", placed.is_used(g) and { some = placed.has_some(g) } or {})) },
        g.state_file ~= nil and { "state_file", state_file.opening(g, config, context.ranges, target) },
        initial_values(g, params),
    })
end

return memory
