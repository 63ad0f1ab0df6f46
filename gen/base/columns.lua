-- columns: tables and prose in the columns of a terminal. Text for a file or a pipe has no width and stays as it is.
local columns = {}

local GAP = 2

local function length(text) return utf8.len(text) or #text end

-- The first n signs of a text, and the last n.
local function first(text, n) return text:sub(1, (utf8.offset(text, n + 1) or #text + 1) - 1) end
local function last(text, n) return n > 0 and text:sub(utf8.offset(text, -n) or 1) or "" end

--- The columns of the terminal `fd`; nil if it is none.
function columns.of(fd) return host.terminal(fd) or nil end

--- `text` with "..." in its middle where it is longer than `width` signs.
function columns.shortened(text, width)
    if length(text) <= width then return text end
    if width <= 3 then return first(text, width) end
    return first(text, (width - 2) // 2) .. "..." .. last(text, (width - 3) // 2)
end

-- The column of the lines that continue a long one: that of its last part behind a gap, unless it is too far right.
local function hanging(line, width)
    local indent = #line:match "^ *"
    local before = line:match "^( *%S.*  )%S"
    local column = before and length(before) or indent > 0 and indent or GAP
    return column <= width // 2 and column or math.min(indent, width // 2) + GAP
end

--- One line as lines of at most `width` signs, broken at spaces; a longer word stays whole. pad: before all but the
--- first.
function columns.broken(line, width, pad)
    local out = {}
    while length(line) > width do
        local head = first(line, width + 1):match "^(.*%S) " or line:match "^ *%S+"
        out[#out + 1] = head
        line = line:sub(#head + 1):match "^ *(.*)$"
        if line == "" then return out end
        line = pad .. line
    end
    out[#out + 1] = line
    return out
end

--- `text` with lines of at most `width` signs; nil: as it is.
function columns.wrapped(text, width)
    if not width then return text end
    return (text:gsub("[^\n]+", function(line)
        if length(line) <= width then return nil end
        return table.concat(columns.broken(line, width, (" "):rep(hanging(line, width))), "\n")
    end))
end

-- The least width of a column that may give way, and a comfortable one.
local WIDTHS = { name = { 10, 16 }, prose = { 24, 24 } }

local LEAST, COMFORTABLE, INDENT = 1, 2, 4

-- Columns from..to, which stand in one line: { from, to, indent, widths, total = width of that line }.
local function measured(rows, kinds, from, to, indent)
    local part = { from = from, to = to, indent = indent, widths = {}, total = indent + GAP * (to - from) }
    for k = from, to do
        local width = kinds[k].least or 0
        for _, row in ipairs(rows) do width = math.max(width, length(row[k])) end
        part.widths[k], part.total = width, part.total + width
    end
    return part
end

-- Narrows the widest names and prose of a part, down to the widths of `size`, until its line has at most `width`
-- columns. Returns whether it has.
local function narrow(part, kinds, width, size)
    while part.total > width do
        local widest
        for k = part.from, part.to do
            local least = WIDTHS[kinds[k].name and "name" or kinds[k].prose and "prose"]
            if least and part.widths[k] > least[size] and not (widest and part.widths[widest] >= part.widths[k]) then
                widest = k
            end
        end
        if not widest then return false end
        part.widths[widest], part.total = part.widths[widest] - 1, part.total - 1
    end
    return true
end

-- All columns as parts: one line for a row if all fit into it, else one line for as many as fit comfortably, and so on.
local function parts_of(rows, kinds, indent, width)
    local parts, from = {}, 1
    while from <= #kinds do
        local to = #kinds
        local part = measured(rows, kinds, from, to, indent)
        local fits = not width or narrow(part, kinds, width, LEAST)
        while not fits and to > from do
            to = to - 1
            part = measured(rows, kinds, from, to, indent)
            fits = narrow(part, kinds, width, COMFORTABLE)
        end
        indent = indent + (from == 1 and INDENT or 0)
        parts[#parts + 1], from = part, to + 1
    end
    return parts
end

local function filled(cell, width, right)
    local space = (" "):rep(width - length(cell))
    return right and space .. cell or cell .. space
end

-- Appends the lines of a row's part to `out`.
local function add_lines(out, row, kinds, part, width)
    local to, cells, left = part.to, {}, part.indent
    local last_cell = kinds[to].prose and columns.broken(row[to], part.widths[to], "") or { row[to] }
    for k = part.from, to do
        local cell = k == to and last_cell[1] or row[k]
        if kinds[k].name then cell = columns.shortened(cell, part.widths[k]) end
        cells[#cells + 1] = filled(cell, part.widths[k], kinds[k].right)
        left = left + (k < to and part.widths[k] + GAP or 0)
    end
    last_cell[1] = (" "):rep(part.indent) .. table.concat(cells, (" "):rep(GAP))
    for i, line in ipairs(last_cell) do
        line = (i > 1 and (" "):rep(left) or "") .. line:gsub(" +$", "")
        out[#out + 1] = width and columns.shortened(line, width) or line
    end
end

--- Lines of a table. rows: arrays of cells. how: { columns, indent, width }. columns: for each a { right, least, name,
--- prose }: whether its cells stand at the right, its least width, whether a narrow terminal shortens its cells, or
--- breaks them into lines (the last column only). indent: spaces before each row. width: of the terminal, or nil. Where
--- all this does not suffice, the last columns of a row stand in a line of their own below.
function columns.aligned(rows, how)
    local lines, indent = {}, how.indent or 0
    local parts = parts_of(rows, how.columns, indent, how.width)
    for _, row in ipairs(rows) do
        for _, part in ipairs(parts) do add_lines(lines, row, how.columns, part, how.width) end
    end
    return lines
end

return columns
