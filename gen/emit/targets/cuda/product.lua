-- product: the tiles of a product on a device, and the loads of their elements.
local behind = require "emit.targets.cuda.behind"
local launches = require "emit.targets.cuda.launches"
local text = require "base.text"

local ceil = launches.ceil

-- tile: a large one where there are enough of them to fill a device with 100 or so multiprocessors, else a small one.
--   rows, columns, depth    rows and columns of a block, terms at once
--   tall, wide              rows and columns of a thread
--   blocks                  of a multiprocessor at least: functions of f64 need more registers
local function tiling(M, N, f64)
    if not f64 and ceil(M, 128) * ceil(N, 128) >= 96 then
        return { rows = 128, columns = 128, depth = 8, tall = 8, wide = 8 }
    elseif ceil(M, 64) * ceil(N, 64) >= 96 then
        return { rows = 64, columns = 64, depth = 16, tall = 4, wide = 4 }
    end
    return { rows = 32, columns = 32, depth = 32, tall = 2, wide = 2 }
end

-- "(ga_int64)i * 64 + k" for strides 64 and 1.
local function index_text(i, i_stride, j, j_stride)
    local function term(name, stride)
        return stride == 1 and name or ("(ga_int64)%s * %d"):format(name, stride)
    end
    return text.block(term(i, i_stride) .. " + " .. term(j, j_stride))
end

-- An operand, by its name and those of the indices along its rows (columns) and along the sum: { name, stride,
-- extent }. FEW neighbours along the one with stride 1, which runs fastest, are read at once: 16 bytes, or as many as
-- divide a row of memory.
local function operand(name, side, term, kernel, dtype)
    local fast, slow = side, term
    if term.stride == 1 then fast, slow = term, side end
    local few = kernel.half and 8 or dtype == "f64" and 2 or 4
    while fast.extent % few > 0 or slow.stride % few > 0 do few = few // 2 end
    local function e(index) return few > 1 and index == fast and " + e" or "" end
    local function part(index)
        return text.block(index == fast and "s % " .. index.tile or "s / " .. fast.tile)
    end
    return { few = few, side = part(side), k = part(term),
        at = index_text(side.name, side.stride, term.name, term.stride),
        to = text.block(("%s_tile[deep%s][%s%s]"):format(name, e(term), side.place, e(side))),
        value = text.block(kernel.half and ("%s_widen(some.at[e])"):format(kernel.half) or "some.at[e]") }
end

-- The template arguments of a product with these strides (op.gemm's table); sets the kernel's launch. Neighbouring
-- threads load neighbouring addresses.
--   shape.M, shape.N, shape.K    rows and columns of the result, terms of a sum
--   tile.type                    of the operands
--   a.few, a.i, a.k              neighbours that a thread loads at once; row and term, in a slice of A, of the first of
--                                those at s; b.few, b.k, b.j likewise
--   a.at, a.to, a.value          its place in A; the place of neighbour e in the slice, and that as a number
--   sums, drops                  sums of an operand beside the product, a dropout of its result (ops.lua), or false
return function(g, kernel, has_bias, dtype, sums, drops)
    local tile = tiling(g.M, g.N, dtype == "f64")
    tile.blocks = kernel.node.behind and dtype == "f64" and 1 or 2
    tile.type = text.ident(kernel.half or "real")
    kernel.launch = { blocks = ceil(g.M, tile.rows) * ceil(g.N, tile.columns), threads = launches.THREADS }
    local function index(name, place, stride, extent, along)
        return { name = name, place = place, stride = stride, extent = extent, tile = along }
    end
    local a = operand("a", index("i", "row", g.a_row, g.M, "ROWS"), index("k", "deep", g.a_col, g.K, "DEPTH"), kernel,
        dtype)
    local b = operand("b", index("j", "column", g.b_col, g.N, "COLUMNS"), index("k", "deep", g.b_row, g.K, "DEPTH"),
        kernel, dtype)
    a.i, b.j, a.side, b.side = a.side, b.side, nil, nil
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = tile, a = a, b = b,
        value = text.block(has_bias and "bias[j] + sum[u][v]" or "sum[u][v]"),
        store = behind.store(kernel, dtype), sums = sums, drops = drops }
end
