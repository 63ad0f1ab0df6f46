-- Products for sm_90a (templates/cuda/hopper_product.cu) and the choice between them and those of sm_80
-- (runtime/device/twins.h), on the device library, which has their instructions by the rules of PTX but takes no times:
-- GAGEN_TWINS=all takes them, and without it no start finds them faster.
local devices = dofile "tests/lua/devices.lua"
local ordered = require "base.ordered"
local traffic = dofile "tests/lua/traffic.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

-- Every layout of the operands, rows, columns and terms that are no whole tiles, an odd number of tiles below each other
-- and one tile, piles that a cluster has whole and piles in parts, runs of 9 slices: more than two rings.
local LAYOUTS = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (300)
accumulate (2)
model      { linear "a" { 520 }, tanh {}, linear "b" { 136, store = "in_out" }, tanh {},
             linear "c" { 72, bias = false }, tanh {}, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 2, seed = 3 }
]]

-- One product with a twin in each direction; in that of the gradient the two clusters have runs of 12 slices, of one and
-- a half piles, and one block has no row of its last tile.
local SMALL = [[
data       { "csv", train = "many_rows.csv", target = "last" }
batch      (512)
model      { linear "a" { 520 }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1, seed = 3 }
]]

local GPT = [[
data       { "text", train = "hopper.txt", context = 24, split = { eval = 2 } }
batch      (3)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 24 } (embedding "wte" { 67, 40 } (batch.input))
    x = times(2) "h" {
        residual { layernorm "ln_1" {}, linear "attn" { 120 }, attend { heads = 2, causal = true },
                   linear "proj" { 40 }, dropout(0.1) },
        residual { layernorm "ln_2" {}, linear "fc" { 160 }, gelu {}, linear "out" { 40 } },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (x))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 8, seed = 3 }
]]

local TEXTS = { layouts = LAYOUTS, small = SMALL, gpt = GPT }

local small_twins = devices.small_twins

local function build(t, programs, name, precision, target)
    programs.write_sines("many_rows.csv", 512, 40)
    local bytes = {}
    for k = 1, 600 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
    t.write(programs.folder() .. "/data/hopper.txt", table.concat(bytes))
    local text = TEXTS[name] .. ('precision "%s"\ntarget "%s"\n'):format(precision, target)
    return programs.build(("hopper_%s_%s_%s"):format(name, precision, target), text,
        target == "cuda" and { options = { "--dev", small_twins(t, programs) } } or nil)
end

local forced = devices.forced

-- A run's folder of dumps, its lines, and the hash of its choices.
local function run(t, programs, p, env)
    local folder = t.temp()
    local result = programs.train(p, { "--cycles", 1, "--dump", folder, env = env })
    local checkpoint = t.shell(("cat %s/*/manifest.json"):format(result.checkpoint)).out
    return folder, result.err, checkpoint:match '"tuning_sha256":"(%x*)"'
end

-- === results =====================================================================================

add("descriptors: one product by boxes and warpgroups is that of mma.sync", function(t)
    devices.needs_arch(t, 90)
    local programs, environment = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local found, lines, hash = run(t, programs, p, environment(forced()))
    assert(not lines:find("sm_90a", 1, true), lines)          -- none was refused
    t.equal(#hash, 64)
    local expected = run(t, programs, p, environment { "GAGEN_TWINS=none" })
    programs.close(found, expected, U.bf16, { "parameters", "gradients" }, programs.distance)
end)

for _, case in ipairs { { "layouts", "bf16", 8 }, { "layouts", "f16", 8 }, { "gpt", "bf16", 12 } } do
    local name, precision, twins = case[1], case[2], case[3]
    add(("%s in %s, by twins alone, is that of the C target"):format(name, precision), function(t)
        if precision == "f16" then t.long() end
        devices.needs_arch(t, 90)
        local programs, environment = devices.open(t)
        local p = build(t, programs, name, precision, "cuda")
        local _, count = host.read(p.folder .. "/launch.c"):gsub("= {%.name = ", "")
        assert(count >= twins, count)
        local found, lines, hash = run(t, programs, p, environment(forced(devices.light(t, 1))))
        assert(not lines:find("sm_90a", 1, true), lines)      -- none was refused
        t.equal(#hash, 64)
        local oracle = programs.dump(build(t, programs, name, precision, "c"), { "--cycles", 1 })
        programs.close(found, oracle, (name == "gpt" and 4 or 1) * U[precision], { "parameters", "gradients" },
            programs.distance)
    end)
end

-- The kernels of twins move in a cycle of `steps` micro-steps the bytes of the plan within 5 %, for all functions that
-- launch them, and those of their parts; copies of boxes bring what the rates of the plan follow from. path: of the
-- counts of a run. Returns the number of functions.
local function check_bytes(t, p, path, steps)
    local counted, twins, planned, compared = traffic.launches(path), traffic.of_products(p.folder), {}, 0
    local groups = traffic.groups(twins)
    for _, kernel in ipairs(t.load("tests/lua/json.lua").read(host.read(p.folder .. "/plan.json")).kernels) do
        local own = twins[kernel.fn]
        if own then
            local group = groups[own.twin] or own.twin
            local all = planned[group] or { bytes = 0, boxes = 0, launches = {} }
            for name, n in ordered.each(own.launches) do
                all.launches[name] = (all.launches[name] or 0) + steps * n
            end
            all.bytes = all.bytes + steps * (kernel.bytes + own.beside) + (steps - 1) * own.added
            all.boxes, planned[group] = all.boxes + steps * own.brought, all
            compared = compared + 1
        end
    end
    for twin, all in ordered.each(planned) do
        local found, boxes = 0, 0
        for name, n in ordered.each(all.launches) do
            local list = counted[name] or {}
            for k = #list - n + 1, #list do         -- those before are the comparisons of the start
                found, boxes = found + list[k].moved, boxes + list[k].boxes
            end
        end
        t.equal(boxes, all.boxes, twin)
        t.near(found, all.bytes, 0.05 * all.bytes)
    end
    return compared
end

-- Ten blocks, five clusters: in the gradient each of three piles has a share, and two clusters have their tails.
add("tails of shared piles, cut between two clusters, by twins alone, are those of the C target", function(t)
    devices.needs_arch(t, 90)
    local programs, environment = devices.open(t)
    programs.write_sines("many_rows.csv", 512, 40)
    local text = SMALL .. 'precision "bf16"\n'
    local p = programs.build("hopper_tails_cuda", text .. 'target "cuda"\n',
        { options = { "--dev", small_twins(t, programs, 10) } })
    local launch = host.read(p.folder .. "/launch.c"):gsub("%s+", " ")
    t.contains(launch, ".clusters = 5, .whole = 0, .shares = 1, .share = 4,")
    local found, lines = run(t, programs, p, environment(forced(devices.checked(1))))
    assert(not lines:find("sm_90a", 1, true), lines)
    local oracle = programs.dump(programs.build("hopper_tails_c", text), { "--cycles", 1 })
    programs.close(found, oracle, U.bf16, { "parameters", "gradients" }, programs.distance)
end)

add("the order of threads, copies and blocks changes no bit; products move the bytes of the plan", function(t)
    devices.needs_arch(t, 90)
    local programs, environment = devices.open(t)
    local p = build(t, programs, t.all and "layouts" or "small", "bf16", "cuda")
    local path = t.root .. "/" .. t.temp() .. "/traffic"
    local expected = run(t, programs, p, environment(forced()))
    for seed = t.all and 1 or 2, t.all and 3 or 2 do
        local env = environment(forced(devices.checked(seed)))
        env[#env + 1] = "GAGEN_DEVICE_TRAFFIC=" .. path
        programs.identical(run(t, programs, p, env), expected, { "parameters", "gradients" })
    end
    if devices.gpus(t) == 0 then t.equal(check_bytes(t, p, path, t.all and 2 or 1), t.all and 11 or 2) end
end)

add("each block with copies of its own of what the blocks of a cluster share has the same bits", function(t)
    devices.needs_arch(t, 90)
    local programs, environment = devices.open(t)
    local p, folder, settings = build(t, programs, "small", "bf16", "cuda"), t.temp(), forced()
    local text, count = host.read(p.folder .. "/kernels.cu"):gsub(
        "ga_slice_copy<CLUSTER, (CLUSTER, B_TURNED>%(slice %+ GA_A_BYTES, b, full %+ place, run.wide%(%), j0,"
            .. "\n%s+s %* GA_DEEP,)[^;]*;",
        "for (int part = 0; part < CLUSTER; part++) ga_slice_copy<1, %1 part);")
    t.equal(count, 1)
    t.write(folder .. "/kernels.cu", text)
    settings[#settings + 1] = "GAGEN_KERNELS=" .. folder
    programs.identical(run(t, programs, p, environment(settings)), run(t, programs, p, environment(forced())),
        { "parameters", "gradients" })
end)

-- === each wait, arrival, fence and barrier is needed ==============================================

local CALLS = { "ga_gate_init%b();", "ga_gates_ready%(%);", "ga_gate_wait%b();", "ga_gate_expect%b();",
    "if %([^\n]*block < CLUSTER%) ga_gate_arrive%b();", "if %(lane == 0%) ga_gate_arrive%b();", "ga_group_begin%(%);", "ga_group_commit%(%);", "ga_group_wait<%d>%(%);",
    "ga_cluster_wait%(%);", "__syncwarp%(%);" }

-- The parts of a text that are ga_strips_store and all functions of hopper_product.cu.
local function parts_of(text)
    local function part(first, last)
        local from = assert(text:find(first, 1, true))
        return { from, (assert(text:find(last, from, true))) }
    end
    return { part("GA_DEVICE void ga_strips_store", "\n}"), part("GA_DEVICE void ga_run_copy", "GA_DEVICE void ga_parts_sum") }
end

-- A run of the small program with this text of kernels and these settings.
local function edited(t, text, settings)
    return devices.edited(t, build(t, devices.open(t), "small", "bf16", "cuda"), text, settings)
end

local function small_kernels(t)
    devices.needs_library(t)
    return host.read(build(t, devices.open(t), "small", "bf16", "cuda").folder .. "/kernels.cu")
end

add("found: each wait, arrival, fence, commit and barrier left out", function(t)
    local text = small_kernels(t)
    local count = devices.each_left_out(t, text, parts_of(text), CALLS, function(changed, switch)
        local settings = forced(devices.checked(1))
        settings[#settings + 1] = switch
        return edited(t, changed, settings)
    end, "device: [bcdmruw]")
    t.equal(count, 21)
end)

-- Texts, wrong ones in their place (%0: the text), and what is found; `make test` takes every third one.
local WRONG = {
    { "% GA_RING, block);", "% GA_RING, (int)(blockIdx.x % CLUSTER));", "a product may still read" },
    { "ga_registers_more<TERMS ? 224 : 232>", "ga_registers_more<240>", "setmaxnreg: %d+ registers of 65536" },
    { "(ga_uint64)1 << 62;", "(ga_uint64)2 << 62;", "a descriptor without the swizzle of 128 bytes" },
    { "2 * CLUSTER + (TERMS ? 2 : 0)", "2", "device: " },
    { "ring + n % GA_RING * GA_SLICE_BYTES;", "ring + (n + 1) % GA_RING * GA_SLICE_BYTES;", "wgmma: operand a" },
    { "(1 << BLOCKS) - 1", "1", "device: " },
    { "while (!ga_gate_opens(gate, phase)) {", "if (!ga_gate_opens(gate, phase)) {", "device: " },
    { "ga_box_to<BLOCKS>(to + i * 128, from, gate, k0,", "ga_box_to<BLOCKS>(to + i * 128 + 128, from, gate, k0,",
        "no multiple of 1024 bytes" },
    { "to + i * 128, from, gate, k0, i0 + i);", "to, from, gate, k0, i0 + i);", "another copy is under way" },
    { "__cluster_dims__(2)", "", "block 1 of the cluster has ended or is not there" },
    { "ga_gate_wait(empty + place, ~(n / GA_RING) & 1);", "", "device: " },
    -- threads themselves use what products and copies use: that would need a fence.proxy.async
    { "ga_gate_expect(full + place, (GA_TALL + run.wide()) * 128);", "slice[0] = 0; %0", "box: copied to where threads have" },
    { "if (narrow)\n", "((ga_byte *)slice)[threadIdx.x] = 0; %0",
        "wgmma: operand a: threads have read or written" },
    { "const ga_uint64 x = ga_operand(slice + group", "sum[0][0] += slice[threadIdx.x]; %0",
        "device: [bu][^\n]*rea" },      -- a box may be under way, or not there yet
    { "__syncwarp();\n            if (lane == 0) ga_gate_arrive(empty", "if (lane == 0) ga_gate_arrive(empty",
        "a thread may still read" },
}

add("found: wrong descriptors, places, counts and waits", function(t)
    local text = small_kernels(t)
    for i, case in ipairs(WRONG) do
        if t.all or i % 3 == 1 then
            local from, to = text:find(case[1], 1, true)
            local wrong = case[2]:gsub("%%0", function() return case[1] end)
            local result = edited(t, text:sub(1, from - 1) .. wrong .. text:sub(to + 1), forced(devices.checked(2)))
            t.match(result.err, case[3])
        end
    end
end)

-- === the choice ==================================================================================

add("a twin with wrong results is not taken, and a line says so", function(t)
    local text, count = small_kernels(t):gsub("put%(i, j, value, beside%.upper", "value[0] *= 1.01f, %0")
    t.equal(count, 1)
    local programs, environment = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local folder = t.temp()
    t.write(folder .. "/kernels.cu", text)
    local function with(name)
        local env = environment { "GAGEN_TWINS=" .. name }
        env[#env + 1] = "GAGEN_KERNELS=" .. folder
        return run(t, programs, p, env)
    end
    local found, lines, hash = with "all"
    local _, refused = lines:gsub("linear[%w_]+: %d+ results of its kernel for sm_90a are wrong, mma%.sync", "")
    assert(refused >= 2, lines)
    t.equal(hash, "")
    programs.identical(found, (with "none"), { "parameters", "gradients" })
end)

add("found: an instruction for global memory that is given a place in shared memory", function(t)
    devices.needs_library(t)
    local programs = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local text, count = host.read(p.folder .. "/kernels.cu"):gsub(
        "%*%(ga_few<float, 8> %*%)%(own_bias %+ lane %* 8%) = bias8;", "ga_put8<true>(own_bias + lane * 8, bias8.at, 8);")
    t.equal(count, 1)
    local result = devices.edited(t, p, text, forced())
    t.equal(result.status, 3)
    t.match(result.err, "device: address space: [^\n]*_boxes")
end)

add("without a driver that describes boxes, or another device, the other kernels are used", function(t)
    devices.needs_library(t)
    local programs, environment, build_folder = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local expected = run(t, programs, p, environment { "GAGEN_TWINS=none" })
    local library = t.temp()
    t.shell(("cp %s/device/lib/*.h %s"):format(build_folder, library))
    t.write(library .. "/libdevice.so", (host.read(build_folder .. "/device/lib/libdevice.so")
        :gsub("cuTensorMapEncodeTiled", "cuTensorMapEncodeOther")))
    for _, name in ipairs { "libcuda.so.1", "libnvrtc.so.13", "libnccl.so.2" } do
        t.shell(("ln -s libdevice.so %s/%s"):format(library, name))
    end
    local env = environment(forced())
    env[#env + 1] = "LD_LIBRARY_PATH=" .. library
    local found, lines, hash = run(t, programs, p, env)
    t.contains(lines, "its driver has no cuTensorMapEncodeTiled, mma.sync computes all products")
    t.equal(hash, "")
    programs.identical(found, expected, { "parameters", "gradients" })
    for _, arch in ipairs { 80, 100 } do
        found, lines, hash = run(t, programs, p, environment(forced { "GAGEN_DEVICE_ARCH=" .. arch }))
        assert(not lines:find("mma.sync", 1, true), lines)
        t.equal(hash, "")
        programs.identical(found, expected, { "parameters", "gradients" })
    end
end)

add("where a device has no memory to compare a twin, it is not taken", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local planned = 0
    for _, arena in ipairs(t.load("tests/lua/json.lua").read(host.read(p.folder .. "/plan.json")).arenas) do
        planned = planned + (arena.memory == "device" and (arena.bytes + 255) // 256 * 256 or 0)
    end
    local _, lines, hash = run(t, programs, p, environment(forced { "GAGEN_DEVICE_MEMORY=" .. planned + 4096 }))
    t.match(lines, "linear[%w_]+: no memory to compare its kernel for sm_90a, mma%.sync computes it")
    t.equal(hash, "")
end)

add("GAGEN_TWINS is all or none", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local result = programs.train(build(t, programs, "small", "bf16", "cuda"),
        { env = environment { "GAGEN_TWINS=some" }, status = 1 })
    t.contains(result.err, 'GAGEN_TWINS: found "some", expected all or none')
end)

add("tuning.json keeps the choices of a device and its kernels, their hash goes to checkpoints", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local json = t.load "tests/lua/json.lua"
    local p = build(t, programs, "small", "bf16", "cuda")
    local path = p.folder .. "/tuning.json"
    host.remove(path)
    local function train(more)
        local o = { "--cycles", 1, env = environment() }
        return programs.train(p, table.move(more or {}, 1, #(more or {}), #o + 1, o))
    end
    local function hash_of(result)
        return t.shell(("cat %s/*1/manifest.json"):format(result.checkpoint)).out:match '"tuning_sha256":"(%x*)"'
    end
    local first = train()
    local kept = json.read(host.read(path))
    t.equal(kept.device, "test device sm_90")
    local names = 0
    for _, taken in next, kept.twins do
        names = names + 1
        t.equal(taken, false)                   -- the library's events have no times: nothing is faster
    end
    assert(names >= 2, names)
    t.equal(hash_of(first), "")

    t.write(path, (host.read(path):gsub("false", "true")))
    local text, second = host.read(path), train()
    t.equal(host.read(path), text)
    t.equal(hash_of(second), select(3, run(t, programs, p, environment(forced()))))

    local resumed = programs.train(p, { "--cycles", 2, "--checkpoint", second.checkpoint, "--resume", "latest",
        env = environment { "GAGEN_TWINS=none" } })
    t.match(resumed.err, "tuning_sha256")

    t.write(path, (text:gsub("test device", "another device")))
    t.equal(hash_of(train()), "")
    t.equal(json.read(host.read(path)).device, "test device sm_90")
    host.remove(path)
end)

-- Ranks would have other bits if they took other kernels.
add("ranks take a twin where all of them do", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    programs.write_sines("many_rows.csv", 512, 40)
    local p = programs.build("hopper_ranks", SMALL:gsub("batch      %(512%)", "batch (256)")
        .. 'precision "bf16"\ntarget "cuda"\nparallel "ddp"\n',
        { options = { "--dev", small_twins(t, programs) } })
    local function ranks(command, name)
        local folder = t.temp()
        local before = { t.root .. "/tests/device/ranks", "2", "sh", "-c", command .. 'exec "$@"', "train" }
        local result = programs.train(p, { "--cycles", 1, "--dump", folder, before = before,
            env = environment { "GAGEN_TWINS=" .. name } })
        return folder, t.shell(("cat %s/*/manifest.json"):format(result.checkpoint)).out
            :match '"tuning_sha256":"(%x*)"'
    end
    local none, nothing = ranks("", "none")
    local all, hash = ranks("", "all")
    local one, agreed = ranks('[ "$RANK" = 0 ] || export GAGEN_TWINS=none; ', "all")
    t.equal(#hash, 64)
    t.equal(nothing .. agreed, "")
    programs.identical(one, none, { "parameters" })
    programs.close(all, none, U.bf16, { "parameters" }, programs.distance)
end)

-- === compilers and plan ===================================================================================

add("NVRTC compiles every layout for sm_90a without spills, and has products go on beside each other", function(t)
    local programs, _, build_folder = devices.open(t)
    for _, precision in ipairs { "bf16", t.all and "f16" or nil } do
        local p = build(t, programs, "layouts", precision, "cuda")
        local result = t.run { build_folder .. "/device/nvrtc_check", p.folder .. "/kernels.cu", "90a",
            t.all and "80" or nil }
        if result.status == 77 then t.not_run("no libnvrtc here") end
        t.equal(result.status, 0, result.err)
        local twins, version = {}, result.out:match "^NVRTC ([%d.]+)\n"
        for arch, name, registers, bytes in result.out:gmatch "\nsm_(%w+) ([%w_]+) +(%d+) registers +(%d+) bytes" do
            for _, part in ipairs { "_boxes", "_parts", "_sums", "_totals" } do
                if name:sub(-#part) == part then
                    t.equal(arch, "90a")
                    twins[#twins + 1] = ("%s %s %s %s\n"):format(precision, name, registers, bytes)
                end
            end
        end
        table.sort(twins)
        local file = ("tests/nvrtc/%s/twins_%s.txt"):format(version, precision)
        if t.environment "GAGEN_NVRTC_TABLES" then t.write(file, table.concat(twins)) end
        t.equal(table.concat(twins), host.read(file) or t.not_run("no table of NVRTC " .. version))
    end
end)

add("as PTX clusters of two copy to both of their blocks, and products of one row of tiles are clusters of one", function(t)
    local programs, _, build_folder = devices.open(t)
    local p = build(t, programs, "layouts", "bf16", "cuda")
    local text = host.read(p.folder .. "/kernels.cu")
    text = text:gsub("\nGA_KERNEL.-\n}\n", function(kernel) return not kernel:find "_boxes%(" and "\n" or nil end)
    local path, of = t.temp() .. "/kernels.cu", { ["1"] = 0, ["2"] = 0 }
    t.write(path, text)
    local result = t.run { build_folder .. "/device/nvrtc_check", "--ptx", path, "90a" }
    if result.status == 77 then t.not_run("no libnvrtc here") end
    t.equal(result.status, 0, result.err)
    local rows = {}             -- of the result of a twin
    for name, twin in host.read(p.folder .. "/launch.c"):gmatch '= {%.name = "([%w_]+)",%s+%.twin = "([%w_]+)"' do
        rows[twin .. "_boxes"] = tonumber(name:match "_(%d+)x%d+x%d+$")
    end
    for name, body in result.out:gmatch "%.entry ([%w_]+)%(.-%)([^{]*%b{})" do
        local blocks = body:match "%.reqnctapercluster (%d)"
        of[blocks] = of[blocks] + 1
        t.equal(blocks, rows[name] > 128 and "2" or "1")
        t.equal(body:find(".multicast::cluster [", 1, true) ~= nil, blocks == "2")
        assert(body:find("wgmma.mma_async", 1, true), name)
        local group = false         -- of products that no commit has ended yet: behind a branch NVRTC adds an empty one
        for line in body:gmatch "[^\n]+" do
            assert(not (group and (line:find "^%$L" or line:find "%f[%w]bra%f[%W]")), name .. ": a branch in a group")
            group = line:find("wgmma.mma_async", 1, true) ~= nil or group and not line:find("wgmma.commit_group", 1, true)
        end
    end
    assert(of["1"] >= 1 and of["2"] >= 5, of["1"] + of["2"])
end)

add("the plan predicts products with a twin by the rate of the twin", function(t)
    local programs = devices.open(t)
    local spec = programs.folder() .. "/hopper_plan.lua"
    t.write(spec, (SMALL:gsub("many_rows.csv", "digits/digits.csv.gz"):gsub("batch      %(512%)", "batch (1280)")
        :gsub("model +%b{}", 'model { linear "a" { 1024 }, linear "b" { 1024 }, linear "out" { 10 } }'))
        .. 'precision "bf16"\ntarget "cuda"\n')
    local plan = programs.plan { spec = spec }
    local found = {}
    for _, kernel in ipairs(plan.kernels) do found[kernel.name] = kernel.predicted_us end
    t.near(found.b_forward, 2 * 1280 * 1024 * 1024 / 540e12 * 1e6, 1e-9)
    local parts
    for _, arena in ipairs(plan.arenas) do parts = arena.name == "device_parts" and arena.bytes or parts end
    t.equal(parts, 2 * 1024 * 4)        -- of the sums of the gradient over rows: no pile of tiles is shared
    for _, arch in ipairs { 80, 100 } do
        t.write(spec, (host.read(spec):gsub('\ntarget [^\n]*', ('\ntarget { "cuda", arch = %d }'):format(arch))))
        for _, arena in ipairs(programs.plan({ spec = spec }).arenas) do assert(arena.name ~= "device_parts") end
    end
end)

add("memory for parts is reserved where a device has twins, and only there", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = build(t, programs, "small", "bf16", "cuda")
    local planned, parts = 0, 0
    for _, arena in ipairs(programs.plan({ spec = p.spec }, "--dev", small_twins(t, programs)).arenas) do
        if arena.name == "device_parts" then parts = arena.bytes end
        planned = planned + (arena.memory == "device" and arena.bytes or 0)
    end
    assert(parts > 0)
    for arch, expected in next, { [90] = planned, [80] = planned - parts } do
        local events = programs.events(p, { "--cycles", 1, env = environment { "GAGEN_TWINS=none",
            "GAGEN_DEVICE_ARCH=" .. arch } })
        t.equal(events[#events - 1].device_bytes, expected)
    end
end)

return tests
