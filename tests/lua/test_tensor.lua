-- Products on tensor cores (templates/cuda/tensor_product.cu) on the device library, which runs their instructions as
-- PTX describes them; its copies land as late as they may.
local devices = dofile "tests/lua/devices.lua"
local open, checked = devices.open, devices.checked

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

local function with(text, precision) return text .. ('precision "%s"\n'):format(precision) end

-- Every layout of the operands, sums of over two rings (8 slices of 32 terms) that are no whole slices, tiles that are
-- not whole, rows of 293 elements that are no multiple of 16 bytes as operands and results.
local LAYOUTS = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (300)
accumulate (2)
model      { linear "a" { 296 }, tanh {}, linear "b" { 136, store = "in_out" }, tanh {},
             linear "c" { 72, bias = false }, tanh {}, linear "odd" { 293 }, tanh {}, linear "e" { 40 }, tanh {},
             linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 2, seed = 3 }
]]

-- Matrices of the shapes that take the large tiles: 2048 x 1536 that of 128 x 256, 1536 x 1024 that of 128 x 128.
local LARGE = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (64)
model      { linear "a" { 2048 }, tanh {}, linear "b" { 1536 }, tanh {}, linear "c" { 1024 }, tanh {},
             linear "d" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1, seed = 3 }
]]

-- Many rows: the large tile in the forward product and in the gradient of an input.
local ROWS = [[
data       { "csv", train = "many_rows.csv", target = "last" }
batch      (1536)
model      { linear "a" { 2056 }, tanh {}, linear "b" { 40 }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1, seed = 3 }
]]

-- Long sums in few blocks, quickly computed: 1064 terms by teams of warps, 200 by one.
local SMALL = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (64)
model      { linear "a" { 1064 }, tanh {}, linear "b" { 200 }, linear "c" { 40 }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 2, seed = 3 }
]]

-- The gradient of a norm's input, whose blocks sum those of weight and bias over the rows of six warps.
local NORM = SMALL:gsub("1064", "296"):gsub("tanh {}", 'layernorm "n" {}')

local BUILT = { layouts = LAYOUTS, large = LARGE, rows = ROWS, small = SMALL, norm = NORM }

local function build(t, programs, name, precision, target)
    if name == "rows" then programs.write_sines("many_rows.csv", 1536, 40) end
    return programs.build(("tensor_%s_%s_%s"):format(name, precision, target),
        with(BUILT[name], precision) .. ('target "%s"\n'):format(target))
end

-- The parameters and gradients of two cycles are those of the C target: sums have another order, so some values are
-- rounded to a neighbour, which changes what follows by less than a rounding of all of them would.
local function equals_c(t, name, precision, settings, cycles)
    local programs, environment = open(t)
    local device, oracle = build(t, programs, name, precision, "cuda"), build(t, programs, name, precision, "c")
    local found = programs.dump(device, { "--cycles", cycles, env = environment(settings) })
    programs.close(found, programs.dump(oracle, { "--cycles", cycles }), U[precision], { "parameters", "gradients" },
        programs.distance)
    return device
end

-- How many functions of a program launch products on tensor cores; the names of those that launch others.
local function products_of(p)
    local tensor, other = 0, {}
    for _, function_of in ipairs(devices.launches(p)) do
        if function_of[2]:find "^PRODUCT_" then tensor = tensor + 1
        elseif function_of[1]:find "^linear" then other[#other + 1] = function_of[1] end
    end
    table.sort(other)
    return tensor, other
end

for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": every layout, odd sizes and long sums are those of the C target", function(t)
        local tensor, other = products_of(equals_c(t, "layouts", precision,
            precision == "bf16" and devices.light(t, 1) or checked(1), 2))
        t.equal(tensor, 17)
        t.equal(table.concat(other, " "), "")
    end)
end

-- === models ======================================================================================

local GPT = [[
data       { "text", train = "tensor.txt", context = 24, split = { eval = 2 } }
batch      (3)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 24 } (embedding "wte" { 67, 40 } (batch.input))
    x = times(2) "h" {
        residual { layernorm "ln_1" {}, linear "attn" { 120 }, attend { heads = 2, causal = true },
                   linear "proj" { 40 } },
        residual { layernorm "ln_2" {}, linear "fc" { 160 }, gelu {}, linear "out" { 40 } },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (x))
end)
]]

local LLAMA = [[
data       { "text", train = "tensor.txt", context = 24, split = { eval = 2 } }
batch      (3)
accumulate (2)
model(function(batch)
    local x = embedding "embed" { 64, 64 } (batch.input)
    local function to(name, n, from) return linear(name) { n, bias = false } (from) end
    x = times(2) "layers" (function(x)
        local h = rmsnorm "first" {} (x)
        local q, k = rotary { heads = 4 } (to("q", 64, h)), rotary { heads = 2 } (to("k", 32, h))
        x = x + to("o", 64, attend { heads = 4, kv_heads = 2, causal = true } (q, k, to("v", 32, h)))
        h = rmsnorm "second" {} (x)
        return x + to("down", 64, silu {} (to("gate", 88, h)) * to("up", 88, h))
    end) (x)
    return to("head", 64, rmsnorm "norm" {} (x))
end)
]]

local BERT = [[
data       { "text", train = "tensor.txt", context = 24, split = { eval = 2 } }
batch      (3)
accumulate (2)
model(function(batch)
    local x = positions "places" { 24 } (embedding "words" { 64, 40 } (batch.input))
    x = times(2) "layers" (function(x)
        local function of(name) return linear(name) { 40, bias = false } (x) end  -- that of keys has the gradient 0
        local a = attend { heads = 4 } (of "query", of "key", of "value")
        x = layernorm "first" {} (x + dropout(0.1) (linear "output" { 40 } (a)))
        return layernorm "second" {} (x + dropout(0.1) (linear "out" { 40 } (gelu {} (linear "inner" { 96 } (x)))))
    end) (layernorm "norm" {} (x))
    return linear "head" { 67 } (x)
end)
]]

-- The distance of two tensors in the 2-norm, and the size of the second one.
local function gap_of(x, y)
    local gap, size = 0, 0
    for i, value in ipairs(y.values) do gap, size = gap + (x.values[i] - value) ^ 2, size + value ^ 2 end
    return math.sqrt(gap), math.sqrt(size)
end

-- The gradients of a dump are those of the C target within `bound`; gradients that nearly cancel within twice the
-- distance of the C target's from `truth`, those of the same run in doubles, which it has from its own roundings.
local function close_beside(programs, found, oracle, truth, bound)
    local file = "/gradients.safetensors"
    local x, y, exact = programs.tensors(found .. file), programs.tensors(oracle .. file), programs.tensors(truth .. file)
    for name, tensor in next, y do
        local gap, size = gap_of(x[name], tensor)
        local own, all = gap_of(tensor, exact[name])
        local most = math.max(bound, 2 * own / all)
        assert(gap <= most * size, ("%s differs by %.3g, at most %.3g expected"):format(name, gap / size, most))
    end
end

-- Values that are rounded to a neighbour change others on a way of some tens of roundings: differences of up to 1.2 U
-- were found. The gradient of the weights of keys nearly cancels: roundings are a larger part of what is left.
local MODELS = { { "gpt", GPT }, { "llama", LLAMA }, { "bert", BERT } }

-- The program of one of these, of 600 bytes of text.
local function build_model(t, programs, model, precision, target)
    local bytes = {}
    for k = 1, 600 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
    t.write(programs.folder() .. "/data/tensor.txt", table.concat(bytes))
    return programs.build(("tensor_%s_%s_%s"):format(model[1], precision, target), with(model[2] .. [[
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 8, seed = 3 }
]], precision) .. ('target "%s"\n'):format(target))
end

for i, model in ipairs(MODELS) do
    for j, precision in ipairs { "bf16", "f16" } do
        add(model[1] .. " in " .. precision .. " is that of the C target", function(t)
            if (i + j) % 2 == 1 then t.long() end
            local programs, environment = open(t)
            local function dump(target, how, settings)
                local p = build_model(t, programs, model, how, target)
                return programs.dump(p, { "--cycles", 1, env = settings and environment(settings) }), p
            end
            local found, p = dump("cuda", precision, model[1] == "gpt" and checked(1) or devices.light(t, 1))
            local oracle = dump("c", precision)
            programs.close(found, oracle, 4 * U[precision], { "parameters" }, programs.distance)
            close_beside(programs, found, oracle, dump("c", "f64"), 4 * U[precision])
            local count = products_of(p)
            assert(count >= 12, count .. " products on tensor cores")
        end)
    end
end

-- === tiles =======================================================================================

-- The names of the tiles that the kernels of a program have: "128, 256".
local function tiles_of(p)
    local found = {}
    for tile in host.read(p.folder .. "/kernels.cu"):gmatch "    ga_tensor_product<(%d+, %d+), " do found[tile] = true end
    return found
end

add("the large tiles give what the C target does", function(t)
    local tiles = tiles_of(equals_c(t, "large", "bf16", nil, 1))
    for _, tile in ipairs { "128, 256", "128, 128", "64, 64", "32, 32" } do assert(tiles[tile], tile) end
    if t.all then equals_c(t, "rows", "f16", nil, 1) end
end)

-- A tile's place in the launch and the order of threads change no bit; the checker finds nothing.
add("the order of blocks and threads changes no bit", function(t)
    local programs, environment = open(t)
    local p = build(t, programs, t.all and "layouts" or "small", "bf16", "cuda")
    local function dump(settings) return programs.dump(p, { "--cycles", 1, env = environment(settings) }) end
    local expected = dump()
    for seed = 2, t.all and 4 or 2 do
        programs.identical(dump(checked(seed)), expected, { "parameters", "gradients" })
    end
end)

-- The tile of a product does not change its bits: all sums take 16 terms at a time, those of biases eight.
add("each tile gives the same bits", function(t)
    local programs, environment = open(t)
    local text = with(SMALL, "bf16") .. 'target "cuda"\n'
    local p = build(t, programs, "small", "bf16", "cuda")
    local expected = programs.dump(p, { "--cycles", 1, env = environment() })
    local dev = t.temp()
    t.shell(("cp -r gen templates runtime %s"):format(dev))
    local file = dev .. "/gen/emit/targets/cuda/tensor.lua"
    for name, from in next, { largest = "tensor.ENOUGH = 96", middle = "local TILES = {\n[^\n]*\n" } do
        local to = name == "largest" and "tensor.ENOUGH = 1" or "local TILES = {\n"
        local changed, count = host.read("gen/emit/targets/cuda/tensor.lua"):gsub(from, to)
        changed = changed:gsub("tensor.ENOUGH = 96", "tensor.ENOUGH = 1")
        t.equal(count, 1)
        t.write(file, changed)
        local other = programs.build("tensor_" .. name, text, { options = { "--dev", dev } })
        assert(tiles_of(other)[name == "largest" and "128, 256" or "128, 128"])
        programs.identical(programs.dump(other, { "--cycles", 1, env = environment(checked(1)) }), expected,
            { "parameters", "gradients" })
    end
end)

-- === each barrier, wait and commit is needed =====================================================

-- A run of the small program, or another one, with this text of kernels.
local function edited(t, text, name, more)
    local settings = checked(1)
    settings[#settings + 1] = more
    return devices.edited(t, build(t, open(t), name, "bf16", "cuda"), text, settings)
end

local function kernels_of(t, name)
    devices.needs_library(t)
    return host.read(build(t, open(t), name, "bf16", "cuda").folder .. "/kernels.cu")
end

add("found: each barrier, wait and commit of a product left out", function(t)
    local text = kernels_of(t, "small")
    local first = math.min(text:find("GA_DEVICE void ga_strips_store", 1, true),
        (text:find("GA_DEVICE void ga_sums_store", 1, true)))
    local last = text:find("\n}", text:find("GA_DEVICE void ga_tensor_product", 1, true), true)
    local calls = { "ga_copy_commit%(%);", "ga_copy_wait<[^\n]->%(%);", "__syncthreads%(%);", "__syncwarp%(%);" }
    local count = devices.each_left_out(t, text, { { first, last } }, calls,
        function(changed, switch) return edited(t, changed, "small", switch) end, "device: [ru]")
    t.equal(count, 10)
end)

add("found: a copy that is under way where results are put", function(t)
    local text, count = kernels_of(t, "small"):gsub("if %(next < turns%) begin%(next%);", "begin(next);")
    t.equal(count, 1)
    local result = edited(t, text, "small")
    t.equal(result.status, 3)
    t.contains(result.err, "device: race: write to where a copy is under way in shared")
end)

add("found: each barrier of the sums over a norm's rows left out", function(t)
    local text = kernels_of(t, "norm")
    local first = text:find("GA_DEVICE void ga_write_sums", 1, true)
    local count = devices.each_left_out(t, text, { { first, (text:find("\n}", first, true)) } }, { "__syncthreads%(%);" },
        function(changed, switch) return edited(t, changed, "norm", switch) end, "device: race")
    t.equal(count, 2)
end)

-- === copies of parameters in 16 bits =============================================================

add("an update writes the copies that products read, if it goes over all parameters, one by one", function(t)
    local programs = open(t)
    local function shown(text, file)
        local path = programs.folder() .. "/tensor_copies.lua"
        t.write(path, with(text, "bf16") .. 'target "cuda"\n')
        return programs.gagen({ "show", path, file }).out
    end
    local step = shown(SMALL, "step.c")
    assert(not step:find("pack_views", 1, true) and step:find("    pack_all(&q, m);", 1, true))
    t.contains(shown(SMALL, "kernels.cu"), "of_narrow_w.at[k] = bf16_narrow(of_w.at[k]);")
    for _, text in ipairs { SMALL .. 'parallel "zero1"\n', (SMALL:gsub('"sgd", lr = 0.1', '"lars", lr = 0.1')) } do
        assert(not shown(text, "kernels.cu"):find("narrow_w", 1, true), text)
        t.contains(shown(text, "step.c"), "    pack_views(q, m);\n}")
    end
end)

-- Forward products of a GPT with and without a bias, with and without a residual that is added, and gradients of norms
-- with and without one; products of gradients add nothing, so their kernel has no such parameter.
add("products and norms that differ in a bias or an added value share a kernel", function(t)
    local p = build_model(t, open(t), MODELS[1], "bf16", "cuda")
    local launch, kernels = host.read(p.folder .. "/launch.c"), host.read(p.folder .. "/kernels.cu")
    for body, missing in next, {
        ["linear_72x120x40"] = "with_1", ["linear_add_72x40x160"] = "", ["linear_72x67x40"] = "bias with_1",
        ["norm_dx_3x24x40"] = "with_1", ["norm_dx_add_3x24x40"] = "",
    } do
        local text, found = t.match(launch, "\nstatic void " .. body .. "(%b()%s*%b{})"), {}
        for name in text:gmatch "ga_address ([%w_]+) = 0;" do found[#found + 1] = name end
        t.equal(table.concat(found, " "), missing)
        t.match(text, body:find "norm" and "K_NORM_DX_72_ROWS_OF_40," or "K_PRODUCT_NT_TILE_64X64,")
    end
    t.match(kernels, "product_nt_tile_64x64%([^)]*const real %*bias,%s+const bf16 %*with_1, product_sizes size%)")
    t.match(kernels, "product_nn_tile_64x64%(bf16 %*c, const bf16 %*a, const bf16 %*b, product_sizes size%)")
end)

-- An evaluation with averages of the parameters reads copies of these, and the next update has its own again.
add("copies follow the averages of an evaluation", function(t)
    local programs, environment = open(t)
    local text = with(SMALL:gsub("lr = 0.1", "lr = 0.1, ema = 0.5"), "bf16") .. "eval { every = 1 }\n"
    local function losses(target, env)
        local p = programs.build("tensor_averages_" .. target, text .. ('target "%s"\n'):format(target))
        local list = {}
        for _, event in ipairs(programs.events(p, { "--cycles", 2, env = env })) do
            if event.event == "eval" or event.event == "update" then list[#list + 1] = event.loss end
        end
        return list
    end
    local found, expected = losses("cuda", environment(checked(1))), losses "c"
    t.equal(#found, #expected)
    for i, loss in ipairs(expected) do t.near(found[i], loss, U.bf16 / 4) end
end)

-- === compilers and devices =======================================================================

add("NVRTC compiles every tile for sm_80 and sm_90a without spills", function(t)
    local programs, _, build_folder = open(t)
    for i, case in ipairs { { "rows", "f16" }, { "large", "bf16" }, t.all and { "layouts", "bf16" } or nil } do
        local p = build(t, programs, case[1], case[2], "cuda")
        for _, arch in ipairs(t.all and { "80", "90a" } or { i == 1 and "90a" or "80" }) do
            local result = t.run { build_folder .. "/device/nvrtc_check", p.folder .. "/kernels.cu", arch }
            if result.status == 77 then t.not_run("no libnvrtc here") end
            for line in result.out:gmatch "[^\n]+" do
                if line:find("product", 1, true) then t.match(line, " 0 bytes spilled") end
            end
            t.match(result.out, ("sm_%s product"):format(arch), result.err)
        end
    end
end)

add("the plan predicts products on tensor cores by their own rate", function(t)
    local programs = open(t)
    local spec = programs.folder() .. "/tensor_plan.lua"
    local function predicted(more)
        t.write(spec, (with(SMALL, "bf16"):gsub("batch      %(64%)", "batch (256)")
            :gsub("model +%b{}", 'model { linear "a" { 1024 }, linear "b" { 1024 }, linear "out" { 10 } }')) .. more)
        for _, kernel in ipairs(programs.plan({ spec = spec }).kernels) do
            if kernel.name == "b_forward" then return kernel.predicted_us end
        end
    end
    local flops = 2 * 256 * 1024 * 1024
    t.near(predicted 'target "cuda"\n', flops / 300e12 * 1e6, 1e-9)
    t.near(predicted 'target { "cuda", arch = 75 }\n', flops / 67e12 * 1e6, 1e-9)
end)

add("a program for older devices has no tensor cores", function(t)
    local programs, environment = open(t)
    local text = with(SMALL, "bf16") .. 'target { "cuda", arch = 75 }\n'
    local p = programs.build("tensor_old", text)
    local kernels = host.read(p.folder .. "/kernels.cu")
    assert(not kernels:find("on tensor cores", 1, true) and not kernels:find("mma.", 1, true))
    local compiled = t.run { t.root .. "/" .. t.build .. "/device/nvrtc_check", p.folder .. "/kernels.cu", "75" }
    assert(compiled.status == 0 or compiled.status == 77, compiled.err)     -- 77: without NVRTC
    if devices.gpus(t) > 0 then return end
    programs.train(p, { "--cycles", 1, env = environment { "GAGEN_DEVICE_ARCH=75" } })
    local result = programs.train(build(t, programs, "small", "bf16", "cuda"),
        { env = environment { "GAGEN_DEVICE_ARCH=75" }, status = 3 })
    t.match(result.err, 'is sm_75, the program is for sm_80 or newer; .*target { "cuda", arch = 75 }')
end)

return tests
