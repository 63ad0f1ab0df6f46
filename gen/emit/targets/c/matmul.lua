-- matmul: the sizes of a blocked product, chosen for its shape and the profile's registers and cache.
--
--   A panel (depth x columns of B) is copied once and stays in the L1 cache. Where a strip reads A along its rows and
--   the profile says so (`deep_panel`), a panel is longer and stays in the L2 cache: C is read and written less often.
--   A strip (rows x columns of C) runs over the panel with its sums in registers. A tile is `tall` rows of strips by
--   the columns of one panel.
local behind = require "emit.targets.c.behind"
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local matmul = {}

local TILES = 32          -- a product has about this many tiles, unless they get too small
local TALL_MIN, TALL_MAX, TALL_DEEP = 48, 192, 512
local DEPTH_MAX = 512

local function ceil(a, b) return (a + b - 1) // b end

--- Rows and vectors of a strip whose sums, a row of B and a broadcast value fit the registers.
function matmul.strip(profile)
    if profile.registers >= 32 then return 8, 3 end
    return 6, 2
end

-- Clock cycles of one term of a strip: two multiply-adds per cycle, each with a latency of four.
local function cycles(rows, vectors)
    return rows == 0 and 0 or math.max(rows * vectors / 2, 4) + 0.5
end

-- Rows of a strip, chosen so that the last, lower strip costs little.
local function strip_rows(M, most, vectors)
    if M <= most then return M end
    local best, least
    for rows = most, 4, -1 do
        local cost = M // rows * cycles(rows, vectors) + cycles(M % rows, vectors)
        if not least or cost < least then best, least = rows, cost end
    end
    return best
end

--- The sizes of a product M x N with K terms in elements of `size` bytes. deep: whether panels may be deep ones.
function matmul.sizes(M, N, K, size, profile, deep)
    local panel, tall_max = profile.panel, TALL_MAX
    if deep and profile.deep_panel then panel, tall_max = profile.deep_panel, TALL_DEEP end
    local lanes = profile.vector // size
    local most_rows, most_vectors = matmul.strip(profile)
    local needed = ceil(N, lanes)
    local vectors = ceil(needed, ceil(needed, most_vectors))
    local rows = strip_rows(M, most_rows, vectors)
    local across = ceil(N, vectors * lanes)
    local tall = math.max(TALL_MIN, math.min(tall_max, ceil(M * across, TILES)))
    local deepest = math.min(DEPTH_MAX, panel // (vectors * lanes * size))
    return { rows = rows, columns = vectors * lanes,
        tall = ceil(math.min(tall, M), rows) * rows, depth = ceil(K, ceil(K, deepest)) }
end

--- The C text of a stride: the name of the length that it equals, else its number.
function matmul.stride(stride, length, name)
    return stride > 1 and stride == length and name or tostring(stride)
end

--- "(size_t)i * K + k" for strides "K" and "1".
function matmul.index(i, i_stride, j, j_stride)
    local function term(name, stride)
        return stride == "1" and name or ("(size_t)%s * %s"):format(name, stride)
    end
    return text.block(term(i, i_stride) .. " + " .. term(j, j_stride))
end

--- The calls that compute a strip of an M x N result. The last strips, lower or narrower, have functions of their own.
-- lowest, narrowest: the C conditions for them.
function matmul.strip_calls(M, N, s, lowest, narrowest)
    local low, narrow = M % s.rows, N > s.columns and N % s.columns or 0
    local columns = math.min(N, s.columns)
    local list = {}
    local function call(condition, rows, width)
        list[#list + 1] = ("%s%sstrip_%dx%d(&s);"):format(#list > 0 and "else " or "", condition, rows, width)
    end
    if low > 0 and narrow > 0 then call(("if (%s && %s) "):format(lowest, narrowest), low, narrow) end
    if low > 0 then call(("if (%s) "):format(lowest), low, columns) end
    if narrow > 0 then call(("if (%s) "):format(narrowest), s.rows, narrow) end
    call("", s.rows, columns)
    return text.block(table.concat(list, "\n"))
end

-- The arguments that all products have; `start` is the C text of the values that the sums of a strip begin with.
--   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
--   tile.rows, tile.columns       of a strip
--   tile.tall, tile.depth         rows of C and terms that go over one panel
--   tile.width, tile.narrow       elements of a row of a panel; whether the last panel has fewer columns
--   tile.strips                   the calls that compute a strip
--   a.at, b.at                    the places of A's row i and term k, of B's term k and column j
--   b.pack, b.stride              the function that copies a panel; elements between the rows that it reads
--   a.strides                     elements of A between rows and between terms
local function arguments_of(g, s, kernel, start)
    local by_rows, name = g.b_col == 1, kernel.half and "pack_half_" or "pack_"
    local a_row, a_col = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    return { shape = { M = g.M, N = g.N, K = g.K },
        tile = { rows = s.rows, columns = math.min(g.N, s.columns), width = s.columns, tall = s.tall, depth = s.depth,
            narrow = g.N > s.columns and g.N % s.columns > 0,
            strips = matmul.strip_calls(g.M, g.N, s, "i + ROWS > M", "j + COLUMNS > N") },
        a = { at = matmul.index("i", a_row, "k", a_col), strides = text.block(a_row .. ", " .. a_col),
            stride = text.block(g.a_col == 1 and a_row or a_col) },
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(by_rows and b_row or b_col),
            pack = text.ident(name .. (by_rows and "rows" or "columns")) },
        start = text.block(start) }
end

-- The arguments of the template for a product of 16-bit operands. For each strip a part of A is widened.
--   part.rows, part.columns       of the part, as it lies in memory
--   a.stride, part.stride         elements between these rows: of A, of the widened part
--   part.strides                  elements of the widened part between rows and between terms of the strip
local function half_arguments(g, kernel, has_bias)
    local across = g.a_col == 1
    local s = matmul.sizes(g.M, g.N, g.K, 4, kernel.profile)
    local list = arguments_of(g, s, kernel, has_bias and "bias + j" or "NULL")
    list.part = { stride = text.ident(across and "DEPTH" or "ROWS"), rows = text.ident(across and "rows" or "depth"),
        columns = text.ident(across and "depth" or "rows"), strides = text.block(across and "DEPTH, 1" or "1, ROWS") }
    list.store = behind.store(kernel, "f32")
    return list
end

--- The arguments of the template for a product with these strides (op.gemm's table).
---   start_row                     elements of `start` between rows
---   behind                        the statements for each element of a tile that is complete
function matmul.product(g, kernel, has_bias, dtype)
    if kernel.half then return half_arguments(g, kernel, has_bias) end
    local again, start, start_row = "k > 0", "NULL", "N"
    if kernel.can_add then again = "k > 0 || add" end
    if has_bias then start, start_row = "bias + j", again .. " ? N : 0" end
    local s = matmul.sizes(g.M, g.N, g.K, dtype == "f64" and 8 or 4, kernel.profile, g.a_col == 1)
    local list = arguments_of(g, s, kernel, ("%s ? out : %s"):format(again, start))
    list.start_row = text.block(start_row)
    list.behind = kernel.node.behind and behind.store(kernel, dtype, true) or false
    return list
end

return matmul
