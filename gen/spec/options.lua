-- options: gagen's command line as data, the parser, and what an option changes in a configuration.
local diag = require "base.diag"
local ordered = require "base.ordered"
local config = require "spec.config"
local words = require "spec.words"

local options = {}

local COMMANDS = {
    { "SPEC", "write the program to out/NAME" },
    { "run SPEC [-- OPTIONS]", "write, build and train; OPTIONS go to the program" },
    { "check SPEC", "read and check only" },
    { "plan SPEC", "every byte, kernel and collective, before anything runs (--json)" },
    { "lr SPEC", "the learning rate of each update" },
    { "kernels SPEC", "the kernels, as C or CUDA" },
    { "show SPEC [FILE]", "one file of the program; step.c if none is named" },
    { "list [KIND]", "what a spec may use: words, layers, ops, optimizers, schedules, losses" },
    { "doctor", "what is installed and what is missing" },
    { "version", "version of gagen and of Lua" },
}

local LIST = {
    { name = "-o", key = "output", value = "DIR", doc = "the program's own folder" },
    { name = "--target", key = "target", value = "NAME", doc = "c or cuda" },
    { name = "--march", key = "march", value = "NAME", doc = "the profile to build for" },
    { name = "--ranks", key = "ranks", value = "N", integer = true, doc = "number of processes" },
    { name = "--threads", key = "threads", value = "N", integer = true, doc = "threads per process" },
    { name = "--json", key = "json", doc = "output for programs" },
    { name = "--trace", key = "trace", value = "DIR", doc = "the graph after every pass" },
    { name = "--stop-after", key = "stop_after", value = "PASS", doc = "print the graph there" },
    { name = "--without", key = "without", value = "PASS", doc = "leave an optional pass out" },
    { name = "--force", key = "force", doc = "overwrite edited files, keeping a copy" },
    { name = "--dev", key = "dev", value = "DIR", doc = "scripts and templates from disk" },
}

--- The text of `gagen help`.
function options.help()
    local out = { "gagen writes the training program for a spec.\n\n" }
    for _, command in ipairs(COMMANDS) do
        out[#out + 1] = ("  gagen %-24s%s\n"):format(command[1], command[2])
    end
    out[#out + 1] = "\n"
    for _, option in ipairs(LIST) do
        out[#out + 1] = ("  %-30s%s\n"):format(option.name ..
            (option.value and " " .. option.value or ""), option.doc)
    end
    out[#out + 1] = "\nexit: 0 done, 1 your input, 2 a bug of gagen, 3 disk or tools\n"
    return table.concat(out)
end

local function find(name)
    for _, option in ipairs(LIST) do
        if option.name == name then return option end
    end
    local names = ordered.collect(LIST, function(option) return option.name end)
    diag.fail("gagen", ("unknown option '%s'"):format(name), { hint = diag.suggest(name, names),
        notes = { "gagen help lists the options" } })
end

local function take(o, option, value)
    if option.key ~= "without" and o[option.key] ~= nil then
        diag.fail("gagen", option.name .. ": given twice", {})
    end
    if option.value and (value == nil or value == "") then
        diag.fail("gagen", ("%s: needs a value, %s"):format(option.name, option.value), {})
    end
    if option.integer then
        local n = math.tointeger(tonumber(value))
        if not n or n < 1 or n > 1024 then
            diag.fail("gagen", ("%s: '%s', expected 1..1024"):format(option.name, value), {})
        end
        value = n
    end
    if option.key == "without" then
        o.without:set(value, true)
    else
        o[option.key] = option.value and value or true
    end
end

local NEEDS_SPEC = { generate = true, run = true, check = true, plan = true, lr = true,
    kernels = true, show = true }
local TAKES_REST = { run = true, show = true, list = true }

--- Parses the arguments; `commands` are the known command names.
function options.parse(arguments, commands)
    local o, plain, i = { without = ordered.map(), rest = {} }, {}, 1
    while i <= #arguments do
        local word = arguments[i]
        if word == "--" then
            table.move(arguments, i + 1, #arguments, 1, o.rest)
            break
        elseif word == "--help" or word == "-h" then
            plain = { "help" }
            break
        elseif word == "--version" then
            plain = { "version" }
            break
        elseif word:sub(1, 1) == "-" and #word > 1 then
            local option = find(word)
            if option.value then i = i + 1 end
            take(o, option, arguments[i])
        else
            plain[#plain + 1] = word
        end
        i = i + 1
    end
    if #plain == 0 then
        diag.fail("gagen", "expected a spec or a command", { notes = { "gagen help lists them" } })
    end
    o.command = "generate"
    if ordered.find(commands, plain[1]) and plain[1] ~= "generate" then
        o.command = table.remove(plain, 1)
    end
    if NEEDS_SPEC[o.command] then
        o.spec = table.remove(plain, 1)
        if not o.spec then diag.fail("gagen", o.command .. ": expected a spec", {}) end
        if not host.exists(o.spec) then
            local hint = o.command == "generate" and diag.suggest(o.spec, commands) or nil
            diag.fail(o.spec, "there is no such file, expected a spec" ..
                (hint and " or a command" or ""), { hint = hint })
        end
    end
    if TAKES_REST[o.command] then
        table.move(plain, 1, #plain, #o.rest + 1, o.rest)
        plain = {}
    end
    if #plain > 0 then
        diag.fail("gagen", ("unexpected word '%s'"):format(plain[1]), {})
    end
    return o
end

--- Options win over the spec's target and parallel words.
function options.apply(c, o)
    local target = words.find("target").fields
    local function allowed(field, value, name)
        for _, f in ipairs(target) do
            if f.name == field and not ordered.find(f.values, value) then
                diag.fail("gagen", ("%s: '%s', expected one of %s"):format(name, value,
                    table.concat(f.values, ", ")), { hint = diag.suggest(value, f.values) })
            end
        end
        return value
    end
    if o.target then c.target = allowed("kind", o.target, "--target") end
    if o.march then c.march = allowed("march", o.march, "--march") end
    if o.threads then c.threads = o.threads end
    if o.ranks then
        if c.parallel == "none" and o.ranks > 1 then
            diag.fail("gagen", "--ranks: the spec has no parallel \"ddp\"", {})
        end
        c.ranks = o.ranks
        c.cycles_per_epoch = config.cycles_per_epoch(c, c.ranks)
        if c.cycles_per_epoch == 0 then
            diag.fail("gagen", ("--ranks: with %d ranks an epoch has no full update"):format(o.ranks),
                {})
        end
        if c.train.epochs then
            c.cycles = math.floor(c.train.epochs * c.cycles_per_epoch)
            c.schedule.total = c.schedule.fields.total or c.cycles
        end
    end
end

return options
