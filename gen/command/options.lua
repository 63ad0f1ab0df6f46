-- options: parses the command line into a table { command, spec, arguments, rest, and the key of each option };
-- refuses arguments and options that the command does not have.
local commands = require "command.commands"
local diag = require "base.diag"
local ordered = require "base.ordered"

local options = {}

local function find(name)
    local option = commands.option(name)
    if option then return option end
    local names = ordered.collect(commands.options, function(o) return o.name end)
    diag.fail("gagen", ("unknown option '%s'"):format(name), { hint = diag.suggest(name, names),
        notes = { "gagen help lists the options" } })
end

local function take(o, option, value)
    if not option.many and o[option.key] ~= nil then
        diag.fail("gagen", option.name .. ": given twice", {})
    end
    if option.value and (value == nil or value == "") then
        diag.fail("gagen", ("%s: needs a value, %s"):format(option.name, option.value), {})
    end
    if option.most then
        local n = math.tointeger(tonumber(value))
        if not n or n < 1 or n > option.most then
            diag.fail("gagen", ("%s: '%s', expected 1..%d"):format(option.name, value, option.most), {})
        end
        value = n
    end
    if option.many then
        o[option.key] = o[option.key] or {}
        table.insert(o[option.key], value)
    else
        o[option.key] = option.value and value or true
    end
    o.given:set(option.name, true)
end

-- Separates the options from the other words, which stay in order.
local function split(arguments)
    local o, plain, i = { given = ordered.map() }, {}, 1
    while i <= #arguments do
        local word = arguments[i]
        if word == "--" then
            o.rest = table.move(arguments, i + 1, #arguments, 1, {})
            break
        elseif word == "--help" or word == "-h" then
            return o, { "help", commands.find(plain[1]) and plain[1] or nil }
        elseif word == "--version" then
            return o, { "version" }
        elseif word:sub(1, 1) == "-" and #word > 1 then
            local option = find(word)
            if option.value then i = i + 1 end
            take(o, option, arguments[i])
        else
            plain[#plain + 1] = word
        end
        i = i + 1
    end
    return o, plain
end

local function check_options(o, command)
    for name in o.given:each() do
        if not ordered.find(command.options, name) then
            diag.fail("gagen", ("%s: takes no %s"):format(commands.usage(command), name), { notes = {
                #command.options > 0 and "it takes: " .. table.concat(command.options, ", ") or nil } })
        end
    end
    if o.rest and not command.rest then
        diag.fail("gagen", commands.usage(command) .. ": takes no words behind --", {})
    end
    o.rest = o.rest or {}
end

local function check_spec(o, command)
    o.spec = table.remove(o.arguments, 1)
    if not host.exists(o.spec) then
        local hint = command.name == "generate" and diag.suggest(o.spec, commands.names()) or nil
        diag.fail(o.spec, "there is no such file, expected a spec" ..
            (hint and " or a command" or ""), { hint = hint })
    end
end

local function check_arguments(o, command)
    for i, argument in ipairs(command.arguments) do
        if not o.arguments[i] and argument:sub(1, 1) ~= "[" then
            diag.fail("gagen", ("%s: expected %s"):format(command.name,
                argument == "SPEC" and "a spec" or argument), {})
        end
    end
    if #o.arguments > #command.arguments then
        local extra = o.arguments[#command.arguments + 1]
        diag.fail("gagen", ("unexpected word '%s'"):format(extra), { notes = { command.rest
            and "what goes to the program stands behind --" or "usage: gagen " .. commands.usage(command) } })
    end
    if command.arguments[1] == "SPEC" then check_spec(o, command) end
end

--- Parses the arguments of the command line.
function options.parse(arguments)
    local o, plain = split(arguments)
    if #plain == 0 then
        diag.fail("gagen", "expected a spec or a command", { notes = { "gagen help lists them" } })
    end
    local command = plain[1] ~= "generate" and commands.find(plain[1]) or commands.find("generate")
    if command.name ~= "generate" then table.remove(plain, 1) end
    o.command, o.arguments = command.name, plain
    check_options(o, command)
    check_arguments(o, command)
    return o
end

return options
