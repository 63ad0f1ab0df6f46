-- statements: an ordered list of { name, expression }. An expression reads inputs and the names given before it; the
-- last one is the result. A value that is read twice has a name and is computed once, so joining two lists adds their
-- lengths, whatever the second reads how often. Pointwise kernels, optimizer rules and what follows a product inside
-- its kernel are such lists.
--
--   { "silu_out", x1 / (1 + exp(-x1)) }          const real silu_out = x1 / (1.0f + ga_expf(-x1));
--   { "mul_out", silu_out * silu_out }     ->    y[i] = silu_out * silu_out;
local expr = require "base.expr"
local ordered = require "base.ordered"

local statements = {}

-- === lists ======================================================================================

--- The expression that gives the result, and its name.
function statements.result(list)
    local last = list[#list]
    return last[2], last[1]
end

--- The number of operations.
function statements.count(list)
    local n = 0
    for _, s in ipairs(list) do n = n + expr.count(s[2]) end
    return n
end

--- The names that a list reads and does not give, each once, in order of appearance.
function statements.inputs(list)
    local seen, names = {}, {}
    local function see(name)
        if not seen[name] then seen[name], names[#names + 1] = true, name end
    end
    for _, s in ipairs(list) do
        expr.each_variable(s[2], see)
        seen[s[1]] = true
    end
    return names
end

--- The list with every variable replaced by map[name], an expression or a number, where it has an entry.
function statements.substitute(list, map)
    local out = {}
    for i, s in ipairs(list) do out[i] = { s[1], expr.substitute(s[2], map) } end
    return out
end

--- The list with its result passed on by `f`, which takes and gives an expression.
function statements.finish(list, f)
    local out = table.move(list, 1, #list, 1, {})
    out[#out] = { out[#out][1], f(out[#out][2]) }
    return out
end

-- A name that is not taken: the wanted one, or with _2, _3 ... in the place of its number.
local function free_name(taken, wanted)
    if not taken[wanted] then return wanted end
    local base, name, n = wanted:gsub("_%d+$", ""), wanted, 1
    while taken[name] do
        n = n + 1
        name = base .. "_" .. n
    end
    return name
end

--- The variable that holds the result of a list.
function statements.value(list) return expr.var(list[#list][1]) end

--- `first`, then `second` with its inputs replaced by map[name] where there is an entry: map.x =
-- statements.value(first) reads what first gives. A name that both give gets a number in second.
function statements.append(first, second, map)
    local out, taken, replaced = table.move(first, 1, #first, 1, {}), {}, ordered.copy(map)
    local function take(name) taken[name] = true end
    for _, s in ipairs(first) do
        take(s[1])
        expr.each_variable(s[2], take)
    end
    for _, name in ipairs(statements.inputs(second)) do
        if map[name] then expr.each_variable(expr.lift(map[name]), take) else take(name) end
    end
    for _, s in ipairs(second) do
        local name = free_name(taken, s[1])
        out[#out + 1] = { name, expr.substitute(s[2], replaced) }
        taken[name], replaced[s[1]] = true, expr.var(name)
    end
    return out
end

local function count_reads(e, reads)
    if e.op == "var" then reads[e.name] = (reads[e.name] or 0) + 1 end
    for i = 1, #e do count_reads(e[i], reads) end
end

--- The list as a person would write it: a value of at most `most` operations that is read once, or another name for
-- one, stands where it is read; one that is never read is left out.
function statements.tidy(list, most)
    local reads, inside, out = {}, {}, {}
    for i = #list, 1, -1 do
        if i == #list or reads[list[i][1]] then count_reads(list[i][2], reads) end
    end
    for i, s in ipairs(list) do
        local n = i < #list and (reads[s[1]] or 0) or 2
        local e = n > 0 and expr.substitute(s[2], inside)
        if n == 1 and expr.count(e) <= most or i < #list and n > 0 and expr.count(e) == 0 then
            inside[s[1]] = e
        elseif n > 0 then
            out[#out + 1] = { s[1], e }
        end
    end
    return out
end

--- Moves what reads no element variable out of all expressions, as expr.hoist does.
function statements.hoist(list, is_element, hoisted, name_of)
    local out = {}
    for i, s in ipairs(list) do out[i] = { s[1], expr.hoist(s[2], is_element, hoisted, name_of) } end
    return out
end

-- === names for what one expression repeats ======================================================

-- The largest part of two operations or more that occurs more than once in e, as text; nil: there is none.
local function repeated(e)
    local seen, best, most = {}, nil, 0
    local function look(part)
        local n = expr.count(part)
        if n < 2 then return end
        local text = expr.plain_text(part)
        if seen[text] and n > most then best, most = text, n end
        seen[text] = true
        for _, child in ipairs(part) do look(child) end
    end
    look(e)
    return best
end

-- e with a variable in the place of each part with this text; the part.
local function replace(e, text, name)
    if expr.plain_text(e) == text then return expr.var(name), e end
    local node, found = setmetatable({ op = e.op, value = e.value, name = e.name }, getmetatable(e)), nil
    for i, child in ipairs(e) do
        local part
        node[i], part = replace(child, text, name)
        found = found or part
    end
    return node, found
end

--- e as statements: a name, x1, x2 ... or another word than x, for each part that it repeats, then the rest under the
-- name `result`.
function statements.split(e, result, word)
    local list, text = {}, repeated(e)
    word = word or "x"
    while text do
        local name = word .. #list + 1
        local rest, part = replace(e, text, name)
        list[#list + 1] = { name, part }
        e, text = rest, repeated(rest)
    end
    -- a part that was found later may be inside an earlier one
    for i = 1, #list do
        for j = i + 1, #list do list[i][2] = replace(list[i][2], expr.plain_text(list[j][2]), list[j][1]) end
    end
    local out, names = {}, {}
    for i, part in ipairs(list) do names[part[1]] = expr.var(word .. #list + 1 - i) end
    for i = #list, 1, -1 do
        out[#out + 1] = { names[list[i][1]].name, expr.substitute(list[i][2], names) }
    end
    out[#out + 1] = { result, expr.substitute(e, names) }
    return out
end

--- The list with names for what each of its expressions repeats.
function statements.split_all(list, word)
    local out = {}
    for _, s in ipairs(list) do
        local parts = expr.count(s[2]) > 4 and statements.split(s[2], s[1], word) or { s }
        if #parts > 1 then out = statements.append(out, parts, {}) else out[#out + 1] = s end
    end
    return out
end

-- === text =======================================================================================

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

--- A line of C behind `pad`, in lines of at most `width` columns, 100 if nil, where it can be broken.
function statements.broken(pad, line, width)
    local out = {}
    width = width or 100
    while #pad + #line > width do
        local best, least
        for _, place in ipairs(breaks(line)) do
            if #pad + place[1] <= width and place[1] > 12 and (not least or place[2] <= least) then
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

--- A statement for each but the last: "const TYPE NAME = VALUE;" in a target's spelling (see expr.text). The second
-- value is the text of the last expression.
function statements.text(list, type_name, spelling)
    local lines = {}
    for i = 1, #list - 1 do
        lines[i] = ("const %s %s = %s;"):format(type_name, list[i][1], expr.text(list[i][2], spelling))
    end
    return lines, expr.text(list[#list][2], spelling)
end

return statements
