-- Convolutions on tensor cores (templates/cuda/conv_tensor.cu) on the device library, which runs their instructions as
-- PTX describes them; its copies land as late as they may.
local devices = dofile "tests/lua/devices.lua"
local open, checked = devices.open, devices.checked

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

local ROWS, COLUMNS, CLASSES = 5, 6, 3

-- Forms of convolutions: x (channels, height, width), outputs, window, and the options of the layer. Sums of the first
-- one are of more than two rings (8 slices of 32 terms); places of an image are whole octets or not; strides leave parts
-- of the input with few taps or none, padding leaves places whose taps are all outside.
local FORMS = {
    { "deep", x = { 64, 8, 8 }, out = 72, window = "3", "padding = 1" },
    { "odd image", x = { 40, 9, 11 }, out = 44, window = "3", "padding = 1, bias = false" },
    { "stride", x = { 32, 16, 16 }, out = 48, window = "3", "stride = 2, padding = 1" },
    { "point", x = { 64, 8, 8 }, out = 32, window = "1", "bias = false" },
    { "point with stride", x = { 40, 8, 8 }, out = 32, window = "1", "stride = 2" },
    { "groups", x = { 72, 9, 7 }, out = 72, window = "3", "padding = 1, groups = 2" },
    { "dilation", x = { 32, 13, 12 }, out = 32, window = "3", "padding = 2, dilation = 2" },
    { "all unlike", x = { 32, 21, 19 }, out = 36, window = "{ 3, 2 }",
        "stride = { 3, 2 }, padding = { 0, 1 }, dilation = { 2, 1 }" },
    { "far padding", x = { 32, 6, 6 }, out = 32, window = "2", "padding = 4" },
    { "far stride", x = { 32, 9, 9 }, out = 32, window = "2", "stride = 4" },
}

-- A stem, whose three channels are an octet with zeros; its planes have no gradient on tensor cores.
local STEM = { "stem", x = { 3, 23, 15 }, out = 40, window = "7", "stride = 2, padding = 3", dx = false }

-- Tiles of 128 x 128 and 64 x 128, and many parts of the gradient's sum, the last one shorter.
local LARGE = {
    { "large tile", x = { 32, 50, 50 }, out = 128, window = "1", "bias = false" },
    { "wide tile", x = { 32, 50, 50 }, out = 40, window = "{ 3, 1 }", "padding = { 1, 0 }" },
    { "large gradient", x = { 128, 6, 6 }, out = 128, window = "1", "bias = false" },
}

-- Shapes that keep the kernels by threads: few outputs of a group, mostly zeros in octets.
local OTHERS = {
    { "few outputs", x = { 16, 8, 8 }, out = 24, window = "3", "padding = 1" },
    { "small groups", x = { 64, 8, 8 }, out = 64, window = "3", "padding = 1, groups = 4" },
    { "few channels", x = { 1, 8, 8 }, out = 32, window = "3", "padding = 1" },
}

-- A spec whose logits are a sum over convolutions of planes that linear layers make.
local function spec(forms, precision, target)
    local lines = {}
    for i, f in ipairs(forms) do
        local c, h, w = table.unpack(f.x)
        lines[i] = ('add(%d, conv2d "c%d" { %d, %s, %s } (planes(%d, %d, %d, %d)))'):format(i, i, f.out, f.window, f[2],
            i, c, h, w)
    end
    return ([[
data      { "csv", train = "planes.csv", target = "last" }
batch     (%d)
accumulate (2)
model     (function(batch)
    local function planes(i, c, h, w) return reshape { c, h, w } (linear("x" .. i) { c * h * w } (batch.input)) end
    local sum
    local function add(i, y)
        local part = linear("out" .. i) { %d } (flatten {} (y))
        sum = sum and sum + part or part
    end
    %s
    return sum
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 2, seed = 3 }
precision "%s"
target    %s
]]):format(ROWS, CLASSES, table.concat(lines, "\n    "), precision, target)
end

local function build(t, programs, name, forms, precision, target, how)
    programs.write_sines("planes.csv", 2 * ROWS, COLUMNS)
    return programs.build(("tensor_conv_%s_%s_%s"):format(name, precision, target:gsub("%W", "")),
        spec(forms, precision, target), how)
end

-- How many kernels of convolutions a text has on tensor cores, and by threads: { conv2d = , conv2d_dx = , conv2d_dw = }.
local function forms_of(text)
    local tensor, threads = {}, {}
    for op, head in text:gmatch "\n/%* (conv2d[%l_]-)_%d[%w]*: (.-)%*/" do
        if op ~= "conv2d_dw_sum" and op ~= "conv2d_turned" then
            local list = head:find("on tensor cores", 1, true) and tensor or threads
            list[op] = (list[op] or 0) + 1
        end
    end
    return tensor, threads
end

local function kernels_of(p) return host.read(p.folder .. "/kernels.cu") end

-- The parameters and gradients of a program on the device library are those of the C target: sums have another order, so
-- some values are rounded to a neighbour.
local function equals_c(t, name, forms, precision, settings)
    local programs, environment = open(t)
    local device = build(t, programs, name, forms, precision, '"cuda"')
    local oracle = build(t, programs, name, forms, precision, '"c"')
    local found = programs.dump(device, { "--cycles", 1, env = environment(settings) })
    programs.close(found, programs.dump(oracle, { "--cycles", 1 }), U[precision], { "parameters", "gradients" },
        programs.distance)
    return kernels_of(device)
end

local function all_forms()
    local list = table.move(FORMS, 1, #FORMS, 1, {})
    list[#list + 1] = STEM
    return list
end

for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": every form is that of the C target", function(t)
        local tensor, threads = forms_of(equals_c(t, "forms", all_forms(), precision, checked(1)))
        t.equal(tensor.conv2d, #FORMS + 1)
        t.equal(tensor.conv2d_dx, #FORMS)
        t.equal(tensor.conv2d_dw, #FORMS + 1)
        t.equal(threads.conv2d_dx, 1)
        t.equal(threads.conv2d or threads.conv2d_dw, nil)
    end)
end

return tests
