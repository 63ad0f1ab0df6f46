-- matmul: the sizes of a blocked product, chosen for its shape and the profile's registers and cache.
--
--   A panel (depth x columns of B) is packed and stays in the L1 cache, or in the L2 cache where the profile has deep
--   panels; strips ask for the next one meanwhile, and for the results of the strip below. Where B lies by rows, a
--   panel's first strip packs it. A part (tall x depth of A) is packed where A lies by columns, or widened, and stays
--   in the L2 cache: the strips of a tile's first panel pack their rows; other rows of A are read as they lie. A strip
--   (rows x columns of C) runs over a panel with its sums in registers; then the statements behind the product follow,
--   while it is in the L1 cache. A tile is `tall` rows of strips by `wide` columns of panels.
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
local DEPTH_PACKED = 256        -- terms of a panel beside packed parts of A, where panels may be deep

-- Costs as shares of the time of a product, measured on a processor with vectors of 32 bytes: packing of parts of A by
-- columns (PART / wide) or widening of its rows (WIDENED / wide); packing of panels of B (PANEL / tall, LATE times as
-- much for a tile's first panel, as nobody asked for it before); and workers that wait for the last tiles, on average
-- over these numbers of workers, and UNEVEN / tiles.
local PART, WIDENED, PANEL, LATE, WORKERS, UNEVEN = 15, 5, 8, 4, { 2, 4, 8 }, 0.3

-- Of a product whose program chooses the height or the width of tiles: tiles for each worker; rows of a tile where
-- fewer would give more workers something to do; workers that have the wider tiles, where those save this share of the
-- time.
local EACH, TALL_LEAST, FEW, GAIN = 2, 64, 2, 0.02

-- Multiply-adds of a product that does not wait for a copy of its left operand: GAIN of its time are few microseconds.
local SMALL = 1 << 22

-- Most panels of a tile.
local PANELS_MAX = 48

--- The most terms of a panel and rows of a part.
matmul.MOST = { depth = DEPTH_MAX, tall = TALL_PART }

local function ceil(a, b) return (a + b - 1) // b end

-- The columns of a tile of a product that one worker computes alone.
local function alone(N, columns)
    local panels = ceil(N, columns)
    return ceil(panels, ceil(panels, PANELS_MAX)) * columns
end

--- The rows of a product from which on packing a panel by columns costs less than a transposed copy of the weight in
--- each update; nil where no vectors turn blocks of elements, or an update packs panels.
function matmul.turns(config)
    local profile = machine.get(config.profile)
    local panels = config.precision == "bf16" and profile.matrix
    return config.precision ~= "f64" and not panels and profile.vector >= 32 and TURNED_ROWS or nil
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

--- The sizes of a product M x N with K terms in elements of `size` bytes. deep: whether panels may be deep ones; least:
--- terms that a panel may have whatever the caches are.
function matmul.sizes(M, N, K, size, profile, deep, least)
    local panel, tall_max = profile.panel, TALL_MAX
    if deep and profile.deep_panel then panel, tall_max = profile.deep_panel, TALL_DEEP end
    local lanes = profile.vector // size
    local most_rows, most_vectors = matmul.strip(profile)
    local needed = ceil(N, lanes)
    local vectors = ceil(needed, ceil(needed, most_vectors))
    local rows = strip_rows(M, most_rows, vectors)
    local across = ceil(N, vectors * lanes)
    local tall = math.max(TALL_MIN, math.min(tall_max, ceil(M * across, TILES)))
    local deepest = math.max(least, math.min(DEPTH_MAX, panel // (vectors * lanes * size)))
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

-- The functions of whole strips: of operands as they lie; of packed parts of A; of A as it lies, while they ask for the
-- next panel. The first strip of a panel has another one of each kind, and yet another one for panels of bf16.
local FIRST = { strip = "first", packed = "packed_first", asking = "asking_first" }
local WIDENING = { strip = "widening", packed = "packed_widening" }
local MORE = { asking = ", &asked" }        -- arguments of all functions of a kind

-- The calls that compute a strip of an M x N result. The last strips, lower or narrower, have functions of their own.
-- lowest, narrowest: the C conditions for them; whole: the kind of the function of all others, "strip" or "packed";
-- first: before all of them, the calls for the first strip of a panel, or nil; packing: the call for a strip that packs
-- its rows of A, or nil.
local function strip_calls(M, N, s, lowest, narrowest, whole, first, packing)
    local low, narrow = M % s.rows, N > s.columns and N % s.columns or 0
    local columns = math.min(N, s.columns)
    local list = { first }
    local function call(condition, rows, width, kind)
        list[#list + 1] = ("%s%s%s_%dx%d(&s%s);"):format(#list > 0 and "else " or "", condition, kind or "strip", rows,
            width, MORE[kind] or "")
    end
    if low > 0 and narrow > 0 then call(("if (%s && %s) "):format(lowest, narrowest), low, narrow) end
    if low > 0 then call(("if (%s) "):format(lowest), low, columns) end
    if narrow > 0 then call(("if (%s) "):format(narrowest), s.rows, narrow) end
    if packing then list[#list + 1] = (#list > 0 and "else " or "") .. packing end
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

-- Gives a product of 16 bits wider tiles for FEW workers, s.wide, beside those for more, s.narrow, where they save
-- time: each tile widens its part of A. cost(tall, wide, wait): of a product; fits(tall, wide): whether a tile stays in
-- the cache.
local function widen_for_few(s, g, cost, fits)
    local down, least, best = ceil(g.M, s.tall), nil, nil
    for _, across in ipairs(cuts(g.N, s.columns, PANELS_MAX)) do
        local tiles, wide = down * across[1], across[2]
        local sum = cost(s.tall, wide, waiting_of(tiles, FEW))
        if wide == s.wide then sum = sum - GAIN end
        if wide >= s.wide and tiles >= EACH * FEW and fits(s.tall, wide) and (not least or sum < least) then
            least, best = sum, wide
        end
    end
    if best and best > s.wide then s.wide, s.narrow = best, s.wide end
end

-- The sizes of a product of op.gemm's table g in elements of `size` bytes: those of matmul.sizes with the tile of least
-- cost. packed: whether A lies by columns and its parts are packed; half: whether B has 16 bits, so that a tile
-- has sums of its own; widens: whether it widens its part of A.
local function tile_sizes(g, size, profile, packed, half, widens)
    local deep = not packed and not half
    local least = packed and not half and profile.deep_panel and size == 4 and DEPTH_PACKED or 0
    local s = matmul.sizes(g.M, g.N, g.K, size, profile, deep, least)
    s.packed = packed
    if packed and not half then
        packed_tile(s, g, profile)
        return s
    end
    local most = math.min(deep and profile.deep_panel and TALL_DEEP or TALL_PART, 2 * g.M)
    local scale, part, least = profile.vector / 32, packed and PART or widens and WIDENED or 0
    local function cost(tall, wide, wait) return scale * (panels_cost(s, tall, wide) + part / wide) + wait end
    local function fits(tall, wide)
        local terms = (packed or widens) and s.depth or 0
        return not half or tall * (terms + (s.depth < g.K and wide or 0)) * size <= profile.part
    end
    for _, down in ipairs(cuts(g.M, s.rows, most // s.rows)) do
        for _, across in ipairs(cuts(g.N, s.columns, PANELS_MAX)) do
            local tall, wide = down[2], across[2]
            local sum = cost(tall, wide, waiting(down[1] * across[1]))
            if (not least or sum < least) and fits(tall, wide) then least, s.tall, s.wide = sum, tall, wide end
        end
    end
    if widens then widen_for_few(s, g, cost, fits) end
    return s
end

-- The terms that a strip of a part has room for: not as far apart as a quarter of the sets of a cache repeats, but two
-- lines farther at least, so that a term of all strips stays in the cache while the part is packed.
local function apart(s, size)
    local terms, quarter = s.depth, SETS // 4
    while math.abs((terms * s.rows * size + quarter // 2) % quarter - quarter // 2) < 2 * LINE do terms = terms + 1 end
    return terms
end

-- Whether the strips of a tile's first panel pack A. They read pieces of lines, one from each row of A. Where rows lie
-- this far apart, they wait for memory; where all lie in one set of the first cache, strips of vectors of 32 bytes do.
local FAR = 16384

local function strips_pack(g, kernel, kind, size)
    local vector, bytes = kernel.profile.vector, g.a_col * size
    if kind ~= "packed" or kernel.half or bytes >= FAR then return false end
    return vector > 32 or vector == 32 and bytes % SETS ~= 0
end

-- The kind of a product's whole strips.
local function kind_of(g, s, kernel)
    if g.N < s.columns then return "strip" end
    if s.packed then return "packed" end
    local asks = not kernel.half and kernel.profile.deep_panel and g.b_col == 1
    return asks and "asking" or "strip"
end

-- The strip's rows of a part.
local PLACE = "part + (i - i0) * APART"

-- The calls for the first strip of a panel, which packs it from rows of B; nil: no panel is whole, or rows are columns,
-- or rows of f16, whose widening needs the registers of sums.
local function first_calls(g, s, kernel, kind, packs)
    if g.b_col ~= 1 or g.N < s.columns or kernel.half == "f16" then return nil end
    local low = g.M % (s.each and s.rows or s.tall)     -- rows of the lowest tile: may be fewer than a strip's
    local names = kernel.half and WIDENING or FIRST
    local more = kernel.half and (", columns, %s"):format(matmul.stride(g.b_row, g.N, "N")) or MORE[kind] or ""
    local calls = ("if (first) %s_%dx%d(&s, panel%s);"):format(names[kind], s.rows, s.columns, more)
    if packs then
        calls = ("if (first && packs) packing_first_%dx%d(&s, panel, %s);\nelse %s"):format(s.rows, s.columns, PLACE,
            calls)
    end
    if low == 0 or low >= s.rows then return calls end
    return ("if (first && i + ROWS > M) %s_%dx%d(&s, panel%s);\nelse %s"):format(names.strip, low, s.columns,
        kernel.half and more or "", calls)
end

-- The statements that pack a panel before its strips, with the function of this name; false: its first strip does.
local function panel_calls(g, s, pack, stride, first)
    local function call(columns)
        return ("%s(panel, WIDTH, %s, depth, columns, %s);"):format(pack, columns, stride)
    end
    if g.N < s.columns or g.N % s.columns == 0 then return not first and text.block(call "COLUMNS") end
    local narrow = "if (j + COLUMNS > N) " .. call "N % COLUMNS"
    return text.block(first and narrow or narrow .. "\nelse " .. call "COLUMNS")
end

-- Argument `a` of the templates for products.
--   packed, packs         whether parts of A are packed by columns; whether the strips of a tile's first panel do that
--   widens                whether a tile widens its part of A
--   apart                 terms that a strip of a part has room for
--   at                    the place of row i (of a part: i0) and term k
--   stride                elements between the rows that packing reads
--   lies                  whether a strip of a product that packs reads A as it lies
--   strip, strides        where a strip reads A; elements between rows and between terms
local function left(g, s, kernel, packs, size)
    local row, column = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local in_part = s.packed or kernel.widens
    local lying = "a + " .. matmul.index("i", row, "k", column).text
    local strip, strides = lying, row .. ", " .. column
    if packs then
        strip, strides = ("lies ? %s : %s"):format(lying, PLACE), ("1, lies ? %s : ROWS"):format(column)
    elseif s.packed then
        strip, strides = PLACE, "1, ROWS"
    elseif kernel.widens then
        strip, strides = "part + (i - i0) * depth", "depth, 1"
    end
    return { at = matmul.index(in_part and "i0" or "i", row, "k", column), packed = s.packed, packs = packs,
        widens = kernel.widens or false,
        apart = apart(s, size), stride = text.block(g.a_col == 1 and row or column), strip = text.block(strip),
        lies = text.block(g.M % s.rows == 0 and "packs" or "packs || i + ROWS > M"), strides = text.block(strides) }
end

-- Argument `b` of the templates for products; `first`: whether a strip packs a panel.
--   at                    the place of term k and column j
--   stride                elements between the rows that packing reads
--   pack, calls           the function that packs a panel; the statements that do so before its strips, or false
--   first                 whether a strip is the first of a panel, and packs it; false: a function packs it
--   strip                 where a strip reads B, and its stride
--   asks, ahead           whether a strip asks for rows of the next panel meanwhile, false: for lines beforehand; from
--                         where on, the last of a vector, as rows may begin within a line
--   next                  the next panel: where strips ask, that of the next terms too
--   rows, lines           rows of B that a panel is of, and its lines of memory
local function right(g, s, kernel, kind, first, size)
    local row, column = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    local by_rows, narrow = g.b_col == 1, g.N > s.columns and g.N % s.columns > 0
    local line = LINE // (kernel.half and 2 or size)
    local stride, asks = by_rows and row or column, kind == "asking"
    local pack = ("pack_%s%s"):format(kernel.half and "half_" or "", by_rows and "rows" or "columns")
    local next_panel = "columns + " .. (by_rows and "COLUMNS" or "(size_t)COLUMNS * " .. column)
    if asks then
        local below = matmul.index("(k + DEPTH)", row, "j0", column)
        next_panel = ("j + COLUMNS < j1 ? %s : b + %s"):format(next_panel, below)
    end
    return { at = matmul.index("k", row, "j", column), stride = text.block(stride), pack = text.ident(pack),
        calls = panel_calls(g, s, pack, stride, first), next = text.block(next_panel),
        first = first and text.block(narrow and "i == i0 && j + COLUMNS <= N" or "i == i0") or false,
        strip = text.block(first and ("first ? columns : panel, first ? %s : WIDTH"):format(stride) or "panel, WIDTH"),
        asks = asks and text.block "from < depth && (j + COLUMNS < j1 || k + DEPTH < K)",
        ahead = text.block(("next + (size_t)from * %s + VEC_LANES - 1"):format(stride)),
        rows = text.ident(by_rows and "depth" or "COLUMNS"),
        lines = text.block(by_rows and (ceil(s.columns, line) .. " * depth"):gsub("^1 %* ", "")
            or ("COLUMNS * ((depth + %d) / %d)"):format(line - 1, line)) }
end

-- The arguments that all products have; `start` is the C text of the values that the sums of a strip begin with.
--   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
--   tile.rows, tile.columns       of a strip
--   tile.tall, tile.wide          most rows and columns of a tile
--   tile.broad, tile.high         columns and rows of a tile: one worker alone has larger ones where panels are deep,
--                                 few have wider ones where tiles widen 16 bits
--   tile.depth                    terms that go over one panel
--   tile.width                    elements of a row of a panel
--   tile.again                    whether a strip asks for the results of the one below it, a condition with "&& "
--   tile.strips                   the calls that compute a strip
--   tile.low, tile.last           the row behind a strip's last one; the column behind a panel's last one
local function arguments_of(g, s, kernel, start, size)
    local kind = kind_of(g, s, kernel)
    local deep = kernel.profile.deep_panel and (s.packed or kind == "asking")
    local packs = strips_pack(g, kernel, kind, size)
    local first = first_calls(g, s, kernel, kind, packs)
    local packing = packs and ("if (packs) packing_%dx%d(&s, %s);"):format(s.rows, s.columns, PLACE)
    local high = s.each and ("tile_height(w, M, ROWS, TALL, across, w->count > 1 ? %d : 1)"):format(s.each) or "TALL"
    return { shape = { M = g.M, N = g.N, K = g.K },
        tile = { rows = s.rows, columns = math.min(g.N, s.columns), width = s.columns, tall = s.tall, wide = s.wide,
            broad = text.block(deep and ("w->count > 1 ? WIDE : %d"):format(alone(g.N, s.columns))
                or s.narrow and ("w->count > %d ? %d : WIDE"):format(FEW, s.narrow) or "WIDE"),
            high = text.block(high), depth = s.depth,
            again = text.block(deep and "" or "k == 0 && "),
            low = text.block(g.M % s.rows == 0 and "i + ROWS" or "i + ROWS && r < i1"),
            last = text.block(g.N % s.columns == 0 and "j + COLUMNS" or "(j + COLUMNS < N ? j + COLUMNS : N)"),
            strips = strip_calls(g.M, g.N, s, "i + ROWS > M", "j + COLUMNS > N", kind, first, packing) },
        a = left(g, s, kernel, packs, size), b = right(g, s, kernel, kind, first ~= nil, size),
        start = text.block(start) }
end

-- The arguments of the template for a product of 16-bit operands.
local function half_arguments(g, kernel, has_bias)
    local s = tile_sizes(g, 4, kernel.profile, g.a_col ~= 1, true, kernel.widens)
    local first = has_bias and "bias + j" or "NULL"
    local once = s.depth >= g.K             -- each sum is complete with its first strip
    local list = arguments_of(g, s, kernel, once and first or "k > 0 ? out : " .. first, 4)
    list.start_row = text.block(once and "0" or "k > 0 ? WIDTH : 0")
    list.tile.sums = text.block(once and "ROWS * WIDTH" or "TALL * WIDE")
    list.tile.place = text.block(once and "sums" or "sums + (j - j0) / COLUMNS * (TALL * WIDTH) + (i - i0) * WIDTH")
    list.b.type = text.ident(kernel.half)
    list.store = behind.store(kernel, "f32")
    return list
end

--- Whether the left operand of a product of 16 bits is widened once for all its tiles, a function of its strides
--- (op.gemm's table): where that saves GAIN of its time. nil: an instruction multiplies them.
function matmul.widens_once(config)
    local profile = machine.get(config.profile)
    if config.precision == "bf16" and profile.matrix then return nil end
    return function(g)
        if g.a_col ~= 1 or g.M < TALL_MIN or g.M * g.N * g.K < SMALL then return false end
        local s = tile_sizes(g, 4, profile, false, true, true)
        return profile.vector / 32 * (WIDENED / s.wide - 2 * WIDENED / g.N) >= GAIN
    end
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
