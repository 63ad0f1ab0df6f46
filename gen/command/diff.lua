-- diff: `gagen diff A B`: the differences of two programs: first the plans (parameters, memory, work, kernels,
-- collectives), then the text of the files. A and B are specs or folders of programs.
local columns = require "base.columns"
local compile = require "command.compile"
local diag = require "base.diag"
local lines = require "base.lines"
local options = require "command.options"
local ordered = require "base.ordered"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"
local text = require "base.text"

local diff = {}

local CONTEXT = 2

local function of_spec(path, o, sets)
    local how = ordered.copy(o)
    how.set = sets
    local g, c = compile(path, how)
    local files, facts = program.render(g, c)
    return { name = c.shown_command:gsub("^gagen ", ""), facts = facts, files = files }
end

local function of_folder(path)
    local content = host.exists(path .. "/plan.json") == "file" and host.read(path .. "/plan.json")
    local facts = content and host.parse_json(content)
    if type(facts) ~= "table" or facts.format ~= 1 or type(facts.totals) ~= "table" then
        diag.fail(path, "no program of gagen: plan.json is missing or cannot be read", {})
    end
    local files = ordered.map()
    for _, name in ipairs(program_folder.own_files(path)) do
        files:set(name, host.read(path .. "/" .. name))
    end
    return { name = path, facts = facts, files = files }
end

local function side(path, o, sets)
    local kind = host.exists(path)
    if not kind then diag.fail(path, "there is no such spec or folder", {}) end
    if kind == "folder" then return of_folder(path) end
    return of_spec(path, o, sets)
end

-- Marks an array, so that JSON shows an empty one as [ ].
local function array(list) return setmetatable(list, { array = true }) end

-- -- the plans ------------------------------------------------------------------------------------

local FIGURES = {
    { "parameters", function(f) return f.totals.parameters end },
    { "bytes", function(f) return f.totals.bytes end },
    { "FLOP per update", function(f) return f.totals.flops_per_cycle end },
    { "network bytes per update", function(f) return f.totals.comm_bytes_per_cycle end },
    { "micro-steps per update", function(f) return f.cycle.accumulate end },
    { "rows per micro-step", function(f) return f.cycle.rows end },
    { "rows per update", function(f) return f.cycle.global_rows end },
    { "updates per epoch", function(f) return f.cycle.updates_per_epoch end },
    { "kernels", function(f) return #f.kernels end },
    { "target", function(f) return f.target end }, { "precision", function(f) return f.precision end },
    { "profile", function(f) return f.profile end }, { "ranks", function(f) return f.ranks end },
}

-- Lists of the plan: the name of an entry, and its properties that are compared.
local LISTS = {
    { "parameters", "name", { "shape", "count", "group", "trainable" } },
    { "arenas", "name", { "bytes" } },
    { "kernels", "name", { "role", "calls", "flops", "bytes" } },
    { "collectives", "kind", { "role", "dtype", "bytes", "calls" } },
}

local function show(value)
    if type(value) == "table" then
        return "(" .. table.concat(ordered.collect(value, tostring), ", ") .. ")"
    end
    return math.type(value) and text.commas(math.tointeger(value) or value) or tostring(value)
end

-- The entries of a list by name; repeated names are numbered.
local function by_name(list, key)
    local map = ordered.map()
    for _, entry in ipairs(list) do
        local name, n = entry[key], 2
        while map:has(name) do name, n = entry[key] .. " " .. n, n + 1 end
        map:set(name, entry)
    end
    return map
end

local function shown_fields(entry, fields)
    return table.concat(ordered.collect(fields, function(f)
        return entry[f] ~= nil and f .. " " .. show(entry[f]) or nil
    end), ", ")
end

-- The changes of a list between two plans: { sign = "-", "+" or "~", name, text }.
local function list_changes(a, b, list)
    local x, y, out = by_name(a[list[1]] or {}, list[2]), by_name(b[list[1]] or {}, list[2]), array {}
    for name, entry in x:each() do
        if not y:has(name) then
            out[#out + 1] = { sign = "-", name = name, text = shown_fields(entry, list[3]) }
        end
    end
    for name, entry in y:each() do
        local before, changes = x:get(name), {}
        for _, f in ipairs(before and list[3] or {}) do
            if show(before[f]) ~= show(entry[f]) then
                changes[#changes + 1] = ("%s %s -> %s"):format(f, show(before[f]), show(entry[f]))
            end
        end
        if not before then
            out[#out + 1] = { sign = "+", name = name, text = shown_fields(entry, list[3]) }
        elseif #changes > 0 then
            out[#out + 1] = { sign = "~", name = name, text = table.concat(changes, ", ") }
        end
    end
    return out
end

local function figure_changes(a, b)
    return array(ordered.collect(FIGURES, function(figure)
        local x, y = figure[2](a), figure[2](b)
        if x == y then return nil end
        local change = math.type(x) and math.type(y) and y - x or nil
        return { name = figure[1], a = x, b = y, change = change }
    end))
end

-- -- the text -------------------------------------------------------------------------------------

local PROVENANCE = { "^[/# ]*%*? *From .* by gagen ", "^Written by gagen ", "^#define SPEC_",
    " bytes planned, 0 allocations " }

-- The key by which lines are compared: lines about the origin of a program all have the same.
local function key_of(line)
    for _, pattern in ipairs(PROVENANCE) do
        if line:find(pattern) then return "provenance" end
    end
    return (line:gsub("[%w_./-]*%.lua:%d+", "SPEC"))
end

local function file_changes(a, b)
    local names, out = ordered.map(), array {}
    for name in b.files:each() do names:set(name, true) end
    for name in a.files:each() do names:set(name, true) end
    for name in names:each() do
        local x, y = a.files:get(name) or "", b.files:get(name) or ""
        if x ~= y and name ~= "plan.json" then
            local edits = lines.edits(lines.split(x), lines.split(y), key_of)
            local added, removed = 0, 0
            for _, edit in ipairs(edits) do
                added, removed = added + (edit.sign == "+" and 1 or 0), removed + (edit.sign == "-" and 1 or 0)
            end
            if added + removed > 0 then
                out[#out + 1] = { name = name, added = added, removed = removed,
                    hunks = lines.hunks(edits, CONTEXT) }
            end
        end
    end
    return out
end

-- -- both -----------------------------------------------------------------------------------------

local function facts_of(a, b)
    local facts = { format = 1, a = a.name, b = b.name, figures = figure_changes(a.facts, b.facts), lists = {},
        files = file_changes(a, b) }
    for _, list in ipairs(LISTS) do
        facts.lists[list[1]] = list_changes(a.facts, b.facts, list)
    end
    return facts
end

-- Prints the changes of one list; entries with the same change share a line.
local function list_lines(changes, line)
    local same = ordered.map()
    for _, change in ipairs(changes) do
        local key = change.sign .. change.text
        local group = same:get(key) or same:set(key, { change = change, others = 0 })
        if group.change ~= change then group.others = group.others + 1 end
    end
    for _, group in same:each() do
        local others = group.others > 0 and (" and %d more"):format(group.others) or ""
        line("  %s %-26s %s", group.change.sign, group.change.name .. others, group.change.text)
    end
end

-- The report as text: its hunks as they are, other lines broken at `width`, the terminal's columns or nil.
local function report(facts, width)
    local out = {}
    local function line(...) out[#out + 1] = columns.wrapped(string.format(...):gsub(" +$", "") .. "\n", width) end
    line("a  %s", facts.a)
    line("b  %s\n", facts.b)
    for _, f in ipairs(facts.figures) do
        line("%-26s%18s%18s  %s", f.name, show(f.a), show(f.b),
            f.change and (f.change > 0 and "+" or "") .. show(f.change) or "")
    end
    if #facts.figures == 0 then line("all figures of the plans are equal") end
    for _, list in ipairs(LISTS) do
        local changes = facts.lists[list[1]]
        if #changes > 0 then line("\n%s", list[1]) end
        list_lines(changes, line)
    end
    line("\n%d file%s differ%s apart from provenance", #facts.files, #facts.files == 1 and "" or "s",
        #facts.files == 1 and "s" or "")
    for _, file in ipairs(facts.files) do line("  %-26s +%d -%d", file.name, file.added, file.removed) end
    for _, file in ipairs(facts.files) do
        line("\n--- a/%s\n+++ b/%s", file.name, file.name)
        out[#out + 1] = file.hunks
    end
    return table.concat(out)
end

--- Prints the difference of A and B; without B, of A unchanged and A with --set.
function diff.run(o)
    local first, second = o.arguments[1], o.arguments[2]
    if not second and not o.set then
        diag.fail("diff", "expected two specs or folders, or one spec and --set", {})
    end
    local has_spec = host.exists(first) ~= "folder" or host.exists(second or first) ~= "folder"
    if not has_spec then options.check_without_spec(o) end
    local a = side(first, o, second and o.set or nil)
    local b = side(second or first, o, o.set)
    local facts = facts_of(a, b)
    io.write(o.json and host.json(facts) .. "\n" or report(facts, columns.of(1)))
end

return diff
