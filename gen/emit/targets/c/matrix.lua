-- matrix: the sizes of a product in blocks, on matrix registers or vectors (templates/c/matrix.c).
--
--   A panel (depth x wide of B) is copied once, in pairs of rows, and stays in the L2 cache. 32 rows of A run over the
--   panel, 32 columns at a time. A tile has `tall` rows and `wide` columns. Its sums are those of the result itself,
--   those of one block where a panel has all terms, else those of the tile.
--
-- The registers multiply numbers of bf16. An operand of f32 is the sum of three of them, its slices. Each slice is the
-- rest after those before it, rounded: 24 binary digits are three times eight. Of the nine products of slices six are
-- added up, and the others are below 2^-26 of a term ("bf16x6"). With two slices ("bf16x3") an operand has an error of
-- up to 2^-17 of it.
local behind = require "emit.targets.c.behind"
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local look_up = require "emit.targets.c.look_up"
local machine = require "emit.program.profile"
local matmul = require "emit.targets.c.matmul"
local ordered = require "base.ordered"
local text = require "base.text"

local matrix = {}

matrix.BLOCK = 32           -- rows, columns and terms of one step

local BLOCK = matrix.BLOCK
-- The most rows, columns and terms (of one slice) of a tile, where A is read by rows, where it is copied by columns,
-- and where its rows are cut into slices. `many`: the most terms for a sum of MANY. `tall_sums`: the most rows where
-- sums take more than one panel, so that they are kept meanwhile. `each`: tiles for each worker: fewer copy less, more
-- share the work better.
-- Registers read panels of up to 1.2 MB from the L2 cache as fast as 32 rows of A, so that most sums take one panel;
-- vectors are fastest with rows of A in the L1 cache.
local MOST = {
    registers = { rows = { tall = 1024, tall_sums = 512, wide = 384, depth = 1536, many = 512, each = 3 },
        columns = { tall = 512, tall_sums = 512, wide = 384, depth = 384, many = 384, each = 2 },
        slices = { tall = 1024, tall_sums = 512, wide = 384, depth = 1152, many = 1152, each = 3 } },
    vectors = { rows = { tall = 256, tall_sums = 256, wide = 256, depth = 384, many = 384, each = 6 },
        columns = { tall = 256, tall_sums = 256, wide = 256, depth = 384, many = 384, each = 6 } },
}
local WORKERS = 2           -- at least so many workers have their tiles
local MANY = 8192
local PAST = 2^20           -- bytes of panels from which on they are written past the caches
local SIDE_MIN = 64         -- the least height and width of a tile of several
local MOST_PADDING = 1.5    -- the most multiplications, per one that the product has, that blocks of BLOCK need
local MOST_IN_ATTENTION = 2 -- the same for the products of attention: their strips are slower

local function ceil(a, b) return (a + b - 1) // b end
local function whole(n) return ceil(n, BLOCK) * BLOCK end

-- Parts of a length, each a multiple of BLOCK and at most `most`, of about equal size.
local function side(length, most) return whole(ceil(length, ceil(length, most))) end

matrix.whole, matrix.side = whole, side

--- The products of slices, in order: the smallest come first, and each has a slice of the one before it.
matrix.ORDER = {
    [2] = { { a = 1, b = 0 }, { a = 0, b = 0 }, { a = 0, b = 1 } },
    [3] = { { a = 2, b = 0 }, { a = 1, b = 0 }, { a = 1, b = 1 }, { a = 0, b = 1 }, { a = 0, b = 2 },
        { a = 0, b = 0 } },
}

--- Whether the products of a kernel of bf16 are computed in blocks.
function matrix.takes(kernel) return kernel.half == "bf16" and kernel.profile.matrix ~= nil end

--- The rows and columns of a block of the panels into which an update packs a weight for its products; nil: it packs
--- none. Weights of f32 would take six bytes for each of their elements.
function matrix.panels(config)
    return config.precision == "bf16" and machine.get(config.profile).matrix and BLOCK or nil
end

--- Whether an update turns the weights of convolutions once for all of its micro-steps: elsewhere that is less than 1 %
--- of an update.
function matrix.turns_once(config) return matrix.panels(config) ~= nil end

--- Whether they are computed on matrix registers, for all threads to open.
function matrix.has_registers(kernel) return kernel.profile.matrix == "registers" end

-- The rows, columns and terms of a node's product; over some rows at a time they are those of all rows, so that the way
-- of computing is the same for every run.
local function whole_product(node, op)
    if not node.run then return op.gemm(node) end
    local all = ordered.copy(node, { size = ordered.copy(node.size, { lead = { node.run.whole } }) })
    return op.gemm(all)
end

-- The slices of operands whose products have these sides, and take at most so many multiplications per needed one; nil:
-- the products do not use the matrix registers.
local function slices_for(kernel, sides, most)
    if kernel.half or not kernel.slices then return nil end
    local padded, needed = 1, 1
    for _, n in ipairs(sides) do padded, needed = padded * whole(n), needed * n end
    return padded <= most * needed and kernel.slices or nil
end

--- The number of slices of the operands of a kernel's product on the matrix registers; nil: it does not use them. A
--- product of f32 with a side that is no multiple of BLOCK pays for the rest: small ones do not use the registers.
function matrix.slices(kernel, node, op)
    if matrix.takes(kernel) then return 1 end
    local g = whole_product(node, op)
    return slices_for(kernel, { g.M, g.N, g.K }, MOST_PADDING)
end

--- The same for a kernel of attention: queries, keys and elements of a head are the sides of its products.
function matrix.slices_of_attention(kernel, node)
    if matrix.takes(kernel) then return graph.is_half(node.ins.query) and 1 or nil end
    return slices_for(kernel, { node.size.T, node.size.S, node.attrs.d }, MOST_IN_ATTENTION)
end

--- The most keys of a tile of attention: fewer for heads of over 128 elements, where the copies of f32 take 2.7 of the
--- 4 MB of a thread's stack.
function matrix.keys(node) return node.attrs.d > 128 and 128 or 256 end

--- The kernels that write 16 bits of their own accord, each with a function of its node: the gradient of attention by
--- blocks, where one tile has all keys, so that no sum waits in memory for the keys of another.
function matrix.writes_half(config)
    local blocks = config.precision == "bf16" and machine.get(config.profile).matrix
    return { attend_dx = blocks and function(node) return node.size.S <= matrix.keys(node) end or nil }
end

-- The terms of a panel, of a sum with K terms. A sum of MANY takes several panels anyway: then 32 rows of A fit the L1
-- cache.
local function depth_of(K, slices, profile, by)
    local most = MOST[profile.matrix][by]
    return side(K, (K < MANY and most.depth or most.many) // slices // BLOCK * BLOCK)
end

--- The sizes of a product M x N with K terms of operands that have `slices` slices. Of the widths whose tiles are
--- enough for WORKERS the one whose tiles copy the fewest rows and columns; by slices the least such width, as rows are
--- cut beside products and panels are not. Where there are more workers, a tile has fewer rows than `tall`
--- (tile_height of templates/c/matrix.c). by: how A is read (MOST).
function matrix.sizes(M, N, K, slices, profile, by)
    local most, least, depth = MOST[profile.matrix][by], nil, depth_of(K, slices, profile, by)
    local tall = K > depth and most.tall_sums or most.tall
    local tiles = math.min(most.each * WORKERS, ceil(M, SIDE_MIN) * ceil(N, SIDE_MIN))
    for across = ceil(N, most.wide), ceil(N, SIDE_MIN) do
        local down = math.max(ceil(M, tall), ceil(tiles, across))
        local copied = across * M + down * N
        local fewer = not least or copied < least.copied or by == "slices" and copied == least.copied
        if down <= ceil(M, SIDE_MIN) and fewer then
            least = { copied = copied, wide = whole(ceil(N, across)) }
        end
    end
    return { tall = side(M, tall), wide = least.wide, depth = depth, each = most.each }
end

--- The arguments of the template that packs a weight for products with N columns and K terms.
---   turned     whether columns of a product are rows of the weight
---   depth      terms of a panel
function matrix.packed(N, K, profile, turned)
    return { N = N, K = K, depth = depth_of(K, 1, profile, "rows"), turned = turned }
end

--- The same of the template that packs a weight (N, K) for both kinds of products.
---   depth, turned_depth    terms of a panel of those that read its rows, of those that read its columns
---   past, fence            whether panels are written past the caches, as they are large and read much later
function matrix.both_packed(N, K, profile)
    local past = 2 * N * K >= PAST
    return { N = N, K = K, depth = depth_of(N, 1, profile, "rows"), turned_depth = depth_of(K, 1, profile, "rows"),
        past = text.ident(tostring(past)), fence = past }
end

-- The statements that store a complete sum.
local function store_of(kernel)
    if kernel.node.behind then return behind.store(kernel, "f32") end
    if graph.is_half(graph.result(kernel.node)) then return c_text.store(kernel, "c[at]", "value") end
    return text.block("c[at] = value;")
end

-- Sums of blocks in the result, of which those at its edges are parts: these have a block of their own. condition: when
-- they begin with those so far.
local function set_edges(s, condition)
    local lines = { "float *to = c + (size_t)i * N + j + x;",
        ("const int rows = %s, wide = %s;"):format(s.rows, s.columns), "const bool inside = rows == 32 && wide == 32;",
        "float *block_sums = inside ? to : sums;", "const int c_row = inside ? N : 32;" }
    if condition ~= "" then
        lines[6] = ("if (!inside && %s) matrix_start(sums, 32, rows, wide, to, N);"):format(
            condition:find "|" and "(" .. condition .. ")" or condition)
    end
    s.place, s.row, s.size = table.concat(lines, "\n"), "c_row", "32 * 32"
    s.finish = "if (!inside) matrix_finish(to, N, sums, rows, wide);"
end

-- Whether 32 rows of a result, so many bytes apart, lie in enough sets of the L1 cache to be asked for before they are
-- written: it has 64 sets of 12 lines of 64 bytes.
local function spread(row_bytes) return row_bytes % (32 * 64) > 0 end

-- The statement that asks for the lines of the next block of the result, where a block is written for the first time:
-- writing to lines that are not in a cache is slow.
local function next_lines(s, adds, chunks)
    local conditions = {}
    if chunks then conditions[1] = "k == 0" end
    if adds then conditions[#conditions + 1] = "!add" end
    local ask = ("fetch_lines(%s + (x + 32 < columns ? 32 : 32 * N - x), N * sizeof *c, 32, 0, 64);"):format(
        s.row == "N" and "block_sums" or "to")
    return #conditions == 0 and ask or ("if (%s)\n    %s"):format(table.concat(conditions, " && "), ask)
end

-- Where the sums of a block lie, and how they begin. in_result: the block of the result holds them; whole: each side is
-- one of whole blocks. Sums begin with those so far (`again`), with the bias or with 0. Where blocks are not whole, the
-- sums of a tile are set before, unless the result holds all but those at its edges.
local function sums_of(kernel, g, tile, has_bias, whole)
    local plain = not kernel.node.behind and not graph.is_half(graph.result(kernel.node))
    local adds = kernel.can_add and not graph.is_half(graph.result(kernel.node))
    local in_result, chunks, again = plain and (whole or not has_bias), g.K > tile.depth, {}
    if chunks then again[1] = "k > 0" end
    if adds then again[#again + 1] = "add" end
    local condition = table.concat(again, " || ")
    local function begin(from, stride)
        return ("matrix_start(sums, WIDE, i1 - i0, columns, %s, %s);"):format(from, stride)
    end
    local s = { block = "block_sums", place = "float *block_sums = sums + (i - i0) * WIDE + x * 32;",
        size = "TALL * WIDE", row = "32", rows = whole and "32" or "at_most(i1 - i, 32)",
        columns = whole and "32" or "at_most(columns - x, 32)", chunks = chunks,
        finish = chunks and "if (k + DEPTH < K) continue;" }
    if in_result and whole then
        s.place, s.row, s.size, s.finish = "float *block_sums = c + (size_t)i * N + j + x;", "N", nil, nil
    elseif in_result then
        set_edges(s, condition)
    end
    if in_result then
        if spread(4 * g.N) then s.place = s.place .. "\n" .. next_lines(s, adds, chunks) end
    elseif not chunks and not adds and (whole or not has_bias) then
        s.block, s.place, s.size = "sums", nil, "32 * 32"
    end
    local first, first_row = "NULL", s.row
    local early = adds and not in_result        -- the result's values are needed before its blocks are computed
    if whole and has_bias and not early then
        first, first_row = "bias + j + x", "0"
    elseif has_bias or early then
        local old, bias = begin("c + (size_t)i0 * N + j", "N"), has_bias and begin("bias + j", "0")
        s.begin = not adds and bias or "if (add) " .. old .. (bias and "\nelse " .. bias or "")
        if has_bias then condition = "true" end
    end
    if condition == "" or condition == "true" then
        s.start = condition == "" and first or "block_sums"
        s.start_row = condition == "" and first_row or s.row
    else
        s.start = ("%s ? block_sums : %s"):format(condition, first)
        s.start_row = first == "NULL" and s.row or ("%s ? %s : %s"):format(condition, s.row, first_row)
    end
    for _, key in ipairs { "block", "place", "size", "row", "rows", "columns", "begin", "start", "start_row",
        "finish" } do
        s[key] = s[key] and text.block(s[key]) or false
    end
    return s, in_result
end

-- The statements that ask for the lines of memory of a block: of inputs behind the product, and of a result of bf16,
-- since writing to lines that are not in a cache is slow; false: there are none.
local function ahead_of(kernel, half, N)
    local place, lines = "(size_t)i * N + j + x", {}
    local inputs = kernel.node.behind and behind.ahead(kernel.node, place, BLOCK, BLOCK)
    if inputs then lines[1] = inputs.text end
    if half and spread(2 * N) then
        lines[#lines + 1] = ("fetch_lines(c + %s, N * sizeof *c, %d, 0, %d);"):format(place, BLOCK, BLOCK)
    end
    return #lines > 0 and text.block(table.concat(lines, "\n"))
end

-- The lines that compute what stands behind a product from its rounded sums, first into the block of sums, which are
-- then rounded together; nil: that way is none (behind.of_rounded).
local function behind_of(kernel, block, rows, columns)
    local place, size = "32 * r + n", rows .. ", " .. columns
    local found = behind.of_rounded(kernel, ("%s[%s]"):format(block, place), place)
    if not found then return nil end
    local lines = {}
    local function add(...)
        for _, line in ipairs { ... } do lines[#lines + 1] = line end
    end
    for _, one in ipairs(found.tables) do
        add(("_Alignas(64) float %s[32 * 32];"):format(one.name),
            ("matrix_look_up_sums(%s, %s + from, N, %s, %s);"):format(one.name, one.key, size, one.table))
    end
    add(("for (int r = 0; r < %s; r++) {"):format(rows),
        ("    INDEPENDENT for (int n = 0; n < %s; n++) {"):format(columns),
        "        const size_t at = from + (size_t)r * N + n;",
        ("        const real %s = bf16_widen(c[at]);"):format(behind.ROUNDED))
    for line in found.text:gmatch "[^\n]+" do add("        " .. line) end
    add("    }", "}", ("matrix_narrow(%s + from, N, %s, %s);"):format(found.result, block, size))
    return lines
end

-- The lines that store the first rows and columns of a block of sums as numbers of bf16, at `from`, and what stands
-- behind them; nil: what stands behind them reads the sums themselves, or they are added to the result.
local function narrow_of(kernel, block, rows, columns)
    if kernel.can_add then return nil end
    local size, more = rows .. ", " .. columns, {}
    if kernel.node.behind then
        local found = look_up.of_result(kernel)
        more = found and { ("matrix_look_up(behind + from, c + from, N, %s, %s);"):format(size, found) }
            or behind_of(kernel, block, rows, columns)
        if not more then return nil end
    end
    return table.move(more, 1, #more, 2, { ("matrix_narrow(c + from, N, %s, %s);"):format(block, size) })
end

-- The same with the place of a block's first element before.
local function narrow_at_once(kernel, sums)
    local lines = narrow_of(kernel, sums.block.text, sums.rows.text, sums.columns.text)
    if not lines then return nil end
    table.insert(lines, 1, "const size_t from = (size_t)i * N + j + x;")
    if sums.finish then table.insert(lines, 1, sums.finish.text) end
    return text.block(table.concat(lines, "\n"))
end

-- The statements by which vectors finish rows of a block while the registers add up the next one; nil: they do not, as
-- a block may be a part, or operands are copied, or take several panels.
local function beside_of(kernel, sums, reads_both)
    if not reads_both or sums.chunks or not matrix.has_registers(kernel) then return nil end
    local lines = narrow_of(kernel, "done", "rows", "32")
    return lines and text.block(table.concat(lines, "\n"))
end

-- The statement that finds the panel of columns j and terms k, and the elements from block to block. Blocks are whole.
local function panel_of(g)
    local wide, deep, lines = g.N % BLOCK == 0 and "N" or whole(g.N), "depth", {}
    if g.K % BLOCK > 0 then
        deep, lines[1] = "deep", "const int deep = (depth + 31) / 32 * 32;"
    end
    lines[#lines + 1] = ("const bf16 *panel = b + (size_t)k * %s + (size_t)j * %s;"):format(wide, deep)
    return text.block(table.concat(lines, "\n")), text.block(deep)
end

-- The statements that begin the sums of a block: with what the tile had, those so far (`add`), the bias or 0. Where a
-- block may be a part, the elements that it has are copied first.
local function begin_of(adds, has_bias, whole, chunks)
    local start, stride = has_bias and "bias + j + x" or "NULL", has_bias and "0" or "32"
    if adds then
        start = ("add ? c + (size_t)i * N + j + x : %s"):format(start)
        stride = has_bias and "add ? N : 0" or "N"
    end
    if whole or start == "NULL" then
        local format = chunks and "matrix_load(k > 0 ? block_sums : %s, %s);" or "matrix_load(%s, %s);"
        if chunks then
            if start:find "?" then start = "(" .. start .. ")" end
            stride = stride == "32" and stride or ("k > 0 ? 32 : %s"):format(stride)
        end
        return format:format(start, stride)
    end
    local first = { chunks and "k == 0" or nil }
    if adds and not has_bias then first[#first + 1] = "add" end
    local copy = ("matrix_start(block_sums, 32, at_most(i1 - i, 32), at_most(columns - x, 32),\n    %s, %s);"):format(
        has_bias and adds and start or adds and "c + (size_t)i * N + j + x" or start, stride)
    if #first > 0 then copy = ("if (%s)\n    %s"):format(table.concat(first, " && "), (copy:gsub("\n", "\n    "))) end
    local kept = has_bias and "block_sums" or ("%sadd ? block_sums : NULL"):format(chunks and "k > 0 || " or "")
    return copy .. "\n" .. ("matrix_load(%s, 32);"):format(kept)
end

-- The arguments of the template of a product whose rows of A are cut into slices beside it (templates/c/slices.c).
--   shape, tile                   as those of matrix.product
--   a.first, a.below, a.stride    where the rows of a tile and those below a block begin, and elements between them
--   b                             as that of matrix.product
--   sums.size, sums.number        elements of all sums that are kept, and the number of a block among them
--   sums.begin, sums.lines        the statements that begin a block, and how many they are
--   sums.chunks                   whether sums take several panels
--   sums.edges, sums.columns      whether a block may be a part, and the columns of the block that is finished
--   sums.outside                  the condition on a row behind such a part
--   ahead                         what asks for further inputs of a row
--   store                         the statements that store an element
local function product_of_slices(g, kernel, has_bias, slices)
    local tile = matrix.sizes(g.M, g.N, g.K, slices, kernel.profile, "slices")
    local a_row, b_rows = matmul.stride(g.a_row, g.K, "K"), g.b_col == 1
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    local whole, chunks = g.M % BLOCK == 0 and g.N % BLOCK == 0, g.K > tile.depth
    local node = kernel.node
    local inputs = node.behind and behind.ahead(node, "(size_t)(i + r) * N + j + x", 1, BLOCK)
    local begin = begin_of(kernel.can_add, has_bias, whole, chunks)
    return { shape = { M = g.M, N = g.N, K = g.K }, tile = tile,
        a = { first = matmul.index("i0", a_row, "k", "1"), below = matmul.index("below", a_row, "k", "1"),
            stride = text.block(a_row) },
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(b_rows and b_row or b_col),
            pack = text.ident("matrix_pack_" .. (b_rows and "rows" or "columns")) },
        sums = { size = text.block(chunks and "TALL * WIDE" or "2 * 1024"),
            number = text.block(chunks and "block" or "(block % 2)"), chunks = chunks, edges = not whole,
            begin = text.block(begin), lines = select(2, begin:gsub(";", "")),
            columns = text.block(whole and "32" or "wide"), outside = text.block(whole and "" or " || r >= rows") },
        ahead = inputs or false, store = store_of(kernel) }
end

--- The arguments of the template for a product with these strides (op.gemm's table), of operands that have `slices`
--- slices.
---   shape.M, shape.N, shape.K     rows and columns of the result, terms of a sum
---   tile.tall, tile.wide          rows and columns of a tile
---   tile.depth                    terms that go over one panel
---   tile.registers                whether the thread opens the matrix registers
---   a.at, b.at                    the places of A's row i and term k, of B's term k and column j
---   a.direct                      whether blocks of A are read where they are, the last one apart if it is not whole
---   a.columns                     whether all rows of a tile are copied at once, as they lie by columns
---   a.part                        rows of A that are copied, or false
---   a.pack, b.pack                the functions that copy rows of A, a panel of B
---   b.panels                      where B is panels already, the statements that find one; b.block: elements between
---                                 the blocks of a panel
---   a.stride, b.stride            elements between the rows that they read
---   a.block, a.row                where the blocks of A are read, and elements between their rows
---   sums                          where sums lie and begin (sums_of)
---   ahead                         what asks for further inputs of a block
---   finish                        the statements that end a block: what stores it as numbers of bf16, or at an edge
---   store                         those that store an element of another result, false: it is there
function matrix.product(g, kernel, has_bias, slices)
    local a_rows, b_rows = g.a_col == 1, g.b_col == 1
    kernel.cuts = slices > 1 and a_rows
    if kernel.cuts then return product_of_slices(g, kernel, has_bias, slices) end
    local step = matrix.has_registers(kernel) and BLOCK or 2    -- terms that are multiplied at once
    local direct = a_rows and g.K % step == 0 and slices == 1
    local whole = g.M % BLOCK == 0 and g.N % BLOCK == 0
    local a_row, a_col = matmul.stride(g.a_row, g.K, "K"), matmul.stride(g.a_col, g.M, "M")
    local b_row, b_col = matmul.stride(g.b_row, g.N, "N"), matmul.stride(g.b_col, g.K, "K")
    local tile = matrix.sizes(g.M, g.N, g.K, slices, kernel.profile, a_rows and "rows" or "columns")
    tile.registers = matrix.has_registers(kernel)
    local sums, in_result = sums_of(kernel, g, tile, has_bias, whole)
    local a_at = matmul.index(a_rows and "i" or "i0", a_row, "k", a_col)
    local block, row, part = "part", "DEPTH", "32"
    if direct then
        block, row = "block", "row"
        if g.M % BLOCK == 0 then block, row, part = "a + " .. tostring(a_at), a_row, nil end
    elseif not a_rows then
        block, part = "part + (i - i0) * SLICES * DEPTH", "TALL"
    end
    local panels, from_block = false, text.block "SLICES * DEPTH"
    if kernel.panels then panels, from_block = panel_of(g) end
    local half = graph.is_half(graph.result(kernel.node))
    local a = { at = a_at, direct = direct, columns = not a_rows, part = part and text.block(part) or false,
        type = text.ident(slices == 1 and "bf16" or "f32"), stride = text.block(a_rows and a_row or a_col),
        pack = text.ident("matrix_part_" .. (a_rows and "rows" or "columns")), block = text.block(block),
        row = text.block(row) }
    local shape, ahead = { M = g.M, N = g.N, K = g.K }, ahead_of(kernel, half, g.N)
    local beside = half and beside_of(kernel, sums, panels and whole and direct)
    kernel.beside = beside and true or false
    if beside then return { shape = shape, tile = tile, a = a, sums = sums, ahead = ahead, finish = beside } end
    local narrow = half and narrow_at_once(kernel, sums)
    return { shape = shape, tile = tile, finish = narrow or sums.finish, a = a, sums = sums, ahead = ahead,
        b = { at = matmul.index("k", b_row, "j", b_col), stride = text.block(b_rows and b_row or b_col),
            pack = text.ident("matrix_pack_" .. (b_rows and "rows" or "columns")), panels = panels,
            block = from_block }, store = not in_result and not narrow and store_of(kernel) }
end

return matrix
