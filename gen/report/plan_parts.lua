-- plan_parts: sections of the report that come from a plan: the model, memory, collectives.
local axis = require "report.axis"
local film_figure = require "report.film_figure"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local parts = require "report.parts"
local text = require "base.text"

local plan_parts = {}

local commas = text.commas

local LAYERS = { { title = "layer" }, { title = "kind" }, { title = "output" }, { title = "times", number = true },
    { title = "parameters", number = true }, { title = "forward FLOP", number = true }, { title = "share of FLOP" } }

--- The table of the model.
function plan_parts.model(facts)
    local flops, parameters, csv = 0, 0, { { "layer", "kind", "output", "times", "parameters", "forward_flop" } }
    for _, layer in ipairs(facts.layers) do
        flops, parameters = flops + layer.flops_per_cycle, parameters + layer.parameters
        csv[#csv + 1] = { layer.name, layer.kind, graph.shape_text(layer.shape), layer.count, layer.parameters,
            layer.flops_per_cycle }
    end
    local rows = ordered.collect(facts.layers, function(layer)
        return { layer.name, layer.kind, graph.shape_text(layer.shape), tostring(layer.count), commas(layer.parameters),
            commas(layer.flops_per_cycle), parts.bar(flops > 0 and layer.flops_per_cycle / flops or 0) }
    end)
    rows[#rows + 1] = { "total", "", "", "", commas(parameters), commas(flops), "" }
    return { parts.figure { id = "model", title = "Layers", picture = parts.table(LAYERS, rows), csv = csv,
        caption = "Results of a micro-step; parameters and forward FLOP of an update, of all iterations." } }
end

local ARENAS = { { title = "arena" }, { title = "bytes", number = true }, { title = "share" },
    { title = "what", wrap = true } }

--- Memory: the arenas, and the film of the activations.
function plan_parts.memory(facts)
    local csv, list = { { "arena", "bytes", "what" } }, {}
    local rows = ordered.collect(facts.arenas, function(arena)
        csv[#csv + 1] = { arena.name, arena.bytes, arena.what or "" }
        return { arena.name, commas(arena.bytes), parts.bar(facts.totals.bytes > 0 and arena.bytes / facts.totals.bytes
            or 0), arena.what or "" }
    end)
    rows[#rows + 1] = { "total", commas(facts.totals.bytes), "", "" }
    list[1] = parts.figure { id = "arenas", title = "Arenas", picture = parts.table(ARENAS, rows), csv = csv,
        caption = "All memory of a process is allocated at its start. Outside the plan: "
            .. table.concat(facts.outside or {}, "; ") .. "." }
    local film = facts.film and film_figure.parts(facts.film)
        or { parts.paragraph "This program's plan has no film: a later gagen writes one." }
    return table.move(film, 1, #film, 2, list)
end

local COLLECTIVES = { { title = "collective" }, { title = "micro-step" }, { title = "type" },
    { title = "bytes of a call", number = true }, { title = "calls of an update", number = true } }

local COUNTED = { { title = "" }, { title = "updates", number = true },
    { title = "collectives of an update", number = true }, { title = "bytes of an update", number = true } }

-- "3", or "3 to 5", of a column of a run.
local function range_text(column)
    local low, high
    for _, value in ipairs(column or {}) do
        if value then low, high = math.min(low or value, value), math.max(high or value, value) end
    end
    if not low then return "-" end
    return low == high and axis.number(low) or ("%s to %s"):format(axis.number(low), axis.number(high))
end

--- Collectives of an update as planned, and as the runs have counted them.
function plan_parts.network(facts, runs)
    local calls, csv = 0, { { "collective", "micro_step", "type", "bytes", "calls" } }
    local rows = ordered.collect(facts.collectives, function(x)
        calls = calls + x.calls
        csv[#csv + 1] = { x.kind, x.role, x.dtype, x.bytes, x.calls }
        return { x.kind, x.role, x.dtype, commas(x.bytes), tostring(x.calls) }
    end)
    local counted = { { "planned", "", commas(calls), commas(facts.totals.comm_bytes_per_cycle) } }
    for _, run in ipairs(runs) do
        counted[#counted + 1] = { run.label, commas(#run.cycles), range_text(run.columns.collectives),
            range_text(run.columns.comm_bytes) }
    end
    local planned = #rows > 0 and parts.figure { id = "collectives", title = "Planned", csv = csv,
        picture = parts.table(COLLECTIVES, rows), caption = ("%d ranks."):format(facts.ranks) }
    return { planned or parts.paragraph "One process: nothing is exchanged.",
        parts.table(COUNTED, counted, "planned and counted; an update of fewer micro-steps may have fewer") }
end

--- A sentence for each run with an update of more collectives than planned.
function plan_parts.network_warnings(facts, runs)
    local calls = 0
    for _, x in ipairs(facts.collectives) do calls = calls + x.calls end
    local list = {}
    for _, run in ipairs(runs) do
        local most = 0
        for _, value in ipairs(run.columns.collectives or {}) do most = math.max(most, value or 0) end
        if run.same_program and most > calls then
            list[#list + 1] = ("%s: an update had %s collectives, %d are planned"):format(run.label, axis.number(most),
                calls)
        end
    end
    return list
end

return plan_parts
