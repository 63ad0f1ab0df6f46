-- compile: turns a spec and options into a lowered graph and its configuration, the start of most commands.
local diag = require "base.diag"
local fit = require "command.fit"
local load_spec = require "spec.load"
local options = require "spec.options"
local ordered = require "base.ordered"
local passes = require "passes.passes"
local plan = require "emit.program.plan"
local profile = require "emit.program.profile"
local set = require "spec.set"
local targets = require "emit.targets.targets"
local text = require "base.text"

-- Options, by key, that change the program: its files show them in the command that wrote them.
local SHOWN = { { "target", "--target" }, { "march", "--march" }, { "ranks", "--ranks" },
    { "threads", "--threads" } }

-- The command that writes this program again, from the same folder.
local function shown_command(path, sets, o)
    local parts = { "gagen", text.shell_word(path) }
    local function add(option, value) parts[#parts + 1] = option .. " " .. text.shell_word(tostring(value)) end
    for _, s in ipairs(sets) do add("--set", s.text) end
    for _, option in ipairs(SHOWN) do
        if o[option[1]] then add(option[2], o[option[1]]) end
    end
    for _, pass in ipairs(o.without or {}) do add("--without", pass) end
    return table.concat(parts, " ")
end

local function tracer(folder)
    return function(name, content)
        host.folder(folder)
        local ok, message = host.write(folder, name, content)
        if not ok then diag.fail(folder, message, { kind = "environment" }) end
    end
end

-- Words that not every target has.
local function check_target(c)
    if c.wire and not targets.of(c).narrow_wire then
        diag.fail(diag.field(c.parallel_at, "comm"), ('parallel: comm is "%s", and the target "%s" sums in f32: '
            .. 'expected no comm'):format(c.wire, c.target), {})
    end
    if c.sync_batchnorm and not targets.of(c).gathers then
        diag.fail(diag.field(c.parallel_at, "sync_batchnorm"), ('parallel: sync_batchnorm, and the target "%s" '
            .. "exchanges nothing inside the forward pass: expected no sync_batchnorm"):format(c.target), {})
    end
    if #c.rank_groups > 0 and not targets.of(c).rank_groups then
        diag.fail(diag.field(c.parallel_at, "groups"), ('parallel: groups of ranks are given, and the target "%s" '
            .. 'exchanges with all ranks alone: expected none'):format(c.target), {})
    end
end

-- Lowers a spec; `choice` (config.read) decides what the spec leaves to its memory budget.
local function lower(path, o, sets, choice)
    choice.ranks = o.ranks
    local g, c = load_spec.load(path, sets, choice)
    c.shown_path = path:match("^/") and path:match("([^/]*/?[^/]*)$") or path
    c.shown_command = shown_command(c.shown_path, sets, o)
    options.apply(c, o)
    check_target(c)
    c.profile = c.march == "native" and profile.native(host.cpu()) or c.march
    profile.f32(c)
    local facts = profile.get(c.profile)
    local target = targets.of(c)
    c.narrow_wire = target.narrow_wire or false
    c.behind, c.parts = target.behind or {}, target.parts or {}
    c.whole = target.whole and target.whole(c) or nil
    c.writes_half = target.writes_half and target.writes_half(c) or {}
    c.sums_rows, c.drops = target.sums_rows or {}, target.drops or {}
    c.turned_rows = target.turns and target.turns(c) or math.huge
    c.panels = target.panels and target.panels(c)
    c.turns_once = target.turns_once and target.turns_once(c)
    c.widens_once = target.widens_once and target.widens_once(c)
    c.narrows, c.branches = target.narrows or false, target.branches or false
    c.channels, c.together = target.channels or {}, target.together or {}
    c.placed = target.device and c.placement or nil
    c.device_bytes = function(graph) return plan.device_bytes(plan.arenas(graph, c)) end
    c.octets = target.octets and target.octets(c) or nil
    c.strides = target.strides and target.strides(c) or nil
    c.compiler_flags, c.cpu_features = facts.flags, facts.features
    c.without, c.stop_after = ordered.map(), not choice.trial and o.stop_after or nil
    for _, pass in ipairs(o.without or {}) do c.without:set(pass, true) end
    c.trace = o.trace and not choice.trial and tracer(o.trace) or nil
    passes.run(g, c)
    return g, c
end

--- Lowers the spec at `path` with the options `o` of the command line. `more`: further sets (set.read), after those
--- of the command line, for one more program of the same spec: without warnings. Returns the graph and the
--- configuration.
return function(path, o, more)
    local sets = set.read_all(o.set or {})
    table.move(more or {}, 1, #(more or {}), #sets + 1, sets)
    local function make(choice) return lower(path, o, sets, choice) end
    if more then return diag.without_warnings(fit, make) end
    local g, c = fit(make)
    for _, param in ipairs(g.params) do
        if not param.used and not param.frozen then
            diag.warn(param.at, ("the loss does not depend on '%s': it is not trained"):format(
                param.name))
        end
    end
    return g, c
end
