-- embedding: tables of learned rows; names and initial values (normal with deviation 1) are those of torch's
-- nn.Embedding.
local diag = require "base.diag"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local ROWS = { name = "rows", type = "int", position = 1, min = 1, max = 2147483647, required = true,
    doc = "rows of the table" }

local function table_of(b, rows, width, padding)
    return b:param("weight", { rows, width }, { kind = "normal", value = 1, lookup = true,
        zero = padding and { from = padding * width, n = width } or nil })
end

-- Refuses ids that are not rows of the table; the scan of the data knows the least and the largest id.
local function check_ids(b, rows, ids)
    local what = ("embedding '%s'"):format(b:full_name())
    if ids.dtype ~= "i32" then
        diag.fail(b.at, what .. ": found real numbers, expected ids: a field of whole numbers", {})
    elseif not ids.limit then
        diag.fail(b.at, what .. ": the range of these ids is not known, expected a field of the data", {})
    elseif ids.low < 0 then
        diag.fail(b.at, ("%s: the ids begin at %d, expected 0 or more"):format(what, ids.low), {
            notes = { ids.low_place } })
    elseif ids.limit > rows then
        diag.fail(b.at, ("%s: the table has %d rows, the ids go up to %d: expected %d rows or more"):format(
            what, rows, ids.limit - 1, ids.limit), { notes = { ids.high_place } })
    end
end

layer "embedding" {
    doc = "the rows of a learned table, by ids from 0; weight (rows, width)",
    named = true,
    fields = { ROWS,
        { name = "width", type = "int", position = 2, min = 1, max = 2147483647, required = true,
          doc = "elements of a row" },
        { name = "padding", type = "int", min = 0,
          doc = "an id whose row starts at 0 and gets no gradient from here" },
    },
    example = 'local y = embedding "words" { 10, 8 } (batch.target)',
    apply = function(b, f, ids)
        if f.padding and f.padding >= f.rows then
            diag.fail(b.at, ("embedding '%s': padding is %d, expected a row from 0 to %d"):format(
                b:full_name(), f.padding, f.rows - 1), {})
        end
        check_ids(b, f.rows, ids)
        return b:value("embedding", { ids = ids, weight = table_of(b, f.rows, f.width, f.padding) },
            { padding = f.padding }, b:full_name("y"))
    end,
}

-- the sum of x and the rows of the table
local ADD = { name = "positions", value = function(_, x, w) return x + w end,
    grad = function(_, dy) return dy, dy end }

layer "positions" {
    doc = "x + weight[t] at place t of the last axis but one; weight (rows, width of x)",
    named = true,
    fields = { ROWS },
    example = 'local y = flatten {} (positions "places" { 16 } (reshape { 2, 4 } (x)))',
    apply = function(b, f, x)
        local rank = #x.shape
        local places, width = x.shape[rank - 1], x.shape[rank]
        if rank < 3 or places > f.rows then
            diag.fail(b.at, ("positions '%s': the table has %d rows, x has shape %s: expected (rows, places, "
                .. "width) with places at most %d"):format(b:full_name(), f.rows,
                graph.shape_text(x.shape), f.rows), {})
        end
        local weight = table_of(b, f.rows, width)
        if places < f.rows then
            weight = b:value("slice", { x = weight }, { axis = 1, first = 1, last = places },
                b:full_name("used"))
        end
        return b:map({ x, weight }, function(u, w) return u + w end, b:full_name("y"),
            { entry = ADD, fields = {} })
    end,
}

layer "unembed" {
    doc = "x weight^T with the table of an embedding, which is shared: unembed { \"its.full.path\" }",
    fields = {
        { name = "path", type = "str", position = 1, required = true, doc = "the embedding, all blocks named" },
    },
    example = 'local y = unembed { "words" } (x + embedding "words" { 10, 8 } (batch.target))',
    apply = function(b, f, x)
        local tables = ordered.map()
        for _, param in ipairs(b.graph.params) do
            if param.init.lookup then tables:set(param.name:gsub("%.weight$", ""), param) end
        end
        local param = tables:get(f.path)
        if not param then
            diag.fail(b.at, ("unembed: there is no embedding '%s' before this, %s"):format(f.path,
                tables:size() == 0 and "and no other" or "expected " .. table.concat(tables.keys, ", ")),
                { found = f.path, hint = diag.suggest(f.path, tables.keys) })
        end
        local width = x.shape[#x.shape]
        if width ~= param.shape[2] then
            diag.fail(b.at, ("unembed: x has %d elements in its last axis, the rows of '%s' have %d"):format(
                width, f.path, param.shape[2]), {})
        end
        return b:value("linear", { x = x, weight = b:share(param, param.shape) })
    end,
}
