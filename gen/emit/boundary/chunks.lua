-- chunks: what a program says of the memory that parameters are gathered into before use (passes/chunks.lua).
local by_layer = require "emit.boundary.by_layer"
local c_text = require "emit.targets.c_text"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"

local chunks = {}

--- The functions that find the layers of parameters in the memory of chunks, for model.h.
function chunks.finders(g)
    return sections.lines(by_layer.finders(g, function(param) return param.chunk and param.chunk.run end, function(run)
        return ("Where %s of layer l is gathered, in elements from that of layer 0."):format(by_layer.covered(run))
    end, function(param) return param.value end))
end

--- Whether parameters lie beside the flat space of the trained ones: frozen ones, running statistics.
function chunks.has_untrained(g) return g.flat_elements > g.trained_elements end

--- Fields of the struct model for the parameters. device: whether kernels read a device's memory.
function chunks.fields(g, device)
    if not g.sharded.parameters then
        return sections.lines { "real *flat_w;            /* the flat space of parameters: FLAT elements */" }
    end
    local list = { "real *flat_w;            /* the flat space of parameters: this rank's part, division.own */",
        (device and "ga_address chunks;       " or "real *chunks;            ")
            .. "/* parameters that kernels read, gathered before their use */" }
    if chunks.has_untrained(g) then
        list[3] = "real *untrained;         /* frozen parameters, running statistics: FLAT - TRAINED elements */"
        if device then list[4] = "ga_address device_untrained;" end
    end
    return sections.lines(list)
end

--- Arguments of the block `chunked` of memory.c. params: in the order of the flat space.
function chunks.places(g, target, params)
    local list = {}
    for _, p in ipairs(params) do
        if p.chunk then
            list[#list + 1] = target.place(p.value, "chunks", p.chunk.offset)
        elseif p.flat.offset >= g.trained_elements then
            list[#list + 1] = target.place(p.value, "untrained", p.flat.offset - g.trained_elements)
        end
    end
    return { untrained = chunks.has_untrained(g), places = sections.lines(list) }
end

--- The lines of place() for the parameters. device: as for fields.
function chunks.placed(g, device)
    local untrained, other = chunks.has_untrained(g), device and "device_untrained" or "untrained"
    local list = { device and "m->chunks = m->device_memory[DEVICE_CHUNKS];"
        or "m->chunks = (real *)m->memory[ARENA_CHUNKS].base;" }
    if untrained then list[2] = "m->untrained = (real *)m->memory[ARENA_UNTRAINED].base;" end
    if untrained and device then list[3] = "m->device_untrained = m->device_memory[DEVICE_UNTRAINED];" end
    list[#list + 1] = ("m->w = parameters_at(m->chunks%s);"):format(untrained and ", m->" .. other or "")
    return list
end

--- How many arrays the parameters are in files: beside divided ones, those that are not trained have one of their own.
function chunks.arrays(g) return g.sharded.parameters and chunks.has_untrained(g) and 2 or 1 end

--- These arrays as two arguments, the first and their number; saved: the text before the field.
function chunks.saved(g, saved)
    local count = chunks.arrays(g)
    return text.block(("%s%sparameters, %d"):format(count > 1 and "" or "&", saved, count))
end

--- The first of them, as an address.
function chunks.first_saved(g, saved)
    return text.block(("%s%sparameters"):format(chunks.arrays(g) > 1 and "" or "&", saved))
end

--- How they are set, in the function that describes a checkpoint.
function chunks.saved_lines(g)
    if not g.sharded.parameters then
        return sections.lines { 'a->parameters = (ga_array){PARAMS, PARAM_COUNT, "", REAL, m->flat_w, NULL, NULL};' }
    end
    local divided = '(ga_array){PARAMS, TRAINED_PARAMS, "", REAL, m->flat_w, &m->division.own, NULL};'
    if not chunks.has_untrained(g) then return sections.lines { "a->parameters = " .. divided } end
    return sections.lines { "a->parameters[0] = " .. divided, "a->parameters[1] = (ga_array){UNTRAINED_PARAMS, "
        .. 'PARAM_COUNT - TRAINED_PARAMS, "", REAL, m->untrained, NULL, NULL};' }
end

-- The order in which a pass needs chunks, as a constant.
local function order_text(g, name)
    local order = ordered.collect(g.chunks.orders[name], function(bucket) return tostring(bucket - 1) end)
    if #order == 0 then return nil end
    return c_text.wrap("", ("static const chunk_order %s_CHUNKS = {%d, (const int[]){"):format(name:upper(), #order),
        order, "}};")
end

--- How many events a device needs to know which gathers have ended.
function chunks.events(g) return g.sharded.parameters and #g.collectives or 0 end

--- Arguments of the block `chunk_order` of update.c.
function chunks.tables(g)
    local places = {}
    for i, collective in ipairs(g.collectives) do
        places[i] = collective.beside and "0" or tostring(g.chunks.places[i] or 0)
    end
    return { prefetch = g.chunks.prefetch,
        places = text.block(c_text.wrap("", "static const int64_t CHUNKS[] = {", places, "};")),
        orders = sections.lines(ordered.collect({ "forward", "evaluation", "backward" }, function(name)
            return order_text(g, name)
        end)) }
end

return chunks
