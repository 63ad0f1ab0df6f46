-- hopper: the twins of kernels on tensor cores: kernels of the same products and attention for devices of sm_90, by
-- copies of boxes and products of warpgroups (templates/cuda/hopper_product.cu, hopper_attention.cu). The start of a
-- program decides which of both is used (runtime/device/twins.h).
local cuda = require "emit.targets.cuda.cuda"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local parameters = require "emit.kernels.parameters"
local text = require "base.text"

local hopper = {}

local ceil = launches.ceil

-- As in hopper_product.cu: of a tile, whose columns are WIDE or NARROW; the terms of a slice; rows whose parts a block
-- adds up.
local TALL, WIDE, NARROW, DEEP, PART_ROWS = 128, 256, 192, 64, 16
hopper.WIDE, hopper.NARROW = WIDE, NARROW

-- Operations of the smallest kernel with a twin: one that takes some microseconds.
local LEAST = 1e9
hopper.LEAST = LEAST

-- Blocks of a product. The parts of shared piles cost as much time as so many slices of a tile.
local BLOCKS, PARTS_COST = launches.MULTIPROCESSORS, 32

-- Blocks of a cluster: they have tiles below each other and share the columns of B.
local CLUSTER = 2

-- A ring of four slices that begins at a multiple of 1024 bytes, strip and bias of eight warps, eight gates. Were the
-- alignment that of the array, NVRTC would enlarge the shared memory of all other kernels, too.
local SHARED = 1024 + 4 * (TALL + WIDE) * 128 + 8 * (16 * 40 + WIDE) * 4 + 8 * 8

-- The architecture that has these instructions, and no other.
local ARCH = 90
hopper.GUARD = "__CUDA_ARCH_FEAT_SM90_ALL"

-- Narrow tiles are taken where clusters have at most this part of the columns then: they need more bytes for an
-- operation.
local GAIN = 0.85

-- How a product is cut (hopper_product.cu, by which it computes in int) into tiles of so many columns: blocks of a
-- cluster, clusters, slices of a pile of tiles; how many piles are shared, in how many shares and of how many slices. A
-- product of one row of tiles has nothing to share among the blocks of a cluster. Piles are shared where the clusters
-- without one in the last turn lose more time than parts cost. columns: of the tiles that a cluster has in turn.
local function cut_by(g, wide)
    local cluster = g.M > TALL and CLUSTER or 1
    local piles, slices, clusters = ceil(g.M, cluster * TALL) * ceil(g.N, wide), ceil(g.K, DEEP), BLOCKS // cluster
    local c = { cluster = cluster, wide = wide, clusters = math.min(clusters, piles), piles = piles, slices = slices,
        shared = 0, shares = 0, share = 0, columns = ceil(piles, clusters) * wide }
    local rest = piles % clusters
    if rest == 0 or (clusters - rest) * slices <= PARTS_COST * clusters then return c end
    c.clusters, c.shared, c.shares = clusters, rest, clusters // rest
    -- the other clusters have tails as long in sum as a share each; short ones are not worth their parts
    c.share = rest * slices // clusters
    if clusters % rest == 0 or slices - c.shares * c.share < PARTS_COST // 2 then
        c.share = ceil(slices, c.shares)
        c.shares = ceil(slices, c.share)
    end
    return c
end

-- The same into wide tiles, or narrow ones that leave fewer clusters without one in the last turn.
local function cut(g)
    local wide, narrow = cut_by(g, WIDE), cut_by(g, NARROW)
    local fills = wide.shared + narrow.shared == 0 and narrow.columns <= GAIN * wide.columns
    return fills and narrow or wide
end

-- The operand `parameter` of a product: its extents in memory, the distance of its rows, and the rows of a box, which
-- has 64 columns: `own` of it, or `deep` terms if it is turned.
local function matrix(parameter, operand, extent, terms, own, deep)
    return { parameter = parameter, of = parameter, first = 0, columns = operand.turned and extent or terms,
        rows = operand.turned and terms or extent, sheets = 0, stride = operand.stride,
        box_rows = operand.turned and deep or own }
end

-- The integers of a comparison, by parameter: a mask of keys that are all seen, else zeros.
local INTEGERS = { mask = "ONES" }

local KIND = { bf16 = "HALF", f16 = "HALF", f32 = "REAL" }

-- Tensors end at multiples of so many elements: a kernel may touch those behind the last one.
local WHOLE = 16

-- The argument that a comparison gives a kernel for a tensor: "HALF 4096 1", elements or bytes of an array and
-- whether it is a result; or for one number.
local function made(name, t, shape, is_result)
    if #t.shape == 0 then return t.moves and "REAL 1 0" or "NUMBER 0 0" end
    local kind = KIND[t.dtype] or t.kind == "scalar" and "ZERO" or "REAL"
    local n = ceil(graph.elements(shape) // shape[#shape] * (t.row or shape[#shape]), WHOLE) * WHOLE
    if t.dtype == "i32" then
        kind, n = INTEGERS[name] or "ZERO", 4 * n
    elseif t.dtype == "micro" then
        kind, n = "ZERO", 48 * n
    end
    return ("%s %d %d"):format(kind, n, is_result and 1 or 0)
end

-- The same of all parameters of a kernel, in their order; separated by commas.
local function all_made(kernel, node)
    local list = parameters.arrays(kernel, node, function(name)
        local t = node.outs[name].tensor
        return made(name, t, (graph.seen(node, name, t)), true)
    end, function(operand)
        local t, name = operand[1], operand[3]
        return made(name, t, (graph.seen(node, name, t)), false)
    end, function() return "NONE 0 0" end)
    if kernel.draws then list[#list + 1] = "WHOLE 0 0" end
    if kernel.can_add then list[#list + 1] = "ADDS 0 0" end
    return table.concat(list, ",")
end

-- Terms of a part of the sums of an operand, at least; its parts are at most MOST.
local PART, MOST = 256, 64

-- In how many parts the sums of an operand over the terms are computed.
local function term_parts(g) return math.max(1, math.min(MOST, g.K // PART)) end

-- Whether a kernel's program runs on these devices: it is not for others alone (target { arch }).
local function runs_here(kernel) return (kernel.arch or ARCH) == ARCH end

-- Whether a product has a twin.
local function has_twin(g, kernel, operands)
    if not runs_here(kernel) or 2 * g.M * g.N * g.K < LEAST then return false end
    local c = cut(g)
    return not (operands.a.odd or operands.b.odd) and g.c_row % 8 == 0 and c.piles * c.slices * c.clusters < 1 << 31
end

--- The fields of a product's sizes for its twin; nil if it has none.
function hopper.sizes(g, kernel, operands)
    if not has_twin(g, kernel, operands) then return nil end
    local c = cut(g)
    return { (".wide = %d, .clusters = %d, .whole = %d"):format(c.wide, c.clusters, c.piles - c.shared),
        (".shares = %d, .share = %d"):format(c.shares, c.share), ".term_parts = " .. term_parts(g) }
end

-- The operands that eight neighbours of a product's result need beside their sums, or false: list: { type, name, value,
-- condition } of each, read on this condition, if it has one; names: all.
local function beside(behind, with_1, half)
    if with_1 then
        local list = { { type = text.block(("ga_few<%s, 8>"):format(half)), name = text.ident "of_with_1",
            value = text.block "ga_read<8>(with_1 + first)", condition = text.ident "with_1" } }
        return { names = text.block "of_with_1", list = list }
    end
    if not behind or #behind.held == 0 then return false end
    local names = table.concat(ordered.collect(behind.held, function(one) return one.name end), ", ")
    return { names = text.block(names), list = ordered.collect(behind.held, function(one)
        return { type = text.block(one.type), name = text.ident(one.name), condition = false,
            value = text.block((one.value:gsub("FEW", "8"))) }
    end) }
end

--- The twin of a product (op.gemm's table) with these operands (tensor.lua) and arguments of its template, for the
--- kernel's launch; nil if it has none: a small one, one whose rows are no whole chunks, or one of a program for other
--- devices. Fields of a twin:
---   blocks, shared           of its launch; cluster: blocks of a cluster, nil: none are; wide: columns of a tile of a
---                            product
---   boxes                    the operands that it copies by boxes: name; of: the parameter; first: an element of it;
---                            columns, rows, sheets, stride, box_rows
---   parts_bytes              memory for parts of results; nil: it takes none
---   tiles, sums              blocks of the kernels behind it: those of parts, and the sums of an operand (ops.lua),
---                            which may be computed beside the product; false: there are none
---   rounds                   whether results are means by weights that are rounded to 16 bits
---   made                     the arguments of a comparison
---   left_out                 the parameter that sums of an operand alone take, nil: none is
---   helpers, file, block, arguments   its text; helpers: kinds of functions that it calls (hopper_text.lua)
function hopper.twin(g, kernel, operands, arguments)
    if not has_twin(g, kernel, operands) then return nil end
    local a, b, c, sums = operands.a, operands.b, cut(g), arguments.sums
    local part, pile = c.wide // c.cluster, c.cluster * TALL
    -- sums of a are computed beside the product; those of b are not, as its columns are shared
    local terms = sums and sums.array.text == "a" or false
    local of_tiles = c.shared * (c.shares + 2) * pile * c.wide
    local of_sums = terms and ceil(g.M, pile) * (c.shares + 2) * pile
        or sums and term_parts(g) * ceil(sums.number, 4) * 4
    return { cluster = c.cluster, wide = c.wide, blocks = c.clusters * c.cluster, shared = SHARED,
        parts_bytes = 4 * (terms and of_tiles + of_sums or math.max(of_tiles, of_sums or 0)),
        tiles = c.shared * c.cluster * (TALL // PART_ROWS), rounds = false,
        sums = sums and { operand = sums, beside = terms, blocks = terms and 0 or ceil(sums.number, 64) * term_parts(g),
            totals = ceil(sums.number, 1024) },
        left_out = sums and "bias" or nil,
        boxes = { matrix("a", a, g.M, g.K, TALL, DEEP),
            matrix("b", b, g.N, g.K, part, part % 64 == 0 and DEEP or DEEP // c.cluster) },
        made = all_made(kernel, kernel.node), helpers = { "products" }, file = "cuda/matmul.cu", block = "boxes",
        arguments = { tile = { cluster = c.cluster }, has_terms = text.ident(tostring(terms)), a = arguments.a,
            b = arguments.b, c = ordered.copy(arguments.c, { bias = false }), behind = arguments.behind,
            beside = beside(arguments.behind, arguments.c.with_1, kernel.half),
            bias = text.ident(arguments.c.bias and "bias" or "nullptr") } }
end

-- As in hopper_attention.cu: rows of a tile, slices of the ring, their bytes for an element of a head; and rows of a
-- step of the gradient.
local HEAD_TALL, RING, SLICE, STEP = 128, 4, 2 * 128, 64

-- Bytes of the rows of heads whose tiles follow each other: half of the cache of an H100 or H200.
local CACHE = 24 << 20

-- An operand of attention: `heads` heads from an element of each row of a parameter on.
local function head_rows(node, name, of, first, heads, positions, stride)
    return { parameter = name, of = of, first = first, columns = heads * node.attrs.d, rows = positions,
        sheets = node.size.B, stride = stride }
end

-- The operands of attention or its gradient, copied in boxes of so many rows: three parameters, or columns of one; and
-- the gradient of the result.
local function head_operands(node, box_rows)
    local a, s = node.attrs, node.size
    local own, other = a.heads * a.d, a.kv_heads * a.d
    local packed = not node.ins.key
    local list = { head_rows(node, "query", "query", 0, a.heads, s.T, s.Q),
        head_rows(node, "key", packed and "query" or "key", packed and own or 0, a.kv_heads, s.S, s.K or s.Q),
        head_rows(node, "value", packed and "query" or "value", packed and own + other or 0, a.kv_heads, s.S,
            s.K or s.Q) }
    if node.ins.dy then list[4] = head_rows(node, "dy", "dy", 0, a.heads, s.T, s.W) end
    for _, operand in ipairs(list) do operand.box_rows = box_rows end
    return list
end

-- Heads of the queries, and of the keys, that come before the next ones: those whose other side the cache holds.
local function heads_at_once(node)
    local a, s = node.attrs, node.size
    local group = a.heads // a.kv_heads
    local function fit(bytes) return math.max(1, CACHE // bytes) end
    return math.min(fit(4 * s.S * a.d) * group, s.B * a.heads), math.min(fit(4 * s.T * a.d * group), s.B * a.kv_heads)
end

-- Whether the queries of a head are one tile, and its keys another.
local function is_whole(node)
    local s, a = node.size, node.attrs
    return a.d == 64 and a.heads == a.kv_heads and math.max(s.T, s.S) <= HEAD_TALL
end

-- Bytes of shared memory of attention with these slices of its own, up to what a whole head keeps; bytes of that.
local function head_bytes(d, own) return (own + RING) * SLICE * d + 8 * 16 * 40 * 4 + 2 * (1 + RING) * 8 end
local KEPT = HEAD_TALL * (2 * HEAD_TALL + 16)

--- The twin of attention or its gradient, flops operations, whose template has these arguments; nil if it has none: a
--- small one, other heads than of 64 elements, or of 128 without draws, whose registers would not suffice, fewer
--- queries or keys than half a tile, a mask whose rows begin elsewhere than at whole chunks, or one of a program for
--- other devices.
function hopper.attention(kernel, flops, arguments)
    local node = kernel.node
    local s, a = node.size, node.attrs
    local d, backward = a.d, node.op == "attend_dx"
    if not runs_here(kernel) or flops < LEAST or d ~= 64 and (d ~= 128 or node.ins.micro) then return nil end
    if math.min(s.T, s.S) < HEAD_TALL // 2 or node.ins.mask and s.S % 4 > 0 then return nil end
    local queries, keys = s.B * a.heads * ceil(s.T, HEAD_TALL), s.B * a.kv_heads * ceil(s.S, HEAD_TALL)
    local list, tile = ordered.copy(arguments), { mask = node.ins.mask ~= nil }
    tile.at_once, tile.keys_at_once = heads_at_once(node)
    tile.of_keys = text.ident(s.S ~= s.T and "KEY_TILES" or "TILES")
    tile.whole = backward and is_whole(node) and head_bytes(d, 2)
    list.tile = tile
    return { blocks = math.min(BLOCKS, backward and math.max(queries, keys) or queries), tiles = 0, rounds = true,
        shared = 1024 + head_bytes(d, backward and 2 or 1) + (tile.whole and KEPT or 0),
        boxes = head_operands(node, backward and STEP or HEAD_TALL), made = all_made(kernel, node),
        helpers = { "attention", backward and "gradient" or nil, tile.whole and "whole" or nil },
        file = backward and "cuda/hopper_attention_dx.cu" or "cuda/hopper_attention.cu",
        block = backward and "attend_dx_boxes" or "attend_boxes", arguments = list }
end

--- The kernels that have a twin, in their order.
function hopper.of(kernels)
    return ordered.collect(kernels, function(kernel) return kernel.launch.twin and kernel or nil end)
end

--- Bytes of memory for the parts of products: the most that one of these kernels takes; 0: none does.
function hopper.parts_bytes(kernels)
    local most = 0
    for _, kernel in ipairs(hopper.of(kernels)) do most = math.max(most, kernel.launch.twin.parts_bytes or 0) end
    return most
end

-- The place of a parameter in the list.
local function place_of(kernel, name)
    for i, p in ipairs(kernel.parameters) do
        if p:match "([%a_][%w_]*)$" == name then return i - 1 end
    end
end

local LAUNCH = [[
/* A kernel that has a twin, or the twin, as the start has chosen. */
static void launch_chosen(queue *q, int twin, void **args) {
    if (q->code == 0) q->code = ga_twins_launch(q->twins, q->stream, twin, args, q->e);
}

]]

-- Adds a field that is a list of structs, as pieces of a line.
local function add_rows(fields, name, rows)
    for i, row in ipairs(rows) do
        fields[#fields + 1] = (i == 1 and ("%s = {"):format(name) or "") .. row .. (i == #rows and "}" or "")
    end
end

--- The number of a kernel in the table.
function hopper.number(kernel) return "T_" .. kernel.name:upper() end

--- The name of a constant in launch.c: the sizes of a kernel that has a twin.
function hopper.size_name(kernel) return kernel.name .. "_size" end

-- Its declaration; nil without sizes.
local function size_constant(kernel)
    local size = kernel.sizes and kernel.sizes.list[1]
    if not size then return nil end
    return cuda.wrap("", ("static %s %s = {"):format(size[1]:match "^[%w_]+", hopper.size_name(kernel)), size[2], "};")
end

-- The row of a kernel in the table.
local function table_row(kernel)
    local l, twin, upper = kernel.launch, kernel.launch.twin, (kernel.kernel or kernel).name:upper()
    local half = kernel.parameters[place_of(kernel, twin.boxes[1].of) + 1]:match "(%w+) %*"
    local made = {}
    for kind, n, result in twin.made:gmatch "(%u+) (%d+) (%d)" do
        made[#made + 1] = ("{GA_MADE_%s, %s, %s}"):format(kind, n, result)
    end
    if kernel.sizes then made[#made + 1] = "{GA_MADE_SIZES, 0, 0}" end
    local boxes = ordered.collect(twin.boxes, function(b)
        return ("{%d, %d, %d, %d, %d, %d, %d}"):format(place_of(kernel, b.of), b.first, b.columns, b.rows, b.sheets,
            b.stride, b.box_rows)
    end)
    local fields = { (".name = \"%s\""):format(kernel.name), (".twin = \"%s\""):format(twin.fn),
        ".kernel = K_" .. upper,
        (".blocks = %d, .threads = %d, .shared = %d"):format(l.blocks, l.threads, l.shared),
        (".own_blocks = %d, .own_shared = %d, .tiles = %d"):format(twin.blocks, twin.shared, twin.tiles),
        twin.sums and (".sums = %d, .totals = %d, .summing = \"%s\", .left_out = %d"):format(twin.sums.blocks,
            twin.sums.totals, twin.summing, place_of(kernel, twin.left_out)) or ".sums = 0",
        (".parts = %s, .rounds = %s"):format(tostring(twin.parts_bytes ~= nil), tostring(twin.rounds)),
        ".half = GA_" .. half:upper(), ".operands = " .. #boxes, ".parameters = " .. #made,
        kernel.sizes and ".sizes = &" .. hopper.size_name(kernel) or nil }
    add_rows(fields, ".boxes", boxes)
    add_rows(fields, ".made", made)
    return cuda.wrap("    ", ("[%s] = {"):format(hopper.number(kernel)), fields, "},")
end

--- The table of kernels with twins, and the function that launches them, for launch.c.
function hopper.table(kernels)
    local own = hopper.of(kernels)
    local sizes = table.concat(ordered.collect(own, size_constant), "\n")
    return cuda.wrap("", "enum { ", ordered.collect(own, hopper.number), " };") .. "\n\n"
        .. (sizes ~= "" and sizes .. "\n\n" or "")
        .. "/* Kernels for which a device of sm_90 has two: see runtime/device/twins.h. */\n"
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
