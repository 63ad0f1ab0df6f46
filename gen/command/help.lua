-- help: `gagen help`, and the help of one command.
local commands = require "command.commands"

local help = {}

local function option_line(option)
    return ("  %-30s%s\n"):format(option.name .. (option.value and " " .. option.value or ""), option.doc)
end

--- The text of `gagen help`.
function help.all()
    local out = { "gagen writes the training program for a spec.\n\n" }
    for _, command in ipairs(commands.list) do
        out[#out + 1] = ("  gagen %-24s%s\n"):format(commands.usage(command), command.doc)
    end
    out[#out + 1] = "\n"
    for _, option in ipairs(commands.options) do out[#out + 1] = option_line(option) end
    out[#out + 1] = "\ngagen help COMMAND says more of one of them\nexit: " .. commands.exit .. "\n"
    return table.concat(out)
end

--- What one command does and takes.
function help.command(command)
    local out = { "gagen ", commands.usage(command), "\n\n  ", command.doc, "\n" }
    if command.details then
        out[#out + 1] = "\n" .. help.wrapped(command.details, "  ", 100)
    end
    if #command.options > 0 then out[#out + 1] = "\n" end
    for _, name in ipairs(command.options) do out[#out + 1] = option_line(commands.option(name)) end
    out[#out + 1] = "\n  example: " .. command.example .. "\n"
    return table.concat(out)
end

--- `text` in lines of at most `width` columns, each after `pad`.
function help.wrapped(text, pad, width)
    local lines, line = {}, ""
    for word in text:gmatch("%S+") do
        if #line > 0 and #pad + #line + 1 + #word > width then
            lines[#lines + 1], line = pad .. line .. "\n", ""
        end
        line = line .. (#line > 0 and " " or "") .. word
    end
    lines[#lines + 1] = #line > 0 and pad .. line .. "\n" or nil
    return table.concat(lines)
end

return help
