-- rate_test: `gagen fit SPEC --lr`: a learning rate range test. The program trains for UPDATES updates with a schedule
-- that rises by one factor from update to update; command/rate_curve.lua reads the losses.
local colour = require "base.colour"
local compile = require "command.compile"
local diag = require "base.diag"
local output = require "command.output"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"
local rate_curve = require "command.rate_curve"
local run = require "command.run"
local set = require "spec.set"

local rate_test = {}

-- The rates go from lr / SPAN to lr * SPAN.
local UPDATES, SPAN = 200, 1000

local GAMMA = (SPAN * SPAN) ^ (1 / (UPDATES - 1))

-- Exit statuses of a program whose losses are looked at: done, and not finite.
local DONE, NONFINITE = 0, 4

local ROWS, NARROWEST, WIDEST, WITHOUT_TERMINAL = 18, 40, 100, 80

-- The values that the program of the test has in the place of the spec's.
local function changes()
    local low = ('{ "constant_lr", factor = %.17g, total_iters = %d }'):format(1 / SPAN, UPDATES)
    local rise = ('{ "exponential", gamma = %.17g }'):format(GAMMA)
    return { set.read "log.every=1", set.read(('schedule={ "chained", %s, %s }'):format(low, rise)) }
end

-- Writes and builds the program of the test in a folder of its own. Returns the folder and its base rate.
local function build(o, name)
    local g, c = compile(o.spec, o, changes())
    local files = program.render(g, c)
    local folder = o.output or output.folder(name, o) .. "--fit=lr"
    program_folder.write(folder, files, { spec = o.spec, force = o.force,
        build = run.build(folder, files, c.compiler_flags) })
    return folder, c.optimizer.fields.lr
end

-- The first number that is no run's name.
local function free_run(folder)
    local n = 1
    while host.exists(("%s/runs/%03d"):format(folder, n)) do n = n + 1 end
    return ("%03d"):format(n)
end

-- The rates and losses of the updates in a log.
local function read_log(path)
    local rates, losses = {}, {}
    for line in (host.read(path) or ""):gmatch '{"event":"update"[^\n]*' do
        local event = host.parse_json(line)
        rates[#rates + 1], losses[#losses + 1] = event.lr, event.loss
    end
    return rates, losses
end

-- The rate with two digits, as a spec has it.
local function shown(rate)
    return (("%.1e"):format(rate):gsub("e([+-])0*(%d+)$", function(sign, digits)
        return "e" .. (sign == "-" and "-" or "") .. digits
    end):gsub("%.0e", "e"):gsub("e0$", ""))
end

-- The place of the optimizer's lr and its line with this rate; without such a line, an option.
local function line_with(c, rate)
    local at = c.optimizer.where.locate "lr"
    local path, number = diag.place(at)
    local k = 0
    for line in (number and host.read(path) or ""):gmatch "([^\n]*)\n?" do
        k = k + 1
        local changed, count = line:gsub("(%f[%w_]lr%s*=%s*)[%d.eE+-]+(%s*[,}])", "%1" .. rate .. "%2", 1)
        if k == number and count == 1 then return ("%s: %s"):format(at, diag.escape(changed)) end
    end
    return "--set optimizer.lr=" .. rate
end

-- The suggestion with its reason, below the picture. scale: a rate of the schedule over the lr that the spec gives.
local function verdict(c, found, rates, scale)
    local function rate(i) return shown(rates[i]) end
    local ends = found.ends and ("; at %s it %s"):format(rate(#found.curve + 1), found.ends) or ""
    local least = ("least, %.4g, at %s%s"):format(found.curve[found.least], rate(found.least), ends)
    if not found.pick then
        diag.fail(c.optimizer.at, ("fit: no rate is suggested: the loss does not fall by more than its noise (%s)")
            :format(least), { notes = { "the rates of the test are multiples of the optimizer's lr: another lr, other "
            .. "initial values or more rows per update may help" } })
    end
    local pick = rates[found.pick] / scale
    return ("%s\nlr = %s: around this rate the loss falls most steeply\n%s\n"):format(least, shown(pick),
        line_with(c, shown(pick)))
end

--- Trains with rising rates and prints the curve and a suggestion. Returns gagen's exit status.
function rate_test.run(o)
    local _, c = compile(o.spec, o)
    local given = c.optimizer.fields.lr
    if given <= 0 then
        diag.fail(c.optimizer.at, "fit: the optimizer's lr is 0, expected more: the test tries its multiples")
    end
    local folder, base = build(o, c.name)
    local name = free_run(folder)
    io.stderr:write(("fit: %d updates, rates from %s to %s\n"):format(UPDATES, shown(base / SPAN), shown(base * SPAN)))
    local words = { "--cycles", tostring(UPDATES), "--run", name, not host.terminal(1) and "--quiet" or nil }
    local status = run.start(folder, table.move(o.rest, 1, #o.rest, #words + 1, words))
    if status ~= DONE and status ~= NONFINITE then return status end
    local log = ("%s/runs/%s/log.jsonl"):format(folder, name)
    local rates, losses = read_log(log)
    if #losses == 0 then
        diag.fail(log, "no update found, expected those of the test: OPTIONS of another log or without training?", {})
    end
    local found = rate_curve.read(losses)
    if #found.curve == 0 then
        diag.fail(c.optimizer.at, ("fit: the loss of the first update, with lr = %s, is not finite"):format(
            shown(base / SPAN)), { notes = { "train-probe --check-finite names the first value that is not finite" } })
    end
    local columns = math.max(NARROWEST, math.min(host.terminal(1) or WITHOUT_TERMINAL, WIDEST))
    local lines = rate_curve.picture(found, rates, columns, ROWS)
    io.write(colour.headings("loss of updates over their rate, smoothed\n" .. table.concat(lines, "\n") .. "\n", 1))
    io.write(verdict(c, found, rates, given / base))
    return 0
end

return rate_test
