-- vector_conv: the sizes of convolutions on vectors (templates/c/conv.c).
--
--   Sums are of `rows` rows by `columns` outputs, in registers. A product's rows are places, its terms the (channel,
--   tap) pairs; a panel has the weights of `terms` pairs for one set of columns and stays in the L1 cache. The gradient
--   of a weight has rows of (tap, channel), and its terms are places.
--   A tile is a block of places by `wide` outputs. Its inputs of some channels are copied once and stay in
--   the L2 cache.
local ordered = require "base.ordered"
local text = require "base.text"

local vector_conv = {}

local MOST_ROWS = 8         -- of sums: the capacity of their pointers in general registers
local TILES = 16            -- a convolution has about this many tiles, unless they get too small
local PLACES = 512          -- in a block of a product, at most
local TERMS = 256           -- places in a block of a weight's gradient, at most
local WIDE = 64             -- outputs of a tile
local WIDE_SINGLE = 128     -- the same where a place has one tap
local TALL = 64             -- channels of a tile of the gradient
local COPY = 1 << 16        -- elements of the copy, about
local LINE = 16             -- elements of a line of the cache
local LISTS = 64            -- taps that have a list of places of their own, at most
local INNER = 8             -- images of a block whose elements of one place are neighbours, at least
local LEAST = 48            -- places of a block that is not made smaller for more tiles

-- Where places have one tap: places of a block, outputs of a tile and channels copied at once, at most; channels and
-- outputs of a group, at least; channels of a tile of the gradient, and rows of one that turns one operand, at most.
-- few: pairs of a channel and a tap, at most, whose convolution is a product of this kind though it has several taps,
-- and outputs, at least.
local SINGLE = { places = 256, tall = 128, depth = 128, least = 16, channels = 256, rows = 528,
    few = { terms = 64, out = 32 } }

local function ceil(a, b) return (a + b - 1) // b end

--- Rows and vectors of sums: the most that a profile's registers hold.
function vector_conv.most(profile)
    return profile.registers >= 32 and MOST_ROWS or 6, profile.registers >= 32 and 4 or 2
end

-- Rows and columns of sums for `out` outputs in vectors of `lanes`.
local function sums_of(profile, out, lanes)
    local rows, most = vector_conv.most(profile)
    local needed = ceil(out, lanes)
    local vectors = ceil(needed, ceil(needed, most))
    return { rows = vectors == 4 and 6 or rows, columns = vectors * lanes }
end

--- Outputs of a panel of turned weights (conv2d_turned_panels), nil where weights stay rows: they are panels if all
--- have the same outputs.
function vector_conv.panel(profile, out, size)
    local columns = sums_of(profile, out, profile.vector // size).columns
    return out % columns == 0 and columns or nil
end

-- The parts of equal size that n is cut into, each at most `most`.
local function even(n, most) return ceil(n, ceil(n, math.max(1, most))) end

-- Outputs of a tile.
local function wide_of(shape, sums)
    local most = shape.taps > 1 and WIDE or WIDE_SINGLE
    return even(ceil(shape.out, sums.columns), most // sums.columns) * sums.columns
end

-- Elements of the copy along an axis, for this many places.
local function length(axis, places, read, tap)
    if axis.taps <= 1 then return places end
    return (places - 1) * read + (axis.taps - 1) * math.abs(tap) + 1
end

-- Elements of the copy of a channel: an odd number of lines, so that channels do not fall on the same ones of a cache.
local function space(g, part, cut)
    local high = length(part.h, cut.rows, g.read_step[1], g.tap_step[1])
    local wide = length(part.w, cut.columns, g.read_step[2], g.tap_step[2])
    return (ceil(cut.images * high * wide, LINE) | 1) * LINE
end

local function blocks_of(g, part, cut)
    return ceil(g.B, cut.images) * ceil(part.h.places, cut.rows) * ceil(part.w.places, cut.columns)
end

-- Makes blocks about half as large; false if they have one place.
local function halve(cut)
    local axis = cut.images > 1 and "images" or cut.rows > 1 and "rows" or "columns"
    if cut[axis] == 1 then return false end
    cut[axis] = ceil(cut[axis], 2)
    return true
end

-- Blocks of at most `most` places of a part, whose copy of so many channels is not too large. Whole images, or else
-- whole rows, if possible.
local function cut_of(g, part, most, channels)
    local h, w = math.max(1, part.h.places), math.max(1, part.w.places)
    local columns = even(w, most)
    local rows = columns == w and even(h, most // w) or 1
    local images = columns == w and rows == h and even(g.B, most // (h * w)) or 1
    local cut = { images = images, rows = rows, columns = columns }
    while space(g, part, cut) * channels > COPY and halve(cut) do end
    return cut
end

local function places_of(cut) return cut.images * cut.rows * cut.columns end

-- The text of a conv_cut.
local function cut_text(cut)
    return text.block((".images = %d, .rows = %d, .columns = %d, .inner = %s"):format(cut.images, cut.rows, cut.columns,
        cut.inner and "true" or "false"))
end

-- Channels of a panel of `terms` terms.
local function channels_of(shape, part, terms)
    local taps = part.h.taps * part.w.taps
    return taps == 0 and 0 or even(shape.channels, terms // taps)
end

-- Terms of a panel for sums of so many columns. Where images are inner, each term reads a line of the copy of its own,
-- which has to stay in the cache beside the panel.
local function terms_of(profile, shape, columns, size, inner)
    local terms = inner and profile.panel // 4 * 3 // ((columns + LINE) * size) or profile.panel // (columns * size)
    return math.max(shape.taps, terms)
end

--- The sizes of a product over planes; g: op.gather's table, size: bytes of an element.
---   rows, columns    of sums
---   wide, terms      outputs of a tile, terms of a panel
---   places           of a block in all parts at most, and one more
---   blocks, cut      number of blocks, and how places are cut into them
---   space, copy      elements of the copy of a channel, and of all channels of a panel, at most
function vector_conv.product(profile, shape, g, size)
    local sums = sums_of(profile, shape.out, profile.vector // size)
    local wide, all, each = wide_of(shape, sums), g.parts[1], #g.parts
    local most, cut, blocks = each > 1 and 2 * PLACES or PLACES, nil, nil
    local terms = terms_of(profile, shape, sums.columns, size, false)
    repeat
        cut = cut_of(g, all, most // each, channels_of(shape, all, terms))
        blocks, most = blocks_of(g, all, cut), most // 2
    until g.groups * ceil(shape.out, wide) * blocks >= TILES or most <= LEAST
    cut.inner = cut.images >= INNER
    terms = terms_of(profile, shape, sums.columns, size, cut.inner)
    local list = { rows = sums.rows, columns = sums.columns, wide = wide, terms = terms, blocks = blocks,
        places = places_of(cut) * each + 1, space = LINE, copy = LINE, cut = cut_text(cut) }
    for _, part in ipairs(g.parts) do list.space = math.max(list.space, space(g, part, cut)) end
    for _, part in ipairs(g.parts) do
        list.copy = math.max(list.copy, channels_of(shape, part, terms) * list.space)
    end
    return list
end

-- Whether some tap of the part reads outside the planes.
local function has_edges(g, part)
    local function edge(axis, i, extent)
        local last = axis.from + (axis.places - 1) * g.read_step[i] + (axis.taps - 1) * g.tap_step[i]
        return axis.from < 0 or last >= extent
    end
    return edge(part.h, 1, g.height) or edge(part.w, 2, g.width)
end

--- The sizes of the gradient of a weight, and its blocks.
---   rows, columns    of sums
---   wide, tall       outputs and channels of a tile
---   places, blocks   places of a block at most, number of blocks
---   space            elements of the copy of a channel, at most
---   lists            one for each tap and one for all, or only that
function vector_conv.gradient(profile, shape, g, partials, size)
    local part, sums = g.parts[1], sums_of(profile, shape.out, profile.vector // size)
    local wide, tall = wide_of(shape, sums), even(shape.channels, TALL)
    local down = partials * g.groups * ceil(shape.channels, tall)
    if down * ceil(shape.out, 2 * wide) >= 2 * TILES then wide = 2 * wide end   -- half as many copies
    local cut = cut_of(g, part, TERMS, tall)    -- decides the bits
    while shape.taps == 1 and 2 * tall <= SINGLE.channels and tall < shape.channels
        and down * ceil(shape.out, wide) >= 2 * TILES do
        tall, down = 2 * tall, ceil(down, 2)    -- half as many results' gradients are turned
    end
    local runs = ceil(blocks_of(g, part, cut), partials) * partials
    if cut.rows == part.h.places and cut.columns == part.w.places then cut.images = ceil(g.B, math.min(g.B, runs)) end
    return { rows = sums.rows, columns = sums.columns, wide = wide, tall = tall, places = places_of(cut),
        blocks = blocks_of(g, part, cut), space = space(g, part, cut),
        cut = cut_text(cut), lists = has_edges(g, part) and shape.taps <= LISTS and shape.taps + 1 or 1 }
end

--- The sizes of the gradient of a weight of one tap (conv2d_dw_single), nil of another. Rows of sums are planes of the
--- operand that is read where it lies, columns those of the other one, which is turned: the one with fewer planes, or
--- with places that are left out. Its planes are whole columns.
---   rows, columns            of sums
---   tall, wide               rows and columns of a tile
---   by_outputs               whether the gradient of the results is read where it lies
---   lies, turned, line       the operands' names, elements of a line of the cache
---   places, blocks, space    as vector_conv.gradient has them
function vector_conv.gradient_single(profile, shape, g, partials, size)
    local by_outputs = shape.out >= shape.channels or g.read_step[1] * g.read_step[2] > 1
    local planes, turned = shape.out, shape.channels
    if not by_outputs then planes, turned = turned, planes end
    local sums = sums_of(profile, turned, profile.vector // size)
    if shape.taps > 1 or has_edges(g, g.parts[1]) then return nil end
    if planes < SINGLE.least or turned % sums.columns > 0 then return nil end
    if not by_outputs and shape.rows * shape.columns < TERMS then return nil end    -- images lie apart in rows
    local list = vector_conv.gradient(profile, shape, g, partials, size)
    local sets = math.max(1, TALL // sums.columns)
    return ordered.copy(list, { rows = sums.rows, columns = sums.columns, by_outputs = by_outputs,
        tall = math.min(planes, SINGLE.rows), wide = math.min(turned, sets * sums.columns),
        lies = text.ident(by_outputs and "dy" or "x"), turned = text.ident(by_outputs and "x" or "dy"),
        line = 64 // size,
        strips = text.block(("conv_sums_%dx%d(&s);"):format(sums.rows, sums.columns)) })
end

-- The part with its first tap alone.
local function first_tap(part)
    local function one(axis) return ordered.copy(axis, { taps = 1 }) end
    return ordered.copy(part, { h = one(part.h), w = one(part.w) })
end

-- Whether a block's places are neighbours in the planes of its results, whole sets of `columns` of them.
local function is_joined(part, cut, columns)
    local plane = part.h.places * part.w.places
    return cut.columns == part.w.places and plane % columns == 0 and cut.rows * cut.columns % columns == 0
end

-- Whether the first part has one tap at the first place and no other part has any.
local function is_first_alone(parts)
    for i, part in ipairs(parts) do
        if part.h.taps * part.w.taps ~= (i == 1 and 1 or 0) then return false end
    end
    return parts[1].h.place == 0 and parts[1].w.place == 0
end

--- The sizes of a product over planes whose places are neighbours and have one tap, or several but few terms
--- (templates/c/conv_single.c), nil of another. panel: the outputs of a panel of turned weights, nil where they
--- are rows in the order of channels and taps; plain: a result is its sum, and is not added to another one.
---   rows, columns    of sums
---   tall, depth      outputs of a tile, channels that are copied at once
---   places           of a block at most, whole columns
---   blocks, cut      number of blocks, and how places are cut into them
---   part             the part, with its first tap alone
---   taps, terms      taps along both axes, false: one; the name of their number for all channels
---   turns, steps     whether rows of weights are turned, or else read where they lie; from output to output and from
---                    term to term of the weights
---   spread           whether results lie apart, with zeros between them
---   direct, row      whether sums are computed in the planes of the results; their elements from output to output
function vector_conv.single(kernel, shape, g, size, panel, plain)
    local profile = kernel.profile
    local spread = plain and #g.parts > 1 and is_first_alone(g.parts)
    if not spread and (#g.parts > 1 or g.place_step[1] * g.place_step[2] > 1) then return nil end
    local part, terms, taps = g.parts[1], shape.channels * shape.taps, false
    if shape.taps > 1 then
        if panel or terms > SINGLE.few.terms or shape.out < SINGLE.few.out or g.read_step[2] > 2 then return nil end
        taps, part = { h = part.h.taps, w = part.w.taps }, first_tap(part)
    elseif has_edges(g, part) or math.min(shape.channels, shape.out) < SINGLE.least then
        return nil
    end
    local lanes = profile.vector // size
    local rows = profile.registers >= 32 and (panel or 8) % 8 == 0 and 8 or 4
    local columns = 2 * lanes
    local cut = cut_of(g, part, SINGLE.places, 1)
    if spread and cut.columns < part.w.places then return nil end
    local joins = plain and not spread      -- results may be computed where they lie
    if joins and rows == 8 and not is_joined(part, cut, columns) and is_joined(part, cut, lanes) then
        columns = lanes
    end
    local direct = joins and is_joined(part, cut, columns) and shape.out % rows == 0
    if taps and not direct and profile.registers < 32 then return nil end   -- copies of sums cost more than they gain
    local turns = not panel and (kernel.half or shape.out % rows > 0)
    local most = direct and not turns and shape.out or SINGLE.tall          -- of all outputs: places are copied once
    local name = taps and "TERMS" or "IN"
    local steps = panel and "1, PANEL" or turns and "1, ROWS" or name .. ", 1"
    return { rows = rows, columns = columns, tall = even(ceil(shape.out, LINE), ceil(most, LINE)) * LINE,
        depth = taps and terms or even(terms, SINGLE.depth), places = ceil(places_of(cut), columns) * columns,
        blocks = blocks_of(g, part, cut), cut = cut_text(cut), turns = turns, spread = spread,
        direct = direct, row = text.ident(direct and "RESULTS" or "PLACES"),
        strips = text.block(("strip_%dx%d(&s);"):format(rows, columns)), part = part, taps = taps,
        steps = text.block(steps), terms = text.ident(name) }
end

return vector_conv
