-- state_file: what a program says of the state that lies in a file (passes/state_file.lua): the fields of its model,
-- how they are opened and closed, what the plan tells.
local c_text = require "emit.targets.c_text"
local diag = require "base.diag"
local division = require "emit.boundary.division"
local expr = require "base.expr"
local ordered = require "base.ordered"
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

--- Refuses a target without a sweep over a file.
function state_file.check(g, config, target)
    if g.state_file and not target.state_need then
        diag.fail(config.nvme.at, ("parallel: nvme is given, and target \"%s\" has no update that sweeps over a file: "
            .. "expected another target, or no nvme"):format(target.name), {})
    end
end

--- Fields of the struct model.
function state_file.fields(g, rows, target)
    if not g.state_file then return {} end
    return { "ga_state_file *state_file; /* the last elements of the optimizer's state */",
        "part_lists swept;        /* parts of the ranges: of this rank, as an update sweeps over the state */",
        ("range swept_parts[%d];"):format(part_count(g, rows)),
        target.device and g.states:has "ema" and "bool averaged; /* averages are in the place of parameters */"
            or nil }
end

--- The number of the averages among the states in the file.
function state_file.average(g) return ordered.find(g.state_file.arrays, "ema") - 1 end

-- How the states get their memory.
local function opened(file, device)
    local list = {}
    for i, name in ipairs(file.arrays) do
        local upper, windows = name:upper(), "windows_of(m, " .. i - 1 .. ")"
        if not device then
            windows = ("m->state_%s + ga_state_file_held(m->state_file)"):format(name)
        end
        list[#list + 1] = ('GA_TRY(open_state(m, %sARENA_STATE_%s, "state_%s", e));'):format(
            device and ("DEVICE_STATE_%s, "):format(upper) or "", upper, name)
        list[#list + 1] = ("m->state_%s = (real *)m->memory[ARENA_STATE_%s].base;"):format(name, upper)
        list[#list + 1] = device and ("m->device_state_%s = m->device_memory[DEVICE_STATE_%s];"):format(name, upper)
            or nil
        list[#list + 1] = c_text.wrap("", ("m->saved.rest[%d] = ga_state_file_array("):format(i - 1),
            { "m->state_file", tostring(i - 1), windows }, ");")
    end
    return sections.lines(list)
end

--- Arguments of the block `state_file` of memory.c.
function state_file.opening(g, config, rows, target)
    local file, device = g.state_file, target.device
    return { name = text.ident(config.name), folder = text.string(file.folder),
        fraction = text.block(expr.literal(file.fraction, "f64")), window = file.window, arrays = #file.arrays,
        elements = text.block(g.sharded.state and "m->division.own.elements" or "TRAINED"),
        segments = part_count(g, rows), opened = opened(file, device), device = device,
        places = text.block(device and "1" or "GA_STATE_WINDOWS") }
end

--- Lines that close it.
function state_file.closing(g)
    return g.state_file and sections.lines { "ga_state_file_close(m->state_file);" } or text.block("")
end

-- Elements of each state of the rank that has most of them: those that lie in memory for good, and those of a window.
local function sizes(g, config)
    local elements = division.state_elements(g, config.ranks)
    local held = state_files.held(g.state_file, elements)
    return held, elements - held, state_files.window(g.state_file, elements)
end

--- The plan's line for memory of states, and its bytes: it has their first elements so many times, and so many windows.
function state_file.arena(g, config, what, element, filed)
    local held, _, window = sizes(g, config)
    return filed.held > 0 and what .. ", the last of it in a file" or what,
        element * (filed.held * held + filed.windows * window)
end

--- Bytes of the windows of all states on the host.
function state_file.window_bytes(g, config)
    local _, _, window = sizes(g, config)
    return state_files.WINDOWS * window * #g.state_file.arrays * (g.real == "f64" and 8 or 4)
end

--- Facts for the plan, of the rank that has most of the state: { folder, fraction, bytes of the file, window_bytes of
--- the host's memory, device_bytes of states and windows on a device, bytes that an update reads, and writes; as many
--- go to a device, and come back }.
function state_file.facts(g, config, target)
    if not g.state_file then return nil end
    local file, held, filed, window = g.state_file, sizes(g, config)
    local size = #file.arrays * (g.real == "f64" and 8 or 4)
    local bytes = filed * size
    return { folder = file.folder, fraction = file.fraction, bytes = bytes, read_bytes = bytes, written_bytes = bytes,
        window_bytes = state_file.window_bytes(g, config),
        device_bytes = target.device and (held + window) * size or nil }
end

--- The plan's lines about it.
function state_file.lines(facts)
    local commas = text.commas
    local list = { ("%s bytes of state per rank in %s, %s of them at once in memory; an update reads %s and writes %s")
        :format(commas(facts.bytes), facts.folder, commas(facts.window_bytes), commas(facts.read_bytes),
        commas(facts.written_bytes)) }
    list[2] = facts.device_bytes and ("that memory is pinned, and the device has %s bytes of state; an update sends "
        .. "it %s and fetches %s"):format(commas(facts.device_bytes), commas(facts.read_bytes),
        commas(facts.written_bytes))
    return list
end

return state_file
