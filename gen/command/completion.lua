-- completion: makes the completion scripts of shells, from the lists of commands.lua and the names of the reference.
local commands = require "command.commands"
local diag = require "base.diag"
local ordered = require "base.ordered"
local reference = require "command.reference"
local tokenize = require "command.tokenize"

-- The candidates for an argument: "spec", "file", "folder", or an array of words.
local function candidates(argument)
    local name = argument:gsub("[%[%]]", "")
    if name == "KIND" then return reference.kinds() end
    if name == "METHOD" then return tokenize.methods() end
    if name == "TEXT" or name == "FILE" then return "file" end
    if name == "RUN" then return "folder" end
    if name == "WORD" then
        local _, names = reference.find("")
        return table.move(commands.names(), 1, #commands.list, #names + 1, names)
    end
    return (name == "SPEC" or name == "A" or name == "B") and "spec" or {}
end

-- The candidates for the value of an option; nil if it has no value.
local function values(option)
    if not option.value then return nil end
    if option.values then return option.values end
    if option.name == "--set" then
        local list = {}
        for _, entry in ipairs(reference.entries("words")) do
            if entry.name ~= "model" then list[#list + 1] = entry.name .. "=" end
            for _, f in ipairs(entry.fields) do list[#list + 1] = entry.name .. "." .. f.name .. "=" end
        end
        return list
    end
    return option.value == "DIR" and "folder" or option.value == "SPEC" and "spec"
        or option.value == "PATH" and "file" or {}
end

-- Words for double quotes of bash and fish: they are names without special characters.
local function joined(list) return table.concat(list, " ") end

local SHELLS = ordered.map()

local function bash_reply(what)
    if what == "folder" then return 'COMPREPLY=($(compgen -d -- "$word"))' end
    if what == "file" then return 'COMPREPLY=($(compgen -f -- "$word"))' end
    if what == "spec" then return 'COMPREPLY=($(compgen -f -X "!*.lua" -- "$word") $(compgen -d -- "$word"))' end
    return ('COMPREPLY=($(compgen -W "%s" -- "$word"))'):format(joined(what))
end

SHELLS:set("bash", function()
    local out = {}
    local function line(...) out[#out + 1] = string.format(...) end
    line("# completion of gagen for bash: source it, or put it into the folder of completions")
    line("_gagen() {")
    line('    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= given=0 i')
    line("    for ((i = 1; i < COMP_CWORD; i++)); do")
    line('        case ${COMP_WORDS[i]} in')
    line("        --) COMPREPLY=(); return ;;")
    line("        -*) ;;")
    line("        %s) [ $command ] || command=${COMP_WORDS[i]} ;;", table.concat(ordered.collect(commands.list,
        function(c) return c.name ~= "generate" and c.name or nil end), "|"))
    line("        *) given=1 ;;")
    line("        esac")
    line("    done")
    line("    compopt +o nospace 2>/dev/null")
    line("    case $before in")
    for _, option in ipairs(commands.options) do
        local what = values(option)
        local nospace = option.name == "--set" and "compopt -o nospace 2>/dev/null; " or ""
        if what then line("    %s) %s%s; return ;;", option.name, nospace, bash_reply(what)) end
    end
    line("    esac")
    line("    case $command:$word in")
    for _, command in ipairs(commands.list) do
        line("    %s:-*) %s ;;", command.name ~= "generate" and command.name or "",
            bash_reply(command.options))
    end
    for _, command in ipairs(commands.list) do
        local what = command.arguments[1] and candidates(command.arguments[1])
        if what and command.name ~= "generate" then
            local files = candidates(command.arguments[#command.arguments]) == "file"
            line("    %s:*) %s%s ;;", command.name, bash_reply(what),
                files and '; COMPREPLY+=($(compgen -f -- "$word"))' or "")
        end
    end
    line("    :*) %s", bash_reply("spec"))
    line('        [ $given = 1 ] || COMPREPLY+=($(compgen -W "%s" -- "$word")) ;;', joined(ordered.collect(
        commands.list, function(c) return c.name ~= "generate" and c.name or nil end)))
    line("    esac")
    line("}")
    line("complete -o filenames -F _gagen gagen")
    return out
end)

-- Text in single quotes, escaped for the shell and for _arguments.
local function zsh_text(text)
    return (text:gsub("'", "'\\''"):gsub("([%[%]:])", "\\%1"))
end

local function zsh_action(what)
    if what == "folder" then return "_files -/" end
    if what == "file" then return "_files" end
    if what == "spec" then return '_files -g "*.lua"' end
    return "(" .. joined(what) .. ")"
end

local function zsh_option(name)
    local option = commands.option(name)
    local what = values(option)
    return ("        '%s%s[%s]%s'"):format(option.many and "*" or "", name, zsh_text(option.doc),
        what and (":%s:%s"):format(zsh_text(option.value), zsh_action(what)) or "")
end

local function zsh_command(line, command)
    line("    %s)", command.name ~= "generate" and command.name or "*")
    line("        _arguments \\")
    for _, name in ipairs(command.options) do line("%s \\", zsh_option(name)) end
    for _, argument in ipairs(command.arguments) do
        line("        ':%s:%s' \\", zsh_text(argument:gsub("[%[%]]", "")), zsh_action(candidates(argument)))
    end
    line("        ;;")
end

SHELLS:set("zsh", function()
    local out = {}
    local function line(...) out[#out + 1] = string.format(...) end
    line("#compdef gagen")
    line("# completion of gagen for zsh: put it into a folder of $fpath as _gagen")
    line("if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then")
    line("    local -a known=(")
    for _, command in ipairs(commands.list) do
        if command.name ~= "generate" then
            line("        '%s:%s'", command.name, zsh_text(command.doc))
        end
    end
    line("    )")
    line("    _describe command known")
    line('    _files -g "*.lua"')
    line("else")
    line("    local command=$words[2]")
    line("    case $command in")
    for _, command in ipairs(commands.list) do
        if command.name ~= "generate" then zsh_command(line, command) end
    end
    zsh_command(line, commands.find("generate"))
    line("    esac")
    line("fi")
    return out
end)

local function fish_text(text) return "'" .. text:gsub("\\", "\\\\"):gsub("'", "\\'") .. "'" end

local function fish_values(what)
    if what == "folder" then return "-xa '(__fish_complete_directories)'" end
    if what == "spec" or what == "file" then return "-rF" end
    return "-xa " .. fish_text(joined(what))
end

SHELLS:set("fish", function()
    local out = {}
    local function line(...) out[#out + 1] = string.format(...) end
    local names = joined(ordered.collect(commands.list, function(c)
        return c.name ~= "generate" and c.name or nil
    end))
    line("# completion of gagen for fish: put it into ~/.config/fish/completions/gagen.fish")
    for _, command in ipairs(commands.list) do
        local seen = command.name ~= "generate" and "__fish_seen_subcommand_from " .. command.name
            or "not __fish_seen_subcommand_from " .. names
        if command.name ~= "generate" then
            line("complete -c gagen -n %s -a %s -d %s", fish_text("not __fish_seen_subcommand_from " .. names),
                command.name, fish_text(command.doc))
        end
        for _, name in ipairs(command.options) do
            local option = commands.option(name)
            local what = values(option)
            line("complete -c gagen -n %s %s %s%s -d %s", fish_text(seen),
                #name == 2 and "-s" or "-l", (name:gsub("^%-+", "")), what and " " .. fish_values(what) or "",
                fish_text(option.doc))
        end
        local what = command.arguments[1] and candidates(command.arguments[1])
        if type(what) == "table" and #what > 0 then
            local files = candidates(command.arguments[#command.arguments]) == "file"
            line("complete -c gagen %s -n %s -a %s", files and "-F" or "-f", fish_text(seen),
                fish_text(joined(what)))
        end
    end
    return out
end)

--- The completion script of one shell.
return function(shell)
    if not SHELLS:has(shell) then
        diag.fail("--completion", ("'%s', expected one of %s"):format(shell, table.concat(SHELLS.keys, ", ")),
            { hint = diag.suggest(shell, SHELLS.keys) })
    end
    return table.concat(SHELLS:get(shell)(), "\n") .. "\n"
end
