-- names: names in the emitted C, of the fields of its structures, of the counts of loops, and of the distances between
-- iterations.
--
--   transformer.h.%d.ln_1.weight    ->    m->w.h_ln_1_weight + l * H_PARAMS       for l < H_LAYERS
--   transformer_h_ln_1_y            ->    m->a.h_ln_1_y + l * H_LN_1_Y
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local names = {}

-- The parts of a name such as "transformer.h.%d.ln_1.weight" in front of the parameter's own.
local function layers_of(name)
    local list = {}
    for part in name:gmatch("[^.]+") do list[#list + 1] = part end
    list[#list] = nil
    return list
end

-- "transformer_": the layers that most parameters lie in, and all others are layers by themselves, such as "lm_head";
-- "" if there are none. Loops keep their names, and a parameter that of one layer.
local function common_prefix(params)
    local common, inside = nil, 0
    for _, p in ipairs(params) do
        local layers, k = layers_of(p.name), 0
        if #layers > 1 then
            inside = inside + 1
            local most = math.min(#layers - 1, common and #common or #layers)
            local function is_common(i) return not common or common[i] == layers[i] end
            while k < most and layers[k + 2] ~= "%d" and is_common(k + 1) do k = k + 1 end
            common = table.move(layers, 1, k, 1, {})
        end
    end
    if 2 * inside <= #params or #common == 0 then return "" end
    return table.concat(common, "_") .. "_"
end

-- A name without the prefix, where more than a word is left.
local function shortened(name, prefix)
    for _, head in ipairs { "", "d_" } do
        local rest = name:sub(1, #head + #prefix) == head .. prefix and name:sub(#head + #prefix + 1)
        if rest and rest:find("^%a.*_") then return head .. rest end
    end
    return name
end

-- Sets place.field of all tensors that have a place: their names in C, without the prefix if no two become the same.
local function name_fields(g, prefix)
    local taken, placed = {}, ordered.collect(g.tensors, function(t) return t.place and t or nil end)
    for _, t in ipairs(g.tensors) do taken[t.name:lower()] = true end
    for _, t in ipairs(placed) do
        local short = prefix ~= "" and t.place.arena ~= "batch" and shortened(t.name, prefix) or t.name
        local free = not taken[short:lower()]
        t.place.field = free and short or t.name
        taken[t.place.field:lower()] = true
    end
end

-- Arenas in which the parameters of all iterations lie behind each other.
local FLAT = { parameters = true, gradients = true, residues = true, collected = true }

-- First words of other constants of the program.
local TAKEN = { AT = true, GA = true, TRAINED = true, SUMMED = true }

-- The name of a constant, apart from other constants of the program.
local function constant(name)
    name = name:upper()
    return (TAKEN[name:match("^[^_]*")] or name:find("^%d")) and "LOOP_" .. name or name
end

-- The name of a constant of a loop, such as "H_LAYERS".
local function of_loop(region, prefix, what)
    local loop = region.name:gsub("[^%w_]+", "_") .. "_"
    return constant((loop:sub(1, #prefix) == prefix and loop:sub(#prefix + 1) or loop) .. what)
end

-- The wanted name of a distance: H_PARAMS for parameters of the loop h, else the name of the array.
local function wanted_name(t, prefix)
    return FLAT[t.place.arena] and of_loop(t.scope, prefix, "PARAMS") or constant(t.place.field)
end

-- Names the functions that find the layers of parameters in windows: h_chunk, or h_chunk_1, h_chunk_2, ... where layers
-- of a loop lie in several ways. field: "window" or "chunk" of a parameter.
local function name_runs(g, prefix, field)
    local by_region = ordered.map()
    for _, param in ipairs(g.params) do
        local run = param[field] and param[field].run
        local list = run and (by_region:get(run.region) or by_region:set(run.region, {}))
        if list and not ordered.find(list, run) then list[#list + 1] = run end
    end
    for region, list in by_region:each() do
        for i, run in ipairs(list) do
            run.name = of_loop(region, prefix, field:upper()):lower() .. (#list > 1 and "_" .. i or "")
        end
    end
end

--- Names the fields, distances and loops of a graph; gives the distances, { name, elements }, in the order of the
--- program, and how often loops over layers run, { name, count, path }.
function names.set(g)
    local prefix, list, loops, loop_of, value_of = common_prefix(g.params), {}, {}, {}, {}
    name_fields(g, prefix)
    local function distance(wanted, elements, others)
        local name, k = wanted, 1
        while value_of[name] and value_of[name] ~= elements do
            k = k + 1
            name = wanted .. "_" .. k
        end
        if not value_of[name] then table.insert(others or list, { name, elements }) end
        value_of[name] = elements
        return name
    end
    local function name_loop(region)
        local is_named = region.op == "times" and not region.range    -- a range has a number of layers of its own
            and not region.name:find "[^%w_.]"      -- not "256 rows of y"
        if not is_named then return end
        region.constant = distance(of_loop(region, prefix, "LAYERS"), region.count, loops)
        loop_of[region.constant] = loop_of[region.constant] or region.name
    end
    local function see(node, name, t)
        local p, run = t.place, node.run
        local _, some = graph.seen(node, name, t)
        if some and run.scope then
            p.rows = distance((p.field or t.name):upper() .. "_ROWS", run.rows * (graph.elements(t.shape) // run.whole))
        end
        if t.scope and p and p.slots > 1 and not p.distance and not t.array then
            local each = graph.is_half(t) and t.kind ~= "param" and 2 or 1     -- of a parameter: see c.pointer
            p.distance = distance(wanted_name(t, prefix), p.stride * each)
        end
    end
    local one_row = g.one_row or {}
    for _, body in ipairs { g.views, g.forward, g.evaluation, g.backward, g.boundary, one_row.row or {},
        one_row.position or {} } do
        graph.walk(body, function(node)
            name_loop(node)
            for _, name in ipairs(node.signature and node.signature.outs or {}) do
                if node.outs[name] then see(node, name, node.outs[name].tensor) end
            end
            for _, name in ipairs(node.signature and node.signature.ins or {}) do
                if node.ins[name] then see(node, name, node.ins[name]) end
            end
        end)
    end
    for _, param in ipairs(g.params) do
        local ring = param.window and param.window.ring
        if ring then ring.name = of_loop(ring.region, prefix, "WINDOW"):lower() end
    end
    name_runs(g, prefix, "window")
    name_runs(g, prefix, "chunk")
    for _, loop in ipairs(loops) do loop[3] = loop_of[loop[1]] end
    return list, loops
end

--- The declarations of distances, in model.h.
function names.lines(distances)
    return text.block(table.concat(ordered.collect(distances, function(d)
        return ("static const size_t %s = %d;"):format(d[1], d[2])
    end), "\n"))
end

return names
