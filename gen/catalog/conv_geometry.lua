-- conv_geometry: fields and checks that convolutions and pools share. Their tensors are (rows, channels, height,
-- width); a plane is the (height, width) of one row and channel.
local diag = require "base.diag"
local graph = require "graph.graph"

local geometry = {}

local EITHER = "; a number, or { height, width }"

--- Refuses the layer `what`, for example "conv2d 'c'".
function geometry.fail(b, what, message, ...) diag.fail(b.at, what .. ": " .. message:format(...), {}) end

--- A field with one whole number for both axes, or with { height, width }.
function geometry.pair_field(name, default, min, doc, position)
    return { name = name, type = "int", min = min, max = 65536, default = default, alternatives = { "table" },
        required = default == nil, position = position, doc = doc .. EITHER }
end

--- The value of a field of pair_field as { height, width }.
function geometry.pair(b, what, f, field)
    local value = f[field.name]
    if type(value) ~= "table" then return { value, value } end
    local good = #value == 2
    for i = 1, 2 do
        good = good and math.tointeger(value[i]) and value[i] >= field.min and value[i] <= field.max
    end
    if not good then
        geometry.fail(b, what, "%s: expected a whole number from %d, or two of them: { height, width }", field.name,
            field.min)
    end
    return { math.tointeger(value[1]), math.tointeger(value[2]) }
end

local LARGEST = 2 ^ 24       -- elements of all planes of a row: kernels count those of several rows in an int

--- Refuses a tensor x without planes or with too large ones.
function geometry.check(b, what, x)
    if #x.shape ~= 4 then
        geometry.fail(b, what, "shape %s found, expected (rows, channels, height, width)", graph.shape_text(x.shape))
    end
    local elements = graph.elements(x.shape) // x.shape[1]
    if elements > LARGEST then
        geometry.fail(b, what, "%d elements of planes per row found, expected at most %d", elements, LARGEST)
    end
end

--- The number of places { height, width } at which a window of `size` taps fits into x; refuses a window that fits
--- nowhere.
function geometry.places(b, what, x, size, stride, padding, dilation)
    local count = {}
    for i = 1, 2 do
        local reach, extent = dilation[i] * (size[i] - 1) + 1, x.shape[2 + i] + 2 * padding[i]
        if reach > extent then
            geometry.fail(b, what, "a window over %d places of the %s, which has %d with padding: expected at "
                .. "most as many", reach, i == 1 and "height" or "width", extent)
        end
        count[i] = (extent - reach) // stride[i] + 1
    end
    return count
end

--- Refuses a result of `channels` planes of count = { height, width } that is too large.
function geometry.check_result(b, what, channels, count)
    local elements = channels * count[1] * count[2]
    if elements > LARGEST then
        geometry.fail(b, what, "gives %d elements per row, expected at most %d", elements, LARGEST)
    end
end

return geometry
