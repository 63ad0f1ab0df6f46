-- Registers and shared memory of each kernel of each shipped spec as NVRTC compiles it, against a table of its version
-- in tests/nvrtc; no register is spilled. And how many kernels a micro-step launches.
--
-- A table has a line for each kernel: precision, name, registers on sm_80 and on sm_90a, bytes of shared memory; and for
-- each precision one with the SHA-256 of the kernels' text without comments. `make test` does not compile a text again
-- that the table knows; `make test-all` compiles all. With GAGEN_NVRTC_TABLES=1 in the environment the tables are written,
-- not compared: after kernels have changed, or with another NVRTC.
local devices = dofile "tests/lua/devices.lua"
local ordered = require "base.ordered"
local shipped = dofile "tests/lua/shipped.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Each spec has one of these in `make test`, all in `make test-all`; those of LIKE, whose kernels are nearly those of
-- another one, have theirs in `make test-all` alone.
local LIKE = { resnet18_tutorial = "resnet18_cifar10", bert_mini_sst2 = "bert_sst2" }
local CASES = { { "bf16", "80" }, { "f32", "90a" }, { "f16", "80" }, { "bf16", "90a" }, { "f32", "80" },
    { "f16", "90a" } }
local COLUMN = { ["80"] = 1, ["90a"] = 2 }

-- The program of a spec for devices; returns the folder.
local function written(t, name, folder, precision)
    local programs = shipped.open(t, folder)
    local text = shipped.text(t, name)
    if precision ~= "f16" then text = text:gsub("\nscaler [^\n]*", "") end     -- the others refuse one
    t.write(programs.folder() .. "/" .. name .. ".lua", text)
    local out = ("%s/nvrtc_%s_%s"):format(programs.folder(), name, precision)
    local result = programs.gagen { programs.folder() .. "/" .. name .. ".lua", "--target", "cuda", "--set",
        ('precision="%s"'):format(precision), "-o", out, "--force" }
    t.equal(result.status, 0, result.err)
    return out, programs
end

-- Whether a kernel is there for sm_90a alone: a twin of a product (test_hopper.lua has their table), or what a start
-- compares them by. None of them may spill either.
local function twins_of(folder)
    local names = { made_up = true, greatest = true, different = true }
    for field, name in host.read(folder .. "/launch.c"):gmatch '%.(%w+) = "([%w_]+)"' do
        local parts = field == "twin" and { "boxes", "parts" } or field == "summing" and { "sums", "totals" } or {}
        for _, part in ipairs(parts) do names[name .. "_" .. part] = true end
    end
    return function(name) return names[name] end
end

-- The line of a table that stands for the text of a program's kernels, without its comments, and for their launches.
local function line_of_text(folder, precision)
    local text = host.read(folder .. "/kernels.cu"):gsub("/%*.-%*/", ""):gsub("//[^\n]*", "")
    local parts = { text }
    for launch in host.read(folder .. "/step.c"):gmatch "%[K_[%w_]+%] = %d+," do parts[#parts + 1] = launch end
    return ("%s text %s\n"):format(precision, host.sha256(table.concat(parts)))
end

-- The version of NVRTC, or nil where there is none: one that a test has asked before.
local function version_here(t)
    local version = t.kept("NVRTC", function()
        local _, _, build = devices.open(t)
        local empty = t.temp() .. "/empty.cu"
        t.write(empty, "")
        return t.run({ build .. "/device/nvrtc_check", empty, "80" }).out:match "^NVRTC ([%d.]+)\n" or ""
    end)
    return version ~= "" and version or nil
end

-- The needs of the kernels of a program as NVRTC compiles it for a device: a map from names, and a list of them, and
-- NVRTC's version. Shared memory is that of the text and that of a launch.
local function needs_of(t, folder, arch)
    local _, _, build = devices.open(t)
    local result = t.run { build .. "/device/nvrtc_check", folder .. "/kernels.cu", arch }
    if result.status == 77 then t.not_run("no libnvrtc here") end
    t.equal(result.status, 0, result.err)
    local launches, needs, names = {}, {}, {}
    for name, bytes in host.read(folder .. "/step.c"):gmatch "%[K_([%w_]+)%] = (%d+)," do launches[name] = bytes end
    local alone = twins_of(folder)
    for name, registers, bytes in result.out:gmatch "\nsm_%w+ ([%w_]+) +(%d+) registers +(%d+) bytes shared" do
        if not alone(name) then
            names[#names + 1] = name
            needs[name] = { registers, tostring(bytes + (launches[name:upper()] or 0)) }
        end
    end
    return needs, names, result.out:match "^NVRTC ([%d.]+)\n"
end

-- A table's lines: { [precision] = { [name] = { registers on sm_80, on sm_90a, bytes } } }.
local function read_table(text)
    local found = {}
    for precision, name, a, b, bytes in text:gmatch "(%w+) ([%w_]+) (%d+) (%d+) (%d+)\n" do
        found[precision] = found[precision] or {}
        found[precision][name] = { a, b, bytes }
    end
    return found
end

-- Compares one case with the table; lines of what differs.
local function differences(needs, names, rows, column)
    local list = {}
    for _, name in ipairs(names) do
        local row, own = rows[name] or {}, needs[name]
        if row[column] ~= own[1] or row[3] ~= own[2] then
            list[#list + 1] = ("%s: %s registers and %s bytes, the table has %s and %s"):format(name, own[1], own[2],
                row[column], row[3])
        end
    end
    for name in next, rows do
        if not needs[name] then list[#list + 1] = name .. ": no longer there" end
    end
    return list
end

-- Writes the table of a spec.
local function write_table(t, name, folder)
    local lines, version = {}, nil
    for _, precision in ipairs { "f32", "bf16", "f16" } do
        local program, older, newer, names = written(t, name, folder, precision), nil, nil, nil
        lines[#lines + 1] = line_of_text(program, precision)
        older, names, version = needs_of(t, program, "80")
        newer = needs_of(t, program, "90a")
        for _, kernel in ipairs(names) do
            local a, b = older[kernel], newer[kernel]
            t.equal(a[2], b[2])
            lines[#lines + 1] = table.concat({ precision, kernel, a[1], b[1], a[2] }, " ") .. "\n"
        end
    end
    t.write(("tests/nvrtc/%s/%s.txt"):format(version, name), table.concat(lines))
end

for i, spec in ipairs(shipped.list) do
    local name, folder = spec[1], spec[2]
    add(name .. ": registers and shared memory are those of the table, and nothing is spilled", function(t)
        if t.environment "GAGEN_NVRTC_TABLES" then return write_table(t, name, folder) end
        if LIKE[name] then t.long() end
        for k, case in ipairs(CASES) do
            if t.all or (i - k) % #CASES == 0 then
                local precision, arch = case[1], case[2]
                local program, version = written(t, name, folder, precision), version_here(t)
                if not version then t.not_run("no libnvrtc here") end
                local file = ("tests/nvrtc/%s/%s.txt"):format(version, name)
                local known = host.read(file) or t.not_run("no table of NVRTC " .. version)
                if not t.all and known:find(line_of_text(program, precision), 1, true) then return end
                local needs, names = needs_of(t, program, arch)
                local list = differences(needs, names, read_table(known)[precision] or {}, COLUMN[arch])
                assert(#list == 0, ("%s, %s for sm_%s; GAGEN_NVRTC_TABLES=1 makes it anew:\n%s"):format(file, precision,
                    arch, table.concat(list, "\n")))
            end
        end
    end)
end

-- The log has the seconds that NVRTC takes at a start with an empty cache, in its parts and threads, on two cores;
-- nothing depends on them. The goals are 3 s for gpt2_124m and 4 s for ResNet-18.
for name, folder in ordered.each { gpt2_124m = "gpt2tokens", resnet18_cifar10 = "cifar-10-batches-bin" } do
    add(name .. " in bf16: the log has the seconds of NVRTC at a start on two cores", function(t)
        t.long()
        local program, _, _, build = written(t, name, folder, "bf16"), devices.open(t)
        for _, arch in ipairs { "80", "90a" } do
            local result = t.run { "taskset", "-c", "0,1", build .. "/device/nvrtc_check", "--start",
                program .. "/kernels.cu", arch, t.temp() }
            if result.status == 77 then t.not_run("no libnvrtc here") end
            t.equal(result.status, 0, result.err)
            print(("%s in bf16 for sm_%s: NVRTC takes %s s at a start, %.1f s of processors"):format(name, arch,
                t.match(result.out, "([%d.]+) s\n$"), result.cpu_seconds))
        end
    end)
end

-- Kernels of a micro-step in 16 bits. The goals are 300 of gpt2_124m, 320 of bert_sst2, 150 of ResNet-18.
local LAUNCHES = { gpt2_124m = 267, bert_sst2 = 306, resnet18_cifar10 = 139 }

for _, spec in ipairs(shipped.list) do
    local name, most = spec[1], LAUNCHES[spec[1]]
    if most then
        add(("%s in bf16 launches at most %d kernels in a micro-step"):format(name, most), function(t)
            local folder = written(t, name, spec[2], "bf16")
            local plan = t.load("tests/lua/json.lua").read(host.read(folder .. "/plan.json"))
            local launches = 0
            for _, kernel in ipairs(plan.kernels) do
                if kernel.role == "forward" or kernel.role == "backward" then launches = launches + kernel.calls end
            end
            launches = launches // plan.cycle.accumulate
            assert(launches <= most, launches)
        end)
    end
end

-- Bytes that the kernels of a micro-step of 32 rows of gpt2_124m move at least, if each reads its inputs and writes its
-- results once; the backward pass reads the 16-bit activations that it needs.
local FLOOR = 75670e6

-- docs/PERFORMANCE.md, wherever its lines end.
local function performance(t) return (host.read(t.root .. "/docs/PERFORMANCE.md"):gsub("%s+", " ")) end

add("predictions of gpt2_124m in docs/PERFORMANCE.md are those of the plan", function(t)
    local programs, docs = shipped.open(t, "gpt2tokens"), performance(t)
    local spec = programs.folder() .. "/gpt2_124m.lua"
    t.write(spec, shipped.text(t, "gpt2_124m"))
    for nodes, sentence in ordered.each { ["1,096"] = "are predicted, with it %s, ", ["1,384"] = "fusion %s launches",
        ["1,780"] = " %s launches and 38 ms are predicted" } do
        t.contains(docs, sentence:format(nodes))
        local command = { "plan", spec, "--target", "cuda", "--set", 'precision="bf16"' }
        local pass = nodes == "1,384" and "fusion" or nodes == "1,780" and "sums"
        if pass then table.move({ "--without", pass }, 1, 2, #command + 1, command) end
        t.contains(programs.gagen(command).out, ("one graph of %s nodes"):format(nodes))
    end
    local command = { "plan", spec, "--target", "cuda", "--set", 'precision="bf16"', "--set", "batch={32,global=128}" }
    local ms = tonumber(programs.gagen(command).out:match "\ntime +([%d.]+) ms")
    t.contains(docs, ("prediction is %d ms, %d,000 tokens a second"):format(ms, 128 * 1024 // ms))
    assert(128 * 1024 / ms >= 520, ms)
    command[#command + 1] = "--json"
    local plan, bytes = t.load("tests/lua/json.lua").read(programs.gagen(command).out), 0
    for _, kernel in ipairs(plan.kernels) do
        if kernel.role == "forward" or kernel.role == "backward" then bytes = bytes + kernel.bytes * kernel.calls end
    end
    bytes = bytes / plan.cycle.accumulate
    assert(bytes > 0.9 * FLOOR and bytes <= 1.15 * FLOOR, bytes)
end)

-- The time of an update, in ms, and the launches of one that `gagen plan` predicts for a spec's text in bf16.
local function predicted(t, programs, name, text, rows)
    local spec = ("%s/%s.lua"):format(programs.folder(), name)
    t.write(spec, (text:gsub("\nscaler [^\n]*", "")))
    local result = programs.gagen { "plan", spec, "--target", "cuda", "--set", 'precision="bf16"', "--set",
        "batch=" .. rows, "--set", "accumulate=4" }
    t.equal(result.status, 0, result.err)
    return tonumber(result.out:match "\ntime +([%d.]+) ms"), tonumber(result.out:match "one graph of (%d+) nodes")
end

add("predictions of bert_sst2 and resnet18_cifar10 in docs/PERFORMANCE.md are those of the plan", function(t)
    local docs, programs = performance(t), shipped.open(t, "sst2")
    for _, file in ipairs { "train", "dev" } do
        shipped.tokenize(t, programs, file, "sst2_" .. file .. "_128", 128, 256)
    end
    local text = shipped.text(t, "bert_sst2"):gsub("(sst2_%l+)%.", "%1_128.")
    local ms = predicted(t, programs, "bert_128", text, 64)
    t.contains(docs, ("predicted at %.1f ms, %d sequences a second"):format(ms, 256000 // ms))
    assert(256000 / ms >= 5900, ms)
    programs = shipped.open(t, "cifar-10-batches-bin")
    local launches
    ms, launches = predicted(t, programs, "resnet18_500", shipped.text(t, "resnet18_cifar10"), 500)
    t.contains(docs, ("is predicted at %.1f ms, %d,000 images a second, in %d launches"):format(ms, 2000 // ms,
        launches))
    assert(2000 / ms >= 60, ms)
end)

return tests
