-- matmul: the sizes of a blocked product, chosen for its shape and the profile's registers and cache.
--
--   A panel (depth x columns of B) is packed and stays in the L1 cache, or in the L2 cache where the profile has deep
--   panels; strips ask for the next one meanwhile, and for the results of the strip below. Where B lies by rows, a
--   panel's first strip packs it. A part (tall x depth of A) is packed where A lies by columns, or widened, and stays
--   in the L2 cache; other rows of A are read as they lie. A strip (rows x columns of C) runs over a panel with its
--   sums in registers; then the statements behind the product follow, while it is in the L1 cache. A tile is `tall`
--   rows of strips by `wide` columns of panels.
local behind = require "emit.targets.c.behind"
local machine = require "emit.program.profile"
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local matmul = {}

local TILES = 32          -- a product has about this many tiles, unless they get too small
local TALL_MIN, TALL_MAX, TALL_PART, TALL_DEEP = 48, 192, 264, 512
local DEPTH_MAX = 512
local TURNED_ROWS = 128
local LINE, SETS = 64, 4096     -- bytes of a line of memory; of addresses that have each set of the first cache once

-- Costs as shares of the time of a product, measured on a processor with vectors of 32 bytes: packing of parts of A by
-- columns (PART / wide) or widening of its rows (WIDENED / wide); packing of panels of B (PANEL / tall, LATE times as
-- much for a tile's first panel, as nobody asked for it before); and workers that wait for the last tiles, on average
-- over these numbers of workers, and UNEVEN / tiles.
local PART, WIDENED, PANEL, LATE, WORKERS, UNEVEN = 15, 5, 8, 4, { 2, 4, 8 }, 0.3

-- Of a product whose program chooses the height of tiles: tiles for each worker; rows of a tile where fewer would give
-- more workers something to do.
local EACH, TALL_LEAST = 2, 64

-- Most panels of a tile.
local PANELS_MAX = 48

--- The most terms of a panel and rows of a part.
matmul.MOST = { depth = DEPTH_MAX, tall = TALL_PART }

local function ceil(a, b) return (a + b - 1) // b end

--- The rows of a product from which on packing a panel by columns costs less than a transposed copy of the weight in
--- each update; nil where no vectors turn blocks of elements.
function matmul.turns(config)
    return config.precision == "f32" and machine.get(config.profile).vector >= 32 and TURNED_ROWS or nil
end

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
-- lowest, narrowest: the C conditions for them; whole: the kind of the function of all others, "strip" or "packed";
-- first: before all of them, the call for the first strip of a panel, or nil.
function matmul.strip_calls(M, N, s, lowest, narrowest, whole, first)
    local low, narrow = M % s.rows, N > s.columns and N % s.columns or 0
    local columns = math.min(N, s.columns)
    local list = { first }
    local function call(condition, rows, width, kind)
        list[#list + 1] = ("%s%s%s_%dx%d(&s);"):format(#list > 0 and "else " or "", condition, kind or "strip", rows,
            width)
    end
    if low > 0 and narrow > 0 then call(("if (%s && %s) "):format(lowest, narrowest), low, narrow) end
    if low > 0 then call(("if (%s) "):format(lowest), low, columns) end
    if narrow > 0 then call(("if (%s) "):format(narrowest), s.rows, narrow) end
    call("", s.rows, columns, whole)
    return text.block(table.concat(list, "\n"))
end

-- Pairs { number of tiles, elements of each } for tiles of 1 .. most blocks of `block` elements.
local function cuts(elements, block, most)
    local list, last, blocks = {}, nil, ceil(elements, block)
    for n = 1, math.min(most, blocks) do
        local count = ceil(blocks, n)
        if count ~= last then list[#list + 1] = { count, ceil(blocks, count) * block } end
        last = count
    end
    return list
end

-- The time that n workers wait for the last of equal tiles, as a share.
local function waiting_of(tiles, n) return ceil(tiles, n) * n / tiles - 1 + UNEVEN / tiles end

-- The same on average over WORKERS.
local function waiting(tiles)
    local sum = 0
    for _, n in ipairs(WORKERS) do sum = sum + waiting_of(tiles, n) end
    return sum / #WORKERS
end

-- The cost of the panels of B in tiles of this height and width.
local function panels_cost(s, tall, wide) return PANEL / tall * (1 + (LATE - 1) * s.columns / wide) end

-- Sets the tile of a product whose parts of A are packed: the width of least cost, on average over WORKERS. A program
-- chooses the height, at most s.tall, for its workers (tile_height of templates/c/matrix.c).
local function packed_tile(s, g, profile)
    local scale, least = profile.vector / 32
    s.tall, s.each = math.min(profile.deep_panel and TALL_DEEP or TALL_PART, g.M + s.rows - 1) // s.rows * s.rows, EACH
    for _, across in ipairs(cuts(g.N, s.columns, PANELS_MAX)) do
        local wide, sum = across[2], 0
        for _, n in ipairs(WORKERS) do
            local down = math.max(ceil(EACH * n, across[1]), ceil(g.M, s.tall))
            local tall = math.min(math.max(ceil(g.M, down), TALL_LEAST), s.tall)
            sum = sum + scale * panels_cost(s, tall, wide) + waiting_of(across[1] * ceil(g.M, tall), n)
        end
        local cost = sum / #WORKERS + scale * PART / wide
        if not least or cost < least then least, s.wide = cost, wide end
    end
end

-- The sizes of a product of op.gemm's table g in elements of `size` bytes: those of matmul.sizes with the tile of least
-- cost. packed: whether A lies by columns and its parts are packed; half: whether A has 16 bits, so that a tile widens
-- its part of A and has sums of its own.
local function tile_sizes(g, size, profile, packed, half)
    local deep = not packed and not half
    local s = matmul.sizes(g.M, g.N, g.K, size, profile, deep)
    s.packed = packed
    if packed and not half then
        packed_tile(s, g, profile)
        return s
    end
    local most = math.min(deep and profile.deep_panel and TALL_DEEP or TALL_PART, 2 * g.M)
    local scale, part, least = profile.vector / 32, packed and PART or half and WIDENED or 0
    for _, down in ipairs(cuts(g.M, s.rows, most // s.rows)) do
        for _, across in ipairs(cuts(g.N, s.columns, PANELS_MAX)) do
            local wide = across[2]
            local cost = scale * panels_cost(s, down[2], wide) + scale * part / wide + waiting(down[1] * across[1])
            if (not least or cost < least) and (not half or down[2] * (s.depth + wide) * size <= profile.part) then
                least, s.tall, s.wide = cost, down[2], wide
            end
        end
    end
    return s
end

-- The terms that a strip of a part has room for: not as far apart as the sets of a cache repeat, but two lines farther
-- at least, so that a term of all strips stays in the cache while the part is packed.
local function apart(s, size)
    local terms = s.depth
    while math.abs((terms * s.rows * size + SETS // 2) % SETS - SETS // 2) < 2 * LINE do terms = terms + 1 end
    return terms
end

-- The call for the first strip of a panel, which packs it from rows of B; nil: no panel is whole, or rows are columns.
local function first_call(g, s, kind)
    if g.b_col ~= 1 or g.N < s.columns then return nil end
    local low = g.M % (s.each and s.rows or s.tall)     -- rows of the lowest tile: may be fewer than a strip's
    local whole = ("%s_%dx%d(&s, panel);"):format(kind == "packed" and "packed_first" or "first", s.rows, s.columns)
    if low == 0 or low >= s.rows then return "if (first) " .. whole end
    return ("if (first && i + ROWS > M) first_%dx%d(&s, panel);\nelse if (first) %s"):format(low, s.columns, whole)
end

-- The arguments that all products have; `start` is the C text of the values that the sums of a strip begin with.
--   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
--   tile.rows, tile.columns       of a strip
--   tile.tall, tile.wide          most rows and columns of a tile
--   tile.each                     tiles for each worker: their number says how many rows they have; false: `tall`
--   tile.depth                    terms that go over one panel
--   tile.width, tile.narrow       elements of a row of a panel; whether the last panel has fewer columns
--   tile.strips                   the calls that compute a strip
--   tile.low, tile.last           the row behind a strip's last one; the column behind a panel's last one
--   a.packed                      whether parts of A are packed by columns
--   a.apart                       terms that a strip of a part has room for
--   a.at, b.at                    the places of A's row i (of a part: i0) and term k, of B's term k and column j
--   a.strip, a.strides            where a strip reads A; elements between rows and between terms
--   a.stride, b.stride            elements between the rows that packing reads
--   b.pack, b.step                the function that packs a panel; from it to the next one, in elements
--   b.rows, b.lines               rows of B that a panel is of, and its lines of memory
--   b.first                       whether a strip is the first of a panel, and packs it; false: a function packs it
local function arguments_of(g, s, kernel, start, size)
    local half = kernel.half and "half_" or ""
    local along, by_rows = g.a_col == 1, g.b_col == 1
    local a_row, a_col = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    local line = LINE // size
    local kind = s.packed and g.N >= s.columns and "packed" or "strip"
    local in_part = s.packed or kernel.half
    local first = not kernel.half and first_call(g, s, kind)
    local narrow = g.N > s.columns and g.N % s.columns > 0
    return { shape = { M = g.M, N = g.N, K = g.K },
        tile = { rows = s.rows, columns = math.min(g.N, s.columns), width = s.columns, tall = s.tall, wide = s.wide,
            each = s.each or false, depth = s.depth, narrow = narrow,
            low = text.block(g.M % s.rows == 0 and "i + ROWS" or "i + ROWS && r < i1"),
            last = text.block(g.N % s.columns == 0 and "j + COLUMNS" or "(j + COLUMNS < N ? j + COLUMNS : N)"),
            strips = matmul.strip_calls(g.M, g.N, s, "i + ROWS > M", "j + COLUMNS > N", kind, first or nil) },
        a = { at = matmul.index(in_part and "i0" or "i", a_row, "k", a_col), packed = s.packed, apart = apart(s, size),
            stride = text.block(along and a_row or a_col),
            strip = text.block(s.packed and "part + (i - i0) * APART" or in_part and "part + (i - i0) * depth"
                or "a + " .. matmul.index("i", a_row, "k", a_col).text),
            strides = text.block(s.packed and "1, ROWS" or in_part and "depth, 1" or a_row .. ", " .. a_col) },
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(by_rows and b_row or b_col),
            pack = text.ident("pack_" .. half .. (by_rows and "rows" or "columns")),
            step = text.block(by_rows and "COLUMNS" or "(size_t)COLUMNS * " .. b_col),
            rows = text.ident(by_rows and "depth" or "COLUMNS"),
            first = first and text.block(narrow and "i == i0 && j + COLUMNS <= N" or "i == i0") or false,
            lines = text.block(by_rows and (ceil(s.columns, line) .. " * depth"):gsub("^1 %* ", "")
                or ("COLUMNS * ((depth + %d) / %d)"):format(line - 1, line)) },
        start = text.block(start) }
end

-- The arguments of the template for a product of 16-bit operands.
local function half_arguments(g, kernel, has_bias)
    local s = tile_sizes(g, 4, kernel.profile, g.a_col ~= 1, true)
    local list = arguments_of(g, s, kernel, has_bias and "bias + j" or "NULL", 4)
    list.store = behind.store(kernel, "f32")
    return list
end

--- The arguments of the template for a product with these strides (op.gemm's table).
---   start_row                     elements of `start` between rows
---   behind, ahead                 the statements for each element of a complete strip; those before it
function matmul.product(g, kernel, has_bias, dtype)
    if kernel.half then return half_arguments(g, kernel, has_bias) end
    local again, start, start_row, size = "k > 0", "NULL", "N", dtype == "f64" and 8 or 4
    if kernel.can_add then again = "k > 0 || add" end
    if has_bias then start, start_row = "bias + j", again .. " ? N : 0" end
    local s = tile_sizes(g, size, kernel.profile, g.a_col ~= 1)
    local list = arguments_of(g, s, kernel, ("%s ? out : %s"):format(again, start), size)
    list.start_row = text.block(start_row)
    list.behind = kernel.node.behind and behind.store(kernel, dtype, true) or false
    list.ahead = kernel.node.behind and behind.ahead(kernel.node, "(out - c)", "ROWS", s.columns) or false
    return list
end

return matmul
