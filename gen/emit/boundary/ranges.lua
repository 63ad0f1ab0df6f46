-- ranges: the runs of the flat space that the boundary goes over, as a table of the program. A call hands over a row
-- of the table, the number of a layer and whole arrays; the row says where the elements of the layer lie.
--
--   .h_matrices = {.count = 7077888, .layers = 12, .flat = {39383808, 7087872}},
--
--   for (int l = 0; l < RANGES.h_matrices.layers; l++)
--       update_matrices(w, &m->step, &RANGES.h_matrices, l, m->flat_w, m->flat_g, m->state_m, m->state_v);
--
-- With ranks a range is cut into parts, rows of the same form that each have elements of one layer:
--
--   for (const range *r = m->own.h_matrices.first; r < m->own.h_matrices.end; r++) {
--       const int l = r->l;
--       update_matrices(w, &m->step, r, l, m->flat_w, m->flat_g, m->state_m, m->state_v);
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local text = require "base.text"
local update = require "passes.update"
local update_names = require "passes.update_names"

local ranges = {}

-- The numbers of a row: { name, type, comment }; those that no kernel reads are left out.
local NUMBERS = {
    { "layer", "int", "depth of the first layer" },
    { "handler", "int", "whose share the gradient has" },
    { "adjust", "real", "factor of the rate, by the shape of the matrix" },
    { "rows", "int", "of a matrix" }, { "columns", "int", "of a matrix" }, { "matrices", "int", "of a layer" },
    { "tall", "int", "rows of a tile" }, { "tiles", "int64_t", "of a layer, each with its own sums" },
}

-- C expressions of the numbers that a kernel reads from its row r and its layer l; offsets are not among them.
local READ = { count = "r->count", n = "(double)r->count", layer = "r->layer + l" }
for _, number in ipairs(NUMBERS) do READ[number[1]] = READ[number[1]] or "r->" .. number[1] end

-- Arrays of m->partials have a place of their own in a row; a state too that does not lie over the flat space.
local IN_PARTIALS = { partials = true, sums = true, scales = true }

-- Where a part lies in the arrays that kernels of a device read, if some of it lies in host memory: rules that go over
-- elements alone have states of all trained parameters.
local ON_DEVICE = { w = "values", g = "values", state = "state" }

-- The array of an operand of a kernel, and its place in a row; nil: the operand lies in no array of the flat space.
-- device: the kernel is one of a device.
local function array_of(g, item, device)
    local state = item:match("^state%.(.*)")
    if device and placed.is_used(g) and (state or ON_DEVICE[item]) then
        return state or item, ON_DEVICE[state and "state" or item]
    end
    if state then
        local dense = g.state_file and "held" or g.sharded.state and "shard" or "flat"
        return state, g.states:get(state).dense and dense or "state_" .. state
    end
    if item == "g" and g.sharded.gradients or item == "w" and g.sharded.parameters then return item, "shard" end
    if item == "w" or item == "g" or item == "narrow_w" then return item, "flat" end
    if IN_PARTIALS[item] then return "partials", item end
end

-- === the table ===================================================================================

-- Whether a run covers only some layers of its parameters.
local function is_part(run) return run.layers < run.covers[1].count end

-- The parameters that a run covers, for comments.
local function covered(run)
    local params, region = run.covers, run.covers[1].region
    local part = region and run.layers < (region.whole or region.count)
    local first = params[1].first + run.from
    local function name(param) return (param.name:gsub("%%d", part and run.layers == 1 and tostring(first) or "*")) end
    local names = name(params[1])
    if #params > 1 then names = ("%s .. %s, %d tensors"):format(names, name(params[#params]), #params) end
    if not part or run.layers == 1 then return names end
    return ("%s, layers %d to %d"):format(names, first, first + run.layers - 1)
end

--- The parameters that a run covers, as text of a comment.
function ranges.covered(run)
    return text.comment(run.covers and covered(run) or "all trained parameters").text
end

local function name_of(g, run)
    if run.offset == 0 and run.n == g.trained_elements then return "all" end
    local region, word, head = run.covers[1].region, run.group.word, ""
    if region then head = graph.identifier(region.name:match("[^.]*$")) .. "_" end
    local field = #run.covers == 1 and c_text.field(run.covers[1].value)
    if field and not is_part(run) then return field end
    if region and word:sub(1, #head) == head then return word end
    return field and field .. "_" .. word or head .. word
end

-- A place that only the parts of a range have: it is known when the program starts.
local CUT, ONLY_PARTS = { cut = true }, { shard = true, held = true, values = true, state = true }

-- Notes in a row the places of a node's operands.
local function add_places(row, g, node)
    for _, list in ipairs { graph.reads(node), ordered.collect(graph.writes(node), function(o) return o.tensor end) } do
        for _, t in ipairs(list) do
            if t.array and t.array[1] ~= "partials" then
                local item = (t.array[1] == "state" and "state." or "") .. t.array[2]
                local _, name = array_of(g, item)
                row.places[name] = ONLY_PARTS[name] and CUT or t.place
                if placed.is_used(g) then row.places[select(2, array_of(g, item, true))] = CUT end
            end
        end
    end
    for item in ordered.each(IN_PARTIALS) do
        local t = node.outs[item] and node.outs[item].tensor or node.ins[item]
        if t and t.array then row.places[item] = item == "partials" and g.ranks and CUT or t.place end
    end
end

--- The rows of the table, in the order of the boundary, as { name, count, layers, numbers, places, comment }. Runs of
--- the same elements share one; each run gets its `row`. exchanged: whether exchange() goes over all parameters.
function ranges.rows(g, exchanged)
    local list, by_key, taken = {}, {}, {}
    for word in text.KEYWORDS:gmatch("%S+") do taken[word] = true end
    local function row_of(run)
        local key = ("%d %d %d %d"):format(run.offset, run.n, run.count, run.count > 1 and run.stride or 0)
        local row = by_key[key]
        if not row then
            row = { name = update_names.unused(taken, name_of(g, run)), run = run, count = run.n, layers = run.count,
                numbers = {}, places = {}, comment = ranges.covered(run) }
            row.places.flat = { offset = run.offset, stride = run.count > 1 and run.stride or 0 }
            by_key[key], list[#list + 1] = row, row
        end
        for name, value in ordered.each(run.numbers) do row.numbers[name] = value end
        return row
    end
    if exchanged then
        row_of { offset = 0, n = g.trained_elements, count = 1, stride = 0, numbers = {} }
    end
    graph.walk(g.boundary, function(node)
        local run = node.attrs and node.attrs.range
        if not run then return end
        run.row = row_of(run)
        add_places(run.row, g, node)
    end)
    return list
end

-- The names of the places that rows have, the flat space first.
local function place_names(rows)
    local list = { "flat" }
    for _, row in ipairs(rows) do
        for name in ordered.each(row.places) do
            if not ordered.find(list, name) then list[#list + 1] = name end
        end
    end
    return list
end

-- The comment of a place in the struct range.
local function place_comment(name)
    if name == "flat" then return "in the flat space: parameters, gradients and states of that form" end
    if name == "shard" then return "of a part, in arrays of which a rank has only its own" end
    if name == "held" then return "of a part, in states whose last elements lie in a file" end
    if name == "values" then return "of a part, among the values of the device, or as shard" end
    if name == "state" then return "of a part, among the states of the device, or as shard" end
    return IN_PARTIALS[name] and "in m->partials" or "in m->" .. name
end

--- Arguments of the block `ranges` of model.h.
function ranges.types(rows, g)
    local fields, names = {}, ordered.collect(rows, function(row) return row.name end)
    local cut = g.ranks or g.state_file ~= nil
    if cut then fields[1] = "int l; /* of a part: its layer */" end
    if placed.is_used(g) then fields[2] = "int bucket; /* of a part: the bucket that it belongs to */" end
    if g.state_file then fields[2] = "int segment; /* of a part: that of the file, -1: its states lie in memory */" end
    for _, number in ipairs(NUMBERS) do
        for _, row in ipairs(rows) do
            if row.numbers[number[1]] then
                fields[#fields + 1] = ("%s %s; /* %s */"):format(number[2], number[1], number[3])
                break
            end
        end
    end
    for _, name in ipairs(place_names(rows)) do
        fields[#fields + 1] = ("offsets %s; /* %s */"):format(name, place_comment(name))
    end
    return { fields = text.block(table.concat(fields, "\n")), parts = cut,
        names = text.block(c_text.wrap("", "range ", names, ";")),
        lists = cut and text.block(c_text.wrap("", "parts ", names, ";")) }
end

-- The lists of parts that a program has.
local function parts_of(g) return g.norm.others and { "own", "others" } or { "own" } end

--- How many parts the ranges are cut into, at most: those of a rank, of the others too if it goes over them.
function ranges.part_count(g, rows)
    local count = 0
    for _, row in ipairs(rows) do
        for _, part in ipairs(parts_of(g)) do count = count + update.parts(g, row.run, part) end
    end
    if placed.is_used(g) then count = 2 * count end         -- once more, as what the device and what the host updates
    return count
end

-- How a part finds its elements in each array.
local function places_of(g, rows)
    local places = {}
    for _, name in ipairs(place_names(rows)) do
        local state = name:match "^state_"
        if name == "shard" and placed.is_used(g) then
            places[#places + 1] = "place_part(m, next);"
        elseif name == "shard" then
            places[#places + 1] = "next->shard = (offsets){p->at + from - p->from, 0};"
        elseif name == "held" then
            places[#places + 1] = "if (file) next->segment = ga_state_file_add(file, p->at + from - p->from, n, "
                .. "&next->held.first);"
        elseif state and g.sharded.state then
            places[#places + 1] = ("next->%s = place_in(&m->shard_%s, rows[i].%s, l, from - first);"):format(name, name,
                name)
        elseif state and g.state_file then
            places[#places + 1] = ("next->%s.first += from - first;"):format(name)
        end
    end
    return places
end

-- The calls that give tiles of sums to the parts that are measured.
local function numbering(g)
    local tiles = {}
    for _, part in ipairs(parts_of(g)) do
        for k, group in ipairs(g.norm.groups) do
            for _, run in ipairs(group) do
                tiles[#tiles + 1] = ("tile = number_tiles(&m->%s.%s, tile);"):format(part, run.row.name)
            end
            if part == "own" then tiles[#tiles + 1] = ("m->step.norm_ends[%d] = tile;"):format(k - 1) end
        end
    end
    return tiles
end

--- Blocks of update.c that cut ranges into parts, { name, arguments }.
function ranges.cutting(g, config, rows, target)
    local places = places_of(g, rows)
    local function block(list) return text.block(table.concat(list, "\n")) end
    local of_arrays = table.concat(places):find "place_in" ~= nil       -- their shards are fields of the model
    local reads_model = of_arrays or placed.is_used(g)
    local name, filed, own = text.ident(config.name), g.state_file ~= nil, text.block(reads_model and "m, " or "")
    local list = { { "cut", { places = block(places), filed = filed, of_arrays = of_arrays,
        placed = placed.is_used(g), model = text.block(reads_model and "const model *m, " or ""),
        file = text.block(filed and "ga_state_file *file, " or "") } } }
    if g.ranks then
        list[2] = { "cut_ranks", { name = name, others = g.norm.others or false, own = own,
            placed = placed.is_used(g), device_updates = not placed.updates_all(g),
            none = text.block(filed and "NULL, " or ""), tiles = block(numbering(g)) } }
    end
    if filed then
        list[#list + 1] = { "cut_state", { name = name, sharded = g.sharded.state or false, own = own,
            device = target.device } }
    end
    return list
end

--- The lines of the table.
function ranges.table(g, rows)
    local out, names = {}, place_names(rows)
    for _, row in ipairs(rows) do
        local items = { (".count = %d"):format(row.count), (".layers = %d"):format(row.layers) }
        for _, number in ipairs(NUMBERS) do
            local value = row.numbers[number[1]]
            if value then
                items[#items + 1] = (".%s = %s"):format(number[1],
                    number[2] == "real" and expr.literal(value, g.real) or tostring(value))
            end
        end
        for _, name in ipairs(names) do
            local p = row.places[name]
            if p and not p.cut then
                items[#items + 1] = (".%s = {%d, %d}"):format(name, p.offset, row.layers > 1 and p.stride or 0)
            end
        end
        out[#out + 1] = ("/* %s */"):format(row.comment)
        out[#out + 1] = c_text.wrap("", (".%s = {"):format(row.name), items, "},")
    end
    return text.block(table.concat(out, "\n"))
end

-- === kernels and calls ===========================================================================

--- Gives a kernel over a run its head: `operands` has { item, parameter } for each operand, declared as the kernel
--- wants it. Sets over_run = { parameters, lines }: a function that gets a row of the table, a layer and whole arrays,
--- and how it finds the operands. Returns the parameters of the kernel, and the lines that it begins with.
function ranges.head(g, kernel, target, over)
    local parameters, lines, known = { "const range *r", "int l" }, {}, {}
    for _, operand in ipairs(kernel.operands) do
        local item, parameter = operand[1], operand[2]
        local array, place = array_of(g, item, target.device)
        if array then
            local all = "all_" .. array
            local declared, k = target.operand_parameter((parameter:gsub("[%w_]+$", all))), known[all]
            known[all] = k or #parameters + 1
            if not k or not declared:find "^const " then parameters[known[all]] = declared end
            lines[#lines + 1] = target.operand_place(parameter, all, ("in_layer(r->%s, l)"):format(place))
        elseif READ[item] then
            lines[#lines + 1] = target.operand_number(parameter, READ[item])
        else
            parameters[#parameters + 1] = target.operand_parameter(parameter)
        end
    end
    kernel.over_run = { parameters = parameters, lines = lines }
    return target.over_run(kernel, over)
end

--- The first lines of a loop of the boundary over a range: its layers, or its parts and the layer of each; nil of
--- another loop.
function ranges.loop(region, target)
    local range = region.range
    if not range then return nil end
    if not region.part then
        return { ("for (int l = 0; l < RANGES.%s.layers; l++) { // %s"):format(range.row.name, region.name) }
    end
    local list = ("m->%s.%s"):format(region.part, range.row.name)
    local head = ("for (const range *r = %s.first; r < %s.end; r++) {"):format(list, list)
    if region.part == "swept" then head = head .. "\n    " .. target.state_need end
    if region.fetched then head = head .. "\n    if (!gradient_need(w, m, r)) return;" end
    return { head, "    const int l = r->l;" }
end

--- Arguments in the call of a kernel over a range that follow those of the target.
function ranges.arguments(g, kernel, target)
    local node, known = kernel.node, {}
    local parts = node.scope and node.scope.part
    local list = { parts and "r" or "&RANGES." .. node.attrs.range.row.name, node.scope and "l" or "0" }
    for _, operand in ipairs(kernel.operands) do
        local item = operand[1]
        local out = node.outs[item]
        local t = out and out.tensor or node.ins[item]
        local array = array_of(g, item)
        if array and not known[array] then
            known[array], list[#list + 1] = true, placed.measured(g, node, t.array) or target.array(t.array)
        elseif t and not array then
            list[#list + 1] = target.pointer(t)
        end
    end
    return list
end

return ranges
