-- sections: a file of a program from blocks of one template, each with arguments of its own.
local text = require "base.text"

local sections = {}

--- Lines of a file, as a template takes them.
function sections.lines(list) return text.block(table.concat(list, "\n")) end

--- The text of one block, without the empty lines behind it.
function sections.block(template, block, arguments)
    return text.block((template(block, arguments).text:gsub("\n+$", "")))
end

--- The text of { block, arguments } for each section, with an empty line between two; `false` is left out. A section
--- that is text already is taken as it is, and left out if it is empty.
function sections.render(template, list)
    local out = {}
    for _, section in ipairs(list) do
        local block = section and (text.is(section) and section or sections.block(template, section[1], section[2]))
        if block and block.text ~= "" then out[#out + 1] = block.text end
    end
    return table.concat(out, "\n\n") .. "\n"
end

return sections
