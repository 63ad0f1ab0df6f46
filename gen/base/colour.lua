-- colour: colours of text on a terminal. Files and pipes get plain text, and so does a terminal whose user has set
-- NO_COLOR or TERM=dumb.
local colour = {}

local CODES = { place = "1", error = "31", warning = "33", hint = "32", heading = "1",
    curve1 = "34", curve2 = "33", curve3 = "32", curve4 = "35", curve5 = "36", curve6 = "31" }

colour.curves = 6               -- styles for curves, curve1 and so on

local function wanted(fd)
    local kind = host.environment "TERM"
    return fd and host.terminal(fd) and (host.environment "NO_COLOR" or "") == "" and kind and kind ~= "dumb"
end

--- A function of a style (place, error, warning, hint, heading, curve1) and a text: the text as `fd` shows it. nil:
--- plain.
function colour.of(fd)
    local on = wanted(fd)
    return function(style, text) return on and ("\27[%sm%s\27[0m"):format(CODES[style], text) or text end
end

--- `text` as `fd` shows it, with the first word of each line that does not begin with a space as a heading.
function colour.headings(text, fd)
    local paint = colour.of(fd)
    return ("\n" .. text):gsub("(\n)(%S+)", function(newline, word) return newline .. paint("heading", word) end):sub(2)
end

return colour
