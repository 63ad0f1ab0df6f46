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
    t.contains(host.read(p.folder .. "/rows.c"), [[
    {.name = "id", .input = -1},
    {.name = "area, m2", .input = 1},
]])
    local data = t.temp()
    t.write(data .. "/columns/windows.csv", (windows(0, 19):gsub("rooms", "Rooms", 1)))
    t.write(data .. "/columns/eval.csv", windows(20, 25))
    local result = formats.programs.train(p, { "--data", data, status = 1 })
    t.contains(result.err, "windows.csv:1: column 5: found 'Rooms', expected 'rooms': is it the file the program was "
        .. "made for?")
end)

add("a target by name and by number, last and no header are the same data", function(t, formats)
    local rows = {}
    for row = 0, 19 do rows[#rows + 1] = ("%.3f,%d,%.2f"):format(area(row), rooms(row), price(row)) end
    local text = table.concat(rows, "\n") .. "\n"
    formats.write("columns/plain.csv", text)
    formats.write("columns/named.csv", "area,rooms,price\r\n" .. text:gsub("\n", "\r\n"))
    local function facts(data)
        local path = formats.programs.folder() .. "/columns_facts.lua"
        t.write(path, (spec(data):gsub("eval[^\n]*\n$", "")))
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

local CITIES = { "Rome", "", "Bonn, D", 'the "Hague"' }

local function city(row) return CITIES[(row * 3 + 2) % 4 + 1] end
local function kind(row) return ({ "low", "mid", "high" })[row % 3 + 1] end

-- Rows of the last function's numbers, city and class of three names; `strange`: the city of some rows.
local function towns(first, last, strange)
    local lines = { "size,city,offset,kind" }
    for row = first, last do
        lines[#lines + 1] = ("%.3f,%s,%.2f,%s"):format(area(row), quote(strange and strange[row] or city(row)),
            price(row), kind(row))
    end
    return table.concat(lines, "\n") .. "\n"
end

-- Mean and deviation by their definition: of f(row) over the rows of a list.
local function moments(list, f)
    local mean, square = 0, 0
    for _, row in ipairs(list) do mean = mean + f(row) / #list end
    for _, row in ipairs(list) do square = square + (f(row) - mean) ^ 2 / #list end
    return mean, math.sqrt(square)
end

-- The ids of the rows of a list by their first appearance.
local function ids_of(list, f)
    local ids, n = {}, 0
    for _, row in ipairs(list) do
        if not ids[f(row)] then ids[f(row)], n = n, n + 1 end
    end
    return ids, n
end

local function sequence(first, last)
    local list = {}
    for row = first, last do list[#list + 1] = row end
    return list
end

local CLASSES = 'train = "columns/towns.csv", target = "kind", category = { "city", "kind" }, standardize = true, '

local function classes(data)
    return (spec(data):gsub("model[^\n]*", 'model { linear "fc" { 3 } }'):gsub('"mse"', '"cross_entropy"'))
end

-- Checks micro-batches against the definition: `rows` are those for training, place(k, i) is that of row i of batch k,
-- strange[row] is true where its city has the id of unknown ones.
local function check_towns(formats, batches, rows, place, strange)
    local ids, known = ids_of(rows, city)
    local kinds, mean, std = ids_of(rows, kind), {}, {}
    mean[0], std[0] = moments(rows, area)
    mean[2], std[2] = moments(rows, price)
    local function value(row, i)
        if i == 1 then return strange and strange[row] and known or ids[city(row)] end
        return ((i == 0 and area or price)(row) - mean[i]) / std[i]
    end
    for k, batch in next, batches do
        formats.check(batch, 0, "input", 2e-6, function(i, at) return value(place(k, i), at) end)
        formats.check(batch, 0, "target", 0, function(i) return kinds[kind(place(k, i))] end)
    end
end

add("categories and standardized numbers of the training rows, from memory and streamed", function(t, formats)
    formats.write("columns/towns.csv", towns(0, 19))
    formats.write("columns/towns_eval.csv", towns(20, 25, { [22] = "Oslo", [25] = "Riga" }))
    local text = classes(CLASSES .. 'eval = "columns/towns_eval.csv", unknown = true, shuffle = false')
    local rows = sequence(0, 19)
    for name, how in next, { kept = text, stream = text:gsub("shuffle = false", "stream = true") } do
        local seen = formats.run(formats.build("columns_city_" .. name, how))
        check_towns(formats, seen.train, rows, function(k, i) return 4 * k + i end)
        check_towns(formats, seen.eval, rows, function(k, i) return 20 + 4 * k + i end, { [22] = true, [25] = true })
    end
    local data = host.read(formats.programs.folder() .. "/data_columns_city_kept/rows.c")
    local mean, std = t.match(data, "%.mean = ([%d.]+), %.std = ([%d.]+)}")
    local by_hand, deviation = moments(rows, area)
    t.near(tonumber(mean), by_hand, 1e-14)
    t.near(tonumber(std), deviation, 1e-14)
    t.contains(data, "/* The ids of the texts in column 2 ('city'); of others: 4. */\n")
    t.contains(data, '    {"Bonn, D", 0},\n')
end)

add("categories as fields of ids, for embedding", function(t, formats)
    formats.write("columns/towns.csv", towns(0, 19))
    formats.write("columns/towns_eval.csv", towns(20, 25, { [22] = "Oslo" }))
    local text = classes(CLASSES .. 'ids = { "city" }, eval = "columns/towns_eval.csv", unknown = true, '
        .. "shuffle = false"):gsub("model[^\n]*", 'model(function(batch) return linear "fc" { 3 } (concat { axis = 2 } '
        .. '(batch.input, embedding "towns" { 5, 2 } (batch.city))) end)')
    local ids, mean, std = ids_of(sequence(0, 19), city), moments(sequence(0, 19), price)
    for name, how in next, { kept = text, stream = text:gsub("shuffle = false", "stream = true") } do
        local seen = formats.run(formats.build("columns_ids_" .. name, how))
        for k = 0, 4 do
            t.equal(seen.train[k].input.width, 2)
            formats.check(seen.train[k], k, "city", 0, function(row) return ids[city(row)] end)
            formats.check(seen.train[k], k, "target", 0, function(row) return row % 3 end)
            formats.check(seen.train[k], k, "input", 2e-6, function(row, i)
                return i == 1 and (price(row) - mean) / std or seen.train[k].input.values[2 * (row - 4 * k) + 1]
            end)
        end
        t.equal(seen.eval[0].city.values, { ids[city(20)], ids[city(21)], 4, ids[city(23)] })
    end
end)

-- No two sizes are alike: they say which rows of towns(0, 19) a batch has.
local function row_of(batch, i, mean, std)
    for row = 0, 19 do
        if math.abs(area(row) - batch.input.values[3 * i + 1] * std - mean) < 1e-5 then return row end
    end
end

add("a split: rows for evaluation teach nothing", function(t, formats)
    formats.write("columns/split.csv", towns(0, 19, { [10] = "Oslo" }))        -- for evaluation with this seed
    local text = classes(CLASSES:gsub("towns", "split") .. "unknown = true, split = { fold = 2, of = 5, seed = 3 }")
    local p = formats.build("columns_split", text)
    local seen, places = formats.run(p), {}
    local mean, std = t.match(host.read(p.folder .. "/rows.c"), "%.mean = ([%d.]+), %.std = ([%d.]+)}")
    for k = 0, 3 do
        for i = 0, 3 do places[#places + 1] = row_of(seen.train[k], i, mean, std) end
    end
    local rows = table.move(places, 1, 16, 1, {})
    table.sort(rows)
    local all = {}
    for i = 0, 3 do all[i + 1] = row_of(seen.eval[0], i, mean, std) end
    table.sort(table.move(rows, 1, 16, 5, all))
    t.equal(all, sequence(0, 19))
    for _, row in ipairs(rows) do assert(row ~= 10, "row 10 is for training: another seed") end
    seen.train[4] = nil
    check_towns(formats, seen.train, rows, function(k, i) return places[4 * k + i + 1] end)
    check_towns(formats, seen.eval, rows, function(k, i) return row_of(seen.eval[k], i, mean, std) end, { [10] = true })
end)

add("texts that no training row has", function(t, formats)
    formats.write("columns/towns.csv", towns(0, 19))
    formats.write("columns/towns_eval.csv", towns(20, 25))
    local p = formats.build("columns_known", classes(CLASSES .. 'eval = "columns/towns_eval.csv"'))
    local data = t.temp()
    t.write(data .. "/columns/towns.csv", towns(0, 19))
    t.write(data .. "/columns/towns_eval.csv", towns(20, 25, { [22] = "Oslo" }))
    local result = formats.programs.train(p, { "--data", data, status = 1 })
    t.contains(result.err, "/columns/towns_eval.csv:4: column 2: found 'Oslo', expected a category of the training "
        .. "rows; unknown = true has an id for others\n")
end)

-- { fields of data, what gagen says (@ is the folder of the files) }
local CASES = {
    { NAMED:gsub("price", "pric"), "data: target: columns/windows.csv has no column 'pric'",
        "did you mean 'price'?\nits columns: 'id', 'area, m2', 'the \"note\"', 'price', 'rooms'" },
    { NAMED .. 'drop = { "Id" }', "data: drop: columns/windows.csv has no column 'Id'", "did you mean 'id'?" },
    { NAMED .. 'drop = { 1, "id" }', "data: drop: column 1 ('id') is given twice" },
    { NAMED .. 'drop = { "price" }', "data: drop: column 4 ('price') is the target" },
    { NAMED .. "drop = { 6 }", "data: drop is 6, the file has 5 columns" },
    { NAMED .. "drop = { 0 }", "data: drop is 0, expected an integer >= 1 or a string" },
    { NAMED .. "drop = { 1, 2, 3, 5 }", "data: no column is left for the input" },
    { NAMED .. "drop = { 1 }, columns = { 2 }", "data: drop and columns exclude each other" },
    { NAMED .. 'columns = { "price" }', "data: columns: column 4 ('price') is the target" },
    { NAMED .. "drop = { 1 }", "data: @windows.csv:3: column 3: found 'two?lines, \"quoted\"', expected a finite "
        .. "decimal number; a column of text is one of category or drop" },
    { NAMED .. "header = false", "data: header is false, but columns are given by names" },
    { 'train = "columns/windows.csv", eval = "columns/other.csv", target = "price", columns = { 5 }',
        "data: @other.csv:1: column 5: 'room' found, 'rooms' expected, as in columns/windows.csv" },
    { 'train = "columns/twice.csv", target = "b"', "data: target: columns 1 and 3 of columns/twice.csv are called 'b', "
        .. "expected a number" },
    { 'train = "columns/one.csv"', "data: @one.csv: one column, expected inputs and a target, separated by commas" },
    { CLASSES .. 'eval = "columns/strange.csv"', "data: @strange.csv:4: column 2 ('city'): 'Oslo' is in no training "
        .. "row, expected one of theirs, or unknown = true, one id for all others" },
    { CLASSES .. 'unknown = true, eval = "columns/new_kind.csv"', "data: @new_kind.csv:2: column 4 ('kind'): 'top' is "
        .. "in no training row" },
    { CLASSES:gsub("true", "false") .. "split = { eval = 19 }", "data: @towns.csv:" },
    { CLASSES .. 'ids = { "offset" }', "data: ids: column 3 ('offset') is no category of an input" },
    { CLASSES .. 'ids = { "kind" }', "data: ids: column 4 ('kind') is no category of an input" },
    { CLASSES .. 'columns = { "city" }, ids = { "city" }', "data: ids: no column is left for the input" },
    { 'train = "columns/three.csv", category = { 1 }, ids = { 1 }', "data: ids: column 1: a field needs a "
        .. "name of letters" },
    { CLASSES .. "scale = 2", "data: scale and standardize exclude each other" },
    { CLASSES .. 'drop = { "city" }', "data: category: column 2 ('city') is neither an input nor the target" },
    { 'train = "columns/towns.csv", target = "kind", category = { "kind" }', "data: @towns.csv:2: column 2: found "
        .. "'Bonn, D', expected a finite decimal number; a column of text is one of category or drop" },
    { 'train = "columns/three.csv", unknown = true', "data: unknown is for columns of category, expected some" },
    { 'train = "columns/three.csv", standardize = true', "data: standardize: column 2 is 7 in every training row, "
        .. "expected two values or more: drop it" },
    { 'train = "columns/three.csv", category = { 1, 2 }, standardize = true', "data: standardize: no input is a "
        .. "number, expected one or more" },
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
    formats.write("columns/towns.csv", towns(0, 19))
    formats.write("columns/strange.csv", towns(20, 25, { [22] = "Oslo" }))
    formats.write("columns/new_kind.csv", (towns(20, 25):gsub("high", "top")))
    formats.write("columns/three.csv", "1,7,0\n2,7,1\n")
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

add("a newcomer's table, as the documentation says", function(t, formats)
    local programs, folder = formats.programs, t.temp() .. "/houses"
    local result = programs.gagen { "tests/e2e/newcomer/houses.lua", "-o", folder }
    t.equal(result.status, 0, result.err)
    programs.compile(folder)
    local losses = {}
    for _, event in ipairs(programs.events({ train = folder .. "/train" }, { "--cycles", 60 })) do
        if event.event == "update" then losses[#losses + 1] = event.loss end
    end
    t.equal(#losses, 60)
    assert(losses[60] < losses[1] / 10, ("%g, then %g"):format(losses[1], losses[60]))
    local data = host.read(folder .. "/rows.c")
    t.contains(data, '    {.name = "id", .input = -1},\n    {.name = "size, m2", .input = 0, .mean = ')
    t.contains(data, '    {"K\\303\\266ln", ')
end)

return tests
