-- transfers: how a program copies arrays of the device to those of the host, of which checkpoints are made, and back.
local chunks = require "emit.boundary.chunks"
local cuda = require "emit.targets.cuda.cuda"
local placed = require "emit.boundary.placed"
local text = require "base.text"

--- The lines that copy the arrays of an update to the device (up) or back from it.
return function(g, up)
    local out, verb = {}, up and "upload" or "download"
    local function add(name, here, elements, type_name)
        local device = "m->device_" .. name
        out[#out + 1] = ("GA_TRY(ga_device_%s(m->device, %s, %s, sizeof(%s) * %s, e));"):format(
            verb, up and device or here, up and here or device, type_name or "real", elements)
    end
    -- of a rank's part of an array, `shard`, what lies on the device
    local function add_part(name, here, shard, array)
        local there = placed.on_device(g, array)
        if there == nil then return add(name, here, ("(size_t)m->%s.elements"):format(shard)) end
        local host, device = here .. ", &m->" .. shard, ("m->device_%s, &m->%s"):format(name, there)
        out[#out + 1] = there and cuda.wrap("", ("GA_TRY(%s("):format(verb),
            { "m", up and device or host, up and host or device, "e" }, "));") or nil
    end
    if not g.sharded.parameters then add("w", "m->flat_w", "FLAT") end
    if g.sharded.parameters then add_part("w", "m->flat_w", "division.own", "parameters") end
    if g.sharded.parameters and chunks.has_untrained(g) then add("untrained", "m->untrained", "(FLAT - TRAINED)") end
    if not g.sharded.gradients then add("g", "m->flat_g", "SUMMED", g.half_sums and "bf16" or nil) end
    if g.sharded.gradients then add_part("g", "m->flat_g", "division.own", "gradients") end
    if g.sharded.gradients and g.summed_elements > g.trained_elements then
        add("collected", "m->collected", "(SUMMED - TRAINED)")
    end
    if g.residues then add("residue", "m->flat_residue", "SUMMED") end
    for _, name in ipairs(g.state_names) do
        local state, field = g.states:get(name), "state_" .. name
        if g.state_file and state.dense then
            add(field, "m->" .. field, "(size_t)ga_state_file_held(m->state_file)")
        elseif g.sharded.state then
            add_part(field, "m->" .. field, state.dense and "division.own" or "shard_" .. field, field)
        else
            add(field, "m->" .. field, state.dense and "TRAINED" or state.elements)
        end
    end
    if #out == 0 and not up then out[1] = "(void)m, (void)e; /* all of it lies in host memory */" end
    return text.block(table.concat(out, "\n"))
end
