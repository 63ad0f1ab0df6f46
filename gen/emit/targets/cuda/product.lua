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

-- The template arguments of a product with these strides (op.gemm's table); sets the kernel's launch. Neighbouring
-- threads load neighbouring addresses: the index with stride 1 runs fastest.
--   shape.M, shape.N, shape.K    rows and columns of the result, terms of a sum
--   a.i, a.k, b.k, b.j           row, term and column, in a slice of A and of B, of the element that thread s loads
--   a.value, b.value             that element as a number
--   sums, drops                  sums of an operand beside the product, a dropout of its result (ops.lua), or false
return function(g, kernel, has_bias, dtype, sums, drops)
    local tile = tiling(g.M, g.N, dtype == "f64")
    tile.blocks = kernel.node.behind and dtype == "f64" and 1 or 2
    kernel.launch = { blocks = ceil(g.M, tile.rows) * ceil(g.N, tile.columns), threads = launches.THREADS }
    local function split(fast_is_depth, extent)
        if fast_is_depth then return text.block("s / DEPTH"), text.block("s % DEPTH") end
        return text.block("s % " .. extent), text.block("s / " .. extent)
    end
    local function load(name, ...)
        local x = ("%s[%s]"):format(name, index_text(...).text)
        return text.block(kernel.half and ("%s_widen(%s)"):format(kernel.half, x) or x)
    end
    local a, b = { value = load("a", "i", g.a_row, "k", g.a_col) }, { value = load("b", "k", g.b_row, "j", g.b_col) }
    a.i, a.k = split(g.a_col == 1, "ROWS")
    b.j, b.k = split(g.b_row == 1, "COLUMNS")
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = tile, a = a, b = b,
        value = text.block(has_bias and "bias[j] + sum[u][v]" or "sum[u][v]"),
        store = behind.store(kernel, dtype), sums = sums, drops = drops }
end
