-- matrix_conv: the sizes of convolutions in blocks, on matrix registers or vectors (templates/c/conv.c).
--
--   A tile is `tall` rows of the result by `wide` columns. Its panel is gathered once for all rows of the tile, in
--   chunks of `depth` terms, and stays in the L2 cache with the tile's sums.
local matrix = require "emit.targets.c.matrix"
local text = require "base.text"

local matrix_conv = {}

local BLOCK = matrix.BLOCK
local PADDED = 8            -- blocks have at most this many times the terms of the product
local PADDED_SLICES = 2     -- the same where operands have slices
local TILES = 8             -- a convolution has about this many tiles, unless they get too small
local WIDE, WIDE_MIN = 128, 64
local TALL, TALL_MIN = 512, 128
local DEPTH = 384           -- terms, of one slice: 32 rows of the weight take 24 KiB
local PLACES = 512          -- terms of a gradient, of one slice: the capacity in templates/c/planes.c
local LOCATED = 16384       -- places times taps whose elements are known at once: 64 KiB, and as much for windows
local PANEL = 3 << 16       -- elements of a panel of the weight's gradient: 384 KiB
local SUMS = 1 << 16        -- elements of the sums that it keeps from chunk to chunk: 256 KiB
local SUMS_OF_VECTORS = 3 << 16     -- the same on vectors: higher tiles pack fewer panels
local EACH = 2              -- tiles for each worker of a gradient that keeps sums on vectors

-- The same where planes are copied by lines (templates/c/conv_lines.c).
local LINES = {
    length = 512,           -- places of a line, at most
    group = 512,            -- places of the images that lines have side by side, at least, if there are so many images
    memory = 3 << 19,       -- bytes of the copies and sums of a tile: they are on the stack, and partly in the L2 cache
    tiles = 4,
    -- By the slices of operands, 1 or more: places and channels of a tile, and the least places of a row: narrower rows
    -- of one slice are copied faster for each tap. A tile of a product has `tall` outputs; of a gradient, `wide`.
    product = { { places = 1024, channels = 128, row = 16 }, { places = 512, channels = 32, row = 1 }, tall = 256 },
    gradient = { { places = 512, channels = 64, row = 8 }, { places = 256, channels = 64, row = 1 }, wide = 128 },
}

local function ceil(a, b) return (a + b - 1) // b end

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

-- Places of a panel, at most.
local function most_places(shape, most)
    return math.max(BLOCK, math.min(most, LOCATED // shape.taps // BLOCK * BLOCK))
end

--- The slices of the operands of a convolution in blocks, nil of another; shape: of emit/kernels/conv.lua. Groups with
--- few channels are no blocks, as 32 rows and 32 terms would be mostly zeros.
function matrix_conv.slices(kernel, shape)
    local K = shape.channels * shape.taps
    local slices = matrix.takes(kernel) and 1 or not kernel.half and kernel.slices or nil
    local most = slices == 1 and PADDED or PADDED_SLICES
    return slices and matrix.whole(shape.out) * matrix.whole(K) <= most * shape.out * K and slices or nil
end

--- Whether a kernel copies runs of its planes (templates/c/planes_runs.c): blocks of bf16 on vectors. On matrix
--- registers that was not measured.
function matrix_conv.takes_runs(kernel) return matrix.takes(kernel) and not matrix.has_registers(kernel) end

-- The statements that find windows of `taps` taps, and their runs; `name`: of the runs.
local function find(kernel, windows, at, taps, places, name)
    local lines = { ("conv_find_windows(%s, %s, %s, %s);"):format(windows, at, taps, places) }
    if matrix_conv.takes_runs(kernel) then
        lines[2] = ("conv_run %s_of_taps[(%s + 1) * %s / 32];"):format(name, taps:upper(), places)
        lines[3] = ("const conv_runs %s = conv_find_runs(%s_of_taps, %s, %s, %s);"):format(name, name, windows, taps,
            places)
    end
    return text.block(table.concat(lines, "\n"))
end

-- The function that gathers terms, and its argument for runs of this name.
local function gather(kernel, name)
    return text.ident(name .. (matrix_conv.takes_runs(kernel) and "_of_runs" or ""))
end

local function runs_argument(kernel, name)
    return text.block(matrix_conv.takes_runs(kernel) and "&" .. name .. ", " or "")
end

--- Whether results of a kernel are stored every other place at a time (templates/c/runs_results.c); step: places from
--- one column of a part to the next.
function matrix_conv.spreads(kernel, step) return step >= 2 and matrix_conv.takes_runs(kernel) end

--- The sizes of a product over planes; places: of each part of the result, in all images.
---   direct, registers    whether rows of the weight are read where they are; whether matrix registers multiply
---   find                 the statements that find what taps read
---   gather, runs         the function that copies a panel, and its argument for runs
---   get, put             the statements that read and store results that are no neighbours
function matrix_conv.product(kernel, shape, places, slices, step)
    local tall, wide = matrix.side(shape.out, TALL), most_places(shape, WIDE)
    local function tiles()
        local n = 0
        for _, of_part in ipairs(places) do n = n + shape.groups * ceil(shape.out, tall) * ceil(of_part, wide) end
        return n
    end
    while tiles() < TILES and (tall > TALL_MIN or wide > WIDE_MIN) do
        if tall > math.max(wide, TALL_MIN) then tall = matrix.side(shape.out, math.max(TALL_MIN, tall // 2))
        else wide = math.max(WIDE_MIN, wide // 2) end
    end
    local spreads = matrix_conv.spreads(kernel, step)
    return { tall = tall, wide = wide, depth = matrix.side(shape.channels * shape.taps, DEPTH // slices),
        direct = slices == 1, registers = matrix.has_registers(kernel),
        find = find(kernel, "windows", "at", "taps", "WIDE", "runs"), gather = gather(kernel, "conv_panel"),
        runs = runs_argument(kernel, "runs"),
        get = text.block(spreads and "conv_get_places(apart, y + plane, to + j, n);"
            or "for (int c = 0; c < n; c++) apart[c] = y[plane + to[j + c]];"),
        put = text.block(spreads and "conv_put_places(y + plane, to + j, apart, n);"
            or "for (int c = 0; c < n; c++) y[plane + to[j + c]] = apart[c];") }
end

--- The sizes of the gradient of a weight: rows are (channel, tap), columns outputs, terms places.
---   run     the places of a partial sum, in whole chunks
---   rows    the array that blocks of A are read from
---   height  the rows of a tile: `tall`, or fewer for many workers
---   find, find_results             the statements that find what taps read, and the places of results
---   gather, runs, result_runs      the function that copies rows, and its arguments for runs
function matrix_conv.gradient(kernel, shape, partials, slices)
    local K, run = shape.channels * shape.taps, ceil(shape.B * shape.rows * shape.columns, partials)
    local depth = matrix.side(run, most_places(shape, PLACES // slices))
    run = ceil(run, depth) * depth
    local wide = matrix.side(shape.out, PANEL // slices // depth)
    local registers = matrix.has_registers(kernel)
    local high = run > depth and not registers          -- as high as its sums allow
    local sums = high and SUMS_OF_VECTORS or SUMS
    local tall = matrix.side(K, run > depth and math.max(BLOCK, sums // wide) or K)
    while not high and partials * shape.groups * ceil(K, tall) * ceil(shape.out, wide) < TILES
        and tall > TALL_MIN do
        tall = matrix.side(K, math.max(TALL_MIN, tall // 2))
    end
    return { tall = tall, wide = wide, depth = depth, run = run, direct = slices == 1,
        rows = text.ident(slices == 1 and "rows" or "rows_part"), registers = registers,
        height = text.block(high and ("tile_height(w, K, 32, TALL, PARTIALS * GROUPS * ACROSS, %d)"):format(EACH)
            or "TALL"),
        find = find(kernel, "windows", "at", "TAPS", "DEPTH", "runs"),
        find_results = find(kernel, "results", "from", "1", "DEPTH", "result_runs"),
        gather = gather(kernel, "conv_rows"), runs = runs_argument(kernel, "runs"),
        result_runs = runs_argument(kernel, "result_runs") }
end

-- Whether each tap reads the places of a row themselves, moved by less than 16.
local function shifts(g, shape)
    local w = g.parts[1].w
    local first, last = w.from, w.from + (w.taps - 1) * g.tap_step[2]
    return #g.parts == 1 and g.read_step[2] == 1 and w.places == shape.width
        and math.max(math.abs(first), math.abs(last)) < 16
end

-- How a tile copies planes by lines (templates/c/conv_lines.c); most: its entry in LINES. nil: it does not.
--   images, length      of a line
--   lines               of a tile
--   taps, across        of a part, at most; copied: lines of the copy of a plane
local function by_lines(kernel, shape, g, most)
    local h, w = g.parts[1].h.places, g.parts[1].w.places
    local images = BLOCK // gcd(BLOCK, w)
    if not matrix.has_registers(kernel) or shape.channels % BLOCK > 0 or shape.out % BLOCK > 0
        or g.B % images > 0 or shape.taps == 1 or w < most.row then return nil end
    while images * w * h < LINES.group and g.B % (2 * images) == 0 do images = 2 * images end
    local length = images * w
    if length > LINES.length then return nil end
    local tile = { images = images, length = length, taps = 1, across = 1, copied = 1,
        shifts = text.ident(tostring(shifts(g, shape))) }
    tile.lines = ceil(h, ceil(h, math.max(1, most.places // length)))
    for _, part in ipairs(g.parts) do
        if part.h.places ~= h or part.w.places ~= w then return nil end
        local high = (tile.lines - 1) * g.read_step[1] + math.max(0, part.h.taps - 1) * math.abs(g.tap_step[1]) + 1
        tile.taps = math.max(tile.taps, part.h.taps * part.w.taps)
        tile.across = math.max(tile.across, part.w.taps)
        tile.copied = math.max(tile.copied, part.w.taps * high)
    end
    return tile
end

--- Whether a convolution is computed over lines.
function matrix_conv.has_lines(kernel, shape, g, slices)
    return by_lines(kernel, shape, g, LINES.product[math.min(slices, 2)]) ~= nil
end

-- Halves a side of a tile while this many bytes are too many: blocks(tile) of operands and sums(tile) of f32. nil: they
-- are with the least side.
local function in_memory(tile, key, slices, blocks, sums)
    local function bytes() return blocks(tile) * slices * BLOCK * BLOCK * 2 + sums(tile) * 4 end
    while bytes() > LINES.memory and tile[key] > BLOCK do tile[key] = matrix.side(tile[key], tile[key] // 2) end
    return bytes() <= LINES.memory and tile or nil
end

--- The sizes of a product over planes that are copied by lines; nil: they are not.
---   tall, channels      outputs and channels of a tile
---   places, run         lines of all places of an image; neighbours of the result in a block
function matrix_conv.product_by_lines(kernel, shape, g, slices)
    local most, part = LINES.product[math.min(slices, 2)], g.parts[1]
    local tile = by_lines(kernel, shape, g, most)
    if not tile then return nil end
    tile.places, tile.run = part.h.places, gcd(BLOCK, part.w.places)
    tile.channels, tile.tall = matrix.side(shape.channels, most.channels), matrix.side(shape.out, LINES.product.tall)
    local others = #g.parts * g.groups * ceil(tile.places, tile.lines) * (g.B // tile.images)
    while others * ceil(shape.out, tile.tall) < LINES.tiles and tile.tall > TALL_MIN do
        tile.tall = matrix.side(shape.out, tile.tall // 2)
    end
    return in_memory(tile, "channels", slices, function()
        return (tile.copied * tile.length + tile.taps * tile.tall) // BLOCK * (tile.channels // BLOCK)
    end, function() return tile.channels < shape.channels and tile.tall * tile.lines * tile.length or 0 end)
end

--- The same for the gradient of a weight.
---   tall, wide          channels and outputs of a tile
---   run                 lines of a partial sum
function matrix_conv.gradient_by_lines(kernel, shape, g, partials, slices)
    local most = LINES.gradient[math.min(slices, 2)]
    local tile = by_lines(kernel, shape, g, most)
    if not tile then return nil end
    tile.run = ceil(g.B // tile.images * g.parts[1].h.places, partials)
    tile.tall, tile.wide = matrix.side(shape.channels, most.channels), matrix.side(shape.out, LINES.gradient.wide)
    return in_memory(tile, "tall", slices, function()
        return (tile.copied * tile.tall + tile.lines * tile.wide) // BLOCK * (tile.length // BLOCK)
    end, function() return tile.taps * tile.tall * tile.wide end)
end

--- The multiply-adds of f32 on vectors that take as long as a convolution in whole blocks of bf16 there, of which a
--- vector takes twice as many: for a result of a plane of so many taps, by channel and output.
function matrix_conv.each_result(shape, taps)
    return matrix.whole(shape.out) * matrix.whole(shape.channels * taps) / (2 * shape.out * shape.channels)
end

return matrix_conv
