-- state_file: what a program says of the state that lies in a file (passes/state_file.lua): the fields of its model,
-- how they are opened and closed, what the plan tells.
local diag = require "base.diag"
local division = require "emit.boundary.division"
local expr = require "base.expr"
local sections = require "emit.program.sections"
local state_files = require "passes.state_file"
local text = require "base.text"
local update = require "passes.update"

local state_file = {}

-- Parts that a sweep over a row of the table of ranges may have: those of its pieces, each cut again into segments, and
-- where the file begins.
local function parts_of(g, run)
    local pieces = g.sharded.state and update.parts(g, run, "own") or run.count
    return pieces + run.n * run.count // g.state_file.window + 1
end

local function part_count(g, rows)
    local count = 0
    for _, row in ipairs(rows) do count = count + parts_of(g, row.run) end
    return count
end

--- Refuses a target whose update does not run where the file is read.
function state_file.check(g, config, target)
    if g.state_file and not target.services.state_finish then
        diag.fail(config.nvme.at, ("parallel: nvme is given, and with target \"%s\" the state lies in the memory of a "
            .. "device: expected a target whose update runs on the host, or no nvme"):format(target.name), {})
    end
end

--- Fields of the struct model.
function state_file.fields(g, rows)
    if not g.state_file then return {} end
    return { "ga_state_file *state_file; /* the last elements of the optimizer's state */",
        "part_lists swept;        /* parts of the ranges: of this rank, as an update sweeps over the state */",
        ("range swept_parts[%d];"):format(part_count(g, rows)) }
end

--- Arguments of the block `state_file` of memory.c.
function state_file.opening(g, config, rows)
    local list, file = {}, g.state_file
    for i, name in ipairs(file.arrays) do
        local arena = ("ARENA_STATE_%s"):format(name:upper())
        list[#list + 1] = ('GA_TRY(open_state(m, %s, "state_%s", e));'):format(arena, name)
        list[#list + 1] = ("m->state_%s = (real *)m->memory[%s].base;"):format(name, arena)
        list[#list + 1] = ("m->saved.rest[%d] = ga_state_file_array(m->state_file, %d, m->state_%s);"):format(i - 1,
            i - 1, name)
    end
    return { name = text.ident(config.name), folder = text.string(file.folder),
        fraction = text.block(expr.literal(file.fraction, "f64")), window = file.window, arrays = #file.arrays,
        elements = text.block(g.sharded.state and "m->division.own.elements" or "TRAINED"),
        segments = part_count(g, rows), opened = sections.lines(list) }
end

--- Lines that close it.
function state_file.closing(g)
    return g.state_file and sections.lines { "ga_state_file_close(m->state_file);" } or text.block("")
end

--- The plan's line for the memory of a state, and its bytes.
function state_file.arena(g, config, what, element)
    return what .. ", the last of it in a file", element * state_files.in_memory(g.state_file,
        division.state_elements(g, config.ranks))
end

--- Facts for the plan, of the rank that has most of the state: { folder, fraction, bytes of the file, window_bytes,
--- bytes that an update reads, and writes }.
function state_file.facts(g, config)
    local file, size = g.state_file, g.real == "f64" and 8 or 4
    if not file then return nil end
    local elements = division.state_elements(g, config.ranks)
    local held = state_files.held(file, elements)
    local bytes = (elements - held) * #file.arrays * size
    return { folder = file.folder, fraction = file.fraction, bytes = bytes, read_bytes = bytes, written_bytes = bytes,
        window_bytes = (state_files.in_memory(file, elements) - held) * #file.arrays * size }
end

--- The plan's line about it.
function state_file.line(facts)
    local commas = text.commas
    return ("%s bytes of state per rank in %s, %s of them at once in memory; an update reads %s and writes %s"):format(
        commas(facts.bytes), facts.folder, commas(facts.window_bytes), commas(facts.read_bytes),
        commas(facts.written_bytes))
end

return state_file
