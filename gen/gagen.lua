-- gagen: the driver. A command is a short list of steps: options -> spec -> passes -> emit -> files. A module that only
-- one command needs is loaded by that command.
local colour = require "base.colour"
local columns = require "base.columns"
local compile = require "command.compile"
local diag = require "base.diag"
local options = require "command.options"
local output = require "command.output"
local plan = require "emit.program.plan"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"
local targets = require "emit.targets.targets"
local text = require "base.text"
local expr = require "base.expr"

local COMMANDS = {}

-- Writes the program; build(folder, files, flags): what is made of it (program_folder.write), if given. check(c): what
-- else the configuration must have, if given.
local function generate(o, build, check)
    local g, c = compile(o.spec, o)
    if check then check(c) end
    if o.stop_after then
        io.write(require "graph.print" (g))
        return nil
    end
    local files, facts = program.render(g, c)
    local folder = output.folder(c.name, o)
    program_folder.write(folder, files, { spec = o.spec, force = o.force,
        build = build and build(folder, files, c.compiler_flags) })
    return folder, facts, files, c
end

function COMMANDS.generate(o)
    local folder, facts, files = generate(o)
    if folder then
        io.stderr:write(("wrote %s: %d files, %d parameters, %d bytes planned; next: make -C %s\n")
            :format(folder, files:size() + 1, facts.totals.parameters, facts.totals.bytes, text.shell_word(folder)))
    end
    return 0
end

function COMMANDS.run(o)
    local run = require "command.run"
    local launch = require "command.launch"
    launch.check_options(o)
    local folder, _, _, c = generate(o, run.build, function(c) launch.check(o, c) end)
    if not launch.has_ranks(o, c) then return run.start(folder, o.rest) end
    return launch.start(folder, o, c)
end

function COMMANDS.profile(o)
    local folder, facts = generate(o, require "command.run".build_probe)
    return require "command.profile".run(folder, facts, o)
end

function COMMANDS.fit(o)
    if not o.lr then diag.fail("gagen", "fit: --lr is missing, expected gagen fit SPEC --lr", {}) end
    return require "command.rate_test".run(o)
end

function COMMANDS.check(o)
    local equiv = o.equiv and require "command.equiv"
    local numbers = equiv and equiv.parse(o.equiv)
    if o.json and not numbers then diag.fail("gagen", "check: --json needs --equiv", {}) end
    local g, c = compile(o.spec, o)
    local _, facts = program.render(g, c)
    if numbers then return equiv.run(o, numbers, g, c, facts.totals.flops_per_cycle) and 0 or 1 end
    io.stderr:write(o.spec .. ": ok\n")
    for _, d in ipairs(g.decisions) do
        if d.what == "chunks" or d.what == "placement" then
            io.stderr:write(("%s: %s: %s: %s\n"):format(o.spec, d.what, d.choice, d.why))
        end
    end
    return 0
end

function COMMANDS.plan(o)
    local g, c = compile(o.spec, o)
    local _, facts = program.render(g, c)
    if o.why and o.json then facts.decisions = g.decisions end
    if o.json then
        io.write(host.json(facts) .. "\n")
        return 0
    end
    local width = columns.of(1)
    local prediction = require "emit.program.calibration".times(facts)
    io.write(colour.headings(plan.text(facts, prediction, width) .. (o.why and plan.decisions(g, width) or ""), 1))
    return 0
end

function COMMANDS.lr(o)
    local schedule = require "spec.schedule"
    local _, c = compile(o.spec, o)
    local rate, momentum = schedule.expressions(c)
    for cycle = 0, c.cycles - 1 do
        local env = { t = schedule.time(c, cycle), total = c.schedule.total, plateau_rate = c.optimizer.fields.lr }
        io.write(("%d\t%.9g%s\n"):format(cycle + 1, expr.evaluate(rate, env),
            momentum and ("\t%.9g"):format(expr.evaluate(momentum, env)) or ""))
    end
    return 0
end

function COMMANDS.kernels(o)
    if o.json and not o.arch then diag.fail("gagen", "kernels: --json needs --arch", {}) end
    local g, c = compile(o.spec, o)
    local files, facts = program.render(g, c)
    local text = files:get(targets.of(c).kernels_file)
    io.write(o.arch and require "command.machine_code".text(o.arch, text, facts, o.json) or text)
    return 0
end

function COMMANDS.show(o)
    local files, facts = program.render(compile(o.spec, o))
    io.write(require "command.show" (files, facts, o.arguments[1] or "step.c"))
    return 0
end

function COMMANDS.ls(o)
    io.write(require "command.ls" (o.spec and require "spec.load".name(o.spec), o.json, columns.of(1)))
    return 0
end

function COMMANDS.plot(o)
    require "command.plot".run(o)
    return 0
end

function COMMANDS.report(o)
    require "command.report".run(o)
    return 0
end

function COMMANDS.compare(o)
    return require "command.compare".run(o) and 0 or 1
end

function COMMANDS.export(o)
    require "command.export.export".run(o)
    return 0
end

function COMMANDS.new(o)
    require "command.new" (o.arguments[1], o.like)
    return 0
end

function COMMANDS.diff(o)
    require "command.diff".run(o)
    return 0
end

function COMMANDS.tokenize(o)
    require "command.tokenize".run(o)
    return 0
end

function COMMANDS.list(o)
    io.write(colour.headings(columns.wrapped(require "command.list" (o.arguments[1]), columns.of(1)), 1))
    return 0
end

function COMMANDS.doctor(o)
    if o.march and not o.calibrate then diag.fail("gagen", "doctor: --march needs --calibrate", {}) end
    if o.calibrate then require "command.calibrate" (o.march) end
    return require "emit.program.doctor".run()
end

function COMMANDS.help(o)
    local word, made = o.arguments[1], nil
    if o.man or o.markdown then
        local manual = require "command.manual"
        made = o.man and manual.man() or manual.markdown()
    elseif o.annotations then
        made = require "command.annotations" ()
    elseif o.completion then
        made = require "command.completion" (o.completion)
    else
        local help, width = require "command.help", columns.of(1)
        made = colour.headings(columns.wrapped(word and help.word(word, width) or help.all(), width), 1)
    end
    io.write(made)
    return 0
end

function COMMANDS.version()
    io.write(("gagen %s, %s\n"):format(host.version, host.lua_release))
    return 0
end

-- The program: command-line words to an exit code.
return function(arguments)
    local o = options.parse(arguments)
    return COMMANDS[o.command](o)
end
