-- division: what a program with ranks says of the division of the flat space: the table of buckets, the parts that its
-- ranges are cut into, what a rank has of each state, the numbers of the small sum.
local c_text = require "emit.targets.c_text"
local clip = require "emit.boundary.clip"
local ordered = require "base.ordered"
local pieces = require "passes.pieces"
local placed = require "emit.boundary.placed"
local ranges = require "emit.boundary.ranges"
local sections = require "emit.program.sections"
local sent = require "emit.boundary.sent"
local states = require "emit.boundary.states"
local statistics = require "emit.program.statistics"
local text = require "base.text"

local division = {}

local NOTHING = text.block("")

local function norms(g) return #g.norm.ends end

--- The names of the numbers of the small sum, in model.h and kernels.cu; nothing without ranks.
function division.small(g, config)
    if not g.ranks then return NOTHING end
    local nonfinite = "SMALL_NONFINITE"
    if g.handlers then nonfinite = ("SMALL_LISTS, SMALL_NONFINITE = SMALL_LISTS + %d"):format(config.rank_lists) end
    return text.block(c_text.wrap("", "enum { ", { "SMALL_LOSS", "SMALL_WEIGHT", "SMALL_ROWS", "SMALL_STOP",
        nonfinite, "SMALL_NORM", ("NORMS = %d"):format(norms(g)),
        ("LARGEST = %d"):format(clip.takes_largest(config) and norms(g) or 0), "SMALL = SMALL_NORM + NORMS" }, " };"))
end

-- The numbers of the small sum before the norm: losses, weights, rows, requests, and the weights of lists of ranks.
local function before_norm(g, config) return 4 + (g.handlers and config.rank_lists or 0) end

--- The numbers of each small sum of a boundary: where the weights are needed first, the norm comes later.
function division.small_sums(g, config)
    if clip.weights_first(g, config) then return { before_norm(g, config), 1 + norms(g) } end
    return { 5 + norms(g) }
end

--- Fields of the struct step: { type, name, comment, count }.
function division.step_rows(g, config)
    if not g.ranks then return {} end
    local rows = { { "double", "small[SMALL]", "sums over the ranks", before_norm(g, config) + 1 + norms(g) },
        { "integer", "norm_ends[NORMS]", "behind the tiles of this rank's gradient, of each group", norms(g) } }
    local count = g.handlers and #g.handlers
    rows[3] = g.handlers and { "real", ("share[%d]"):format(count), "of the gradient, by handler", count }
    return rows
end

-- States of which a rank has only a part and that have an array of their own.
local function own_arrays(g)
    return ordered.collect(g.sharded.state and g.state_names or {}, function(name)
        return not g.states:get(name).dense and name or nil
    end)
end

--- Fields of the struct model.
function division.fields(g, rows)
    if not g.ranks then return {} end
    local list = { "ga_division division;    /* of the flat space over the ranks */",
        "part_lists own;          /* parts of the ranges: of this rank */",
        ("range parts[%d];"):format(ranges.part_count(g, rows)) }
    if g.norm.others then table.insert(list, 3, "part_lists others;       /* of all others */") end
    for _, line in ipairs(sent.fields(g)) do list[#list + 1] = line end
    for _, line in ipairs(placed.fields(g)) do list[#list + 1] = line end
    for _, name in ipairs(own_arrays(g)) do
        list[#list + 1] = ("ga_shard shard_state_%s; /* this rank's elements of state_%s */"):format(name, name)
    end
    return list
end

local function bucket_rows(g)
    return ordered.collect(g.collectives, function(x)
        return ("{%d, %d, GA_%s, GA_%s, GA_BY_%s},"):format(x.offset, x.n, x.kind:upper(), x.wire:upper(),
            x.sharing:upper())
    end)
end

--- The elements of a state, or of "gradients", "parameters" or "sent", that the rank has which has most of it.
--- on_device: of what of it lies on the device.
function division.most_elements(g, name, ranks, on_device)
    local most = 0
    for _, list in ipairs(pieces.of(g, ranks)) do
        list = on_device and pieces.on_device(g, name, list) or list
        most = math.max(most, name == "sent" and sent.elements(g, list) or pieces.elements(g, name, list))
    end
    return most
end

--- Elements of a state that all trained parameters have, of the rank that has most of it.
function division.state_elements(g, ranks)
    return g.sharded.state and division.most_elements(g, "own", ranks) or g.trained_elements
end

--- How evenly trained parameters are divided: { ranks, most = elements of the fullest rank, mean }.
function division.balance(g, ranks)
    local most, sum = 0, 0
    for _, list in ipairs(pieces.of(g, ranks)) do
        local own = 0
        for _, piece in ipairs(list) do own = own + piece[2] - piece[1] end
        most, sum = math.max(most, own), sum + own
    end
    return { ranks = ranks, most = most, mean = sum / ranks }
end

-- How a rank's part of each state gets its place.
local function shard_lines(g, target)
    local list = placed.opening(g)
    for _, array in ipairs { "parameters", "gradients" } do
        local there = placed.on_device(g, array)
        for _, line in ipairs(g.sharded[array] and target.open_shard(array, "division.own", there) or {}) do
            list[#list + 1] = line
        end
    end
    for _, line in ipairs(sent.opening(g)) do list[#list + 1] = line end
    for _, name in ipairs(g.sharded.state and g.state_names or {}) do
        local shard = "division.own"
        if not g.states:get(name).dense then
            shard = "shard_state_" .. name
            list[#list + 1] = c_text.wrap("", "GA_TRY(ga_layout_shard(", { "&m->" .. shard, "&m->division.own",
                "PARAMS", "TRAINED_PARAMS", states.table_of(g, name), "e" }, "));")
        end
        local opened = not (g.state_file and g.states:get(name).dense)
            and target.open_shard("state_" .. name, shard, placed.on_device(g, "state_" .. name))
        for _, line in ipairs(opened or {}) do list[#list + 1] = line end
    end
    return list
end

--- Arguments of the block `division` of memory.c. open_shard: the text of the function that it calls.
function division.tables(g, config, target, open_shard)
    local starts, shards = pieces.starts(g), shard_lines(g, target)
    return { name = text.ident(config.name), whole = #starts > 0, buckets = sections.lines(bucket_rows(g)),
        starts = text.block(c_text.wrap("", "static const int64_t STARTS[] = {",
            ordered.collect(starts, tostring), "};")), start_count = #starts,
        shards = sections.lines(shards), sharded = #shards > 0, grouped = g.handlers ~= nil,
        groups = text.block(c_text.wrap("", "static const int BUCKET_GROUPS[] = {", ordered.collect(g.collectives,
            function(x) return tostring(x.group and x.group.number or 0) end), "};")),
        open_shard = text.block(placed.table(g) .. open_shard.text), numbers = statistics.most(g, config.ops),
        device = target.device }
end

--- The lines by which averages of parameters start as these are.
function division.averages_started(g)
    if not g.states:has "ema" then return NOTHING end
    if g.state_file then return sections.lines { "GA_TRY(start_averages(m, e));" } end
    if not g.sharded.state then
        return sections.lines { "memcpy(m->state_ema, m->flat_w, sizeof(real) * TRAINED);" }
    end
    if g.sharded.parameters then
        return sections.lines { "memcpy(m->state_ema, m->flat_w, sizeof(real) * (size_t)m->division.own.elements);" }
    end
    return sections.lines { "for (int i = 0; i < m->division.own.count; i++) {",
        "    const ga_piece *p = &m->division.own.pieces[i];",
        "    memcpy(m->state_ema + p->at, m->flat_w + p->from, sizeof(real) * (size_t)p->n);", "}" }
end

--- Lines that release what the division takes.
function division.closing(g)
    if not g.ranks then return NOTHING end
    local list = { "ga_division_close(&m->division);", table.unpack(sent.closing(g)) }
    for _, line in ipairs(placed.closing(g)) do list[#list + 1] = line end
    for _, name in ipairs(own_arrays(g)) do list[#list + 1] = ("ga_shard_close(&m->shard_state_%s);"):format(name) end
    return sections.lines(list)
end

return division
