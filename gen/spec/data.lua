-- data: the word `data`: its files are found, read once and checked; what comes out says what a row
-- is and how many there are.
local check = require "base.check"
local diag = require "base.diag"

local data = {}

local function split_of(d, where)
    if not d.split then return nil end
    local s = check.fields({
        { name = "fold", type = "int", min = 1 }, { name = "of", type = "int", min = 2, max = 1000 },
        { name = "eval", type = "int", min = 1 },
        { name = "seed", type = "int", default = 1, min = 0 },
    }, d.split, check.context("data: split", d.at))
    local at = where.locate("split")
    if d.eval then diag.fail(at, "data: split and eval exclude each other", {}) end
    if (s.eval == nil) == (s.fold == nil and s.of == nil) or (s.fold == nil) ~= (s.of == nil) then
        diag.fail(at, "data: split: expected fold and of, or eval", {})
    end
    if s.fold and s.fold > s.of then
        diag.fail(at, ("data: split: fold is %d, expected 1..%d"):format(s.fold, s.of), {})
    end
    if s.eval and s.eval >= d.rows then
        diag.fail(at, ("data: split: eval is %d, the file has %d rows"):format(s.eval, d.rows), {})
    end
    return s
end

-- The file of a data path: GAGEN_DATA, then `data` beside the spec.
local function find_file(relative, folder, at)
    if relative:find("[%c]") or relative == "" then
        diag.fail(at, "data: a path with control bytes or an empty path", {})
    end
    local places = {}
    if relative:sub(1, 1) == "/" then
        places[1] = relative
    else
        local root = host.environment("GAGEN_DATA")
        if root and root ~= "" then places[1] = root .. "/" .. relative end
        places[#places + 1] = folder .. "data/" .. relative
    end
    for _, file in ipairs(places) do
        if host.exists(file) == "file" then return file end
    end
    diag.fail(at, ("data: '%s' is not there"):format(relative),
        { notes = { "looked for " .. table.concat(places, " and ") ..
            "; set GAGEN_DATA or put it there" } })
end

local function read_csv(d, where, folder)
    local function shape_of(name)
        local shape, message = host.csv_shape(find_file(d[name], folder, where.locate(name)))
        if not shape then diag.fail(where.locate(name), "data: " .. message, {}) end
        return shape
    end
    d.shape = shape_of("train")
    if d.shape.columns < 2 then
        diag.fail(where.locate("train"), "data: one column, expected inputs and a target", {})
    end
    if d.eval then d.eval_shape = shape_of("eval") end
    if d.eval and d.eval_shape.columns ~= d.shape.columns then
        diag.fail(where.locate("eval"), ("data: eval has %d columns, train has %d"):format(
            d.eval_shape.columns, d.shape.columns), {})
    end
    if d.target == "last" then d.target = d.shape.columns end
    if d.target > d.shape.columns then
        diag.fail(where.locate("target"), ("data: target is %d, the file has %d columns"):format(
            d.target, d.shape.columns), {})
    end
    d.width = d.shape.columns - 1
    d.rows = d.shape.rows
    d.fields = {
        { name = "input", dtype = "real", shape = { d.width } },
        { name = "target", dtype = "i32", shape = {} },
    }
end

--- Adds to the checked fields of the word what the files hold:
---   fields      { name, dtype = "real" | "i32", shape = of one row } in the order of a batch
---   rows        of the training files; train_rows, eval_rows: after the split
function data.read(d, at, path)
    local where = check.context("data", at)
    d.at = at
    read_csv(d, where, path:match("^(.*/)[^/]*$") or "")
    d.split = split_of(d, where)
    local split = d.split
    d.train_rows, d.eval_rows = d.rows, d.eval and d.eval_shape.rows or d.rows
    if split and split.fold then
        d.eval_rows = (d.rows - split.fold) // split.of + 1
        d.train_rows = d.rows - d.eval_rows
    elseif split then
        d.eval_rows, d.train_rows = split.eval, d.rows - split.eval
    end
    return d
end

return data
