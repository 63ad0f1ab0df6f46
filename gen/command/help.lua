-- help: `gagen help`, and the help of one command or of one thing that a spec may use.
local columns = require "base.columns"
local commands = require "command.commands"
local diag = require "base.diag"
local ordered = require "base.ordered"
local reference = require "command.reference"

local help = {}

-- A line of two columns; a long first one has a line of its own.
local function row(left, right)
    if #left < 30 then return ("  %-30s%s\n"):format(left, right) end
    return ("  %s\n  %-30s%s\n"):format(left, "", right)
end

local function option_line(option) return row(commands.option_usage(option), option.doc) end

--- The text of `gagen help`.
function help.all()
    local out = { "gagen writes the training program for a spec.\n\ncommands:\n" }
    for _, command in ipairs(commands.list) do
        out[#out + 1] = row("gagen " .. commands.usage(command), command.doc)
    end
    out[#out + 1] = "\noptions:\n"
    for _, option in ipairs(commands.options) do out[#out + 1] = option_line(option) end
    out[#out + 1] = "\ngagen help WORD says more of a command or of anything that gagen list shows\nexit: "
        .. commands.exit_text() .. "\n"
    return table.concat(out)
end

--- `text` broken into lines of at most `width` columns, each with the prefix `pad`.
function help.wrapped(text, pad, width)
    return table.concat(columns.broken(pad .. text, width, pad), "\n") .. "\n"
end

local function of_command(command, width)
    local out = { "command: gagen ", commands.usage(command), "\n  ", command.doc, "\n" }
    if command.details then out[#out + 1] = "\n" .. help.wrapped(command.details, "  ", math.min(width or 100, 100)) end
    if #command.options > 0 then out[#out + 1] = "\n" end
    for _, name in ipairs(command.options) do out[#out + 1] = option_line(commands.option(name)) end
    out[#out + 1] = "\n  example: " .. command.example .. "\n"
    return table.concat(out)
end

local function of_entry(entry)
    local out = { entry.kind, ": ", entry.usage, "\n  ", entry.doc,
        entry.required and "; every spec has it" or "", "\n", entry.note and "  " .. entry.note .. "\n" or "" }
    if #entry.fields > 0 then out[#out + 1] = "\n" end
    for _, f in ipairs(entry.fields) do
        local default = reference.default(f)
        out[#out + 1] = ("  %-16s %s%s\n  %-16s %s\n"):format(f.name .. (f.required and "*" or ""),
            reference.expected(f), default and ", default " .. default or "", "", f.doc)
    end
    if entry.select then
        out[#out + 1] = ("\n  and the fields of what it names: gagen list %s\n"):format(entry.select)
    end
    out[#out + 1] = "\n  example: " .. entry.example .. "\n"
    return table.concat(out)
end

--- The help of all commands and entries of that name. width: of the terminal, or nil.
function help.word(name, width)
    local command = commands.find(name)
    local found, names = reference.find(name)
    local parts = ordered.collect(found, of_entry)
    if command then table.insert(parts, 1, of_command(command, width)) end
    if #parts == 0 then
        local all = table.move(commands.names(), 1, #commands.list, #names + 1, names)
        diag.fail("help", ("nothing is called '%s'"):format(name), { hint = diag.suggest(name, all),
            notes = { "gagen list shows what a spec may use, gagen help the commands" } })
    end
    return table.concat(parts, "\n")
end

return help
