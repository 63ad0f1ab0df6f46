-- csv: the columns of a csv: the target, the inputs in their order, categories, and numbers that are standardized.
local check = require "base.check"
local diag = require "base.diag"
local field_name = require "spec.field_name"
local ordered = require "base.ordered"
local scans = require "spec.scans"

local csv = {}

-- Texts of one category at most: its table is part of the program.
local MOST_VALUES = 65536

-- Names in a message at most.
local MOST_NAMES = 30

--- The name of a column in messages: "column 3 ('city')".
function csv.title(table_of, i)
    local name = table_of.names and table_of.names[i]
    return name and ("column %d ('%s')"):format(i, name) or ("column %d"):format(i)
end

-- Whether the spec gives a column by its name.
local function uses_names(d)
    if type(d.target) == "string" then return true end
    for _, field in ipairs { "drop", "columns", "category", "ids" } do
        for _, entry in ipairs(d[field] or {}) do
            if type(entry) == "string" then return true end
        end
    end
    return false
end

local function first_line(file, at)
    local cells, message = host.csv_line(file.path)
    if not cells then diag.fail(at, "data: " .. message, {}) end
    return cells
end

-- The names in the first line of a file: nil without a header.
local function names_of(d, where, file, cells)
    if not uses_names(d) then return d.header and cells or nil end
    if d.header == false then
        diag.fail(where.locate("header"), "data: header is false, but columns are given by names: expected their "
            .. "numbers, or no header = false", {})
    end
    if not ordered.find(ordered.collect(cells, function(cell) return tonumber(cell) == nil end), true) then
        diag.fail(d.at, ("data: %s:1: a line of numbers, expected a header: columns are given by names"):format(
            file.name), {})
    end
    d.header = true
    return cells
end

-- The number of the column that `entry` of a field means, a number or a name.
local function column_of(d, where, field, entry)
    local c = d.csv
    if math.type(entry) then
        if entry > c.columns then
            diag.fail(where.locate(field), ("data: %s is %d, the file has %d columns"):format(field, entry,
                c.columns), {})
        end
        return entry
    end
    local first = ordered.find(c.names, entry)
    if not first then
        local names = table.concat(c.names, "', '", 1, math.min(#c.names, MOST_NAMES))
        diag.fail(where.locate(field), ("data: %s: %s has no column '%s'"):format(field, c.file.name, entry), {
            found = entry, among = c.names, notes = { ("its columns: '%s'%s"):format(names,
                #c.names > MOST_NAMES and (", ... (%d)"):format(#c.names) or "") } })
    end
    for i = first + 1, c.columns do
        if c.names[i] == entry then
            diag.fail(where.locate(field), ("data: %s: columns %d and %d of %s are called '%s', expected a number")
                :format(field, first, i, c.file.name, entry), {})
        end
    end
    return first
end

-- The columns of a list: { number, ... }, and true by number.
local function columns_of(d, where, field)
    local list, has = {}, {}
    for _, entry in ipairs(d[field] or {}) do
        local i = column_of(d, where, field, check.value({ name = field, type = "int", min = 1,
            alternatives = { "string" } }, entry, where))
        if has[i] then
            diag.fail(where.locate(field), ("data: %s: %s is given twice"):format(field, csv.title(d.csv, i)), {})
        end
        list[#list + 1], has[i] = i, true
    end
    return list, has
end

-- The columns that are inputs, in their order.
local function inputs_of(d, where)
    local c, list = d.csv, {}
    local _, dropped = columns_of(d, where, "drop")
    local function refuse(field, complaint) diag.fail(where.locate(field), "data: " .. complaint, {}) end
    if d.columns and d.drop then
        refuse("drop", "drop and columns exclude each other: columns that are not listed are left out")
    end
    local field = d.columns and "columns" or "drop"
    local given, has = columns_of(d, where, field)
    if has[c.target] then refuse(field, ("%s: %s is the target"):format(field, csv.title(c, c.target))) end
    for i = 1, c.columns do
        if i ~= c.target and not dropped[i] then list[#list + 1] = i end
    end
    if d.columns then list = given end
    if #list == 0 then refuse(field, "no column is left for the input") end
    return list
end

-- Fields of a batch at most, without input and target: runtime/data/source.h has 8 in all.
local MOST_FIELDS = 6

-- Marks the categories that are fields of their own, and takes them out of the inputs.
local function mark_fields(d, where)
    local c = d.csv
    local _, category = columns_of(d, where, "category")
    local given, taken = columns_of(d, where, "ids"), { "input", "target" }
    local function refuse(complaint, ...) diag.fail(where.locate("ids"), "data: ids: " .. complaint:format(...), {}) end
    if #given > MOST_FIELDS then refuse("%d columns, expected at most %d", #given, MOST_FIELDS) end
    for k, i in ipairs(given) do
        local name = c.names and c.names[i] or ""
        if not category[i] or i == c.target then refuse("%s is no category of an input", csv.title(c, i)) end
        local obstacle = not name:find("^%a[%w_]*$") and "a field needs a name of letters, digits and _"
            or field_name.obstacle(name, taken)
        if obstacle then refuse("%s: %s, expected its column in the input", csv.title(c, i), obstacle) end
        c.list[i], taken[#taken + 1] = { field = k }, name
    end
end

-- Marks the columns of categories.
local function mark_categories(d, where)
    local c = d.csv
    for _, i in ipairs(columns_of(d, where, "category")) do
        if not c.list[i].input and not c.list[i].field and i ~= c.target then
            diag.fail(where.locate("category"), ("data: category: %s is neither an input nor the target"):format(
                csv.title(c, i)), {})
        end
        c.list[i].category = true
    end
    if d.unknown ~= nil and not d.category then
        diag.fail(where.locate("unknown"), "data: unknown is for columns of category, expected some", {})
    end
    if d.standardize and d.scale then
        diag.fail(where.locate("scale"), "data: scale and standardize exclude each other", {})
    end
end

--- Finds the columns of the first training file; called before the scan. Sets d.csv:
---   columns, target   number of columns; that of the target, from 1
---   names             of the columns, nil without a header
---   file              whose first line was read
---   list              for each column { input = place among the inputs from 1, category = true, field = number of the
---                     field of the batch that it is }; nil if all columns but the target are numbers and inputs, in
---                     order
--- csv.learn adds to an entry of a category { values }, its texts by id from 0, and { unknown = true } if others have
--- the next id; to that of a standardized one { mean, std }.
function csv.read(d, where, train)
    local cells = first_line(train.files[1], train.at)
    if #cells == 1 then
        diag.fail(train.at, ("data: %s: one column, expected inputs and a target, separated by commas"):format(
            train.files[1].path), {})
    end
    d.csv = { columns = #cells, file = train.files[1], names = names_of(d, where, train.files[1], cells) }
    local c = d.csv
    c.target = d.target and column_of(d, where, "target", d.target) or c.columns
    local inputs = inputs_of(d, where)
    if not (d.columns or d.drop or d.category or d.ids or d.standardize or d.unknown ~= nil) then return end
    c.list = {}
    for i = 1, c.columns do c.list[i] = {} end
    mark_fields(d, where)
    local place = 0
    for _, i in ipairs(inputs) do
        if not c.list[i].field then c.list[i].input, place = place + 1, place + 1 end
    end
    if place == 0 then diag.fail(where.locate("ids"), "data: ids: no column is left for the input", {}) end
    mark_categories(d, where)
end

--- Refuses files of a source whose headers differ from that of the first training file, if columns are given by names.
function csv.check_headers(d, source)
    if not uses_names(d) then return end
    for _, file in ipairs(source.files) do
        local cells = first_line(file, source.at)
        for i = 1, math.max(#cells, d.csv.columns) do
            local found, expected = cells[i], d.csv.names[i]
            if found ~= expected then
                diag.fail(source.at, ("data: %s:1: column %d: %s found, %s expected, as in %s"):format(file.path, i,
                    found and "'" .. found .. "'" or "none", expected and "'" .. expected .. "'" or "none",
                    d.csv.file.name), {})
            end
        end
    end
end

--- Gives the fields of a scanned source that are categories the names of their columns.
function csv.name_fields(d, source)
    for i, column in ipairs(d.csv.list or {}) do
        if column.field then source.fields[column.field + 1].name = d.csv.names[i] end
    end
end

--- The arguments of host.data_scan and host.csv_columns that say what the columns are.
function csv.request(d)
    local c, request = d.csv, { columns = d.csv.columns, target = d.csv.target }
    if c.list then
        request.inputs = ordered.collect(c.list, function(column) return (column.input or 0) - 1 end)
        request.own = ordered.collect(c.list, function(column) return column.field or 0 end)
        request.categories = ordered.collect(c.list, function(column) return column.category or false end)
    end
    return request
end

local function refuse_constant(d, where, i, value)
    diag.fail(where.locate("standardize"), ("data: standardize: %s is %.17g in every training row, expected two values "
        .. "or more: drop it"):format(csv.title(d.csv, i), value), {})
end

-- Refuses texts of rows that are not for training, unless they have an id.
local function check_others(d, source, i, known, others)
    local column = d.csv.list[i]
    for _, other in ipairs(others) do
        if not known[other.text] and not column.unknown then
            diag.fail(source.at, ("data: %s:%d: %s: '%s' is in no training row%s"):format(
                source.files[other.file].path, other.line, csv.title(d.csv, i), other.text,
                i == d.csv.target and "" or ", expected one of theirs, or unknown = true, one id for all others"), {})
        end
    end
end

local function learn_category(d, i, of_train, of_eval)
    local column, known = d.csv.list[i], {}
    column.values = of_train.values
    column.unknown = d.unknown and i ~= d.csv.target or nil
    if #column.values > MOST_VALUES then
        diag.fail(d.at, ("data: category: %s has %d texts, expected at most %d: drop it"):format(csv.title(d.csv, i),
            #column.values, MOST_VALUES), {})
    end
    for _, value in ipairs(column.values) do known[value] = true end
    check_others(d, d.sources[1], i, known, of_train.others)
    if of_eval then check_others(d, d.sources[2], i, known, of_eval.others) end
    if not column.field and i ~= d.csv.target then return end
    for _, source in ipairs(d.sources) do
        local field = source.fields[(column.field or #source.fields - 1) + 1]
        field.low, field.high, field.low_at, field.high_at = 0, #column.values - (column.unknown and 0 or 1), nil, nil
    end
end

-- The facts of host.csv_columns about the training rows of a source that has `rows` rows before the split.
local function columns_in(d, source, rows, split)
    local request = csv.request(d)
    request.files = ordered.collect(source.files, function(file) return file.path end)
    request.header, request.rows = d.header, rows
    request.fold, request.of, request.seed, request.eval_rows = split.fold, split.of, split.seed, split.eval
    request.numbers = d.standardize and rows > 0 and ordered.collect(d.csv.list, function(column)
        return column.input ~= nil and not column.category
    end) or nil
    local columns, message = scans.once("csv_columns", request)
    if not columns then diag.fail(source.at, "data: " .. message, {}) end
    return columns
end

--- Learns categories, means and deviations from the training rows; called when rows and split are known.
function csv.learn(d, where)
    if not d.category and not d.standardize then return end
    local of_train = columns_in(d, d.sources[1], d.rows, d.split or {})
    local of_eval = d.sources[2] and d.category and columns_in(d, d.sources[2], 0, {}) or {}
    local numbers = 0
    for i, column in ipairs(d.csv.list) do
        local found = of_train[i]
        if column.category then
            learn_category(d, i, found, of_eval[i])
        elseif column.input and d.standardize then
            if not (found.std > 0) then refuse_constant(d, where, i, found.low) end
            column.mean, column.std, numbers = found.mean, found.std, numbers + 1
        end
    end
    if d.standardize and numbers == 0 then
        diag.fail(where.locate("standardize"), "data: standardize: no input is a number, expected one or more", {})
    end
end

return csv
