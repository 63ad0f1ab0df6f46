-- data: the text of data.c, the part of model.c that finds the data files and opens them as sources of rows, and of
-- rows.c, its part that says how rows look, which predictions need too.
local csv = require "spec.csv"
local expr = require "base.expr"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"

local data = {}

-- The files of the runtime that a program needs for each kind: its header and its own files.
local NEEDS = {
    csv = { "csv.h", "data/csv", "data/csv_cells", "data/csv_source", "data/stream" },
    idx = { "images.h", "data/idx", "data/images", "data/stream" },
    cifar10 = { "images.h", "data/cifar", "data/images", "data/stream" },
    text = { "windows.h", "data/stream", "data/windows" }, tokens = { "windows.h", "data/stream", "data/windows" },
    npy = { "arrays.h", "data/arrays", "data/npy", "data/stream" },
    tensors = { "arrays.h", "data/arrays", "data/tensors" },
}

--- Files of the runtime that only programs with such data have.
function data.runtime(config) return table.move(NEEDS[config.data.kind], 2, 9, 1, {}) end

-- All files in the order of FILES: of each source its files, then its targets.
local function files_of(config)
    local list = {}
    for _, source in ipairs(config.data.sources) do
        for _, files in ipairs { source.files, source.targets } do
            table.move(files, 1, #files, #list + 1, list)
        end
    end
    return list
end

--- How many files the program reads.
function data.file_count(config) return #files_of(config) end

local function number(x) return expr.literal(x, "f64") end

-- Rows of a table, `per_line` of them in a line.
local function wrapped(list, per_line)
    local out = {}
    for first = 1, #list, per_line do
        out[#out + 1] = "    " .. table.concat(list, ", ", first, math.min(first + per_line - 1, #list)) .. ","
    end
    return table.concat(out, "\n")
end

local function constants(name, values)
    return ("static const double %s[] = {%s};"):format(name, table.concat(ordered.collect(values, number), ", "))
end

-- The least and largest whole number of a field that the program was made for.
local function range_of(config, i)
    local field = config.data.fields[i]
    if field.name == "target" then return 0, config.classes - 1, true end
    return field.low, field.limit - 1, false
end

-- One line of the table of a source's arrays.
local function array_line(config, source, i)
    local found, field, norm = source.fields[i], config.data.fields[i], config.data.norm
    local parts = { (".name = %s, .field = %s, .element = GA_ELEMENT_%s"):format(
        text.string(found.file_name or found.name).text, text.string(found.name).text, found.element) }
    if #found.shape > 0 then
        parts[2] = (".rank = %d, .shape = {%s}"):format(#found.shape, table.concat(found.shape, ", "))
    end
    if field.dtype == "i32" then
        local low, high, ignores = range_of(config, i)
        parts[#parts + 1] = (".ids = true, .low = %d, .high = %d%s"):format(low, high,
            ignores and ", .ignores = true, .ignored = IGNORE" or "")
    elseif i == 1 and norm then
        parts[#parts + 1] = (".scale = %s, .mean = MEAN, .std = STD, .channels = %d"):format(
            number(norm.scale), norm.channels)
    end
    return "    {" .. table.concat(parts, ",\n     ") .. "},"
end

local TABLES = {}

-- Constants at the top of the section: what the reader compares the files with.
local function tables_of(config)
    local d, out = config.data, {}
    local function add(line) out[#out + 1] = line end
    if d.norm and d.norm.mean then
        add "/* of the scaled inputs, for each channel */"
        add(constants("MEAN", d.norm.mean))
        add(constants("STD", d.norm.std))
    end
    if TABLES[d.kind] then TABLES[d.kind](config, add) end
    return out
end

function TABLES.text(config, add)
    local bytes = { config.data.sources[1].vocabulary:byte(1, -1) }
    add(("/* The byte of each id: those that occur in the training text. */\nstatic const unsigned char "
        .. "VOCABULARY[%d] = {\n%s\n};"):format(#bytes, wrapped(bytes, 20)))
end

-- The texts of a category with their ids, in the order in which the reader searches them.
local function category_table(d, i, add)
    local column, ids, texts = d.csv.list[i], {}, {}
    for id, value in ipairs(column.values) do texts[id], ids[value] = value, id - 1 end
    table.sort(texts)
    add(("/* The ids of the texts in %s%s. */"):format(text.comment(csv.title(d.csv, i)).text,
        column.unknown and ("; of others: %d"):format(#texts) or ""))
    add(("static const ga_csv_value CATEGORY_%d[] = {"):format(i))
    for _, value in ipairs(texts) do add(("    {%s, %d},"):format(text.string(value).text, ids[value])) end
    add "};"
end

-- One line of the table of columns.
local function column_line(d, i)
    local column, parts = d.csv.list[i], {}
    local function add(form, ...) parts[#parts + 1] = form:format(...) end
    if d.csv.names then add(".name = %s", text.string(d.csv.names[i]).text) end
    add(".input = %d", (column.input or 0) - 1)
    if column.field then add(".field = %d", column.field) end
    if column.category then
        add(".category = true, .value = CATEGORY_%d, .values = %d", i, #column.values)
        if column.unknown then add ".unknown = true" end
    end
    if column.mean then add(".mean = %s, .std = %s", number(column.mean), number(column.std)) end
    return "    {" .. table.concat(parts, ", ") .. "},"
end

function TABLES.csv(config, add)
    local d = config.data
    if not d.csv.list then return end
    for i, column in ipairs(d.csv.list) do
        if column.category then category_table(d, i, add) end
    end
    add "/* The columns of the files. input: the place in a row of the input; -1: none. */"
    add "static const ga_csv_column COLUMNS[] = {"
    for i in ipairs(d.csv.list) do add(column_line(d, i)) end
    add "};"
end

local function array_tables(config, add)
    for _, source in ipairs(config.data.sources) do
        add(("static const ga_array_field %s_FIELDS[] = {"):format(source.name:upper()))
        for i in ipairs(source.fields) do add(array_line(config, source, i)) end
        add "};"
    end
end
TABLES.npy, TABLES.tensors = array_tables, array_tables

local SPEC = {}

function SPEC.csv(config)
    local d = config.data
    local classes = d.fields[#d.fields].dtype == "i32" and config.classes or 0
    return "ga_csv_spec", { (".columns = %d, .target = %d, .classes = %d, .scale = %s, .dtype = REAL"):format(
        d.csv.columns, d.csv.target - 1, classes, number(d.norm.scale)) .. (d.header and ", .header = true" or "")
        .. (d.csv.list and ", .column = COLUMNS" or "") }
end

local function image_spec(config, source, name)
    local d, shape = config.data, source.fields[1].shape
    local labels = source.targets and (".labels = %s_labels, "):format(name) or ""
    local lines = {
        (".images = %s_files, %s.parts = %d,"):format(name, labels, #source.files),
        (".channels = %d, .height = %d, .width = %d, .classes = %d,"):format(shape[1], shape[2], shape[3],
            config.classes),
    }
    if d.crop then
        lines[#lines + 1] = (".crop = %d, .padding = %d,"):format(d.crop.size, d.crop.padding)
    end
    if d.flip then lines[#lines + 1] = ".flip = true," end
    lines[#lines + 1] = (".scale = %s, .mean = MEAN, .std = STD, .real = REAL"):format(
        number(d.norm.scale))
    return "ga_images_spec", lines
end
SPEC.idx, SPEC.cifar10 = image_spec, image_spec

function SPEC.text(config, source, name)
    return "ga_text_spec", { (".part = %s_files, .parts = %d, .context = %d,"):format(name, #source.files,
        config.data.context), (".vocabulary = VOCABULARY, .vocabulary_size = %d"):format(
        config.data.vocabulary) }
end

function SPEC.tokens(config, source, name)
    return "ga_tokens_spec", { (".part = %s_files, .parts = %d, .context = %d, .width = %d, .limit = %d")
        :format(name, #source.files, config.data.context, source.fields[1].element,
        config.data.vocabulary) }
end

local function array_spec(_, source, name)
    return "ga_arrays_spec", { (".field = %s_FIELDS, .fields = %d, .part = %s_files, .parts = %d, "
        .. ".real = REAL"):format(name:upper(), #source.fields, name, #source.files) }
end
SPEC.npy, SPEC.tensors = array_spec, array_spec

local OPEN = { cifar10 = "cifar" }

-- The name in the functions of a reader: ga_NAME_open.
local function reader_of(kind) return OPEN[kind] or kind end

-- "const ga_part train_files[] = {{path[0], 60000}, ...};" from place `first` of FILES on; without the
-- numbers for a stream.
local function parts_line(name, files, first, stream)
    local parts = ordered.collect(files, function(file, i)
        if stream then return ("{.path = path[%d]}"):format(first + i - 1) end
        return ("{path[%d], %d}"):format(first + i - 1, file.count)
    end)
    local line = ("const ga_part %s[] = {%s};"):format(name, table.concat(parts, ", "))
    if #parts <= 3 then return line end
    return ("const ga_part %s[] = {\n%s\n};"):format(name, wrapped(parts, 3))
end

-- The lines of open_data that open m->train and, from files of its own, m->eval.
local function source_lines(config)
    local d, out, first = config.data, {}, 0
    for _, source in ipairs(d.sources) do
        local name, files = source.name, source.files
        if d.kind == "npy" then       -- the parts of all fields in one table
            files = table.move(source.targets, 1, #source.targets, #files + 1, ordered.copy(files))
        end
        out[#out + 1] = parts_line(name .. "_files", files, first, source.stream)
        if d.kind == "idx" then
            out[#out + 1] = parts_line(name .. "_labels", source.targets, first + #files)
        end
        first = first + #source.files + #(source.targets or {})
        local type, lines = SPEC[d.kind](config, source, name)
        out[#out + 1] = ("const %s %s = {\n    %s,\n};"):format(type, name, table.concat(lines, "\n    "))
        local parts = d.kind == "csv" and ("%s_files, %d, "):format(name, #files) or ""
        out[#out + 1] = ("GA_TRY(ga_%s_%s(&m->%s, %s&%s, arena, e));"):format(reader_of(d.kind),
            source.stream and "stream" or "open", name, parts, name)
    end
    return text.block(table.concat(out, "\n"))
end

-- The rows of m->train for training, and those for evaluation.
local function split_of(config)
    local s = config.data.split
    local rows = config.data.rows
    if config.data.stream then return text.block("{0}") end
    if not s then return text.block(("{.rows = %d}"):format(rows)) end
    if s.at_end then
        return text.block(("{.rows = %d, .eval_rows = %d, .at_end = true}"):format(rows, s.eval))
    end
    return text.block(("{.rows = %d, .fold = %d, .of = %d, .seed = %d, .eval_rows = %d}"):format(rows,
        s.fold or 0, s.of or 0, s.seed, s.eval or 0))
end

-- The rows that an evaluation reads.
local function evaluation_line(config)
    if not config.data.eval then return text.block("m->eval_data = m->data.data;") end
    return text.block(("m->eval_data = (ga_dataset){&m->eval, {.rows = %d}};"):format(
        config.data.eval_rows))
end

-- The rows of ACCUMULATE.
local function accumulate_rows(config)
    return text.block(table.concat(ordered.collect(config.table, function(entry)
        return ("{%d, %d}"):format(entry.from, entry.a)
    end), ", "))
end

-- The rules of the loader for batches that fill no whole cycle, and for rows that fill no batch.
local function serving(config)
    return text.block((".accumulate = ACCUMULATE, .accumulates = %d, .tail = GA_%s%s%s,"):format(
        #config.table, config.tail:upper(), config.drain == "consume" and ", .consume = true" or "",
        config.data.last == "pad" and ", .pad = true" or ""))
end

-- The type of the targets, where an evaluation needs the first one; else false.
local function shift_of(config)
    local target = config.data.fields[#config.data.fields]
    return metrics.adds(config, "shift") and text.ident(target.dtype == "i32" and "int32_t" or "real")
end

-- The lines that describe a file like those of training, and the call that opens one to be predicted.
local function predicted_lines(config)
    local d, source = config.data, config.data.sources[1]
    local one = ordered.copy(source, { files = { source.files[1] }, targets = false })
    local type, lines = SPEC[d.kind](config, one, "train")
    return text.block(("const %s train = {\n    %s,\n};"):format(type, table.concat(lines, "\n    "))),
        text.block(("ga_%s_predicted(&r->source, %s&train, &r->arena, e)"):format(reader_of(d.kind),
            d.kind == "csv" and "path, " or ""))
end

--- rows.c.
function data.rows(config, context, header)
    local spec, opening = predicted_lines(config)
    return sections.render(context.template("program/rows.c"), {
        { "head", { header = text.block(header("rows.c", "how rows of the data look; part of data.c")),
            reader = text.block(NEEDS[config.data.kind][1]), tables = sections.lines(tables_of(config)) } },
        { "open", { spec = spec, opening = opening, parts = config.data.kind ~= "csv" } },
    })
end

--- data.c.
function data.render(config, context, header)
    local files = ordered.collect(files_of(config), function(file) return text.string(file.name).text .. "," end)
    return sections.render(context.template("program/data.c"), {
        { "head", { header = text.block(header("data.c", "the rows of the data files; part of model.c")),
            accumulate = accumulate_rows(config), files = sections.lines(files) } },
        { "open", { sources = source_lines(config), split = split_of(config), serving = serving(config),
            evaluation = evaluation_line(config), shift = shift_of(config) } },
    })
end

return data
