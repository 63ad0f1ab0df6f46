-- pool: pooling and padding of planes, of tensors (rows, channels, height, width); defaults are torch's.
local ordered = require "base.ordered"
local geometry = require "catalog.conv_geometry"

local SIZE = geometry.pair_field("size", nil, 1, "places of the window", 1)
local STRIDE = geometry.pair_field("stride", 1, 1, "places from one window to the next; default: size")
STRIDE.default = nil
local PADDING = geometry.pair_field("padding", 0, 0, "rows and columns around each plane, at most half of size")
local GLOBAL = ordered.copy(SIZE, { alternatives = { "table", "global" },
    doc = "places of the window; a number, { height, width } or \"global\": the whole plane" })

local function attributes(x, count)
    return { height = x.shape[3], width = x.shape[4], rows = count[1], columns = count[2] }
end

-- The attributes of a pool whose windows all have the same size.
local function windows(b, what, f, x)
    geometry.check(b, what, x)
    local whole = f.size == "global"
    local window = whole and { x.shape[3], x.shape[4] } or geometry.pair(b, what, f, SIZE)
    local stride = f.stride and geometry.pair(b, what, f, STRIDE) or window
    local padding = geometry.pair(b, what, f, PADDING)
    for i = 1, 2 do
        if padding[i] > window[i] // 2 then
            geometry.fail(b, what, "padding of %d around a window of %d found, expected at most half of it",
                padding[i], window[i])
        end
    end
    local list = attributes(x, geometry.places(b, what, x, window, stride, padding, { 1, 1 }))
    list.window, list.stride, list.padding = window, stride, padding
    return list
end

layer "maxpool2d" {
    doc = "the greatest value in each window of a plane; the gradient flows to the first such",
    fields = { GLOBAL, STRIDE, PADDING },
    example = "local y = flatten {} (maxpool2d { 2 } (reshape { 1, 2, 4 } (x)))",
    apply = function(b, f, x) return b:node("maxpool2d", { x = x }, windows(b, "maxpool2d", f, x)).outs.y.tensor end,
}

layer "avgpool2d" {
    doc = "the average of each window of a plane",
    fields = { GLOBAL, STRIDE, PADDING,
        { name = "include_padding", type = "bool", default = true, doc = "whether zeros of the padding count" } },
    example = 'local y = flatten {} (avgpool2d { "global" } (reshape { 1, 2, 4 } (x)))',
    apply = function(b, f, x)
        local list = windows(b, "avgpool2d", f, x)
        list.include_padding = f.include_padding
        return b:value("avgpool2d", { x = x }, list)
    end,
}

layer "adaptive_avgpool2d" {
    doc = "averages of the windows that divide a plane into the given number of places, rounded outwards",
    fields = { geometry.pair_field("size", nil, 1, "places of the result", 1) },
    example = "local y = flatten {} (adaptive_avgpool2d { { 1, 3 } } (reshape { 1, 2, 4 } (x)))",
    apply = function(b, f, x)
        geometry.check(b, "adaptive_avgpool2d", x)
        local count = geometry.pair(b, "adaptive_avgpool2d", f, SIZE)
        geometry.check_result(b, "adaptive_avgpool2d", x.shape[2], count)
        return b:value("avgpool2d", { x = x }, attributes(x, count))
    end,
}

local function side(name)
    return { name = name, type = "int", min = 0, max = 65536, doc = "there; default: size" }
end

local AROUND = geometry.pair_field("size", 0, 0, "rows above and below, columns left and right", 1)

layer "pad" {
    doc = "planes with rows and columns of one value around them",
    fields = { AROUND, side("top"), side("bottom"), side("left"), side("right"),
        { name = "value", type = "num", default = 0, doc = "their value" } },
    example = "local y = flatten {} (pad { 1 } (reshape { 1, 2, 4 } (x)))",
    apply = function(b, f, x)
        geometry.check(b, "pad", x)
        local size = geometry.pair(b, "pad", f, AROUND)
        local list = { top = f.top or size[1], bottom = f.bottom or size[1], left = f.left or size[2],
            right = f.right or size[2], value = f.value }
        geometry.check_result(b, "pad", x.shape[2], { x.shape[3] + list.top + list.bottom,
            x.shape[4] + list.left + list.right })
        return b:value("pad2d", { x = x }, list)
    end,
}
