-- Convolutions on tensor cores (templates/cuda/conv_tensor.cu) on the device library, which runs their instructions as
-- PTX describes them; its copies land as late as they may.
local devices = dofile "tests/lua/devices.lua"
local ordered = require "base.ordered"
local open, checked = devices.open, devices.checked

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

local ROWS, COLUMNS, CLASSES = 5, 6, 3

-- Forms of convolutions: x (channels, height, width), outputs, window, and the options of the layer. Sums of the first
-- one are of more than two rings (8 slices of 32 terms); places of an image are whole octets or not; strides leave
-- parts of the input with few taps or none, padding leaves places whose taps are all outside.
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
    { "far stride", x = { 32, 17, 14 }, out = 32, window = "2", "stride = 4" },
}

-- A stem, whose three channels are an octet with zeros; its planes have no gradient on tensor cores.
local STEM = { "stem", x = { 3, 23, 15 }, out = 40, window = "7", "stride = 2, padding = 3", dx = false }

-- Whole and odd images, one and several parts of the input, groups, channels that fill no octet: for what `make test` has
-- of f16.
local FEW = { FORMS[1], FORMS[3], FORMS[6], STEM }

-- Tiles of 128 x 128 and 64 x 128, and many parts of the gradient's sum, the last one shorter.
local LARGE = {
    { "large tile", x = { 32, 50, 50 }, out = 128, window = "1", "bias = false" },
    { "wide tile", x = { 32, 50, 50 }, out = 40, window = "{ 3, 1 }", "padding = { 1, 0 }" },
    { "large gradient", x = { 128, 6, 6 }, out = 128, window = "1", "bias = false" },
}

-- Convolutions with patches: of whole lines, of an image or several, the last tile and slice with fewer; groups; strides,
-- dilation and no padding. The gradients of inputs with strides and of odd planes have none.
local PATCHES = {
    { "lines", x = { 64, 16, 16 }, out = 64, window = "3", "padding = 1, bias = false" },
    { "images", x = { 64, 8, 8 }, out = 128, window = "3", "padding = 1" },
    { "small images", x = { 64, 4, 4 }, out = 64, window = "3", "padding = 1, bias = false" },
    { "groups", x = { 128, 8, 8 }, out = 128, window = "3", "padding = 1, groups = 2" },
    { "stride", x = { 64, 16, 16 }, out = 64, window = "3", "stride = 2, padding = 1", dx = false },
    { "dilation", x = { 64, 8, 8 }, out = 64, window = "3", "padding = { 2, 3 }, dilation = { 2, 3 }" },
    { "no padding", x = { 64, 10, 10 }, out = 64, window = "3", "bias = false", dx = false },
}

-- Shapes that keep the kernels by threads: few outputs of a group, mostly zeros in octets.
local OTHERS = {
    { "few outputs", x = { 16, 8, 8 }, out = 24, window = "3", "padding = 1" },
    { "small groups", x = { 64, 8, 8 }, out = 64, window = "3", "padding = 1, groups = 4" },
    { "few channels", x = { 1, 8, 8 }, out = 32, window = "3", "padding = 1" },
}

-- A spec whose logits are a sum over convolutions of planes that linear layers make.
local function spec(forms, precision, target, micro)
    local lines = {}
    for i, f in ipairs(forms) do
        local c, h, w = table.unpack(f.x)
        lines[i] = ('add(%d, conv2d "c%d" { %d, %s, %s } (planes(%d, %d, %d, %d)))'):format(i, i, f.out, f.window, f[2],
            i, c, h, w)
    end
    return ([[
data      { "csv", train = "planes.csv", target = "last" }
batch     (%d)
accumulate (%d)
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
]]):format(ROWS, micro or 2, CLASSES, table.concat(lines, "\n    "), precision, target)
end

local function build(t, programs, name, forms, precision, target, how)
    programs.write_sines("planes.csv", 2 * ROWS, COLUMNS)
    return programs.build(("tensor_conv_%s_%s_%s"):format(name, precision, target:gsub("%W", "")),
        spec(forms, precision, target, forms == LARGE and not t.all and 1), how)
end

-- How many functions of a program launch kernels of convolutions on tensor cores, by threads, and those of the first
-- with patches: { conv2d =, conv2d_dx =, conv2d_dw = }. Names of pointwise ops behind one stand after its own.
local function forms_of(p)
    local tensor, threads, patched = {}, {}, {}
    for name, body in host.read(p.folder .. "/launch.c"):gmatch "\nstatic void (conv2d[%l_]-)_%d[%w_]*(%(.-\n}\n)" do
        local patch = body:find "K_[%w_]+_PATCH_"
        local list = (patch or body:find "K_[%w_]+_TILE_") and tensor or threads
        local op = name:match "^conv2d_d[xw]" or "conv2d"
        if name ~= "conv2d_dw_sum" and name ~= "conv2d_turned" then
            list[op] = (list[op] or 0) + 1
            patched[op] = (patched[op] or 0) + (patch and 1 or 0)
        end
    end
    return tensor, threads, patched
end

local function kernels_of(p) return host.read(p.folder .. "/kernels.cu") end

-- The parameters and gradients of a program on the device library are those of the C target: sums have another order,
-- so some values are rounded to a neighbour. Differences of up to 1.02 U were found, in biases, whose sums cancel.
local function equals_c(t, name, forms, precision, settings)
    local programs, environment = open(t)
    local device = build(t, programs, name, forms, precision, '"cuda"')
    local oracle = build(t, programs, name, forms, precision, '"c"')
    local found = programs.dump(device, { "--cycles", 1, env = environment(settings) })
    programs.close(found, programs.dump(oracle, { "--cycles", 1 }), 2 * U[precision], { "parameters", "gradients" },
        programs.distance)
    return device
end

-- The name of a set of forms and the set: all of them, or in `make test` a few.
local function some_forms(t, all)
    if not (all or t.all) then return "few", FEW end
    local list = table.move(FORMS, 1, #FORMS, 1, {})
    list[#list + 1] = STEM
    return "forms", list
end

for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": every form is that of the C target", function(t)
        local name, forms = some_forms(t, precision == "bf16")
        local settings = precision == "bf16" and devices.light(t, 1) or checked(1)
        local tensor, threads = forms_of(equals_c(t, name, forms, precision, settings))
        t.equal(tensor.conv2d, #forms)
        t.equal(tensor.conv2d_dx, #forms - 1)
        t.equal(tensor.conv2d_dw, #forms)
        t.equal(threads.conv2d_dx, 1)
        t.equal(threads.conv2d or threads.conv2d_dw, nil)
    end)
end

-- Layers of a loop have a view of their weight each, a frozen one has its own; a layer that is applied to planes of two
-- sizes has two of the weight turned, as their strides leave other parts. Differences of up to 2.4 U were found.
local SHARED = [[
data      { "csv", train = "planes.csv", target = "last" }
batch     (5)
accumulate (2)
model     (function(batch)
    local x = reshape { 32, 9, 8 } (linear "x" { 32 * 9 * 8 } (batch.input))
    x = times(2) "h" { conv2d "c" { 32, 3, padding = 1 }, tanh {} } (x)
    x = conv2d "frozen" { 32, 1 } (x)
    local shared = conv2d "shared" { 32, 3, stride = 2, padding = 1 }
    return linear "out" { 3 } (flatten {} (shared(shared(x))))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1, groups = { { "frozen.*", frozen = true } } }
train     { updates = 2, seed = 3 }
precision "f16"
]]

add("layers of a loop, a frozen one and one for planes of two sizes are those of the C target", function(t)
    local programs, environment = open(t)
    programs.write_sines("planes.csv", 2 * ROWS, COLUMNS)
    local function dump(name, more, settings)
        local p = programs.build("tensor_conv_shared_" .. name, SHARED .. more.text, { options = more.options })
        return programs.dump(p, { "--cycles", 1, env = settings and environment(settings) }), p
    end
    local expected = dump("c", { text = "" })
    local found, p = dump("cuda", { text = 'target "cuda"\n' }, checked(1))
    programs.close(found, expected, 4 * U.f16, { "parameters", "gradients" }, programs.distance)
    local text = kernels_of(p)
    t.equal((forms_of(p)).conv2d, 4)
    -- Without views the convolutions, and the gradients of their inputs, read their weights as they lie.
    found, p = dump("home", { text = 'target "cuda"\n', options = { "--without", "layout" } }, devices.light(t, 1))
    programs.close(found, expected, 4 * U.f16, { "parameters", "gradients" }, programs.distance)
    local tensor, threads = forms_of(p)
    t.equal(tensor.conv2d or tensor.conv2d_dx, nil)
    t.equal(threads.conv2d, 4)
end)

-- Rows of a batch that a reshape makes planes of: a copy by octets must not take the f32 of other axes in their place.
local RESHAPED = [[
data      %s
batch     (4)
model     (function(batch)
    local x = conv2d "c" { 32, 3, padding = 1 } (reshape %s (batch.input))
    return linear "out" { 10 } (flatten {} (maxpool2d { 4 } (x)))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 2, seed = 3 }
precision "bf16"
]]

-- A gradient of two parts, the first of which is rounded from f32: a copy by octets must have both.
local PARTS = RESHAPED:gsub("{ 32, 3", "{ 36, 3"):gsub("%(x%)%)%)", "(tanh {} (x) + softmax {} (x))))")

add("planes that a reshape makes, and planes whose gradient has two parts, are those of the C target", function(t)
    local programs, environment = open(t)
    t.load("tests/lua/formats.lua")(t).cifar_files()
    programs.write_sines("wide_rows.csv", 8, 192)
    for name, words in ordered.each { rows = { '{ "csv", train = "wide_rows.csv", target = "last" }', "{ 3, 8, 8 }" },
        planes = { '{ "cifar10", train = "formats/cifar_*.bin" }', "{ 12, 16, 16 }" },
        parts = { '{ "csv", train = "wide_rows.csv", target = "last" }', "{ 3, 8, 8 }" } } do
        local text = (name == "parts" and PARTS or RESHAPED):format(table.unpack(words))
        local device = programs.build("tensor_conv_reshaped_" .. name, text .. 'target "cuda"\n')
        local oracle = programs.build("tensor_conv_reshaped_" .. name .. "_c", text)
        t.equal((forms_of(device)).conv2d, 1)
        programs.close(programs.dump(device, { "--cycles", 1, env = environment(devices.light(t, 1)) }),
            programs.dump(oracle, { "--cycles", 1 }), 2 * U.bf16, { "parameters", "gradients" }, programs.distance)
    end
end)

-- === tiles =======================================================================================

add("large tiles and parts of a sum give what the C target does", function(t)
    local p = equals_c(t, "large", LARGE, "bf16", nil)
    local text = kernels_of(p)
    for _, tile in ipairs { "ROWS = 128, COLUMNS = 128", "ROWS = 128, COLUMNS = 64", "ROWS = 64, COLUMNS = 64" } do
        assert(text:find(tile, 1, true), tile)
    end
    t.match(host.read(p.folder .. "/launch.c"), "conv2d_dw_12x1x32x128", "gradients of 12 parts")
end)

add("convolutions with patches give what the C target does", function(t)
    local forms = t.all and PATCHES or { PATCHES[1], PATCHES[3], PATCHES[5], PATCHES[6] }
    local settings = devices.light(t, 1)
    local tensor, _, patched = forms_of(equals_c(t, "patches", forms, "bf16", settings))
    local with_dx = 0
    for _, f in ipairs(forms) do with_dx = with_dx + (f.dx == false and 0 or 1) end
    for op, count in pairs { conv2d = #forms, conv2d_dx = with_dx, conv2d_dw = #forms } do
        t.equal(tensor[op], #forms)
        t.equal(patched[op], count)
    end
end)

add("shapes, types and devices that keep the kernels by threads", function(t)
    local programs = open(t)
    local function threads_alone(name, forms, precision, target)
        local tensor, threads = forms_of(build(t, programs, name, forms, precision, target))
        t.equal(next(tensor), nil)
        for _, op in ipairs { "conv2d", "conv2d_dx", "conv2d_dw" } do t.equal(threads[op], #forms) end
    end
    threads_alone("others", OTHERS, "bf16", '"cuda"')
    threads_alone("full", { FORMS[1] }, "f32", '"cuda"')
    threads_alone("old", { FORMS[1] }, "bf16", '{ "cuda", arch = 75 }')
end)

-- === batchnorm ===================================================================================

-- Statistics of the tiles of a convolution, in two groups of rows; of parts where tiles are no whole ones ("odd"),
-- where a bias is added ("biased") or another op makes x ("sum"). Pools, a value that is read as it is, and one that a
-- loop carries.
local BATCHNORM = [[
data      { "csv", train = "planes.csv", target = "last", shuffle = false }
batch     (6)
model     (function(batch)
    local function conv(name, x, more)
        return conv2d(name) { 40, 3, padding = 1, stride = more and more.stride, bias = more ~= nil } (x)
    end
    local x = reshape { 12, 16, 16 } (linear "x" { 12 * 16 * 16 } (batch.input))
    x = relu {} (batchnorm "tiles" { rows = 3 } (conv("a", x)))
    x = x + batchnorm "sum" { rows = 6 } (x + tanh {} (conv("b", x)))
    x = times(2) "h" { conv2d "c" { 40, 3, padding = 1, bias = false }, batchnorm "loop" { rows = 6 }, tanh {} } (x)
    x = maxpool2d { 3, stride = 2, padding = 1 } (x) + avgpool2d { 2 } (x)
    x = relu {} (batchnorm "biased" { rows = 6 } (conv("d", x, { stride = 2 })))
    x = relu {} (batchnorm "odd" { rows = 6 } (conv2d "e" { 36, 2, bias = false } (x)))
    return linear "mean" { 3 } (flatten {} (avgpool2d { "global" } (x))) + linear "out" { 3 } (flatten {} (x))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 2, seed = 3 }
precision "%s"
target    "%s"
]]

-- Statistics keep what each rounding has moved, so the C target in f32 says what is right. A bias in front of batchnorm
-- has a gradient of 0 but for roundings.
add("batchnorm takes the statistics of tiles, joined or not, and of parts", function(t)
    local programs, environment = open(t)
    programs.write_sines("planes.csv", 12, COLUMNS)
    local function dump(name, precision, target, how, env)
        local text = t.all and BATCHNORM:gsub("\nmodel", "\naccumulate (2)%0", 1) or BATCHNORM
        local p = programs.build("tensor_batchnorm_" .. name, text:format(precision, target), how)
        return programs.dump(p, { "--cycles", 1, env = env }), p
    end
    local exact = dump("exact", "f32", "c") .. "/gradients.safetensors"
    local expected = programs.distance(dump("c", "f16", "c") .. "/gradients.safetensors", exact, "d.bias")
    local dev, source = t.temp(), "gen/passes/channels.lua"
    t.shell(("cp -r gen templates runtime %s"):format(dev))
    local text, count = host.read(source):gsub("MOST_PARTS, JOINED_PARTS = 512, 64", "MOST_PARTS, JOINED_PARTS = 4, 3")
    t.equal(count, 1)
    t.write(dev .. "/" .. source, text)
    for name, how in pairs { direct = {}, joined = { options = { "--dev", dev } } } do
        local settings = name == "joined" and checked(1) or devices.light(t, 1)
        local folder, p = dump(name, "f16", "cuda", how, environment(settings))
        local found, where = programs.distance(folder .. "/gradients.safetensors", exact, "d.bias")
        assert(found <= 1.25 * expected, ("%s: %s differs by %.3g, the C target's by %.3g"):format(name, where, found,
            expected))
        t.equal(kernels_of(p):find("joined to fewer parts", 1, true) ~= nil, name == "joined")
        if t.all or name == "joined" then
            programs.identical(dump(name, "f16", "cuda", how, environment((t.all and checked or devices.ordered)(2))),
                folder, { "parameters", "gradients" })
        end
    end
end)

-- === orders and mutations ========================================================================

-- One block of each kernel with sums of more than two rings, quickly computed.
local SMALL = { { "small", x = { 32, 8, 8 }, out = 32, window = "3", "padding = 1" } }

local function small(t, programs) return build(t, programs, "small", SMALL, "bf16", '"cuda"') end

add("the order of blocks and threads changes no bit", function(t)
    local programs, environment = open(t)
    local p = t.all and build(t, programs, "forms", (select(2, some_forms(t))), "f16", '"cuda"') or small(t, programs)
    local function dump(settings) return programs.dump(p, { "--cycles", 1, env = environment(settings) }) end
    local expected = dump()
    for seed = 2, t.all and 4 or 2 do
        programs.identical(dump(checked(seed)), expected, { "parameters", "gradients" })
    end
end)

-- The sums of a forward product and of the gradient of an input take their terms in one order in all tiles.
add("each tile gives the same bits", function(t)
    local programs, environment = open(t)
    local function dump(p) return programs.dump(p, { "--cycles", 1, env = environment() }) end
    local expected = dump(small(t, programs))
    local dev, source = t.temp(), "gen/emit/targets/cuda/tensor_conv.lua"
    t.shell(("cp -r gen templates runtime %s"):format(dev))
    for _, columns in ipairs { 128, 64 } do
        local text, count = host.read(source):gsub("if not pads and blocks_of%(tile, g, out%) >= tensor.ENOUGH then",
            ("if tile.columns == %d then"):format(columns))
        t.equal(count, 1)
        t.write(dev .. "/" .. source, text)
        local p = build(t, programs, "tile" .. columns, SMALL, "bf16", '"cuda"', { options = { "--dev", dev } })
        t.match(kernels_of(p), ("ROWS = 128, COLUMNS = %d"):format(columns))
        programs.identical(dump(p), expected, { "parameters", "gradients" })
    end
end)

-- Patches of several images, the last one with fewer.
local SMALL_PATCH = { { "small patch", x = { 64, 8, 8 }, out = 64, window = "3", "padding = 1" } }

local function small_patch(t, programs) return build(t, programs, "patch", SMALL_PATCH, "bf16", '"cuda"') end

add("each tile with patches gives the same bits", function(t)
    local programs, environment = open(t)
    local function dump(p) return programs.dump(p, { "--cycles", 1, env = environment(devices.light(t, 1)) }), p end
    local expected, least = dump(small_patch(t, programs))
    t.match(kernels_of(least), "ROWS = 128, COLUMNS = 64")
    local dev, source = t.temp(), "gen/emit/targets/cuda/conv_patch.lua"
    t.shell(("cp -r gen templates runtime %s"):format(dev))
    local text, count = host.read(source):gsub("if own and enough%(own%) then", "if own then")
    t.equal(count, 1)
    t.write(dev .. "/" .. source, text)
    local found, most = dump(build(t, programs, "patch256", SMALL_PATCH, "bf16", '"cuda"',
        { options = { "--dev", dev } }))
    t.match(kernels_of(most), "ROWS = 256, COLUMNS = 64")
    programs.identical(found, expected, { "parameters", "gradients" })
end)

-- A run of the small program, or of another one, with this text of kernels.
local function edited(t, text, more, of)
    local settings = checked(1)
    settings[#settings + 1] = more
    return devices.edited(t, (of or small)(t, (open(t))), text, settings)
end

-- The checker must find a race or a read of what nobody wrote.
local FOUND = "device: [ru]"

local function small_kernels(t)
    devices.needs_library(t)
    return kernels_of(small(t, (open(t))))
end

add("found: each barrier, wait and commit of a convolution left out", function(t)
    local text = small_kernels(t)
    local first = text:find("GA_DEVICE void conv_ring(", 1, true)
    local calls = { "ga_copy_commit%(%);", "ga_copy_wait<[^\n]->%(%);", "__syncthreads%(%);" }
    local count = devices.each_left_out(t, text, { { first, (text:find("\n}", first, true)) } }, calls,
        function(changed, switch) return edited(t, changed, switch) end, FOUND)
    t.equal(count, 4)
end)

add("found: octets copied to the slice that is multiplied", function(t)
    local changed, count = small_kernels(t):gsub("if %(next < slices && !late%) begin%(next, place_of%(next%)%);",
        "if (next < slices && !late) begin(next, place_of(s));")
    t.equal(count, 1)
    local result = edited(t, changed)
    t.equal(result.status, 3)
    t.match(result.err, FOUND)
end)

add("found: the barrier ahead of a gradient's patches left out", function(t)
    devices.needs_library(t)
    local text = kernels_of(small_patch(t, (open(t))))
    local first = text:find("GA_DEVICE void conv_patch_gradient", 1, true)
    local span = { first, (text:find("\n}", first, true)) }
    local count = devices.each_left_out(t, text, { span }, { "__syncthreads%(%);" }, function(changed, switch)
        return edited(t, changed, switch, small_patch)
    end, FOUND)
    t.equal(count, 1)
end)

-- === a model =====================================================================================

-- CIFAR-10 records of a formula.
local function records(count)
    local list = {}
    for r = 0, count - 1 do
        local record = { string.char(r * r % 10) }
        for k = 0, 3071 do record[k + 2] = string.char((r * 7919 + k * 104729 + (r * k) % 251 * 31) % 256) end
        list[r + 1] = table.concat(record)
    end
    return table.concat(list)
end

-- The shipped ResNet-18 of half the width: all its convolutions are on tensor cores, and so are their gradients.
local function resnet(t, programs, precision, target)
    t.write(programs.folder() .. "/data/tensor_conv.bin", records(16))
    local text, count = host.read("specs/resnet18_cifar10.lua"):gsub("local width[^\n]*", "local width, rows = 32, 2")
    t.equal(count, 1)
    text = text:match("^(.*)data       {") .. text:match("\nlocal kaiming.*\nloss  ") .. ' "cross_entropy"\n'
    return programs.build(("tensor_resnet_%s_%s"):format(precision, target), text .. ([[
data       { "cifar10", train = "tensor_conv.bin", shuffle = false, scale = 1/128 }
batch      (2)
accumulate (2)
optimizer  { "sgd", lr = 0.01, momentum = 0.9 }
train      { updates = 2, seed = 1 }
precision  "%s"
target     "%s"
]]):format(precision, target))
end

-- Behind so many layers a rounding changes much, so the C target in f32 says what is right: the device is as near to it
-- as the C target is with the same type. `make test` looks at its kernels; the tests above run its layers.
add("ResNet-18 trains as on the C target", function(t)
    local programs, environment = open(t)
    local device = resnet(t, programs, "f16", "cuda")
    local tensor, threads = forms_of(device)
    t.equal(next(threads), nil)
    assert(tensor.conv2d >= 11 and tensor.conv2d_dx >= 10 and tensor.conv2d_dw >= 11)
    t.long()
    local function gradients(p, env)
        return programs.dump(p, { "--cycles", 1, env = env }) .. "/gradients.safetensors"
    end
    local exact = gradients(resnet(t, programs, "f32", "c"))
    local expected = programs.distance(gradients(resnet(t, programs, "f16", "c")), exact)
    local found, where = programs.distance(gradients(device, environment()), exact)
    assert(found <= 1.25 * expected, ("%s differs by %.3g, the C target's by %.3g"):format(where, found, expected))
end)

-- === compilers ===================================================================================

-- `make test` compiles the largest tiles; those of ResNet-18 are in the table of test_nvrtc.lua too.
add("NVRTC compiles every form for sm_80 and sm_90a without spills", function(t)
    local programs, _, build_folder = open(t)
    local name, forms = some_forms(t)
    for _, case in ipairs { { "large", LARGE, "bf16" }, t.all and { name, forms, "f16" } or nil } do
        local p = build(t, programs, case[1], case[2], case[3], '"cuda"')
        for _, arch in ipairs { "80", t.all and "90a" or nil } do
            local result = t.run { build_folder .. "/device/nvrtc_check", p.folder .. "/kernels.cu", arch }
            if result.status == 77 then t.not_run("no libnvrtc here") end
            local count, kernels = 0, select(2, kernels_of(p):gsub("\nGA_KERNEL%b() conv2d", ""))
            for line in result.out:gmatch "[^\n]+" do
                if line:find("conv2d", 1, true) then
                    t.match(line, " 0 bytes spilled")
                    count = count + 1
                end
            end
            assert(count == kernels and count >= 5, result.out .. result.err)
        end
    end
end)

return tests
