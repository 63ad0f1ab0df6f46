-- Damaged csv files: with names, a category and gzip, streamed and kept; and numbers alone.
local gzip, REST = ...

local HEAD = "a,b,kind,y\n"
local GOOD = HEAD .. "1,2.5,red,0\n2,-1e3,blue,1\n3,.5,\"red\",2\n4,7,blue,0\n"
local PLAIN = "1,2,0\n3,4,1\n5,6,2\n7,8,0\n"

-- A good text with line `n` replaced.
local function line(n, text, good)
    local lines = {}
    for one in (good or GOOD):gmatch "[^\n]*\n" do lines[#lines + 1] = one end
    lines[n] = text .. "\n"
    return table.concat(lines)
end

local NUMBER, NAME = "expected a finite decimal number", ": is it the file the program was made for?"

-- Damages of line 4 of a file: its number in column 2.
local function number(name, text, found)
    return { name, line(4, "3," .. text .. ",red,2"), ("@:4: column 2: found %s, "):format(found or "'" .. text .. "'")
        .. NUMBER }
end

-- Damages of the class in line 4: gagen asks for whole numbers, a program for those that it knows.
local function class(name, text, gagen, note, program)
    return { name, line(4, "3,4,red," .. text), ("@:4: column 4: target %s, expected a whole number in 0..2"):format(
        program or text), gagen = gagen, note = note }
end

local ODD = "@:4: the target is %s, expected a class number, whole, from 0 to 2^31-1"

-- Damages of the header: gagen compares with the first file, a program with the names that it knows.
local function header(name, text, column, found, expected, program)
    local function title(word) return word and "'" .. word .. "'" or "none" end
    return { name, text, program or ("@:1: column %d: found '%s', expected '%s'%s"):format(column, found, expected,
        NAME),
        gagen = ("@:1: column %d: %s found, %s expected, as in csv/t1.csv"):format(column, title(found),
            title(expected)) }
end

local NAMED = {
    { "no byte", "", "@: no rows found, at least one expected", kept = "@: 0 rows found, 4 expected" },
    { "a header alone", HEAD, "@: no rows found, at least one expected", kept = "@: 0 rows found, 4 expected" },
    { "a byte order mark alone", "\xef\xbb\xbf", "@: no rows found, at least one expected",
        kept = "@: 0 rows found, 4 expected" },
    header("no header", GOOD:sub(#HEAD + 1), 1, "1", "a"),
    header("another name", line(1, "a,B,kind,y"), 2, "B", "b"),
    header("names in another order", line(1, "b,a,kind,y"), 1, "b", "a"),
    header("a name less", line(1, "a,b,kind"), 4, nil, "y", "@:1: 3 columns found, 4 expected"),
    header("a name more", line(1, "a,b,kind,y,z"), 5, "z", nil, "@:1: more than 4 columns found, 4 expected"),
    header("a blank before a name", line(1, "a, b,kind,y"), 2, " b", "b"),
    header("names between semicolons", (GOOD:gsub(",", ";")), 1, "a;b;kind;y", "a"),
    header("an empty first line", "\n" .. GOOD, 1, "", "a"),
    { "rows between semicolons", HEAD .. GOOD:sub(#HEAD + 1):gsub(",", ";"), "@:2: column 1: found '1;2.5;red;0', "
        .. NUMBER },
    { "rows between tabs", HEAD .. GOOD:sub(#HEAD + 1):gsub(",", "\t"), "@:2: column 1: found '1?2.5?red?0', "
        .. NUMBER,
        gagen = "@:2: column 1: found '1" },
    { "a column less", line(4, "3,4,2"), "@:4: column 3: found '2', expected a category",
        gagen = "@:4: 3 columns found" },
    { "a column more", line(4, "3,4,red,2,9"), "@:4: more than 4 columns found, 4 expected" },
    { "a comma at the end", line(4, "3,4,red,2,"), "@:4: more than 4 columns found, 4 expected" },
    { "an empty line", line(4, ""), "@:4: column 1: found an empty cell, expected a number" },
    { "an empty line at the end", GOOD .. "\n", "@:6: column 1: found an empty cell, expected a number" },
    { "a line of blanks", line(4, "  "), "@:4: column 1: found '  ', " .. NUMBER },
    { "an empty cell", line(4, "3,,red,2"), "@:4: column 2: found an empty cell, expected a number" },
    number("a word", "x"), number("NaN", "nan"), number("infinity", "inf"), number("minus infinity", "-Infinity"),
    number("an exponent too large", "1e400"), number("a number in base 16", "0x10"), number("no digits", "-."),
    number("no exponent", "1e"), number("two signs", "--1"), number("two points", "1.2.3"),
    number("a blank before a number", " 1"), number("a blank behind a number", "1 "), number("a number with _",
        "1_000"),
    number("digits of another script", "\u{0663}"), number("a quoted word", '"4""2"', "'4\"2'"),
    { "a number too large for f32", line(4, "3,1e39,red,2"), "@:4: column 2: 1e+39 is too large for F32" },
    { "a comma as the decimal point", line(4, "3,4,5,red,2"), "@:4: column 4: found 'red', " .. NUMBER,
        streamed = "@:4: column 3: found '5', expected a category",
            kept = "@:4: column 3: found '5', expected a category" },
    { "a number of 300 digits", line(4, "3," .. ("9"):rep(300) .. ",red,2"), "@:4: column 2: found a cell of more than "
        .. "255 bytes; expected a number" },
    { "a category of 300 bytes", line(4, "3,4," .. ("r"):rep(300) .. ",2"),
        "@:4: column 3: found a text of more than 255 "
        .. "bytes; expected a category" },
    { "an unknown category", line(4, "3,4,green,2"),
        "@:4: column 3: found 'green', expected a category of the training "
        .. "rows", gagen = false },
    { "a zero byte", line(4, "3,4\0,red,2"), "@:4: column 2: found a zero byte; the file is not text in UTF-8" },
    { "UTF-16", "\xff\xfe" .. GOOD:gsub(".", "%0\0"),
        "@:1: column 1: found a zero byte; the file is not text in UTF-8" },
    { "lines that end in CR", GOOD:gsub("\n", "\r"), "@:1: column 4: found a carriage return without a line feed" },
    { "CR inside a line", line(4, "3,\r4,red,2"), "@:4: column 2: found a carriage return without a line feed" },
    { "a quote that is never closed", line(4, '3,4,"red,2'), "@:4: column 3: found a quote that is never closed" },
    { "a quote open in the last cell", GOOD:sub(1, -3) .. '"0', "@:5: column 4: found a quote that is never closed" },
    { "text behind a quote", line(4, '3,4,"red"x,2'), "@:4: column 3: found text behind a closing quote" },
    { "a quote inside a cell", line(4, '3,4,re"d,2'), "@:4: column 3: found a quote inside a cell" },
    class("a class below 0", "-1", ODD:format "-1"), class("half a class", "1.5", ODD:format "1.5"),
    class("a class too large", "3", "4: loss: the model gives 3 classes, the data has the class 3", "@:4: found 3"),
    class("a class beyond 2^31", "1e10", ODD:format "10000000000", nil, "1e+10"),
    { "a word as a class", line(4, "3,4,red,two"), "@:4: column 4: found 'two', " .. NUMBER },
    { "cut in a row", GOOD:sub(1, -4), "@:5: 3 columns found, 4 expected" },
    { "cut before the last cell", GOOD:sub(1, -3), "@:5: column 4: found an empty cell, expected a number" },
    { "cut in quotes", GOOD:sub(1, (GOOD:find '"red"') + 2), "@:4: column 3: found a quote that is never closed" },
    { "cut in the header", HEAD:sub(1, 6), "@:1: 3 columns found, 4 expected", gagen = "@:1: column 3: 'ki' found",
        program = "@:1: column 3: found 'ki', expected 'kind'" },
    { "a row less", GOOD:gsub("[^\n]*\n$", ""), "@: 3 rows found, 4 expected" .. NAME, gagen = false,
        streamed = false },
    { "a row more", GOOD .. "9,9,red,0\n", "@: 5 rows found, 4 expected" .. NAME, gagen = false, streamed = false },
    { "a folder", { folder = true }, "@: not a regular file", gagen = false },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = false },
}

for _, mutant in ipairs(gzip.mutants(gzip.pack(GOOD))) do
    mutant.at = "packed"
    NAMED[#NAMED + 1] = mutant
end
for _, mutant in ipairs {
    { "text in the place of gzip", GOOD, "@: damaged or no gzip data (incorrect header check)" },
    { "gzip: no byte", "", "@: gzip data ends early: the file is cut off or empty" },
    { "gzip: a wrong row inside", gzip.pack(line(4, "3,x,red,2")), "@:4: column 2: found 'x', " .. NUMBER },
} do
    mutant.at = "packed"
    NAMED[#NAMED + 1] = mutant
end

local NUMBERS = {
    { "a header", "a,b,c\n" .. PLAIN, "@:1: column 1: found 'a', " .. NUMBER .. "; if the first line is a header, say "
        .. "header = true" },
    { "one column", "1\n2\n", "@:1: 1 column found, 3 expected",
        gagen = "@: one column, expected inputs and a target" },
    { "a first line with a column more", line(1, "1,2,0,9", PLAIN), "@:1: more than 3 columns found, 3 expected",
        gagen = "@:2: 3 columns found, 4 expected" },
    { "a column more in every line", PLAIN:gsub("\n", ",0\n"), "@:1: more than 3 columns found, 3 expected",
        gagen = false },
    { "gzip in the place of text", gzip.pack(PLAIN),
        "@:1: column 1: found a zero byte; the file is not text in UTF-8" },
}

return {
    { name = "damaged_csv",
        spec = 'data { "csv", train = "csv/t*", eval = "csv/e*", category = { "kind" }, target = "y", '
        .. "stream = true }" .. REST,
      good = { ["csv/t1.csv"] = GOOD, ["csv/t2.csv"] = GOOD, ["csv/t3.csv.gz"] = gzip.pack(GOOD), ["csv/e2.csv"] = GOOD,
        ["csv/e3.csv.gz"] = gzip.pack(GOOD) },
      places = { plain = { { "csv/t2.csv", "streamed" }, { "csv/e2.csv", "kept" } },
        packed = { { "csv/t3.csv.gz", "streamed" }, { "csv/e3.csv.gz", "kept" } } }, first = "plain", mutants = NAMED },
    { name = "damaged_numbers", spec = 'data { "csv", train = "numbers.csv" }' .. REST,
      good = { ["numbers.csv"] = PLAIN }, places = { file = { { "numbers.csv", "kept" } } }, first = "file",
      mutants = NUMBERS },
}
