-- squares_conv: the sizes of convolutions by squares of results (templates/c/conv_squares.c), and which ones are
-- computed so: those of 3 x 3 taps, without a stride or with one of 2, whose squares, with the lanes that stay empty,
-- take fewer multiply-adds than taps do. The shape and the type of the operands alone decide that, so that profiles
-- compute the same bits; but blocks (matrix_conv) come first on matrix registers, of bf16 and of slices that the
-- specification asks for, and on vectors where they take less time.
--
--   Squares are of 2 x 2 results, and of 4 x 4 for the gradient of the input of a stride; without a stride, where
--   operands have 16 bits, also of 4 x 4, if these take fewer multiply-adds. Their errors, twice those of a chain of
--   multiply-adds, are far below those of 16 bits.
--   A block has some squares of some images. Lanes have squares of one image, in rows, or, where `inner` is above 1, so
--   many images of the same square.
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local machine = require "emit.program.profile"
local matrix = require "emit.targets.c.matrix"
local matrix_conv = require "emit.targets.c.matrix_conv"
local text = require "base.text"

local squares_conv = {}

-- Squares by what they compute; numbers are those along an axis.
--   name      in names of functions and kinds of kernels
--   stride    of the convolution
--   side      results
--   reads     elements that they depend on
--   step      elements from a square to the next
--   n         factors
--   place     results for each step of the elements that are read
--   inner     images in lanes
--   squares   of a block of a product, at most
local FORMS = {
    of_2 = { name = text.block "2", stride = 1, side = 2, reads = 4, step = 2, n = 4, place = 1,
        inner = { 16 }, squares = 128 },
    of_4 = { name = text.block "4", stride = 1, side = 4, reads = 6, step = 4, n = 6, place = 1,
        inner = { 16, 32 }, squares = 64 },
    by_2 = { name = text.block "2_by_2", stride = 2, side = 2, reads = 5, step = 4, n = 5, place = 1,
        inner = { 16 }, squares = 64 },
    back_by_2 = { name = text.block "4_by_2", stride = 2, side = 4, reads = 3, step = 2, n = 5, place = 2,
        inner = { 16 }, squares = 64 },
}

local LANES = 16            -- of the widest vectors: squares of an image are filled up to a multiple of it
local COLUMNS = 64          -- of the sums in the widest vectors: squares of a block are filled up to a multiple of it
local PLACES = 64           -- squares of a block of the gradient of a weight, at most
local OVERHEAD = 16         -- squares whose products take the time of a block's weights
local WIDE = 128            -- outputs of a tile
local DEPTH = 32            -- channels whose factors are kept at once
local TALL = 64             -- channels of a tile of the gradient
local COPIED = 4            -- channels that are copied at once
local LEAST = 16            -- channels and outputs of a group, at least
local LINE = 16             -- elements of a line of the cache
local ROWS = 6              -- of sums
local GAIN = 1.2            -- multiply-adds in place of squares, over those of squares, at least

local function ceil(a, b) return (a + b - 1) // b end

local function whole(n, of) return ceil(n, of) * of end

-- The parts of equal size that n is cut into, each at most `most`.
local function even(n, most) return ceil(n, ceil(n, math.max(1, most))) end

-- Multiply-adds along an axis of a part: taps that read inside the plane. read, step: from place to place and from tap
-- to tap.
local function inside(axis, read, step, extent)
    local n = 0
    for place = 0, axis.places - 1 do
        for tap = 0, axis.taps - 1 do
            local at = axis.from + place * read + tap * step
            n = n + (at >= 0 and at < extent and 1 or 0)
        end
    end
    return n
end

-- Blocks of so many squares below and beside each other, with `inner` images in lanes, or nil: they have more than
-- `most` squares.
local function block_of(B, high, wide, most, down, beside, inner)
    local lanes = whole(down * beside * inner, LANES)
    if lanes > most then return nil end
    local images = inner > 1 and inner or down >= high and beside >= wide and even(B, most // lanes) or 1
    local used = inner > 1 and lanes or images * lanes
    local blocks = ceil(B, images) * ceil(high, down) * ceil(wide, beside)
    return { images = images, inner = inner, down = down, beside = beside, lanes = lanes, used = used, blocks = blocks,
        cost = blocks * (whole(used, COLUMNS) + OVERHEAD + (down + 1) * (beside + 1) * images // 8) }
end

-- The blocks of at most so many squares of a form with the least cost.
local function best_block(g, form, most)
    local high, wide = ceil(g.rows, form.side), ceil(g.columns, form.side)
    local best
    for _, inner in ipairs { 1, table.unpack(form.inner) } do
        if g.B % inner > 0 then break end
        local beside = even(wide, most // inner)
        for down = 1, high do
            local block = block_of(g.B, high, wide, most, even(high, down), beside, inner)
            if block and (not best or block.cost < best.cost) then best = block end
        end
    end
    return best
end

-- The multiply-adds of a convolution that is not computed by squares, on vectors and of f32: those of taps inside the
-- planes, or as many as take the time of blocks of bf16. For each channel and output.
local function others(kernel, shape, g)
    local blocks, sum = kernel.half and matrix_conv.slices(kernel, shape), 0
    for _, part in ipairs(g.parts) do
        if blocks then
            sum = sum + g.B * part.h.places * part.w.places * matrix_conv.each_result(shape, part.h.taps * part.w.taps)
        else
            sum = sum + g.B * inside(part.h, g.read_step[1], g.tap_step[1], g.height)
                * inside(part.w, g.read_step[2], g.tap_step[2], g.width)
        end
    end
    return sum
end

-- Whether both axes have this step from place to place, in what is read and from tap to tap.
local function steps_are(g, place, read, tap)
    for i = 1, 2 do
        if g.place_step[i] ~= place or g.read_step[i] ~= read or math.abs(g.tap_step[i]) ~= tap then return false end
    end
    return true
end

-- Whether a part has so many taps along each axis.
local function has_taps(part, h, w) return part.h.taps == h and part.w.taps == w end

-- The forms that a convolution has, whatever they cost.
local function forms_of(kernel, g)
    local parts = g.parts
    if #parts == 1 and has_taps(parts[1], 3, 3) then
        if steps_are(g, 1, 1, 1) then return kernel.half and { FORMS.of_2, FORMS.of_4 } or { FORMS.of_2 } end
        if steps_are(g, 1, 2, 1) then return { FORMS.by_2 } end
    elseif #parts == 4 and steps_are(g, 2, 1, 1) and has_taps(parts[1], 1, 1) and has_taps(parts[4], 2, 2) then
        return { FORMS.back_by_2 }
    end
    return {}
end

-- Whether a convolution is computed in blocks on matrix registers, whatever squares would take: of bf16, or of slices
-- over lines. Panels of slices that are gathered for each tap take longer than squares.
local function blocks_first(kernel, shape, g)
    local slices = matrix.has_registers(kernel) and matrix_conv.slices(kernel, shape)
    return slices and (slices == 1 or matrix_conv.has_lines(kernel, shape, g, slices))
end

-- The form of the squares that a convolution is computed by, nil of another; g: op.gather's table, shape: of
-- emit/kernels/conv.lua.
local function form_of(kernel, shape, g)
    if math.min(shape.channels, shape.out) < LEAST or blocks_first(kernel, shape, g) then return nil end
    local found, least
    for _, form in ipairs(forms_of(kernel, g)) do
        least = least or others(kernel, shape, g) / GAIN
        local best = best_block(g, form, PLACES)
        local needed = best and best.blocks * best.used * form.n ^ 2
        if needed and needed <= least then found, least = form, needed end
    end
    return found
end

--- Rows and vectors of sums: the most that a profile's registers hold.
function squares_conv.most(profile) return ROWS, profile.registers >= 32 and 4 or 2 end

-- Columns of sums in registers for n elements, a multiple of LANES: as many vectors as fit without a rest, if these are
-- not too few to hide the time of a multiply-add.
local function columns_of(profile, n, size)
    local lanes, most = profile.vector // size, select(2, squares_conv.most(profile))
    for vectors = most, math.min(most, 2), -1 do
        if n % (vectors * lanes) == 0 then return vectors * lanes end
    end
    return n < most * lanes and n or most * lanes
end

-- The sizes that products and gradients have in common. n: elements that columns have; rows: how many rows of sums a
-- tile has, `most` in C; call: of the function of sums.
--   form                           of FORMS; its name, side, reads, step, n and place by themselves
--   images, inner, down, beside    of a block: images, how many of them lanes have, squares below and beside each other
--   lanes, used                    lanes of an image and of a block
--   rows, columns                  of sums in registers
--   wide, copied                   outputs of a tile, channels that are copied at once
--   space                          elements of the copy of a channel
--   blocks, cut                    number of blocks, and how places are cut into them
--   strips                         the call that computes sums
--   part                           the function that parts the rows of squares beside each other
local function sizes(profile, form, block, n, size, rows, most, call)
    local columns, parted = columns_of(profile, n, size), math.max(1, profile.vector // size // form.step)
    while block.beside % parted > 0 do parted = parted // 2 end
    local high, wide = form.step * (block.down - 1) + form.reads, form.step * (block.beside - 1) + form.reads
    local rest, places = rows % ROWS, form.side // form.place
    local strips = call:format(ROWS, columns)
    if rest > 0 then strips = ("if (i + ROWS > %s) %s\nelse %s"):format(most, call:format(rest, columns), strips) end
    local cut = (".images = %d, .rows = %d, .columns = %d, .inner = %s"):format(block.images, places * block.down,
        places * block.beside, block.inner > 1 and "true" or "false")
    return { form = form, name = form.name, side = form.side, reads = form.reads, step = form.step, n = form.n,
        place = form.place, images = block.images, inner = block.inner, down = block.down, beside = block.beside,
        lanes = block.lanes, used = block.used, copied = COPIED, rows = ROWS, columns = columns,
        part = text.ident(("square_part_%dx%d"):format(form.step, parted)),
        space = (ceil(block.images * high * wide + LINE, LINE) | 1) * LINE,
        blocks = block.blocks, strips = text.block(strips), cut = text.block(cut) }
end

-- Outputs of a tile.
local function wide_of(out) return even(ceil(out, LINE), WIDE // LINE) * LINE end

--- The sizes of a product over planes by squares, nil where it is not computed so.
---   squares, depth    of a block, with those that fill up columns; channels whose factors are kept at once
---   where             where a factor of channel d + c and of a lane lies
function squares_conv.product(kernel, shape, g, size)
    local form = form_of(kernel, shape, g)
    if not form then return nil end
    local block, wide = best_block(g, form, form.squares), wide_of(shape.out)
    local list = sizes(kernel.profile, form, block, block.used, size, wide, "WIDE",
        "square_sums_%dx%d(c, SQUARES, a, WIDE, b, depth, k > 0);")
    list.wide, list.squares, list.depth = wide, whole(block.used, list.columns), even(shape.channels, DEPTH)
    list.where = text.block "(lane / COLUMNS * DEPTH + d + c) * COLUMNS + lane % COLUMNS"
    return list
end

--- The places whose neighbours squares read: those of the one part, or, of the gradient of the input of a stride, those
--- that the most taps reach, as many as any part has.
function squares_conv.part(g)
    local first, last = g.parts[1], g.parts[#g.parts]
    if first == last then return first end
    local function axis(name)
        local a, most = last[name], first[name].places
        return { place = 0, places = most, tap = a.tap, taps = a.taps, from = a.from }
    end
    return { h = axis "h", w = axis "w", weight = 0 }
end

--- The sizes of the gradient of a weight.
---   tall, ragged    channels of a tile; whether some blocks have squares outside the results
---   runs            whether the results of an image of a block follow each other
function squares_conv.gradient(kernel, shape, g, size)
    local form = form_of(kernel, shape, g)
    if not form then return nil end
    local tall, wide, side = even(shape.channels, TALL), wide_of(shape.out), form.side
    local list = sizes(kernel.profile, form, best_block(g, form, PLACES), wide, size, tall, "TALL",
        "square_rows_%dx%d(c, WIDE, a, SQUARES, b, SQUARES, number > first);")
    list.wide, list.tall, list.runs = whole(wide, list.columns), tall, side * list.beside == g.columns
    list.ragged = g.rows % (side * list.down) + g.columns % (side * list.beside) + g.B % list.images > 0
    list.where = text.block "(d + c) * SQUARES + lane"
    return list
end

--- Whether the gradient of a weight, where one part is all, is written in the order of the weight: by squares, and in
--- blocks of bf16 over panels, which are turned in registers.
function squares_conv.whole(config)
    local precision = config.precision
    local half = (precision == "bf16" or precision == "f16") and precision or nil
    local kernel = { half = half, profile = machine.get(config.profile), slices = machine.slices(config) }
    return function(node, op)
        local g = op.gather(node)
        local shape = conv.shape(g)
        if precision ~= "f64" and form_of(kernel, shape, g) then return true end
        return matrix.takes(kernel) and graph.is_half(node.ins.x) and matrix_conv.slices(kernel, shape) ~= nil
            and not matrix_conv.gradient_by_lines(kernel, shape, g, 1, 1)
    end
end

return squares_conv
