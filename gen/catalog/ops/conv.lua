-- conv: convolutions over planes (rows, channels, height, width). The forward pass and the gradient of the input
-- are the same product: its rows are the channels of the result, its columns the places of the result, its terms the
-- (channel, tap) pairs of the tensor that is read. The gradient of the input reads the turned weight: its channels
-- exchanged. With a stride, different places of the input are reached by different taps; places with the same taps
-- form a part, so that only terms at the edges are products with 0.
-- attrs, those of the layer: channels, height, width of x; out, rows, columns of y; window, stride, padding,
-- dilation { height, width }; groups. On targets that gather terms by octets, 8 channels at one tap
-- (passes/layout.lua), conv2d_turned also has octets: "x" or "dy", the planes whose octets its result is for; zeros
-- fill up the last ones.
local graph = require "graph.graph"

local PLANES = "planes:half"      -- what reads planes (templates/TARGET/planes)

local PARTIAL_TILES = 64     -- tiles of work that the gradient of a weight is cut into, about

local function ceil(a, b) return (a + b - 1) // b end

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

-- Every stride-th place of the input along an axis of `extent` places and `size` taps, from place `number` on, and
-- the taps that reach it. Tap t of place h comes from place (h + padding - t dilation) / stride of y, if that is whole.
local function phase(a, axis, size, extent, number)
    local stride, dilation, first = a.stride[axis], a.dilation[axis], nil
    local step, count = stride // gcd(stride, dilation), 0
    for t = 0, size - 1 do
        if (number + a.padding[axis] - t * dilation) % stride == 0 then
            first, count = first or t, count + 1
        end
    end
    return { place = number, places = ceil(extent - number, stride), tap = first or 0, taps = count, tap_step = step,
        from = first and (number + a.padding[axis] - first * dilation) // stride or 0 }
end

-- The parts of the input: a list of { h = phase, w = phase, weight = the offset of the part's turned weights }, and
-- the number of all turned weights; by_octets: in whole octets.
local function parts(a, by_octets)
    local list, weight, terms = {}, 0, a.out // a.groups
    if by_octets then terms = ceil(terms, 8) * 8 end
    for h = 0, math.min(a.stride[1], a.height) - 1 do
        for w = 0, math.min(a.stride[2], a.width) - 1 do
            local part = { weight = weight, h = phase(a, 1, a.window[1], a.height, h),
                w = phase(a, 2, a.window[2], a.width, w) }
            list[#list + 1] = part
            weight = weight + a.channels * terms * part.h.taps * part.w.taps
        end
    end
    return list, math.max(weight, 1)
end

local function cost(n)
    local a, B = n.attrs, n.size.B
    local weights = a.out * a.channels // a.groups * a.window[1] * a.window[2]
    local places = B * a.rows * a.columns
    local planes = graph.elements((n.ins.x or n.outs.y.tensor).shape)      -- with the zeros of octets
    return { flops = 2 * places * weights, elements = places * a.out + planes + weights }
end

-- That of the gradient of a weight: its parts are written.
local function parts_cost(n)
    local found = cost(n)
    return { flops = found.flops, elements = graph.elements(n.ins.dy.shape) + graph.elements(n.ins.x.shape)
        + graph.elements(n.outs.y.tensor.shape) }
end

-- All places of the result as one part.
local function whole(a)
    local function axis(i, extent)
        return { place = 0, places = extent, tap = 0, taps = a.window[i], tap_step = 1, from = -a.padding[i] }
    end
    return { h = axis(1, a.rows), w = axis(2, a.columns), weight = 0 }
end

-- How the product of `op.gather` reads planes: place_step of the result, read_step and tap_step of the tensor that is
-- read, each { height, width }; parts as above, with weights by octets or not.
local function forward(n)
    local a = n.attrs
    return { B = n.size.B, groups = a.groups, channels = a.channels, height = a.height, width = a.width,
        out = a.out, rows = a.rows, columns = a.columns, place_step = { 1, 1 }, read_step = a.stride,
        tap_step = a.dilation, parts = { whole(a) } }
end

local function backward(n, by_octets)
    local a = n.attrs
    local function step(i) return -a.dilation[i] // gcd(a.stride[i], a.dilation[i]) end
    return { B = n.size.B, groups = a.groups, channels = a.out, height = a.rows, width = a.columns,
        out = a.channels, rows = a.height, columns = a.width, place_step = a.stride, read_step = { 1, 1 },
        tap_step = { step(1), step(2) }, parts = (parts(a, by_octets)) }
end

-- Channels that a group reads, taps, and the stride, which the shape of a convolution's result does not say.
local function detail(channels, a)
    local text = ("%dx%dx%d"):format(channels // a.groups, a.window[1], a.window[2])
    local high, wide = a.stride[1], a.stride[2]
    if high == 1 and wide == 1 then return text end
    return text .. "_by_" .. high .. (wide ~= high and "x" .. wide or "")
end

op "conv2d" {
    doc = "each channel of y is bias + the sum over channels c of its group and taps (r, s) of weight[c, r, s] "
        .. "x[c, stride p + dilation r - padding, stride q + dilation s - padding], 0 outside x",
    ins = { "x (B, C, H, W)", "weight (O, I, R, S)", "bias (O) ?" }, outs = { "y (B, O, P, Q)" },
    letters = function(n, size) size.P, size.Q = n.attrs.rows, n.attrs.columns end,
    grad = function(b, n, dy)
        local d, a = {}, n.attrs
        local turned = b:value("conv2d_turned", { weight = n.ins.weight }, a)
        d.x = b:value("conv2d_dx", { dy = dy.y, weight = turned }, a)
        local partial = b:value("conv2d_dw", { dy = dy.y, x = n.ins.x }, a)
        d.weight = b:value("conv2d_dw_sum", { partial = partial }, a)
        if n.ins.bias then
            local of_images = b:value("axis_sum", { x = dy.y }, { first = 3, last = 4, shape = { n.size.B, n.size.O } })
            of_images.keep_full = true      -- parts of a parameter's gradient, which is full
            d.bias = b:value("column_sum", { x = of_images })
        end
        return d
    end,
    cost = cost, lower = "conv", helper = PLANES, block = "conv2d",
    gather = forward, rounds = true, half = "x weight y",
    detail = function(n) return detail(n.attrs.channels, n.attrs) end,
    sample = [[function(x)
        local y = conv2d 'c' { 3, 2 } (reshape { 2, 3, 4 } (linear 'planes' { 24 } (x)))
        return flatten {} (y * y)
    end]],
    samples = {
        [[function(x)
            local y = conv2d 'c' { 4, { 3, 2 }, stride = { 2, 3 }, padding = 1, groups = 2, bias = false }
                (reshape { 4, 5, 4 } (linear 'planes' { 80 } (x)))
            return flatten {} (y * y)
        end]],
        [[function(x)
            local planes = reshape { 2, 7, 7 } (linear 'planes' { 98 } (x))
            local y = conv2d 'c' { 2, 3, stride = { 2, 3 }, padding = 2, dilation = { 1, 2 } } (planes)
            return flatten {} (y * y) + linear 'beside' { 30 } (flatten {} (planes))
        end]],
    },
}

op "octets" {
    doc = "planes with 8 channels of a place side by side; a group of channels that are no whole octets gets zeros",
    ins = { "x (B, C, H, W)" }, outs = { "y (B, D, H, W)" },
    letters = function(n, size) size.D = n.attrs.groups * ceil(size.C // n.attrs.groups, 8) * 8 end,
    internal = true, needs = "octets", lower = "conv",
    cost = function(n)
        return { flops = 0, elements = graph.elements(n.ins.x.shape) + graph.elements(n.outs.y.tensor.shape) }
    end,
}

op "planes" {
    doc = "the channels that lie by octets as planes again, without their zeros",
    ins = { "x (B, D, H, W)" }, outs = { "y (B, C, H, W)" },
    letters = function(n, size) size.C = n.attrs.channels end,
    internal = true, needs = "octets", lower = "conv",
    cost = function(n) return { flops = 0, elements = 2 * graph.elements(n.outs.y.tensor.shape) } end,
}

op "conv2d_turned" {
    doc = "the weight of a convolution with its channels exchanged, taps by the part of the input they reach",
    ins = { "weight (O, I, R, S)" }, outs = { "y (N)" },
    letters = function(n, size)
        local a = n.attrs
        if a.octets == "x" then
            n.parts, size.N = { whole(a) }, size.O * ceil(size.I, 8) * 8 * size.R * size.S
        else
            n.parts, size.N = parts(a, a.octets)
        end
    end,
    internal = true, lower = "conv", helper = PLANES, rounds = true, half = "weight y",
    cost = function(n) return { flops = 0, elements = graph.elements(n.ins.weight.shape) + n.size.N } end,
}

op "conv2d_dx" {
    doc = "for each place of x, the sum over the places of y that read it of dy times the weight",
    ins = { "dy (B, O, P, Q)", "weight (N)" }, outs = { "y (B, C, H, W)" },
    letters = function(n, size)
        local a = n.attrs
        size.C, size.H, size.W = a.channels, a.height, a.width
    end,
    internal = true, cost = cost, lower = "conv", helper = PLANES, block = "conv2d",
    gather = backward, rounds = true, half = "dy weight y",
    detail = function(n) return detail(n.attrs.out, n.attrs) end,
}

op "conv2d_dw" {
    doc = "the gradient of a convolution's weight, in parts of the places: (part, group, (channel, tap), out)",
    ins = { "dy (B, O, P, Q)", "x (B, C, H, W)" }, outs = { "y full (N, G, K, L)" },
    letters = function(n, size)
        local a = n.attrs
        size.G, size.L = a.groups, size.O // a.groups
        size.K = size.C // a.groups * a.window[1] * a.window[2]
        local across = a.groups * ceil(size.L, 16) * math.max(1, size.K // 1024)
        size.N = math.max(1, math.min(ceil(PARTIAL_TILES, across), ceil(size.B * size.P * size.Q, 256)))
    end,
    internal = true, cost = parts_cost, lower = "conv", helper = PLANES, gather = forward,
    rounds = true, half = "dy x",
}

op "conv2d_dw_whole" {
    doc = "the gradient of a convolution's weight, in the order of the weight",
    ins = { "dy (B, O, P, Q)", "x (B, C, H, W)" }, outs = { "y full (O, I, R, S)" },
    letters = function(n, size)
        local a = n.attrs
        size.I, size.R, size.S = a.channels // a.groups, a.window[1], a.window[2]
    end,
    internal = true, needs = "whole", cost = parts_cost, lower = "conv", helper = PLANES, gather = forward,
    rounds = true, half = "dy x",
}

op "conv2d_dw_sum" {
    doc = "the sum over the parts of a weight's gradient, in the order of the weight",
    ins = { "partial (N, G, K, L)" }, outs = { "y (O, I, R, S)" },
    letters = function(n, size)
        local a = n.attrs
        size.O, size.I, size.R, size.S = a.out, a.channels // a.groups, a.window[1], a.window[2]
    end,
    internal = true, lower = "conv",
    cost = function(n)
        local read, written = 0, 0
        for _, t in ipairs(graph.reads(n)) do read = read + graph.elements(t.shape) end
        for _, out in ipairs(graph.writes(n)) do written = written + graph.elements(out.tensor.shape) end
        return { flops = read, elements = read + written }
    end,
}
