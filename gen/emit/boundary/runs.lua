-- update_runs: where the kernels of an update run. A rule of scope "element" goes over runs of the flat space,
-- "tensor" over each tensor in steps that all tensors take together, "matrix" over one matrix after another.
--
--   element   update_0
--   tensor    update_0_sums | update_0_scales | update_0; with factors, before: _rows and _columns | _factors
--   matrix    update_0_sums | update_0_scales |, then each: update_0_start | orthogonalize | update_0 |
--
-- | is a barrier; a kernel says by the names of its `items` what it is called with.
local expr = require "base.expr"
local graph = require "graph.graph"
local orthogonal = require "emit.boundary.orthogonal"
local scratch = require "passes.scratch"
local text = require "base.text"

local runs = {}

--- Elements of a tile of an update.
runs.TILE = 4096

local function tiles_of(n) return (n + runs.TILE - 1) // runs.TILE end

-- Whole rows of a tile of a matrix.
local function tall_of(columns) return math.max(1, runs.TILE // columns) end

local function tiles_of_param(param)
    local f = param.factors
    if not f then return tiles_of(param.flat.n) end
    local tall = tall_of(f.columns)
    return (f.rows * f.matrices + tall - 1) // tall
end

--- The runs: { group, param, offset, n, count, stride, layer }, of tensors with `tiles`, `tile` and `index`:
--- how many sums an iteration has, and the first iteration's place among sums and scales. How many tiles and
--- tensors there are.
function runs.of(g)
    local list, tile, index = {}, 0, 0
    for _, s in ipairs(g.segments) do
        if g.groups:get(s.group).rule.scope == "element" then
            list[#list + 1] = { group = s.group, param = s.first, offset = s.offset, n = s.n, count = s.count,
                stride = s.stride, layer = s.layer }
        end
    end
    for _, param in ipairs(g.params) do
        if param.used and g.groups:get(param.group).rule.scope ~= "element" then
            local f, tiles = param.flat, tiles_of_param(param)
            list[#list + 1] = { group = param.group, param = param, offset = f.offset, n = f.n, count = param.count,
                stride = f.stride, tiles = tiles, tile = tile, index = index, layer = param.layer }
            tile, index = tile + tiles * param.count, index + param.count
        end
    end
    return list, tile, index
end

--- How often a kernel is called in an update, and over how many elements in all.
function runs.extent(g, kernel)
    local calls, elements = 0, 0
    for _, s in ipairs((runs.of(g))) do
        if s.group == kernel.group.index then calls, elements = calls + s.count, elements + s.n * s.count end
    end
    return calls, elements
end

--- Doubles beside the state, where each tile has size.sums numbers and each tensor size.scales.
function runs.doubles(g, size)
    local _, tiles, tensors = runs.of(g)
    return tiles * size.sums + tensors * size.scales
end

-- A place in a loop over layers; l: whether it is in one.
local function plus(base, l, stride)
    return l and stride > 0 and ("(%d + l * %d)"):format(base, stride) or tostring(base)
end

local function behind(target, base, offset) return offset == "0" and base or target.behind(base, offset) end

-- What a kernel is called with over run s, by the name of the item; c: { g, target, size, l }.
local ITEM = {}

function ITEM.from(s, c) return c.l and ("%d + l * %d"):format(s.offset, s.stride) or tostring(s.offset) end

function ITEM.to(s, c)
    local to = s.offset + s.n
    return c.l and ("%d + l * %d"):format(to, s.stride) or tostring(to)
end

function ITEM.sums(s, c) return c.target.doubles(plus(s.tile * c.size.sums, c.l, s.tiles * c.size.sums)) end

function ITEM.scales(s, c)
    return c.target.doubles(plus(c.size.tiles * c.size.sums + s.index * c.size.scales, c.l, c.size.scales))
end

function ITEM.layer(s, c) return (c.l and s.layer .. " + (int)l" or tostring(s.layer)) end

function ITEM.tiles(s) return tostring(s.tiles) end
function ITEM.n(s) return tostring(graph.elements(s.param.shape)) end
function ITEM.rows(s) return tostring(s.param.factors.rows) end
function ITEM.columns(s) return tostring(s.param.factors.columns) end
function ITEM.matrices(s) return tostring(s.param.factors.matrices) end
function ITEM.tall(s) return tostring(tall_of(s.param.factors.columns)) end

function ITEM.row(s, c)
    local f = s.param.factors
    return behind(c.target, c.target.scratch, plus(f.row, c.l, f.row_stride))
end

function ITEM.chunks(s, c)
    local f = s.param.factors
    return behind(c.target, c.target.scratch, plus(f.sums, c.l, f.sums_stride))
end

-- x before the iteration and behind it.
function ITEM.started(_, c) return behind(c.target, c.target.scratch, tostring(c.g.orthogonal.x)) end

function ITEM.x(s, c)
    local steps = c.g.groups:get(s.group).fields.ns_steps
    return behind(c.target, c.target.scratch, tostring(c.g.orthogonal[steps % 2 == 1 and "y" or "x"]))
end

function ITEM.adjust(s, c)
    local group = c.g.groups:get(s.group)
    return expr.literal(group.rule.adjust(group.fields, scratch.whole(s.param.shape)), c.g.real)
end

-- An array: w and g of the flat space; a state there or in an array of its own.
local function array_of(name, s, c)
    local state = c.g.states:get(name)
    if not state or state.dense then return c.target.array("flat", name) end
    local kept = s.param.kept[name]
    return behind(c.target, c.target.array("kept", name), plus(kept.offset, c.l, kept.stride))
end

local function call_of(kernel, s, c, pad)
    local list = { c.target.step_of(kernel.reads_step) }
    for i, item in ipairs(kernel.items) do
        list[i + 1] = ITEM[item] and ITEM[item](s, c) or array_of(item, s, c)
    end
    return c.target.wrap(pad, kernel.name .. "(", list, ");")
end

local function loop_over(s) return ("for (int64_t l = 0; l < %d; l++)"):format(s.count) end

-- The calls of the kernels with this suffix over `list`.
local function calls_of(suffix, kernels, list, c, out)
    for _, s in ipairs(list) do
        local kernel, loop = kernels[suffix .. s.group], s.count > 1
        c.l = loop
        if kernel and loop then out[#out + 1] = loop_over(s) end
        if kernel then out[#out + 1] = call_of(kernel, s, c, loop and "    " or "") end
    end
end

-- One matrix after another: they share their scratch.
local function calls_of_matrices(kernels, list, c, out)
    for _, s in ipairs(list) do
        local loop = s.count > 1
        local pad = loop and "    " or ""
        c.l = loop
        if loop then out[#out + 1] = loop_over(s) .. " {" end
        out[#out + 1] = call_of(kernels["_start" .. s.group], s, c, pad)
        out[#out + 1] = c.target.barrier and pad .. c.target.barrier
        out[#out + 1] = ("%s%s(%s, m);"):format(pad, orthogonal.name(s.param, c.g.groups:get(s.group)),
            c.target.worker)
        out[#out + 1] = call_of(kernels["" .. s.group], s, c, pad)
        out[#out + 1] = c.target.barrier and pad .. c.target.barrier
        if loop then out[#out + 1] = "}" end
    end
end

--- The calls of the update kernels at the boundary; size: as of runs.doubles.
function runs.calls(g, sweeps, target, size)
    local out, kernels, elements, matrices = {}, {}, {}, {}
    for _, kernel in ipairs(sweeps) do
        if kernel.items then kernels[kernel.suffix .. kernel.group.index] = kernel end
    end
    local list, tiles = runs.of(g)
    for _, s in ipairs(list) do
        local into = g.groups:get(s.group).rule.scope == "matrix" and matrices or elements
        into[#into + 1] = s
    end
    local c = { g = g, target = target, size = { sums = size.sums, scales = size.scales, tiles = tiles } }
    for _, step in ipairs { { "_rows", "_columns" }, { "_factors" }, { "_sums" }, { "_scales" } } do
        local before = #out
        for _, suffix in ipairs(step) do calls_of(suffix, kernels, list, c, out) end
        if #out > before then out[#out + 1] = target.barrier end
    end
    calls_of_matrices(kernels, matrices, c, out)
    calls_of("", kernels, elements, c, out)
    return text.block(table.concat(out, "\n"))
end

return runs
