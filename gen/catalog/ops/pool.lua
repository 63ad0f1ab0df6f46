-- pool: one value for each window of a plane. attrs: height, width of x; rows, columns of y; and window, stride,
-- padding { height, width } if all windows have the same size. Without `window` the windows are adaptive: that of
-- row p of y spans p height / rows .. (p + 1) height / rows of x, rounded outwards.

local function reduced(n)
    local a, planes = n.attrs, n.size.B * n.size.C
    local size = a.window and a.window[1] * a.window[2] or a.height * a.width // (a.rows * a.columns) + 1
    local results = planes * a.rows * a.columns
    return { flops = results * size, elements = results * 2 + planes * a.height * a.width }
end

local function result(n, size) size.P, size.Q = n.attrs.rows, n.attrs.columns end

local function source(n, size) size.H, size.W = n.attrs.height, n.attrs.width end

op "maxpool2d" {
    doc = "the greatest value in each window of a plane and the place of the first such; NaN stays NaN",
    ins = { "x (B, C, H, W)" }, outs = { "y (B, C, P, Q)", "place i32 (B, C, P, Q)" },
    letters = result,
    grad = function(b, n, dy)
        return { x = b:value("maxpool2d_dx", { dy = dy.y, place = n.outs.place.tensor }, n.attrs) }
    end,
    cost = reduced, lower = "pool", octets = "x y place", half = "x y",
    sample = [[function(x)
        local y = maxpool2d { 3, stride = 2, padding = 1 } (reshape { 2, 5, 4 } (linear 'planes' { 40 } (x)))
        return flatten {} (y * y)
    end]],
    samples = { [[function(x)
        local planes = reshape { 2, 4, 5 } (linear 'p' { 40 } (x))
        return flatten {} (maxpool2d { 2 } (planes)) + linear 'q' { 8 } (flatten {} (planes))
    end]] },
}

op "maxpool2d_dx" {
    doc = "the sum of dy over the windows whose greatest value was here",
    ins = { "dy (B, C, P, Q)", "place i32 (B, C, P, Q)" }, outs = { "y (B, C, H, W)" },
    letters = source, internal = true, lower = "pool", octets = "dy place y", half = "dy y", cost = reduced,
}

op "avgpool2d" {
    doc = "the average of each window of a plane; zeros of the padding count unless include_padding is false",
    ins = { "x (B, C, H, W)" }, outs = { "y (B, C, P, Q)" },
    letters = result,
    grad = function(b, n, dy) return { x = b:value("avgpool2d_dx", { dy = dy.y }, n.attrs) } end,
    cost = reduced, lower = "pool", octets = "x y", half = "x y",
    sample = [[function(x)
        local y = avgpool2d { 3, stride = 2, padding = 1 } (reshape { 2, 5, 4 } (linear 'planes' { 40 } (x)))
        return flatten {} (y * y)
    end]],
    samples = {
        [[function(x)
            local y = avgpool2d { { 2, 3 }, padding = 1, include_padding = false }
                (reshape { 2, 4, 5 } (linear 'planes' { 40 } (x)))
            return flatten {} (y * y)
        end]],
        [[function(x)
            local y = adaptive_avgpool2d { { 3, 2 } } (reshape { 2, 5, 4 } (linear 'planes' { 40 } (x)))
            return flatten {} (y * y)
        end]],
        [[function(x)
            local planes = reshape { 2, 5, 4 } (linear 'planes' { 40 } (x))
            return flatten {} (avgpool2d { "global" } (planes * planes))
        end]],
    },
}

op "avgpool2d_dx" {
    doc = "the sum over the windows that contain a place of dy / (number of values in the window)",
    ins = { "dy (B, C, P, Q)" }, outs = { "y (B, C, H, W)" },
    letters = source, internal = true, lower = "pool", octets = "dy y", half = "dy y", cost = reduced,
}

op "pad2d" {
    doc = "planes with rows and columns of one value around them",
    ins = { "x (B, C, H, W)" }, outs = { "y (B, C, P, Q)" },
    letters = function(n, size)
        local a = n.attrs
        size.P, size.Q = size.H + a.top + a.bottom, size.W + a.left + a.right
    end,
    grad = function(b, n, dy)
        local a, s = n.attrs, n.size
        local rows = b:value("slice", { x = dy.y }, { axis = 3, first = a.top + 1, last = a.top + s.H })
        return { x = b:value("slice", { x = rows }, { axis = 4, first = a.left + 1, last = a.left + s.W }) }
    end,
    cost = function(n)
        return { flops = 0, elements = 2 * n.size.B * n.size.C * n.size.P * n.size.Q }
    end,
    lower = "pool",
    sample = [[function(x)
        local y = pad { { 1, 0 }, right = 2, value = 0.5 } (reshape { 2, 3, 2 } (linear 'planes' { 12 } (x)))
        return flatten {} (y * y)
    end]],
}
