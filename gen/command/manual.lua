-- manual: makes the manual page and docs/COMMANDS.md from the lists of commands.lua and the words of a spec.
local commands = require "command.commands"
local help = require "command.help"
local reference = require "command.reference"

local manual = {}

local ABOUT = "gagen reads a spec, a short description in Lua of data, model, loss, optimizer and "
    .. "schedule, and writes the training program for it: readable C, or C and CUDA, with gradient "
    .. "accumulation unrolled, one static memory plan and communication only where an update happens."

local WARNINGS = "A command that reads a spec warns of plausible mistakes. Each warning says its fix and ends with its "
    .. 'name in brackets; train { allow = { "NAME" } } silences it.'

-- Text escaped for roff, with hyphens that can be copied from the page.
local function roff(text)
    text = text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("~", "\\(ti"):gsub("%^", "\\(ha")
    return (text:gsub("^([.'])", "\\&%1"))
end

local function paragraph(out, term, text)
    out[#out + 1] = (".TP\n\\fB%s\\fR\n%s\n"):format(roff(term), roff(text))
end

--- The manual page in roff.
function manual.man()
    local out = { ('.TH GAGEN 1 "" "gagen %s" "gagen"\n'):format(host.version),
        ".SH NAME\ngagen \\- writes the training program for a spec\n.SH SYNOPSIS\n" }
    for _, command in ipairs(commands.list) do
        out[#out + 1] = ".B gagen\n" .. roff(commands.usage(command)) .. "\n.br\n"
    end
    out[#out + 1] = ".SH DESCRIPTION\n" .. roff(ABOUT) .. "\n.SH COMMANDS\n"
    for _, command in ipairs(commands.list) do
        paragraph(out, "gagen " .. commands.usage(command), command.doc .. ".")
        if command.details then out[#out + 1] = roff(command.details) .. "\n" end
        if #command.options > 0 then
            out[#out + 1] = "Options: " .. roff(table.concat(command.options, ", ")) .. ".\n"
        end
        out[#out + 1] = ".br\nExample: \\fI" .. roff(command.example) .. "\\fR\n"
    end
    out[#out + 1] = ".SH OPTIONS\n"
    for _, option in ipairs(commands.options) do
        paragraph(out, commands.option_usage(option), option.doc)
    end
    out[#out + 1] = ".SH WORDS OF A SPEC\n" .. roff("gagen help WORD says more of each.") .. "\n"
    for _, entry in ipairs(reference.entries("words")) do paragraph(out, entry.name, entry.doc) end
    out[#out + 1] = ".SH WARNINGS\n" .. roff(WARNINGS) .. "\n"
    for _, entry in ipairs(reference.entries("warnings")) do paragraph(out, entry.name, entry.doc) end
    out[#out + 1] = ".SH EXIT STATUS\n"
    for _, e in ipairs(commands.exit) do paragraph(out, tostring(e[1]), e[2]) end
    out[#out + 1] = ".SH ENVIRONMENT\n"
    for _, e in ipairs(commands.environment) do paragraph(out, e[1], e[2]) end
    return table.concat(out)
end

-- Text escaped for a cell of a table in markdown.
local function cell(text) return (text:gsub("|", "\\|")) end

--- The text of docs/COMMANDS.md.
function manual.markdown()
    local out = { "# Commands\n\nMade by `gagen help --markdown` from gen/command/commands.lua; `make docs` ",
        "writes it again.\n\n", help.wrapped(ABOUT, "", 100), "\n" }
    for _, command in ipairs(commands.list) do
        out[#out + 1] = ("## gagen %s\n\n%s\n"):format(commands.usage(command),
            help.wrapped(command.doc:sub(1, 1):upper() .. command.doc:sub(2) .. ".", "", 100))
        if command.details then out[#out + 1] = help.wrapped(command.details, "", 100) .. "\n" end
        out[#out + 1] = "```\n" .. command.example .. "\n```\n\n"
        if #command.options > 0 then
            out[#out + 1] = help.wrapped("Options: `" .. table.concat(command.options, "`, `") .. "`.", "",
                100) .. "\n"
        end
    end
    out[#out + 1] = "## Options\n\n| option | meaning |\n|---|---|\n"
    for _, option in ipairs(commands.options) do
        out[#out + 1] = ("| `%s` | %s |\n"):format(commands.option_usage(option), cell(option.doc))
    end
    out[#out + 1] = "\n## Warnings\n\n" .. help.wrapped(WARNINGS, "", 100) .. "\n| name | meaning |\n|---|---|\n"
    for _, entry in ipairs(reference.entries("warnings")) do
        out[#out + 1] = ("| `%s` | %s |\n"):format(entry.name, cell(entry.doc))
    end
    out[#out + 1] = "\n## Exit status\n\n| code | meaning |\n|---|---|\n"
    for _, e in ipairs(commands.exit) do out[#out + 1] = ("| %d | %s |\n"):format(e[1], cell(e[2])) end
    out[#out + 1] = "\n## Environment\n\n| variable | meaning |\n|---|---|\n"
    for _, e in ipairs(commands.environment) do
        out[#out + 1] = ("| `%s` | %s |\n"):format(e[1], cell(e[2]))
    end
    return table.concat(out)
end

return manual
