-- html: texts inside HTML and SVG.
local diag = require "base.diag"
local text = require "base.text"

local html = {}

local SIGNS = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

--- `s` as a value of templates, also inside an attribute: signs of HTML escaped, bytes that are no UTF-8 and signs that
--- control a terminal or the direction of text as \xNN.
function html.text(s)
    local parts = {}
    for line, ending in tostring(s):gmatch "([^\n]*)(\n?)" do
        parts[#parts + 1] = diag.escape(line) .. ending
    end
    return text.block((table.concat(parts):gsub("[&<>\"']", SIGNS)))
end

return html
