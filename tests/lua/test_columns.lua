-- Columns of csv files as people have them: files of spreadsheets, names, columns left out or in another order. Batches
-- of a program are compared with the numbers that the files were made from.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/formats.lua")(t)) end }
end

local function spec(data, more)
    return ([[
data       { "csv", %s }
batch      (4)
model(function(batch) return pick { axis = 2, index = 1 } (linear "fc" { 1 } (0.01 * batch.input)) end)
loss       "mse"
optimizer  { "sgd", lr = 0.01 }
train      { updates = 5 }
eval       { every = 5 }
%s]]):format(data, more or "")
end

local function quote(text) return '"' .. text:gsub('"', '""') .. '"' end

local function area(row) return row * 3 % 7 + row / 8 end
local function rooms(row) return row % 5 - 2 end
local function price(row) return 100 + row / 4 end

-- Rows first..last as a spreadsheet on Windows writes them: id, "area, m2", note (text of any form), price, rooms.
local function windows(first, last)
    local lines = { '\xef\xbb\xbfid,"area, m2","the ""note""",price,rooms' }
    for row = first, last do
        local note = row % 3 == 0 and quote 'two\r\nlines, "quoted"' or row % 3 == 1 and "" or ("long "):rep(90)
        lines[#lines + 1] = ("x%d,%.3f,%s,%s,%d"):format(row, area(row), note, quote(("%.2f"):format(price(row))),
            rooms(row))
    end
    return table.concat(lines, "\r\n") .. "\r\n"
end

local NAMED = 'train = "columns/windows.csv", eval = "columns/eval.csv", target = "price", '

local function write_windows(formats)
    formats.write("columns/windows.csv", windows(0, 19))
    formats.write("columns/eval.csv", windows(20, 25))
end

-- Checks that a run saw these inputs, lists of functions of the row, and the prices.
local function check_rows(t, formats, seen, inputs)
    local function value(row, i) return inputs[i + 1](row) end
    for k = 0, 4 do
        t.equal(seen.train[k].input.width, #inputs)
        formats.check(seen.train[k], k, "input", 1e-6, value)
        formats.check(seen.train[k], k, "target", 0, price)
    end
    formats.check(seen.eval[0], 5, "input", 1e-6, value)
    formats.check(seen.eval[1], 12, "target", 0, price)        -- it has two rows
    t.equal(seen.eval[1].input.rows, 2)
end

add("names, a byte order mark, CR LF and quotes, from memory and streamed", function(t, formats)
    write_windows(formats)
    for name, how in next, { drop = "shuffle = false", stream_drop = "stream = true" } do
        local text = spec(NAMED .. 'drop = { "id", "the \\"note\\"" }, ' .. how)
        local p = formats.build("columns_" .. name, text)
        check_rows(t, formats, formats.run(p), { area, rooms })
    end
    local p = formats.build("columns_order", spec(NAMED .. 'columns = { "rooms", "area, m2" }, shuffle = false'))
    check_rows(t, formats, formats.run(p), { rooms, area })
    t.contains(host.read(p.folder .. "/data.c"), [[
    {.name = "id", .input = -1},
    {.name = "area, m2", .input = 1},
]])
    local data = t.temp()
    t.write(data .. "/columns/windows.csv", (windows(0, 19):gsub("rooms", "Rooms", 1)))
    t.write(data .. "/columns/eval.csv", windows(20, 25))
    local result = formats.programs.train(p, { "--data", data, status = 1 })
    t.contains(result.err, "windows.csv:1: column 5: found 'Rooms', expected 'rooms': is it the file the program was made "
        .. "for?")
end)

add("a target by name and by number, last and no header are the same data", function(t, formats)
    local rows = {}
    for row = 0, 19 do rows[#rows + 1] = ("%.3f,%d,%.2f"):format(area(row), rooms(row), price(row)) end
    local text = table.concat(rows, "\n") .. "\n"
    formats.write("columns/plain.csv", text)
    formats.write("columns/named.csv", "area,rooms,price\r\n" .. text:gsub("\n", "\r\n"))
    local function facts(data)
        local path = formats.programs.folder() .. "/columns_facts.lua"
        t.write(path, spec(data))
        local result = formats.programs.gagen { "show", path, "data.c" }
        t.equal(result.status, 0, result.err)
        return t.match(result.out, "const ga_csv_spec train = (%b{});")
    end
    local plain = facts 'train = "columns/plain.csv"'
    t.contains(plain, ".columns = 3, .target = 2, ")
    t.equal(facts 'train = "columns/plain.csv", target = "last"', plain)
    local named = plain:gsub("REAL", "REAL, .header = true")
    t.equal(facts 'train = "columns/named.csv", target = "last", header = true', named)
    t.equal(facts 'train = "columns/named.csv", target = "price"', named)
    t.equal(facts 'train = "columns/named.csv", target = 3, header = true', named)
end)

-- { fields of data, what gagen says (@ is the folder of the files) }
local CASES = {
    { NAMED:gsub("price", "pric"), "data: target: columns/windows.csv has no column 'pric'",
        "did you mean 'price'?\nits columns: id, area, m2, the \"note\", price, rooms" },
    { NAMED .. 'drop = { "Id" }', "data: drop: columns/windows.csv has no column 'Id'", "did you mean 'id'?" },
    { NAMED .. 'drop = { 1, "id" }', "data: drop: column 1 ('id') is given twice" },
    { NAMED .. 'drop = { "price" }', "data: drop: column 4 ('price') is the target" },
    { NAMED .. "drop = { 6 }", "data: drop is 6, the file has 5 columns" },
    { NAMED .. "drop = { 0 }", "data: drop is 0, expected an integer >= 1 or a string" },
    { NAMED .. "drop = { 1, 2, 3, 5 }", "data: no column is left for the input" },
    { NAMED .. "drop = { 1 }, columns = { 2 }", "data: drop and columns exclude each other" },
    { NAMED .. 'columns = { "price" }', "data: columns: column 4 ('price') is the target" },
    { NAMED .. "drop = { 1 }", "data: @windows.csv:3: column 3: found 'two?lines, \"quoted\"', expected a finite decimal "
        .. "number; a column of text is one of category or drop" },
    { NAMED .. "header = false", "data: header is false, but columns are given by names" },
    { 'train = "columns/windows.csv", eval = "columns/other.csv", target = "price", columns = { 5 }',
        "data: @other.csv:1: column 5: 'room' found, 'rooms' expected, as in columns/windows.csv" },
    { 'train = "columns/twice.csv", target = "b"', "data: target: columns 1 and 3 of columns/twice.csv are called 'b', "
        .. "expected a number" },
    { 'train = "columns/one.csv"', "data: @one.csv: one column, expected inputs and a target, separated by commas" },
    { 'train = "columns/empty.csv"', "data: @empty.csv: no rows found, at least one expected" },
    { 'train = "columns/open.csv"', "data: @open.csv:2: column 1: found a quote that is never closed" },
}

add("columns that are not there, and faulty files", function(t, formats)
    local folder = formats.programs.folder()
    write_windows(formats)
    formats.write("columns/other.csv", (windows(20, 25):gsub("rooms", "room", 1)))
    formats.write("columns/twice.csv", "b,a,b\n1,2,3\n")
    formats.write("columns/one.csv", "a;b\n1;2\n")
    formats.write("columns/empty.csv", "")
    formats.write("columns/open.csv", '1,2\n"3,4\n5,6\n')
    for i, case in ipairs(CASES) do
        local path = folder .. "/wrong_columns.lua"
        t.write(path, spec(case[1]))
        local result = formats.programs.gagen { "check", path }
        local expected = path .. ":1: " .. case[2]:gsub("@", folder .. "/data/columns/")
        if result.status ~= 1 or result.err:sub(1, #expected) ~= expected then
            error(("case %d: status %d\nexpected: %s\nfound:    %s"):format(i, result.status, expected, result.err), 0)
        end
        if case[3] then t.contains(result.err, case[3]) end
    end
end)

return tests
