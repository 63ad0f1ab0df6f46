-- pool: pools over planes: tensors of (rows, channels, height, width); sizes and defaults as torch has them.
local ordered = require "base.ordered"
local planes = require "catalog.planes"

local SIZE = planes.pair_field("size", nil, 1, "places of the window", 1)
local STRIDE = planes.pair_field("stride", 1, 1, "places from one window to the next; default: size")
STRIDE.default = nil
local PADDING = planes.pair_field("padding", 0, 0, "rows and columns around each plane, at most half of size")
local GLOBAL = ordered.copy(SIZE, { alternatives = { "table", "global" },
    doc = "places of the window; a number, { height, width } or \"global\": the whole plane" })

local function attributes(x, count)
    return { height = x.shape[3], width = x.shape[4], rows = count[1], columns = count[2] }
end

-- The attributes of windows of one size.
local function windows(b, what, f, x)
    planes.check(b, what, x)
    local whole = f.size == "global"
    local window = whole and { x.shape[3], x.shape[4] } or planes.pair(b, what, f, SIZE)
    local stride = f.stride and planes.pair(b, what, f, STRIDE) or window
    local padding = planes.pair(b, what, f, PADDING)
    for i = 1, 2 do
        if padding[i] > window[i] // 2 then
            planes.fail(b, what, "padding of %d around a window of %d found, expected at most half of it",
                padding[i], window[i])
        end
    end
    local list = attributes(x, planes.places(b, what, x, window, stride, padding, { 1, 1 }))
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
    doc = "averages of windows that divide a plane into so many places, rounded outwards",
    fields = { planes.pair_field("size", nil, 1, "places of the result", 1) },
    example = "local y = flatten {} (adaptive_avgpool2d { { 1, 3 } } (reshape { 1, 2, 4 } (x)))",
    apply = function(b, f, x)
        planes.check(b, "adaptive_avgpool2d", x)
        local count = planes.pair(b, "adaptive_avgpool2d", f, SIZE)
        planes.check_result(b, "adaptive_avgpool2d", x.shape[2], count)
        return b:value("avgpool2d", { x = x }, attributes(x, count))
    end,
}

local function side(name)
    return { name = name, type = "int", min = 0, max = 65536, doc = "there; default: size" }
end

local AROUND = planes.pair_field("size", 0, 0, "rows above and below, columns left and right", 1)

layer "pad" {
    doc = "planes with rows and columns of one value around them",
    fields = { AROUND, side("top"), side("bottom"), side("left"), side("right"),
        { name = "value", type = "num", default = 0, doc = "what they are filled with" } },
    example = "local y = flatten {} (pad { 1 } (reshape { 1, 2, 4 } (x)))",
    apply = function(b, f, x)
        planes.check(b, "pad", x)
        local size = planes.pair(b, "pad", f, AROUND)
        local list = { top = f.top or size[1], bottom = f.bottom or size[1], left = f.left or size[2],
            right = f.right or size[2], value = f.value }
        planes.check_result(b, "pad", x.shape[2], { x.shape[3] + list.top + list.bottom,
            x.shape[4] + list.left + list.right })
        return b:value("pad2d", { x = x }, list)
    end,
}
