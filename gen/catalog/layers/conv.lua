-- conv: convolutions; names, shapes and initial values are torch's.
local geometry = require "catalog.conv_geometry"

local SIZE = geometry.pair_field("size", nil, 1, "taps of the window", 2)
local STRIDE = geometry.pair_field("stride", 1, 1, "places from one window to the next")
local PADDING = geometry.pair_field("padding", 0, 0, "rows and columns of zeros around each plane")
local DILATION = geometry.pair_field("dilation", 1, 1, "places from one tap to the next")

layer "conv2d" {
    doc = "convolution: out planes, each the sum of windows of the planes of its group times weights, + bias; "
        .. "weight (out, channels / groups, height, width)",
    named = true,
    fields = {
        { name = "out", type = "int", position = 1, min = 1, max = 2147483647, required = true,
          doc = "planes of the result" },
        SIZE, STRIDE, PADDING, DILATION,
        { name = "groups", type = "int", min = 1, max = 2147483647, default = 1,
          doc = "parts of the channels that see nothing of each other" },
        { name = "bias", type = "bool", default = true, doc = "whether a bias is added" },
    },
    example = 'local y = flatten {} (conv2d "c" { 4, 3, padding = 1 } (reshape { 1, 2, 4 } (x)))',
    apply = function(b, f, x)
        local what = ("conv2d '%s'"):format(b:full_name())
        geometry.check(b, what, x)
        local size, stride = geometry.pair(b, what, f, SIZE), geometry.pair(b, what, f, STRIDE)
        local padding, dilation = geometry.pair(b, what, f, PADDING), geometry.pair(b, what, f, DILATION)
        local count = geometry.places(b, what, x, size, stride, padding, dilation)
        local channels = x.shape[2]
        if channels % f.groups ~= 0 or f.out % f.groups ~= 0 then
            geometry.fail(b, what, "%d channels into %d planes found, expected both to be multiples of groups = %d",
                channels, f.out, f.groups)
        end
        geometry.check_result(b, what, f.out, count)
        local terms = channels // f.groups * size[1] * size[2]
        local init = { kind = "uniform", bound = 1 / math.sqrt(terms) }  -- torch: kaiming_uniform(a = sqrt 5)
        local weight = b:param("weight", { f.out, channels // f.groups, size[1], size[2] }, init)
        local bias = f.bias and b:param("bias", { f.out }, init)
        return b:value("conv2d", { x = x, weight = weight, bias = bias or nil }, { stride = stride,
            padding = padding, dilation = dilation, groups = f.groups, window = size, channels = channels,
            height = x.shape[3], width = x.shape[4], out = f.out, rows = count[1], columns = count[2] },
            b:full_name("y"))
    end,
}
