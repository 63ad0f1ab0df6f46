-- gagen: the driver. A command is a short list of steps: options -> spec -> passes -> emit -> files.
local catalog = require "catalog.catalog"
local diag = require "base.diag"
local doctor = require "emit.doctor"
local load_spec = require "spec.load"
local options = require "spec.options"
local ordered = require "base.ordered"
local passes = require "passes.passes"
local plan = require "emit.plan"
local print_graph = require "graph.print"
local profile = require "emit.profile"
local program = require "emit.program"
local registry = require "emit.registry"
local step = require "emit.step"
local expr = require "base.expr"

local gagen = {}

-- Spec and options to a lowered graph.
local function compile(path, o)
    local g, c = load_spec.load(path)
    c.shown_path = path:match("^/") and path:match("([^/]*/?[^/]*)$") or path
    options.apply(c, o)
    c.profile = c.march == "native" and profile.native(host.cpu()) or c.march
    local facts = profile.get(c.profile)
    c.compiler_flags, c.cpu_features = facts.flags, facts.features
    c.without, c.stop_after = o.without, o.stop_after
    if o.trace then
        c.trace = function(name, content)
            host.folder(o.trace)
            local ok, message = host.write(o.trace, name, content)
            if not ok then diag.fail(o.trace, message, { kind = "environment" }) end
        end
    end
    passes.run(g, c)
    for _, param in ipairs(g.params) do
        if not param.used then
            diag.warn(param.at, ("the loss does not depend on '%s': it is not trained"):format(
                param.name))
        end
    end
    return g, c
end

local function output_folder(c, o) return o.output or "out/" .. c.name end

local COMMANDS = {}

local function generate(o)
    local g, c = compile(o.spec, o)
    if o.stop_after then
        io.write(print_graph(g))
        return nil
    end
    local files, facts = program.render(g, c)
    local folder = output_folder(c, o)
    program.write(folder, files, o.force)
    local data = (o.spec:match("^(.*/)[^/]*$") or "") .. "data"
    if host.exists(data) == "folder" then host.link(host.absolute(data), folder .. "/data") end
    return folder, facts, files
end

function COMMANDS.generate(o)
    local folder, facts, files = generate(o)
    if folder then
        io.stderr:write(("wrote %s: %d files, %d parameters, %d bytes planned; next: make -C %s\n")
            :format(folder, files:size() + 1, facts.totals.parameters, facts.totals.bytes, folder))
    end
    return 0
end

function COMMANDS.run(o)
    local folder = generate(o)
    if not folder then return 0 end
    local status, why = host.run { "make", "-s", "-C", folder }
    if status ~= 0 then
        diag.fail(folder, "make failed" .. (why and ": " .. why or ""), { kind = "environment" })
    end
    local command = { host.absolute(folder .. "/train"), table.unpack(o.rest) }
    local code, message = host.run(command)
    if not code then diag.fail(folder .. "/train", message, { kind = "environment" }) end
    return code
end

function COMMANDS.check(o)
    compile(o.spec, o)
    io.stderr:write(o.spec .. ": ok\n")
    return 0
end

function COMMANDS.plan(o)
    local g, c = compile(o.spec, o)
    local _, facts = program.render(g, c)
    io.write(o.json and host.json(facts) .. "\n" or plan.text(facts))
    return 0
end

function COMMANDS.lr(o)
    local _, c = compile(o.spec, o)
    local rate = step.rate(c)
    local lines = {}
    for t = 0, c.cycles - 1 do
        lines[#lines + 1] = ("%d\t%.9g\n"):format(t + 1,
            expr.evaluate(rate, { t = t, total = c.schedule.total }))
    end
    io.write(table.concat(lines))
    return 0
end

function COMMANDS.kernels(o)
    local g, c = compile(o.spec, o)
    local files = program.render(g, c)
    io.write(files:get(files:has("kernels.cu") and "kernels.cu" or "kernels.c"))
    return 0
end

function COMMANDS.show(o)
    local g, c = compile(o.spec, o)
    local files = program.render(g, c)
    local name = o.rest[1] or "step.c"
    if not files:has(name) then
        diag.fail("show", ("there is no file '%s' in the program"):format(name),
            { hint = diag.suggest(name, files.keys), notes = { table.concat(files.keys, " ") } })
    end
    io.write(files:get(name))
    return 0
end

function COMMANDS.list(o)
    io.write(registry.text(catalog.load(), o.rest[1]))
    return 0
end

function COMMANDS.doctor() return doctor.run() end

function COMMANDS.help()
    io.write(options.help())
    return 0
end

function COMMANDS.version()
    io.write(("gagen %s, %s\n"):format(host.version, host.lua_release))
    return 0
end

--- The program: command-line words to an exit code.
function gagen.main(arguments)
    local o = options.parse(arguments, ordered.keys(COMMANDS))
    return COMMANDS[o.command](o)
end

return gagen.main
