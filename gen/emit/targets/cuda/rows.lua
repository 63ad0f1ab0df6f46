-- rows: kernels that have a row of the last axis in registers (templates/cuda/rows.cu): a warp for each row of up to
-- 4 KiB, a block for each wider one. The shape of the rows alone decides.
local behind = require "emit.targets.behind"
local c_text = require "emit.targets.c_text"
local cuda_behind = require "emit.targets.cuda.behind"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local plain = require "emit.targets.cuda.plain"
local text = require "base.text"

local rows = {}

local WARP, WARPS = 32, 4          -- lanes of a warp; warps of a block with a row each

-- Threads of a row of `width` elements: at most 32 registers of 4 bytes in each for its elements, up to 64 KiB.
local function lanes_of(width, real)
    local bytes = width * (real == "f64" and 8 or 4)
    return bytes <= 4096 and WARP or bytes <= 32768 and 256 or 512
end

-- Of a kernel that also sums over the rows: warps of a block, or threads of a block with one row; parts at most, two
-- for each multiprocessor; rows of a part, at least. Two blocks of six warps leave a thread 170
-- registers, enough for four arrays of its elements and those that it reads.
local SUM_WARPS, SUM_THREADS, PARTS, LEAST = 6, 256, 2 * launches.MULTIPROCESSORS, 12
local BEHIND = { kept = "decltype(ga_read<FEW>(%s)) %s[EACH / FEW];", early = "%s[from / FEW] = %s;",
    element = "%s[from / FEW].at[k]" }
local AHEAD = 24         -- elements of 16 bits of a thread, of which it has registers for two rows

--- In how many parts the kernel of a gradient of rows sums over the rows; nil where a row takes more threads.
function rows.parts(node, real)
    if lanes_of(node.size.C, real) > SUM_THREADS then return nil end
    local count = graph.elements(node.size.lead or {})
    local each = math.max(launches.ceil(count, PARTS), LEAST)
    return launches.ceil(count, each)
end

--- The launch of a kernel over rows.
function rows.launch(node, real)
    local count, lanes = graph.elements(node.size.lead or {}), lanes_of(node.size.C, real)
    if node.attrs.parts then
        return { blocks = node.attrs.parts, threads = lanes == WARP and WARP * SUM_WARPS or SUM_THREADS }
    end
    if lanes > WARP then return { blocks = count, threads = lanes } end
    return { blocks = launches.ceil(count, WARPS), threads = WARP * WARPS }
end

--- Adds to the template arguments:
---   row.lanes, row.few, row.each    threads of a row, elements that one moves at once, elements of one
---   row.blocks                      of a multiprocessor at least, so that a thread may have 128 registers
function rows.arguments(arguments, node, _, _, real)
    local width, tensors = node.size.C, graph.reads(node)
    for _, out in ipairs(graph.writes(node)) do tensors[#tensors + 1] = out.tensor end
    local wide = {}
    for _, t in ipairs(tensors) do
        if t.shape[#t.shape] == width then wide[#wide + 1] = t end
    end
    local lanes, count = lanes_of(width, real), few.of_rows(wide, width, real)
    arguments.row = { lanes = lanes, few = count, each = launches.ceil(width, lanes * count) * count,
        blocks = math.max(512 // math.max(lanes, WARP * WARPS), 1) }
end

--- Adds to those of a gradient `adds`, the argument by which it is added to what is there.
function rows.gradient_arguments(arguments, node, kernel, op, real)
    rows.arguments(arguments, node, kernel, op, real)
    arguments.adds, arguments.store = text.block(kernel.can_add and ", add" or ""), nil
end

-- The sums over the rows of a part, or false: rows of a part; gradients that it has sums of, and whether the bias's is
-- one of them; ahead: whether a row is read beside the sums of the one before. each: elements of a thread.
local function sums_of(node, each)
    local parts = node.attrs.parts
    if not parts then return false end
    local width = node.outs.parts.tensor.shape[2]
    return { rows = launches.ceil(graph.elements(node.size.lead or {}), parts), width = width, bias = width == 2,
        ahead = graph.is_half(node.ins.x) and graph.is_half(node.ins.dy) and each <= AHEAD }
end

--- The name of the kernel of a norm's gradient, and what it does without (targets/ops.lua); nil: it has one of its own.
function rows.sizes(kernel, node, op)
    local form = plain.of(kernel, op)
    return form and { op = plain.name(node, op), plain = form, types = "", list = {}, missing = form.missing,
        kind = ("_%d_rows_of_%d"):format(graph.elements(node.size.lead or {}), node.size.C) }
end

--- And the pointwise node behind it (targets/cuda/behind.lua), { with_1, half } where that only adds a value of this
--- type (targets/cuda/plain.lua), or false, with the type of its result; sums: those over the rows, or false.
function rows.arguments_behind(arguments, node, kernel, op, real)
    rows.gradient_arguments(arguments, node, kernel, op, real)
    arguments.sums = sums_of(node, arguments.row.each)
    if arguments.sums then arguments.row.blocks = arguments.row.lanes == WARP and 2 or 1 end
    local form = kernel.sizes and kernel.sizes.plain
    local list = not form and cuda_behind.early(kernel, arguments.row.few, real, BEHIND)
    arguments.behind = list and ordered.copy(list, { with_1 = false })
        or form and form.with_1 and { with_1 = true, half = text.ident(graph.result(node).dtype) } or false
    arguments.last = c_text.type_of((behind.result(node)))
end

return rows
