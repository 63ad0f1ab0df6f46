-- lines: the difference of two texts, line by line (patience diff). Lines that occur once in both texts are
-- anchors; the gaps between them are compared with Myers' shortest edit (1986), or replaced whole where that edit
-- is too long.
local lines = {}

local MOST_EDITS = 300        -- of one gap

--- The lines of a text, without newlines.
function lines.split(text)
    local list = {}
    for line in text:gmatch("([^\n]*)\n?") do list[#list + 1] = line end
    if list[#list] == "" then list[#list] = nil end
    return list
end

-- The longest sequence of lines that occur once in a[a1..a2] and once in b[b1..b2], in the same order in
-- both, as positions { i, j }.
local function anchors(a, a1, a2, b, b1, b2)
    local count, place = {}, {}
    for i = a1, a2 do count[a[i]] = (count[a[i]] or 0) + 1 end
    local once = {}
    for j = b1, b2 do once[b[j]] = (once[b[j]] or 0) + 1 end
    for j = b1, b2 do place[b[j]] = j end
    local piles = {}
    for i = a1, a2 do
        local line = a[i]
        if count[line] == 1 and once[line] == 1 then
            local j, low, high = place[line], 1, #piles + 1
            while low < high do
                local middle = (low + high) // 2
                if piles[middle].j < j then low = middle + 1 else high = middle end
            end
            piles[low] = { i = i, j = j, before = piles[low - 1] }
        end
    end
    local list, node = {}, piles[#piles]
    while node do
        table.insert(list, 1, node)
        node = node.before
    end
    return list
end

-- Whether the path to diagonal k came down from k + 1 (a line of b) or from k - 1 (a line of a).
local function is_down(reached, d, k) return k == -d or k ~= d and reached[k - 1] < reached[k + 1] end

-- The pairs of equal lines on the path back from the end of the shortest edit. trace[d][k]: the furthest x on
-- diagonal k after d - 1 edits.
local function walk_back(trace, d, x, k, a1, b1)
    local list = {}
    for step = d, 0, -1 do
        local reached = trace[step]
        local from = is_down(reached, step, k) and k + 1 or k - 1
        local start = step == 0 and 0 or from > k and reached[from] or reached[from] + 1
        for i = x, start + 1, -1 do
            table.insert(list, 1, { i = a1 + i - 1, j = b1 + i - 1 - k })
        end
        x, k = reached[from], from
    end
    return list
end

-- The pairs of equal lines of a shortest edit of a gap; none if it has more than MOST_EDITS edits.
local function shortest(a, a1, a2, b, b1, b2)
    local n, m, reached, trace = a2 - a1 + 1, b2 - b1 + 1, { [1] = 0 }, {}
    for d = 0, math.min(n + m, MOST_EDITS) do
        trace[d] = {}
        for k, x in next, reached do trace[d][k] = x end
        for k = -d, d, 2 do
            local x = is_down(reached, d, k) and reached[k + 1] or reached[k - 1] + 1
            while x < n and x - k < m and a[a1 + x] == b[b1 + x - k] do x = x + 1 end
            reached[k] = x
            if x >= n and x - k >= m then return walk_back(trace, d, x, k, a1, b1) end
        end
    end
    return {}
end

-- Appends the pairs of equal lines of a gap to `out`: its common head, a shortest edit, its common tail.
local function gap(a, a1, a2, b, b1, b2, out)
    while a1 <= a2 and b1 <= b2 and a[a1] == b[b1] do
        out[#out + 1] = { i = a1, j = b1 }
        a1, b1 = a1 + 1, b1 + 1
    end
    local tail = {}
    while a1 <= a2 and b1 <= b2 and a[a2] == b[b2] do
        table.insert(tail, 1, { i = a2, j = b2 })
        a2, b2 = a2 - 1, b2 - 1
    end
    local between = a1 <= a2 and b1 <= b2 and shortest(a, a1, a2, b, b1, b2) or {}
    table.move(between, 1, #between, #out + 1, out)
    table.move(tail, 1, #tail, #out + 1, out)
end

--- The pairs { i, j } of equal lines in a and b, ascending in both; a and b are arrays of keys.
function lines.matches(a, b)
    local out, i, j = {}, 1, 1
    for _, anchor in ipairs(anchors(a, 1, #a, b, 1, #b)) do
        gap(a, i, anchor.i - 1, b, j, anchor.j - 1, out)
        out[#out + 1] = { i = anchor.i, j = anchor.j }
        i, j = anchor.i + 1, anchor.j + 1
    end
    gap(a, i, #a, b, j, #b, out)
    return out
end

--- The edits that turn a into b: a list of { sign = " " | "-" | "+", text, i, j } with the line numbers i in
--- a and j in b. Two lines are equal if key(line) is (default: the line itself).
function lines.edits(a, b, key)
    local ka, kb = a, b
    if key then
        ka, kb = {}, {}
        for i, line in ipairs(a) do ka[i] = key(line) end
        for j, line in ipairs(b) do kb[j] = key(line) end
    end
    local edits, i, j = {}, 1, 1
    local function to(next_i, next_j)
        while i < next_i do
            edits[#edits + 1], i = { sign = "-", text = a[i], i = i, j = j }, i + 1
        end
        while j < next_j do
            edits[#edits + 1], j = { sign = "+", text = b[j], i = i, j = j }, j + 1
        end
    end
    for _, match in ipairs(lines.matches(ka, kb)) do
        to(match.i, match.j)
        edits[#edits + 1] = { sign = " ", text = b[j], i = i, j = j }
        i, j = i + 1, j + 1
    end
    to(#a + 1, #b + 1)
    return edits
end

--- The edits as text in unified format, `context` equal lines around each change; "" if nothing changed.
function lines.hunks(edits, context)
    local shown, out, last = {}, {}, nil
    for n, edit in ipairs(edits) do
        if edit.sign ~= " " then
            for k = math.max(1, n - context), math.min(#edits, n + context) do shown[k] = true end
        end
    end
    for n, edit in ipairs(edits) do
        if shown[n] then
            if last ~= n - 1 then out[#out + 1] = ("@@ -%d +%d @@\n"):format(edit.i, edit.j) end
            out[#out + 1] = edit.sign .. edit.text .. "\n"
            last = n
        end
    end
    return table.concat(out)
end

return lines
