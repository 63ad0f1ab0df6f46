-- Defects of other systems with several ranks: means over unequal counts, tied tables, changed gradients, sums that overlap
-- with the backward pass, memory that grows, an overflow that one rank alone meets. Each for every mode that shares a
-- cycle.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local MODES = { "ddp", "zero1", "zero2", "zero3" }

local function each_mode(name, f)
    for _, mode in ipairs(MODES) do add(("%s: %s"):format(mode, name), function(t) f(t, mode) end) end
end

-- === sums, tied tables, changed gradients =========================================================

-- 120 windows of 6 ids. Six micro-batches of a cycle, however many ranks share them.
local function write_ids(t, programs)
    local list = {}
    for i = 0, 6 * 120 do list[i + 1] = string.pack("<I2", (i * i * 3 + i * 7 + i // 5) % 11) end
    t.write(programs.folder() .. "/data/peers.bin", table.concat(list))
end

-- The head is tied to the embedding; the spec changes the gradient before it is clipped; id 5 is no target, so that
-- micro-steps and ranks have unequal counts.
local function spec(accumulate, more)
    return ([[
data       { "tokens", train = "peers.bin", context = 6 }
batch      (3)
accumulate (%d)
model      { embedding "wte" { 11, 8 }, positions "wpe" { 6 },
             times(3) "h" { residual { layernorm "ln" {}, linear "fc" { 16 }, gelu {}, linear "proj" { 8 } } },
             unembed { "wte" } }
loss       { "cross_entropy", ignore = 5 }
gradient   (function(g, w) return g + 0.01 * w end)
clip       (0.1)
optimizer  { "adamw", lr = 1e-2 }
precision  "f64"
train      { updates = 400, seed = 3 }
checkpoint { every = "end" }
%s]]):format(accumulate, more or "")
end

local WRAP = { comm = "mpi", sources = { "tests/e2e/count_memory.c" },
    ldflags = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say" }

-- The program for two ranks, of many buckets; its memory is counted.
local function shared(t, mode, overlap)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_ids(t, programs)
    local parallel = ('parallel { %q%s, overlap = %s }\n'):format(mode, mode ~= "zero3" and ', bucket = "1KiB"' or "",
        overlap)
    return programs, programs.build(("peers_%s_%s"):format(mode, overlap), spec(3, parallel), WRAP)
end

-- The dump of a run, and the norms of its updates.
local function run(t, programs, p, o)
    local log, norms = t.temp() .. "/log.jsonl", {}
    local dump = programs.dump(p, table.move({ "--log", log, "--threads", 1 }, 1, 4, #o + 1, o))
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then norms[#norms + 1] = event.grad_norm end
    end
    return dump, norms
end

each_mode("unequal counts of targets, a tied table and changed gradients: as one rank", function(t, mode)
    local programs, two = shared(t, mode, true)
    local expected, norms = run(t, programs, programs.build("peers_one", spec(6)), { "--cycles", 8 })
    local found, norms_found = run(t, programs, two, { ranks = 2, "--cycles", 8 })
    programs.close(found, expected, 1e-11)
    t.equal(#norms_found, 8)
    for i, norm in ipairs(norms) do t.near(norms_found[i], norm, 1e-8 * norm) end
end)

each_mode("sums beside the backward pass give the norms and bits of sums behind it", function(t, mode)
    local programs, beside = shared(t, mode, true)
    local _, behind = shared(t, mode, false)
    t.match(host.read(beside.folder .. "/step.c"), "bucket_start%(w, m, 1[,)]")
    local dumps, norms = {}, {}
    for i, p in ipairs { beside, behind } do dumps[i], norms[i] = run(t, programs, p, { ranks = 2, "--cycles", 8 }) end
    programs.identical(dumps[1], dumps[2], { "parameters", "state", "gradients" })
    t.equal(norms[1], norms[2])
end)

each_mode("400 updates take the planned bytes and nothing after ready", function(t, mode)
    local programs, p = shared(t, mode, true)
    local text, seen = programs.train(p, { ranks = 2, "--threads", 1, "--cycles", 400 }).err, 0
    for bytes, late in text:gmatch "counted: (%d+) bytes in %d+ mappings, %d+ calls, (%d+) after ready" do
        seen = seen + 1
        t.equal({ tonumber(bytes), tonumber(late) }, { programs.plan(p, "--ranks", "2").totals.bytes, 0 })
    end
    t.equal(seen, 2)
end)

-- === an overflow that one rank meets ==============================================================

local CYCLES, MICROS, ROWS = 6, 6, 3

-- With the loss as a sum, a row whose wrong class has the probability 1 has a gradient of the scale itself: 65536 is
-- too large for f16, 32768 is not, and no other row comes near. The last micro-batch of the cycles in PLANTED has
-- large inputs and each of three classes, so at least two such rows.
local PLANTED = { [2] = true, [5] = true, [6] = true }

-- The scale of each cycle, and the updates skipped so far: a skip halves the scale, two updates double it again.
local SCALES, SKIPPED = { 65536, 65536, 32768, 32768, 65536, 32768 }, { 0, 1, 1, 1, 2, 2 }

local function write_planted(t, programs)
    local lines = {}
    for k = 0, CYCLES * MICROS * ROWS - 1 do
        local cycle, micro = k // (MICROS * ROWS) + 1, k // ROWS % MICROS
        local planted = PLANTED[cycle] and micro == MICROS - 1
        lines[k + 1] = planted and "90,-70,80," .. k % 3
            or ("%.3f,%.3f,%.3f,%d"):format(math.sin(k), math.cos(3 * k), math.sin(k * k), k % 3)
    end
    t.write(programs.folder() .. "/data/planted.csv", table.concat(lines, "\n") .. "\n")
end

local function planted(ranks, mode)
    return ([[
name       "looped"
data       { "csv", train = "planted.csv", target = "last", shuffle = false }
batch      (3)
accumulate (%d)
model      { linear "fc1" { 8 }, relu {}, linear "fc2" { 3 } }
loss       { "cross_entropy", weight = "sum" }
optimizer  { "adamw", lr = 1e-3 }
precision  "f16"
scaler     { hysteresis = 1, growth_interval = 2 }
train      { updates = 6, seed = 3 }
%s]]):format(MICROS // ranks, mode and ("parallel %q\n"):format(mode) or "")
end

-- The output of tests/e2e/every_rank.c with the program p of each rank: an array of texts.
local function outputs(t, programs, p, ranks, mode, ...)
    local folder, texts = t.temp(), {}
    local made = t.run { mode and "mpicc" or "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o",
        p.folder .. "/every_rank", "tests/e2e/every_rank.c", p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm",
        "-pthread" }
    t.equal(made.status, 0, made.err)
    local command = t.mpirun(ranks)
    table.move({ p.folder .. "/every_rank", tostring(CYCLES), folder, ... }, 1, 3 + select("#", ...), #command + 1,
        command)
    command.env = { "GAGEN_TIMEOUT=300", ("GAGEN_DATA=%s/%s/data"):format(t.root, programs.folder()) }
    local result = t.run(command)
    t.equal(result.status, 0, result.err)
    for rank = 0, ranks - 1 do texts[rank + 1] = host.read(("%s/%d"):format(folder, rank)) end
    return texts
end

local function every_rank(t, ranks, mode)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_planted(t, programs)
    local p = programs.build(("peers_planted_%s_%d"):format(mode or "one", ranks), planted(ranks, mode),
        { lib = true, comm = mode and "mpi" })
    return outputs(t, programs, p, ranks, mode)
end

-- Scales, skipped updates and parameters of such a text.
local function read(text)
    local scales, skipped, parameters = {}, {}, {}
    for line in text:gmatch "[^\n]+" do
        local count, scale = line:match "^(%d+) (%S+)$"
        if count then
            scales[#scales + 1], skipped[#skipped + 1] = math.tointeger(tonumber(scale)), tonumber(count)
        else
            local name, values = line:match "^(%S+) (.*)$", {}
            for value in line:gmatch " (%S+)" do values[#values + 1] = tonumber(value) end
            parameters[name] = values
        end
    end
    return scales, skipped, parameters
end

-- f16 copies of weights round other sums of the same rows.
local BOUND = 1e-3

for _, ranks in ipairs { 2, 3 } do
    each_mode(("an overflow on one of %d ranks is the same skip, scale and parameters on all"):format(ranks),
        function(t, mode)
            local texts = every_rank(t, ranks, mode)
            for rank = 2, ranks do t.equal(texts[rank], texts[1], "rank " .. rank - 1) end
            local scales, skipped, parameters = read(texts[1])
            t.equal({ scales, skipped }, { SCALES, SKIPPED })
            local one_scales, one_skipped, one = read(every_rank(t, 1)[1])
            t.equal({ one_scales, one_skipped }, { SCALES, SKIPPED })
            for name, values in next, one do
                local largest = 0
                for _, value in ipairs(values) do largest = math.max(largest, math.abs(value)) end
                for i, value in ipairs(values) do t.near(parameters[name][i], value, BOUND * largest) end
            end
        end)
end

-- === gradients of each rank =======================================================================

-- The numbers behind each `gradient of NAME` in a text, cycle by cycle.
local function gradients_of(text)
    local list = {}
    for values in text:gmatch "gradient of %S+ ([^\n]+)" do
        for value in values:gmatch "%S+" do list[#list + 1] = tonumber(value) end
    end
    return list
end

-- MMEngine's case of two processes (test_optimizer_wrapper.py): unequal where nothing is exchanged, equal at the boundary.
add("ddp: ranks have gradients of their own inside a cycle, and the mean of all rows at its boundary", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_planted(t, programs)
    local function build(a, mode)
        local text = planted(1, mode):gsub("scaler [^\n]*\n", ""):gsub('"f16"', '"f32"')
            :gsub("accumulate %b()", ("accumulate (%d)"):format(a))
        return programs.build("peers_gradients_" .. (mode or "one"), text, { lib = true, comm = mode and "mpi" })
    end
    local two, inside = build(2, "ddp"), t.temp()
    programs.train(two, { ranks = 2, "--threads", 1, "--stop-micro", 1, "--checkpoint", inside, status = 75 })
    local function partial(rank)
        return host.read(("%s/cycle-000000000-r1/gradient-%dof2.safetensors"):format(inside, rank))
    end
    assert(#partial(1) > 100 and partial(1) ~= partial(2), "gradients inside a cycle are those of all ranks")
    local texts = outputs(t, programs, two, 2, "ddp", "gradients")
    t.equal(texts[2], texts[1])
    local found, expected = gradients_of(texts[1]), gradients_of(outputs(t, programs, build(4), 1, nil, "gradients")[1])
    t.equal(#found, CYCLES * (3 * 8 + 8 + 8 * 3 + 3))
    for i, value in ipairs(expected) do t.near(found[i], value, 1e-5 * math.max(1, math.abs(value))) end
end)

return tests
