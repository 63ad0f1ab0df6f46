-- hopper: the twins of products on tensor cores: kernels of the same products for devices of sm_90, by copies of boxes
-- and products of warpgroups (templates/cuda/hopper_product.cu). The start of a program decides which of both is used
-- (runtime/device/twins.h).
local cuda = require "emit.targets.cuda.cuda"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local text = require "base.text"

local hopper = {}

local ceil = launches.ceil

-- As in hopper_product.cu: of a tile; the terms of a slice.
local TALL, WIDE, DEEP = 128, 256, 64

-- Operations of the smallest product with a twin: one that takes some microseconds.
local LEAST = 1e9

-- Blocks that share the slices of a product: the multiprocessors of an H100 or H200. They are the same on each device,
-- as bits depend on their number. A run has at least FEW slices, since parts cost as much as some.
local BLOCKS, FEW = 132, 4

-- Blocks of a cluster: they have tiles below each other and share the columns of B.
local CLUSTER = 2

-- A ring of four slices that begins at a multiple of 1024 bytes, the strips of eight warps, eight gates. Were the
-- alignment that of the array, NVRTC would enlarge the shared memory of all other kernels, too.
local SHARED = 1024 + 4 * (TALL + WIDE) * 128 + 8 * 16 * 40 * 4 + 8 * 8

-- The architecture that has these instructions, and no other.
local ARCH = 90
hopper.GUARD = "__CUDA_ARCH_FEAT_SM90_ALL"

-- How a product is cut: blocks of a cluster, clusters, piles of tiles, slices of each (hopper_product.cu). A product of
-- one row of tiles has nothing to share.
local function cut(g)
    local cluster = g.M > TALL and CLUSTER or 1
    local piles, slices = ceil(g.M, cluster * TALL) * ceil(g.N, WIDE), ceil(g.K, DEEP)
    return { cluster = cluster, piles = piles, slices = slices,
        clusters = math.max(1, math.min(BLOCKS // cluster, piles * slices // FEW)) }
end

-- Whether runs of slices end within piles, so that some tiles come in parts.
local function has_parts(c)
    for run = 1, c.clusters - 1 do
        if c.piles * c.slices * run // c.clusters % c.slices > 0 then return true end
    end
    return false
end

-- The extents of an operand in memory, the distance of its rows, and the rows of a box, which has 64 columns.
local function matrix(operand, extent, terms, own)
    return { columns = operand.turned and extent or terms, rows = operand.turned and terms or extent,
        stride = operand.stride, box_rows = operand.turned and DEEP or own }
end

local KIND = { bf16 = "HALF", f16 = "HALF", f32 = "REAL" }

-- Tensors end at multiples of so many elements: a kernel may touch those behind the last one.
local WHOLE = 16

-- The argument that a comparison gives a kernel for a tensor: "HALF 4096 1", elements or bytes of an array and
-- whether it is a result; or for one number.
local function made(t, shape, is_result)
    if #t.shape == 0 then return t.moves and "REAL 1 0" or "NUMBER 0 0" end
    local kind = KIND[t.dtype] or t.kind == "scalar" and "ZERO" or "REAL"
    local n = ceil(graph.elements(shape) // shape[#shape] * (t.row or shape[#shape]), WHOLE) * WHOLE
    if t.dtype == "i32" then kind, n = "ZERO", 4 * n elseif t.dtype == "micro" then kind, n = "ZERO", 48 * n end
    return ("%s %d %d"):format(kind, n, is_result and 1 or 0)
end

-- The same of all parameters of a kernel, in their order; separated by commas.
local function all_made(kernel, node)
    local list = {}
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        if out then list[#list + 1] = made(out.tensor, (graph.seen(node, name, out.tensor)), true) end
    end
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t then list[#list + 1] = made(t, (graph.seen(node, name, t)), false) end
    end
    if kernel.draws then list[#list + 1] = "WHOLE 0 0" end
    if kernel.can_add then list[#list + 1] = "ADDS 0 0" end
    return table.concat(list, ",")
end

-- Terms of a part of the sums of an operand, at least; its parts are at most MOST.
local PART, MOST = 256, 64

-- The sums of an operand over the terms (targets/cuda/ops.lua), in parts of these; false: there are none.
local function sums_of(g, sums, operands)
    if not sums then return false end
    return { array = sums.array, count = sums.count, store = sums.store, rest = sums.rest,
        stride = operands[sums.array.text].stride,
        parts = math.max(1, math.min(MOST, g.K // PART)) }
end

--- The twin of a product (op.gemm's table) with these operands (tensor.lua) and arguments of its template, for the
--- kernel's launch; nil if it has none: a small one, one whose rows are no whole chunks, or one of a program for other
--- devices (target { arch }).
function hopper.twin(g, kernel, operands, arguments)
    local a, b = operands.a, operands.b
    if (kernel.arch or ARCH) ~= ARCH then return nil end
    if 2 * g.M * g.N * g.K < LEAST or a.odd or b.odd or g.c_row % 8 > 0 then return nil end
    local c = cut(g)
    return { cluster = c.cluster, blocks = c.clusters * c.cluster, tiles = has_parts(c) and c.piles * c.cluster or 0,
        shape = arguments.shape,
        a = arguments.a, b = arguments.b, c = arguments.c, behind = arguments.behind,
        sums = sums_of(g, arguments.sums, operands),
        of_a = matrix(a, g.M, g.K, TALL), of_b = matrix(b, g.N, g.K, WIDE // c.cluster),
        made = all_made(kernel, kernel.node) }
end

--- The kernels that have a twin, in their order.
function hopper.of(kernels)
    return ordered.collect(kernels, function(kernel) return kernel.launch.twin and kernel or nil end)
end

--- Bytes of memory for the parts of a product: two tiles for each block. nil: no kernel of these has a twin.
function hopper.parts_bytes(kernels)
    local most
    for _, kernel in ipairs(hopper.of(kernels)) do
        most = math.max(most or 0, 2 * kernel.launch.twin.blocks * TALL * WIDE * 4)
    end
    return most
end

-- "c, a, b": the names of parameters.
local function names_of(parameters)
    return table.concat(ordered.collect(parameters, function(p) return p:match "([%a_][%w_]*)$" end), ", ")
end

-- Parameters in parentheses behind `open`, without what stands before them.
local function wrapped(open, ...)
    local list = {}
    for _, more in ipairs { ... } do table.move(more, 1, #more, #list + 1, list) end
    return text.block(cuda.wrap("", open, list, ""):sub(#open + 1))
end

local BOXES = { "float *parts", "const __grid_constant__ ga_boxes a_boxes", "const __grid_constant__ ga_boxes b_boxes" }
local PARTS, SUMS = { "const float *parts" }, { "float *parts" }
local ROW = { "int row", "int column", "float (&sums)[8]" }

local HELPERS = { "hopper gates", "hopper copies", "hopper clusters", "hopper groups", "hopper_product runs",
    "hopper_product sums", "hopper_product products", "hopper_product totals", "hopper_compare compare" }

--- The text of the twins of kernels, with the functions that they call.
function hopper.text(kernels, context)
    local out, half = { "#ifdef " .. hopper.GUARD .. "\n" }, text.ident(context.half)
    for _, helper in ipairs(HELPERS) do
        local file, block = helper:match "(%S+) (%S+)"
        out[#out + 1] = context.template(("cuda/%s.cu"):format(file))(block, { half = half, type = half }).text
    end
    for _, kernel in ipairs(hopper.of(kernels)) do
        local twin, name, p = kernel.launch.twin, kernel.name, kernel.parameters
        local params = { names = text.block(names_of(p)),
            row = wrapped(("GA_DEVICE void %s_row("):format(name), p, ROW),
            boxes = wrapped(("GA_KERNEL(384, 1) %s_boxes("):format(name), p, BOXES),
            parts = wrapped(("GA_KERNEL(256) %s_parts("):format(name), p, PARTS),
            sums = wrapped(("GA_KERNEL(256) %s_sums("):format(name), p, SUMS) }
        out[#out + 1] = context.template("cuda/matmul.cu")("boxes", { fn = text.ident(name), params = params,
            shape = twin.shape, blocks = twin.blocks, cluster = twin.cluster, in_parts = twin.tiles > 0, a = twin.a,
            b = twin.b, c = twin.c, behind = twin.behind, sums = twin.sums }).text
    end
    out[#out + 1] = "#endif\n"
    return table.concat(out, "\n")
end

local function matrix_row(m, parameter)
    return ("{%d, %d, %d, %d, %d}"):format(parameter, m.columns, m.rows, m.stride, m.box_rows)
end

-- The place of a parameter in the list.
local function place_of(kernel, name)
    for i, p in ipairs(kernel.parameters) do
        if p:match "([%a_][%w_]*)$" == name then return i - 1 end
    end
end

--- The number of a kernel's product in the table.
function hopper.number(kernel) return "T_" .. kernel.name:upper() end

local LAUNCH = [[
/* A product that has two kernels, by the one that the start has chosen. */
static void launch_product(queue *q, int twin, void **args) {
    if (q->code == 0) q->code = ga_twins_launch(q->twins, q->stream, twin, args, q->e);
}

]]

-- The row of a kernel's product in the table.
local function table_row(kernel)
    local l, twin, upper = kernel.launch, kernel.launch.twin, kernel.name:upper()
    local a, b = place_of(kernel, "a"), place_of(kernel, "b")
    local half = kernel.parameters[a + 1]:match "(%w+) %*"
    local made = {}
    for kind, n, result in twin.made:gmatch "(%u+) (%d+) (%d)" do
        made[#made + 1] = ("{GA_MADE_%s, %s, %s}"):format(kind, n, result)
    end
    local fields = { (".name = \"%s\""):format(kernel.name), ".kernel = K_" .. upper,
        (".blocks = %d, .threads = %d, .shared = %d"):format(l.blocks, l.threads, l.shared),
        (".own_blocks = %d, .own_shared = %d, .tiles = %d"):format(twin.blocks, SHARED, twin.tiles),
        twin.sums and (".sums = %d, .totals = %d"):format(ceil(twin.sums.count, 64) * twin.sums.parts,
            ceil(twin.sums.count, 1024)) or ".sums = 0",
        ".half = GA_" .. half:upper(), ".a = " .. matrix_row(twin.of_a, a), ".b = " .. matrix_row(twin.of_b, b),
        ".parameters = " .. #kernel.parameters, ".made = {" .. made[1] }
    made[#made] = made[#made] .. "}"
    table.move(made, 2, #made, #fields + 1, fields)
    return cuda.wrap("    ", ("[T_%s] = {"):format(upper), fields, "},")
end

--- The number of a kernel's product in the table.
function hopper.number(kernel) return "T_" .. kernel.name:upper() end

--- The table of products with twins, and the function that launches them, for launch.c.
function hopper.table(kernels)
    local own = hopper.of(kernels)
    return cuda.wrap("", "enum { ", ordered.collect(own, hopper.number), " };") .. "\n\n"
        .. "/* Products that a device of sm_90 computes by one of two kernels: see runtime/device/twins.h. */\n"
        .. "static const ga_twin TWIN_LIST[TWINS] = {\n" .. table.concat(ordered.collect(own, table_row), "\n")
        .. "\n};\n\n" .. LAUNCH
end

--- The kernels of a graph's nodes that have a twin.
function hopper.of_graph(g)
    local list, seen = {}, {}
    for _, body in ipairs { g.forward, g.backward, g.evaluation } do
        graph.walk(body, function(node)
            local fn = node.kernel and node.kernel.fn
            if fn and fn.launch.twin and not seen[fn] then
                seen[fn] = true
                list[#list + 1] = fn
            end
        end)
    end
    return list
end

return hopper
