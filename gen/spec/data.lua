-- data: reads the word `data`: finds its files, scans them once, and describes the rows: their fields, their number
-- and how they are normalised and split.
local check = require "base.check"
local csv = require "spec.csv"
local data_files = require "spec.data_files"
local diag = require "base.diag"
local field_name = require "spec.field_name"
local formats = require "spec.formats"
local ordered = require "base.ordered"
local scans = require "spec.scans"
local text = require "base.text"
local words = require "spec.words"

local data = {}

local IMAGES = { idx = true, cifar10 = true }
local WINDOWS = { text = true, tokens = true }

-- Places in a file as its readers say them.
local PLACES = { csv = ":%d", tokens = ": place %d" }

local MOST_CHANNELS, MOST_PADDING = 16, 4096

-- Refuses fields that the format does not have.
local function check_taken(d, where)
    local own = formats.find(d.kind).takes
    local taken = table.move(own, 1, #own, #formats.common + 1, ordered.copy(formats.common))
    for _, field in ipairs(words.find("data").fields) do
        if d[field.name] ~= nil and not ordered.find(taken, field.name) then
            diag.fail(where.locate(field.name), ("data '%s': %s does not apply"):format(d.kind,
                field.name), { notes = { ("data '%s' takes: %s"):format(d.kind,
                table.concat(taken, ", ")) } })
        end
    end
end

-- Refuses fields that need all rows, or their number: a stream is read once per epoch and not kept.
local function check_stream(d, where)
    if d.stream then
        local kinds = ordered.collect(formats.list, function(f) return f.streams and f.name or nil end)
        local function refuse(field, complaint) diag.fail(where.locate(field), "data: " .. complaint, {}) end
        if not formats.find(d.kind).streams then
            refuse("stream", ("stream: '%s' is read as a whole, expected %s"):format(d.kind,
                table.concat(kinds, ", ", 1, #kinds - 1) .. " or " .. kinds[#kinds]))
        end
        if d.shuffle then
            refuse("shuffle", "shuffle needs all rows in memory, with stream they come in the order of the "
                .. "files: expected false, or no stream")
        end
        if d.split then
            refuse("split", "split needs the number of rows, which a stream does not know: expected eval, files "
                .. "of their own")
        end
        if not d.eval then
            refuse(nil, "eval is missing: the rows of a stream pass by and cannot be set aside, expected files "
                .. "of their own for evaluation; they are kept in memory")
        end
    end
    if d.shuffle == nil then d.shuffle = not d.stream end
end

local function check_target_word(d, where)
    if d.kind == "csv" and d.target == "last" then d.target = nil end
    if d.kind == "csv" or not math.type(d.target) then return end
    diag.fail(where.locate("target"), ("data '%s': target is %s, expected the name of a tensor"):format(d.kind,
        d.target), {})
end

-- The files of train or eval: { files, targets }; targets only for formats with pairs of files.
local function find(d, name, where, folder)
    local value, at, pair = d[name], where.locate(name), formats.find(d.kind).pair
    if not pair then
        if type(value) ~= "string" then
            diag.fail(at, ("data: %s is a table, expected a path"):format(name), {})
        end
        return { name = name, at = at, files = data_files.find(value, folder, at) }
    end
    if type(value) ~= "table" then
        diag.fail(at, ("data '%s': %s is a string, expected %s"):format(d.kind, name, pair), {})
    end
    local fields = check.fields({
        { name = "input", type = "str", position = 1, required = true },
        { name = "target", type = "str", position = 2, required = true },
    }, value, { what = ("data '%s': %s = %s"):format(d.kind, name, pair),
        locate = function() return at end })
    local source = { name = name, at = at, files = data_files.find(fields.input, folder, at),
        targets = data_files.find(fields.target, folder, at) }
    if #source.files ~= #source.targets then
        diag.fail(at, ("data: %s: '%s' is %d files, '%s' is %d, expected as many"):format(name,
            fields.input, #source.files, fields.target, #source.targets), {})
    end
    return source
end

local function paths(files)
    return files and ordered.collect(files, function(file) return file.path end)
end

-- The place of a csv's first target that is no class number, and the target; nil without one.
local function odd_of(source)
    local f = source.fields[#source.fields]
    return f.odd and ("%s:%d: the target is %.17g"):format(source.files[f.odd_file].path, f.odd_line, f.odd)
end

-- Scans the files of a source and adds their counts, fields, rows and bytes. `allowed` is the vocabulary that a text
-- may use. Targets of a csv are real where those of train are. source.bytes: memory of the program for the rows, for a
-- stream only the read buffers.
local function scan(d, source, real, allowed)
    local request = d.csv and csv.request(d) or {}
    request.kind, request.real, request.allowed = d.kind, real, allowed
    request.files, request.targets = paths(source.files), paths(source.targets)
    request.header, request.scale = d.header, d.scale
    if d.csv then
        csv.check_headers(d, source)
        request.real_target = d.sources and odd_of(d.sources[1]) ~= nil or nil
    end
    local facts, message = scans.once("data_scan", request)
    if not facts then diag.fail(source.at, "data: " .. message, {}) end
    local n = 0
    for i, count in ipairs(facts.count) do
        source.files[i].count = count
        if source.targets then source.targets[i].count = count end
        n = n + count
    end
    source.rows = d.context and (n - 1) // d.context or n
    if source.rows == 0 then
        diag.fail(source.at, ("data: %s: %d %s give no window of context %d, expected %d or more"):format(
            source.name, n, d.kind == "text" and "bytes" or "tokens", d.context, d.context + 1), {})
    end
    source.stream = d.stream and source.name == "train"
    source.fields, source.vocabulary = facts.fields, facts.vocabulary
    source.bytes = source.stream and facts.stream_bytes or facts.bytes
    return source
end

-- The tensors of a safetensors file as fields of a batch, the target last.
local function name_tensors(d, source, where)
    local wanted, list, taken = d.target or "target", {}, { "target" }
    local target
    local names = ordered.collect(source.fields, function(f) return f.name end)
    for _, f in ipairs(source.fields) do
        f.file_name = f.name
        if f.name == wanted then
            target = f
        elseif f.name == "target" then
            diag.fail(where.locate("target"), ("data: the target is '%s', but another tensor is called "
                .. "'target'"):format(wanted), {})
        else
            local obstacle = field_name.obstacle(f.name, taken)
            if obstacle then
                diag.fail(source.at, ("data: tensor '%s': %s, expected another name"):format(f.name, obstacle), {})
            end
            list[#list + 1], taken[#taken + 1] = f, f.name
        end
    end
    if not target then
        diag.fail(where.locate("target"), ("data: %s has no tensor '%s', expected target = one of %s"):format(
            source.files[1].name, wanted, table.concat(names, ", ")),
            { found = d.target, hint = diag.suggest(wanted, names) })
    end
    if #list == 0 then
        diag.fail(source.at, ("data: the target '%s' is the only tensor, expected inputs too"):format(
            wanted), {})
    end
    target.name = "target"
    list[#list + 1] = target
    source.fields = list
end

-- The field `name` (mean or std) as a list with one number per channel; a single number is repeated.
local function per_channel(d, name, channels, default, where)
    local list, out = d[name] or { default }, {}
    for i, value in ipairs(list) do
        out[i] = check.value({ name = name, type = "num", above = name == "std" and 0 or nil }, value, where)
    end
    local given = #ordered.keys(list)
    if given ~= #out or given ~= 1 and given ~= channels then
        diag.fail(where.locate(name), ("data: %s has %d numbers, expected 1%s"):format(name, given,
            channels > 1 and " or " .. channels or ""), {})
    end
    for c = #out + 1, channels do out[c] = out[1] end
    return out
end

-- The normalisation of the input, (x scale - mean) / std: d.norm = { scale, mean, std, channels }. csv has the
-- scale alone; npy arrays are not normalised unless the spec says so.
local function normalisation(d, shape, where)
    local scale, arrays = d.scale or d.kind == "cifar10" and 1 / 255 or 1, d.kind == "npy"
    if d.kind == "csv" then d.norm = { scale = scale } end
    if not IMAGES[d.kind] and not (arrays and (d.scale or d.mean or d.std)) then return end
    local one = arrays and #(d.mean or {}) <= 1 and #(d.std or {}) <= 1
    local channels = one and 1 or shape[1] or 1
    if channels > MOST_CHANNELS and not arrays then
        diag.fail(d.at, ("data: %d channels, expected at most %d"):format(channels, MOST_CHANNELS), {})
    end
    d.norm = { scale = scale, channels = channels, mean = per_channel(d, "mean", channels, 0.0, where),
        std = per_channel(d, "std", channels, 1.0, where) }
end

-- crop = { size, padding = n }: returns the shape of a cropped input, { channels, size, size }.
local function crop_of(d, shape, where)
    local at = where.locate("crop")
    local crop = check.fields({
        { name = "size", type = "int", position = 1, required = true, min = 1, max = 16384 },
        { name = "padding", type = "int", default = 0, min = 0, max = MOST_PADDING },
    }, d.crop, { what = "data: crop", locate = function() return at end })
    for axis = 2, 3 do
        if crop.size > shape[axis] + 2 * crop.padding then
            diag.fail(at, ("data: crop is %d, an image with its padding has %d"):format(crop.size,
                shape[axis] + 2 * crop.padding), {})
        end
    end
    d.crop = crop
    return { shape[1], crop.size, crop.size }
end

-- The fields of a batch, from those of the training files.
local function fields_of(d, source, where)
    normalisation(d, source.fields[1].shape, where)
    local list = {}
    for i, f in ipairs(source.fields) do
        local shape, ids = f.shape, f.ids
        if i == 1 and d.norm then ids = false end
        if i == 1 and d.crop then shape = crop_of(d, shape, where) end
        list[i] = { name = f.name, dtype = ids and "i32" or "real", shape = shape, file_name = f.file_name }
    end
    if WINDOWS[d.kind] then
        list[1].shape = { d.context }
        list[2] = { name = "target", dtype = "i32", shape = { d.context } }
    end
    return list
end

local function shape_text(shape)
    if #shape == 0 then return "one number" end
    return "(" .. table.concat(shape, ", ") .. ")"
end

-- Refuses evaluation files whose fields differ from those of the training files.
local function check_eval(d, train, eval)
    local function refuse(complaint, place) diag.fail(eval.at, "data: eval " .. complaint, { notes = { place } }) end
    for i, f in ipairs(train.fields) do
        local other = eval.fields[i]
        if not other or other.name ~= f.name then
            refuse(("has no field '%s', which train has"):format(f.name))
        end
        if shape_text(f.shape) ~= shape_text(other.shape) then
            refuse(("has rows of %s %s, train has %s"):format(f.name, shape_text(other.shape),
                shape_text(f.shape)))
        end
        if f.ids ~= other.ids then
            refuse(("has %s in '%s', train has %s"):format(other.ids and "whole numbers" or "other numbers",
                f.name, f.ids and "whole numbers" or "others"), odd_of(f.odd and train or eval))
        end
    end
    if #eval.fields > #train.fields then
        refuse(("has a field '%s', which train has not"):format(eval.fields[#train.fields + 1].name))
    end
end

-- The place of a scanned field's id at its end `low` or `high`, or nil.
local function place_of(d, source, f, which)
    local at = f[which .. "_at"]
    if not at then return nil end
    local files = source.targets and f == source.fields[#source.fields] and source.targets or source.files
    return ("%s%s: found %d"):format(files[f[which .. "_file"]].path, (PLACES[d.kind] or ": row %d"):format(at),
        f[which])
end

-- Raises the limit of a field to one more than an id, or the next limit below that.
local function raise(field, id)
    local limit = math.max(id + 1, 0)
    if not field.limit or limit > field.limit then
        field.next_limit, field.limit = field.limit, limit
    elseif limit < field.limit then
        field.next_limit = math.max(field.next_limit or 0, limit)
    end
end

-- Sets the least and largest id of each field over all files, and from them classes and vocabulary.
local function extremes(d)
    for i, field in ipairs(d.fields) do
        for _, source in ipairs(d.sources) do
            local f = source.fields[WINDOWS[d.kind] and 1 or i]
            if field.dtype == "i32" and f.low then
                if not field.low or f.low < field.low then
                    field.low, field.low_place = f.low, place_of(d, source, f, "low")
                end
                if not field.limit or f.high >= field.limit then field.high_place = place_of(d, source, f, "high") end
                raise(field, f.high)
                if f.next_high then raise(field, f.next_high) end
                field.largest_negative = math.max(field.largest_negative or f.largest_negative or -math.huge,
                    f.largest_negative or -math.huge)
            end
        end
    end
    local target = d.fields[#d.fields]
    if target.dtype == "i32" then d.classes = target.limit end
    if WINDOWS[d.kind] then d.vocabulary = d.fields[1].limit end
end

--- Whether there are rows for evaluation alone; without them a program that is asked to evaluate has the training rows.
function data.has_eval_rows(d) return d.eval ~= nil or d.split ~= nil end

--- Refuses negative whole targets other than `ignore`, the value that the loss ignores. classes: whether the targets of
--- the loss are classes.
function data.check_ignored(d, ignore, classes)
    local target = d.fields[#d.fields]
    if target.dtype ~= "i32" or target.low >= 0 then return end
    local low, next_low = target.low, target.largest_negative
    if low == next_low and low == ignore then return end
    local found = low == next_low and ("value %d"):format(low) or ("values %d and %d"):format(low, next_low)
    local expected = ", expected class numbers from 0 and at most one value below, for what does not count"
    if not classes then
        expected = (", but whole numbers are taken as class numbers from 0: expected real ones for this loss, "
            .. "of type %s"):format(d.kind == "npy" and "<f4" or "F32")
    elseif low == next_low then
        expected = (", expected class numbers from 0; if it stands for what does not count, say "
            .. "loss { ..., ignore = %d }"):format(low)
    end
    diag.fail(d.at, "data: the target has the " .. found .. expected, { notes = { target.low_place } })
end

-- The types of whole numbers that files of arrays have, and the names of types in .npy where they differ from ours.
local WHOLE_TYPES = { npy = "<i4, <i8, <u1 or <u2", tensors = "I64, I32, I16, I8, U64, U32, U16, U8 or BOOL" }
local NPY_NAMES = { F32 = "<f4", F64 = "<f8" }

--- The limit of the targets below the greatest one, which may be above all classes and ignored, as in masks of images;
--- nil where the format of the data allows no such value.
function data.next_limit(d, field)
    return field.name == "target" and field.dtype == "i32" and WHOLE_TYPES[d.kind] and (field.next_limit or 0) or nil
end

--- Refuses targets that are no class numbers, with the reason: the first such value of a csv, or the type of an array.
function data.check_classes(d)
    if d.classes then return end
    local reason
    for _, source in ipairs(d.sources) do
        local f = source.fields[#source.fields]
        if f.odd and not reason then
            reason = odd_of(source) .. ", expected a class number"
        elseif not reason and not f.odd then
            local file = (source.targets or source.files)[1].path
            reason = ("%s: the target%s has the type %s, expected %s: class numbers"):format(file,
                f.file_name and " '" .. f.file_name .. "'" or "", d.kind == "npy" and NPY_NAMES[f.element] or f.element,
                WHOLE_TYPES[d.kind])
        end
    end
    diag.fail(d.at, ("data: %s, whole, from 0 to 2^31-1: number the classes so, or take a loss of real targets, such "
        .. "as \"mse\""):format(reason), {})
end

-- split.eval as a number of rows: a fraction of all is rounded to rows, and said. 1.0 is neither 1 row nor a fraction
-- that leaves rows for training.
local function eval_rows(d, value, at)
    local count = math.type(value) == "integer" and value or value > 1 and math.tointeger(value) or nil
    if (count or 0) < 1 and not (value > 0 and value < 1) then
        diag.fail(at, ("data: split: eval is %s, expected a number of rows, or a fraction of them between 0 and 1")
            :format(value), {})
    end
    local rows = count or math.floor(value * d.rows + 0.5)
    if rows < 1 then
        diag.fail(at, ("data: split: eval is %g of %d rows, less than one: expected a larger fraction"):format(value,
            d.rows), {})
    elseif rows >= d.rows then
        diag.fail(at, ("data: split: eval is %d, the file has %d rows"):format(rows, d.rows), {})
    end
    if not count then
        diag.say(at, ("data: %s of %s rows are for evaluation"):format(text.commas(rows), text.commas(d.rows)))
    end
    return rows
end

-- The checked field split, or nil.
local function split_of(d, where)
    if not d.split then return nil end
    local s = check.fields({
        { name = "fold", type = "int", min = 1 }, { name = "of", type = "int", min = 2, max = 1000 },
        { name = "eval", type = "num" },
        { name = "seed", type = "int", min = 0 },
    }, d.split, { what = "data: split", locate = function() return where.locate("split") end })
    local at = where.locate("split")
    if d.eval then diag.fail(at, "data: split and eval exclude each other", {}) end
    if WINDOWS[d.kind] and (s.fold or s.of or s.seed) then
        diag.fail(at, ("data: split: the last windows of a sequence are for evaluation, expected only "
            .. "eval = rows, or a fraction"):format(d.kind), {})
    end
    if (s.eval == nil) == (s.fold == nil and s.of == nil) or (s.fold == nil) ~= (s.of == nil) then
        diag.fail(at, "data: split: expected fold and of, or eval", {})
    end
    if s.fold and s.fold > s.of then
        diag.fail(at, ("data: split: fold is %d, expected 1..%d"):format(s.fold, s.of), {})
    elseif s.fold and s.fold > d.rows then
        diag.fail(at, ("data: split: fold is %d of %d rows, and has none of them"):format(s.fold, d.rows), {})
    end
    if s.eval then s.eval = eval_rows(d, s.eval, at) end
    s.seed, s.at_end = s.seed or 1, WINDOWS[d.kind] or false
    return s
end

local function count_rows(d, where)
    d.rows = d.sources[1].rows
    d.split = split_of(d, where)
    local split = d.split
    d.train_rows, d.eval_rows = d.rows, d.sources[2] and d.sources[2].rows or d.rows
    if split and split.fold then
        d.eval_rows = (d.rows - split.fold) // split.of + 1
        d.train_rows = d.rows - d.eval_rows
    elseif split then
        d.eval_rows, d.train_rows = split.eval, d.rows - split.eval
    end
end

--- Adds to d, the checked fields of the word, the contents of the files. real: "f32" or "f64".
---   sources     { train } or { train, eval }: files and targets { name, path, count }, rows, bytes
---               (of an arena), fields as host.data_scan gives them, stream = true if rows are not kept
---   fields      { name, dtype = "real" | "i32", shape = of one row } in the order of a batch; i32 fields
---               also have low and limit: low <= id < limit
---   rows        of the training files; train_rows, eval_rows: after the split. A stream has those of its
---               present files; the program does not rely on them
---   classes     largest target + 1, nil if the target is not i32; vocabulary of text and tokens
---   norm        { scale, mean, std, channels } of the input, or nil; crop { size, padding }, or nil
---   csv         the columns of a csv, see csv.read
---   split       { fold, of, seed } or { eval, seed, at_end }, or nil
function data.read(d, at, path, real)
    local where = check.context("data", at)
    local folder = path:match("^(.*/)[^/]*$") or ""
    d.at = at
    check_taken(d, where)
    if WINDOWS[d.kind] and not d.context then
        diag.fail(at, ("data '%s': context is missing, expected the ids of one row"):format(d.kind), {})
    end
    check_target_word(d, where)
    check_stream(d, where)
    local train = find(d, "train", where, folder)
    if d.kind == "csv" then csv.read(d, where, train) end
    d.sources = { scan(d, train, real) }
    if d.eval then
        d.sources[2] = scan(d, find(d, "eval", where, folder), real,
            d.kind == "text" and train.vocabulary or nil)
    end
    local files = 0
    for _, source in ipairs(d.sources) do files = files + #source.files + #(source.targets or {}) end
    if files > data_files.MOST then
        diag.fail(at, ("data: %d files in all, expected at most %d"):format(files, data_files.MOST), {})
    end
    if d.kind == "tensors" then
        for _, source in ipairs(d.sources) do name_tensors(d, source, where) end
    end
    for _, source in ipairs(d.csv and d.sources or {}) do csv.name_fields(d, source) end
    if d.eval then check_eval(d, train, d.sources[2]) end
    count_rows(d, where)
    if d.csv then csv.learn(d, where) end
    d.fields = fields_of(d, train, where)
    extremes(d)
    return d
end

return data
