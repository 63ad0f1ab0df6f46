-- options: parses the command line into a table { command, spec, arguments, rest, and the key of each option };
-- refuses arguments and options that the command does not have.
local commands = require "command.commands"
local diag = require "base.diag"
local ordered = require "base.ordered"

local options = {}

-- The option of this name; `command`: the first plain word before it, or nil.
local function find(name, command)
    local option = commands.option(name)
    if option then return option end
    local names = ordered.collect(commands.options, function(o) return o.name end)
    local known = commands.find(command)
    diag.fail("gagen", ("unknown option '%s'"):format(name), { hint = diag.suggest(name, names),
        notes = { "gagen help lists the options", known and known.rest
            and ("options of the program stand behind --: gagen %s SPEC -- %s"):format(known.name, name) or nil } })
end

local function take(o, option, value)
    if not option.many and o[option.key] ~= nil then
        diag.fail("gagen", option.name .. ": given twice", {})
    end
    if option.value and (value == nil or value == "") then
        diag.fail("gagen", ("%s: needs a value, %s"):format(option.name, option.value), {})
    end
    if option.most then
        local n = value:find "^%d+$" and math.tointeger(tonumber(value))
        if not n or n < 1 or n > option.most then
            diag.fail("gagen", ("%s: '%s', expected 1..%d"):format(option.name, value, option.most), {})
        end
        value = n
    end
    if option.among and not ordered.find(option.values, value) then
        diag.fail("gagen", ("%s: '%s', expected %s"):format(option.name, value, table.concat(option.values, " or ")), {
            found = value, among = option.values })
    end
    if option.many then
        o[option.key] = o[option.key] or {}
        table.insert(o[option.key], value)
    else
        o[option.key] = option.value and value or true
    end
    o.given:set(option.name, true)
end

-- The word that --help explains: the command before it, or the word behind it.
local function help_word(plain, behind)
    if #plain > 0 then return commands.find(plain[1]) and plain[1] or nil end
    return behind and behind:sub(1, 1) ~= "-" and behind or nil
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
            return o, { "help", help_word(plain, arguments[i + 1]) }
        elseif word == "--version" then
            return o, { "version" }
        elseif word:sub(1, 1) == "-" and #word > 1 then
            local option = find(word, plain[1])
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

-- Refuses two options of which one would be read in vain.
local function check_apart(o, command)
    for _, list in ipairs(command.apart or {}) do
        local given = ordered.collect(list, function(name)
            local argument = ordered.find(command.arguments, name)
            local there = argument and o.arguments[argument] or o.given:has(name)
            return there and name:gsub("[%[%]]", "") or nil
        end)
        if #given > 1 then
            diag.fail("gagen", ("%s: %s and %s are given, expected one of them"):format(command.name,
                given[1], given[2]), {})
        end
    end
end

--- Refuses options of specs where a command has got none.
function options.check_without_spec(o)
    for name in o.given:each() do
        if ordered.find(commands.of_spec, name) then
            diag.fail("gagen", ("%s: %s says how a spec is read, expected a spec too"):format(o.command, name), {})
        end
    end
end

-- A spec whose path was probably meant by `word`: with the ending .lua, among the shipped specs, or of a similar name
-- in the same folder.
local function similar_spec(word)
    for _, path in ipairs { word .. ".lua", "specs/" .. word, "specs/" .. word .. ".lua" } do
        if host.exists(path) == "file" then return path end
    end
    local folder, name = word:match("^(.*/)([^/]*)$")
    folder, name = folder or "", name or word
    local names = ordered.collect(host.list(folder == "" and "." or folder) or {}, function(file)
        return file:find("%.lua$") and file or nil
    end)
    local found = diag.suggest(name, names)
    return found and folder .. found
end

-- How to get a shipped spec of this name, if there is one.
local function shipped_note(word)
    local name = word:gsub("^.*/", ""):gsub("%.lua$", "")
    if not ordered.find(host.embedded_names "specs/", "specs/" .. name .. ".lua") then return nil end
    return ("a spec of this name comes with gagen: gagen new my_%s --like %s copies it"):format(name, name)
end

local function check_spec(o, command)
    o.spec = table.remove(o.arguments, 1)
    if not host.exists(o.spec) then
        local name = command.name == "generate" and diag.suggest(o.spec, commands.names()) or nil
        diag.fail(o.spec, "there is no such file, expected a spec" ..
            (name and " or a command" or ""), { hint = name or similar_spec(o.spec), notes = { shipped_note(o.spec) } })
    end
end

-- Several words without a command: the first one is probably a command with an error in its name.
local function check_command(o, command)
    local word = o.arguments[1]
    if command.name ~= "generate" or #o.arguments < 2 or host.exists(word) then return end
    diag.fail("gagen", ("unknown command '%s'"):format(word), { hint = diag.suggest(word, commands.names()),
        notes = { "gagen help lists the commands" } })
end

local function check_arguments(o, command)
    for i, argument in ipairs(command.arguments) do
        if not o.arguments[i] and argument:sub(1, 1) ~= "[" then
            diag.fail("gagen", ("%s: expected %s"):format(command.name,
                argument == "SPEC" and "a spec" or argument:gsub("%.%.%.$", "")), {})
        end
    end
    local final = command.arguments[#command.arguments]
    if #o.arguments > #command.arguments and not (final and final:find "%.%.%.$") then
        local extra = o.arguments[#command.arguments + 1]
        diag.fail("gagen", ("unexpected word '%s'"):format(extra), { notes = { command.rest
            and "what goes to the program stands behind --" or "usage: gagen " .. commands.usage(command) } })
    end
    local first = command.arguments[1]
    if first == "SPEC" or first == "[SPEC]" and o.arguments[1] then check_spec(o, command) end
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
    check_command(o, command)
    check_options(o, command)
    check_apart(o, command)
    check_arguments(o, command)
    return o
end

return options
