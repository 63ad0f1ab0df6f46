-- sections: a file of a program from blocks of one template, each with arguments of its own.
local text = require "base.text"

local sections = {}

--- Lines of a file, as a template takes them.
function sections.lines(list) return text.block(table.concat(list, "\n")) end

--- The text of { block, arguments } for each section, with an empty line between two; `false` is left out.
function sections.render(template, list)
    local out = {}
    for _, section in ipairs(list) do
        if section then out[#out + 1] = (template(section[1], section[2]).text:gsub("\n+$", "")) end
    end
    return table.concat(out, "\n\n") .. "\n"
end

return sections
