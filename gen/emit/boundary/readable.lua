-- readable: long scalar expressions as a person would write them: what occurs more than once has a name, and no
-- line is longer than 100 columns.
local expr = require "base.expr"

local readable = {}

local WIDTH = 100

-- The largest part of two operations or more that occurs more than once in e, as text; nil: there is none.
local function repeated(e)
    local seen, best, most = {}, nil, 0
    local function look(part)
        local n = expr.count(part)
        if n < 2 then return end
        local text = expr.text(part)
        if seen[text] and n > most then best, most = text, n end
        seen[text] = true
        for _, child in ipairs(part) do look(child) end
    end
    look(e)
    return best
end

-- e with a variable in the place of each part with this text; the part.
local function replace(e, text, name)
    if expr.text(e) == text then return expr.var(name), e end
    local node, found = setmetatable({ op = e.op, value = e.value, name = e.name }, getmetatable(e)), nil
    for i, child in ipairs(e) do
        local part
        node[i], part = replace(child, text, name)
        found = found or part
    end
    return node, found
end

--- e with names for what it repeats: the rest, and { name, expression } in the order in which they can be computed.
function readable.parts(e)
    local list, text = {}, repeated(e)
    while text do
        local name = "x" .. #list + 1
        local rest, part = replace(e, text, name)
        list[#list + 1] = { name, part }
        e, text = rest, repeated(rest)
    end
    -- a part that was found later may be inside an earlier one
    for i = 1, #list do
        for j = i + 1, #list do list[i][2] = replace(list[i][2], expr.text(list[j][2]), list[j][1]) end
    end
    local ordered_list, names = {}, {}
    for i, part in ipairs(list) do names[part[1]] = expr.var("x" .. #list + 1 - i) end
    for i = #list, 1, -1 do
        ordered_list[#ordered_list + 1] = { names[list[i][1]].name, expr.substitute(list[i][2], names) }
    end
    return expr.substitute(e, names), ordered_list
end

-- How loosely the words on both sides of a space hang together.
local LOOSE = { { "^ return ", 0 }, { "^ [?:] ", 1 }, { "^ [-+] ", 2 }, { "^ [*/] ", 3 } }

-- Where a line may be broken: { position of the rest, rank }: the lower the rank, the better.
local function breaks(line)
    local depth, list = 0, {}
    for at = 1, #line do
        local c = line:sub(at, at)
        if c == "(" then depth = depth + 1 elseif c == ")" then depth = depth - 1 end
        for _, loose in ipairs(LOOSE) do
            if line:find(loose[1], at) then list[#list + 1] = { at + 1, 4 * depth + loose[2] } end
        end
        if line:find("^, ", at) then list[#list + 1] = { at + 2, 4 * depth } end
    end
    return list
end

--- A line of C behind `pad`, in lines of at most 100 columns where it can be broken.
function readable.lines(pad, line)
    local out = {}
    while #pad + #line > WIDTH do
        local best, least
        for _, place in ipairs(breaks(line)) do
            if #pad + place[1] <= WIDTH and place[1] > 12 and (not least or place[2] <= least) then
                best, least = place[1], place[2]
            end
        end
        if not best then break end
        out[#out + 1] = pad .. line:sub(1, best - 1):gsub("%s+$", "")
        if #out == 1 then pad = pad .. "    " end
        line = line:sub(best)
    end
    out[#out + 1] = pad .. line
    return table.concat(out, "\n")
end

return readable
