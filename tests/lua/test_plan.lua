-- The plan matches the program: the planned bytes are mapped and nothing is allocated later, the planned collectives
-- are executed, and the same spec gives the same files everywhere.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function spec(count, more)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { eval = 300 } }
batch      (8)
accumulate (%d)
model      { linear "in" { 24 }, times(2) "h" { residual { linear "fc" { 24 }, tanh {} } }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 6 }
eval       { every = 2, metrics = { "loss", "accuracy" } }
checkpoint { every = 1, keep = 2 }
%s]]):format(count, more or "")
end

local WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say"

local function memory_case(t, name, text, options)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build(name, text, { ldflags = WRAP, sources = { "tests/e2e/count_memory.c" } })
    local folder = t.temp()
    local o = { "--threads", 3, "--log", folder .. "/log", "--watch", "in.bias:2", "--checkpoint", folder .. "/c" }
    local result = programs.train(p, table.move(options or {}, 1, #(options or {}), #o + 1, o))
    local plan = programs.plan(p)
    local bytes, maps, calls, late = t.match(result.err,
        "counted: (%d+) bytes in (%d+) mappings, (%d+) calls, (%d+) after ready\n$")
    t.equal(tonumber(bytes), plan.totals.bytes, "bytes mapped against the plan")
    local sum, arenas = 0, 0
    for _, arena in ipairs(plan.arenas) do
        sum, arenas = sum + arena.bytes, arenas + (arena.bytes > 0 and 1 or 0)
    end
    t.equal(sum, plan.totals.bytes, "sum of the arenas")
    t.equal(tonumber(maps), arenas, "one mapping for each arena")
    t.equal(tonumber(late), 0, "allocations after ready")
    t.equal(tonumber(calls), 0, "allocations before ready")
    t.equal(t.load("tests/lua/json.lua").lines(host.read(folder .. "/log"))[1].planned_bytes, plan.totals.bytes)
    return plan
end

add("the planned bytes are mapped, and nothing after ready", function(t)
    memory_case(t, "memory_f32", spec(4))
    memory_case(t, "memory_f64", spec(1, 'precision "f64"\nclip (1)\n'))
end)

add("the planned bytes hold for a long cycle and without eval", function(t)
    local text = spec(40, 'memory { recompute = { "*tanh*" } }\nlog { every = 2 }\n'):gsub("\neval[^\n]*", "")
    memory_case(t, "memory_long", text, { "--cycles", 3 })
end)

add("the planned bytes hold for images of several files", function(t)
    local formats = t.load("tests/lua/formats.lua")(t)
    formats.cifar_files()
    local text = spec(2):gsub("data [^\n]*", 'data { "cifar10", train = "formats/cifar_*.bin", eval = '
        .. '"formats/test.bin", crop = { 32, padding = 4 } }'):gsub("model      { ", "%0flatten {}, ")
    for _, arena in ipairs(memory_case(t, "memory_images", text).arenas) do
        local rows = 31 * 3073             -- besides, two tables of 3 x 256 values and what describes them
        if arena.name == "data" then
            assert(arena.bytes >= rows + 6144 and arena.bytes <= rows + 6144 + 2 * 4096, arena.bytes)
        end
    end
end)

-- Streamed rows are not in the plan: the buffers do not depend on the number of files.
add("the planned bytes hold for a stream of packed rows", function(t)
    local data = 'data { "csv", train = %q, eval = "tiny.csv", target = "last", stream = true }'
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = programs.folder() .. "/data/"
    local known = {}
    for copies = 1, 3 do
        t.write(folder .. "flow.csv", host.read(folder .. "tiny.csv"):rep(40 * copies))
        t.equal(t.shell(("gzip -nf '%sflow.csv'"):format(folder)).status, 0)
        local text = spec(2, 'clip (1)\n'):gsub("data [^\n]*", data:format("flow.csv.gz"))
        if copies == 1 then memory_case(t, "memory_stream", text, { "--cycles", 150 }) end
        t.write(folder .. "../flow.lua", text)
        local plan = programs.plan { name = "flow", spec = folder .. "../flow.lua" }
        for _, arena in ipairs(plan.arenas) do
            t.equal(arena.bytes, known[arena.name] or arena.bytes, arena.name)
            known[arena.name] = arena.bytes
        end
    end
end)

-- Calls of the plan's collectives by kind, and the bytes of all large ones and of those that gather.
local function planned(plan)
    local calls, bytes, gathered = { all_reduce = 0, reduce_scatter = 0, all_gather = 0, small = 0 }, 0, 0
    for _, c in ipairs(plan.collectives) do
        calls[c.kind] = calls[c.kind] + c.calls
        if c.kind ~= "small" then bytes = bytes + c.calls * c.bytes end
        if c.kind == "all_reduce" or c.kind == "all_gather" then gathered = gathered + c.calls * c.bytes end
    end
    return calls, bytes, gathered
end

-- Modes whose collectives move chunks: where these lie, and more words.
local STORED = { zero3 = "true }", zero3_owner = '"owner" }', zero3_false = "false }",
    zero3_bf16 = 'true }\nprecision "bf16"' }

-- bucket: nil for a mode of STORED.
local function parallel(mode, bucket)
    return bucket and ('parallel { %q, bucket = %q }\n'):format(mode, bucket)
        or ('parallel { "zero3", enable_distributed_storage = %s\n'):format(STORED[mode])
end

local MPI = { comm = "mpi", sources = { "tests/e2e/count_mpi.c" } }

-- The traffic of each of `ranks` ranks by its own counters; all must agree.
local function counted(t, err, ranks)
    local list = {}
    for scattered, gathered, bytes, small in
        err:gmatch("counted: (%d+) scattered, (%d+) gathered of (%d+) bytes, (%d+) small\n") do
        list[#list + 1] = { tonumber(scattered), tonumber(gathered), tonumber(bytes), tonumber(small) }
        t.equal(list[#list], list[1])
    end
    t.equal(#list, ranks, "ranks that counted")
    return list[1]
end

-- A program over the network, and its plan. words: nil, or what its spec has in the place of mode and bucket.
local function networked(t, mode, count, bucket, ranks, words)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = spec(count, words or parallel(mode, bucket)):gsub("\neval[^\n]*", ""):gsub("\ncheckpoint[^\n]*", "")
    local p = programs.build(("network_%s_a%d_%s"):format(mode, count, words and host.sha256(words):sub(1, 8)
        or (bucket or "chunks"):lower()), text, MPI)
    local plan = programs.plan(p, "--ranks", tostring(ranks))
    local _, bytes = planned(plan)
    t.equal(bytes, plan.totals.comm_bytes_per_cycle)
    t.equal(plan.ranks, ranks)
    return programs, p, plan
end

-- The counters of each rank after so many updates.
local function expected(plan, updates)
    local calls, _, gathered = planned(plan)
    return { updates * (calls.all_reduce + calls.reduce_scatter), updates * (calls.all_reduce + calls.all_gather),
        updates * gathered, updates * calls.small }
end

local function collectives_case(t, mode, count, bucket, ranks, words)
    local programs, p, plan = networked(t, mode, count, bucket, ranks, words)
    local log = t.temp() .. "/log"
    local result = programs.train(p, { ranks = ranks, "--threads", 1, "--cycles", 3, "--log", log })
    local events, updates, all = t.load("tests/lua/json.lua").lines(host.read(log)), 0, 0
    for _, c in ipairs(plan.collectives) do all = all + c.calls end
    for _, event in ipairs(events) do
        if event.event == "update" then
            t.equal({ event.collectives, event.comm_bytes }, { all, plan.totals.comm_bytes_per_cycle },
                "cycle " .. event.cycle)
            updates = updates + 1
        end
    end
    t.equal(updates, 3)
    t.equal(counted(t, result.err, ranks), expected(plan, 3))
    return plan
end

add("collectives of every cycle are those of the plan", function(t)
    local bytes
    for _, count in ipairs(t.all and { 1, 4, 16 } or { 1, 4 }) do
        local one = collectives_case(t, "ddp", count, "25MiB", 2)
        t.equal(#one.collectives, 2)
        bytes = bytes or one.totals.comm_bytes_per_cycle
        t.equal(one.totals.comm_bytes_per_cycle, bytes)
        collectives_case(t, "ddp", count, "25MiB", 1)
    end
    local many = collectives_case(t, "ddp", 4, "2KiB", 2)
    assert(#many.collectives > 3, #many.collectives .. " collectives")
    for _, count in ipairs(t.all and { 1, 4 } or { 4 }) do
        local one = collectives_case(t, "zero1", count, "25MiB", 2)
        t.equal(one.totals.comm_bytes_per_cycle, 2 * bytes)
        one = collectives_case(t, "zero2", count, "25MiB", 2)
        t.equal(one.totals.comm_bytes_per_cycle, (count + 1) * bytes)
    end
    collectives_case(t, "zero1", 4, "2KiB", 2)
    collectives_case(t, "zero2", 4, "2KiB", 2)
    for _, count in ipairs(t.all and { 1, 3, 16 } or { 3 }) do
        for _, mode in ipairs { "zero3", "zero3_owner" } do
            local one = collectives_case(t, mode, count, nil, 2)
            local gathered = (one.totals.comm_bytes_per_cycle - count * bytes) / (count * bytes)
            assert(gathered > 1 and gathered < 2, "each chunk is gathered once or twice in a micro-step")
        end
        local whole = collectives_case(t, "zero3_false", count, nil, 2)
        t.equal({ whole.totals.comm_bytes_per_cycle, #whole.collectives }, { bytes, 5 })       -- of 4 chunks, and the small one
    end
end)

-- In 16 bits an element of a weight is 2 bytes of its chunk, one of a bias 4, both of multiples of 16.
add("chunks are gathered as kernels read them: collectives are those of the plan", function(t)
    local gathered = {}
    for _, c in ipairs(collectives_case(t, "zero3_bf16", 3, nil, 2).collectives) do
        if c.kind == "all_gather" then gathered[#gathered + 1] = c.bytes end
    end
    local function bytes(weight, bias) return 2 * weight + 4 * bias end
    t.equal(gathered, { bytes(64 * 24, 32), bytes(24 * 24, 32), bytes(24 * 24, 32), bytes(240, 16) })
end)

add("with divided parameters the fullest of the ranks maps the planned bytes", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for _, mode in ipairs { "zero3_owner", "zero3_bf16" } do
        local p = programs.build("memory_" .. mode, spec(2, parallel(mode)), { comm = "mpi", ldflags = WRAP,
            sources = { "tests/e2e/count_memory.c" } })
        local err, most = programs.train(p, { ranks = 3, "--threads", 1, "--cycles", 1 }).err, 0
        for bytes in err:gmatch "counted: (%d+) bytes" do most = math.max(most, tonumber(bytes)) end
        t.equal(most, programs.plan(p, "--ranks", "3").totals.bytes)
    end
end)

-- The cover of modes and rules, each with and without values that are computed again, that the test above leaves out.
local RECOMPUTED = '\nmemory { recompute = { "*" } }\n'
local SEARCHED = 'parallel { "zero3", chunks = %q, min_chunk_size = 1600, chunk_search_range = 1024, '
    .. "chunk_search_n_grids = 16 }\n"
local WAYS = {
    { "ddp", 3, 'parallel { "ddp", bucket = "2KiB" }' .. RECOMPUTED },
    { "zero1", 3, 'parallel { "zero1", bucket = "2KiB" }' .. RECOMPUTED },
    { "zero1", 16, 'parallel "zero1"\n' },
    { "zero2", 3, 'parallel "zero2"\n' },
    { "zero2", 16, 'parallel { "zero2", bucket = "2KiB" }' .. RECOMPUTED },
    { "zero3", 1, 'parallel { "zero3", chunk_size = 2000 }\n' },
    { "zero3", 3, 'parallel { "zero3", prefetch = 0 }' .. RECOMPUTED },
    { "zero3", 3, SEARCHED:format "search" .. RECOMPUTED },
    { "zero3", 16, SEARCHED:format "utilization" .. RECOMPUTED },
}

add("collectives of modes, rules of chunks, and recomputation are those of the plan", function(t)
    for _, way in ipairs(WAYS) do
        local mode, count, words = table.unpack(way)
        local plan, gathers, scatters = collectives_case(t, mode, count, nil, 2, words), 0, 0
        for _, c in ipairs(plan.collectives) do
            if c.kind == "all_gather" then gathers = gathers + c.calls end
            if c.kind == "reduce_scatter" then scatters = scatters + c.calls end
        end
        if mode == "zero3" then
            t.equal(scatters % count, 0)
            assert(gathers <= 2 * scatters, words .. ": a chunk is gathered more than twice in a micro-step")
        end
    end
end)

-- In the text each kind of exchange has its number and its bytes.
add("the plan says that only zero2 exchanges gradients in each micro-step", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/network_text.lua"
    local function network(mode)
        t.write(path, spec(4, parallel(mode, "25MiB")))
        return t.match(programs.gagen { "plan", path }.out, "\nnetwork +(.-)\nboundary"):gsub("  +", " ")
    end
    t.equal((network "zero1"), [[
3 collectives per update, 24,320 bytes in buckets; none in other micro-steps
 reduce_scatter in last f32, 12,160 bytes
 small in boundary f64, 48 bytes
 all_gather in boundary f32, 12,160 bytes]])
    t.equal((network "zero2"), [[
6 collectives per update, 60,800 bytes in buckets; each micro-step has 1
 reduce_scatter in every f32, 12,160 bytes, 4 times
 small in boundary f64, 48 bytes
 all_gather in boundary f32, 12,160 bytes]])
end)

-- A layer of 64 x 110,000 weights is larger than four such parts on their way.
add("a bucket that is larger than the default 25 MiB travels in pieces", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/large_bucket.lua"
    t.write(path, (spec(1, 'parallel "ddp"\n'):gsub('linear "in" { 24 }', 'linear "wide" { 110000 }, %0')))
    for _, arena in ipairs(programs.plan({ name = "large_bucket", spec = path }).arenas) do
        if arena.name == "wires" then return t.equal(arena.bytes, 4 * 25 * 1024 * 1024) end
    end
    error("no arena for parts on their way")
end)

add("no collective outside the boundary", function(t)
    for _, mode in ipairs { "ddp", "zero1" } do
        local programs, p, plan = networked(t, mode, 4, "2KiB", 2)
        for _, case in ipairs { { 1, 0 }, { 3, 0 }, { 4, 1 }, { 7, 1 } } do
            local result = programs.train(p, { ranks = 2, "--threads", 1, "--stop-micro", case[1], status = 75 })
            t.equal(counted(t, result.err, 2), expected(plan, case[2]), ("%s: after %d micro-steps of 4"):format(mode,
                case[1]))
        end
    end
end)

add("the plan of cycles of an epoch, and of ranks", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, p = networked(t, "ddp", 4, "25MiB", 2)
    local one, two = programs.plan(p), programs.plan(p, "--ranks", "2")
    -- 1497 rows: 187 micro-batches of 8 are 46 cycles of 4; two ranks have 93 each, 23 cycles
    t.equal({ one.cycle.rows, one.cycle.global_rows, one.cycle.updates_per_epoch, one.cycle.tail_rows },
        { 8, 32, 46, 25 })
    t.equal({ two.cycle.rows, two.cycle.global_rows, two.cycle.updates_per_epoch, two.cycle.tail_rows },
        { 8, 64, 23, 25 })
    t.equal(one.totals.parameters, 64 * 24 + 24 + 2 * (24 * 24 + 24) + 24 * 10 + 10)
    t.equal(one.totals.comm_bytes_per_cycle, two.totals.comm_bytes_per_cycle)
end)

-- Generates the spec in a new folder and returns the folder.
local function generated(t, programs, text, below, environment)
    local folder = t.temp() .. below
    t.write(folder .. "/specs/same.lua", text)
    assert(host.link(t.root .. "/specs/data", folder .. "/specs/data"))
    local result = programs.gagen { "specs/same.lua", "--march", "x86-64-v3", cwd = folder, env = environment }
    t.equal(result.status, 0, result.err)
    return folder .. "/out/same--march=x86-64-v3"
end

-- Layers as one line each: "name kind shape times parameters forward FLOP of an update".
local function layers_of(t, text, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/layers.lua"
    t.write(path, text)
    local plan, list, sum = programs.plan({ name = "layers", spec = path }, ...), {}, 0
    for i, l in ipairs(plan.layers) do
        list[i] = ("%s %s %s %d %d %d"):format(l.name, l.kind, table.concat(l.shape, "x"), l.count, l.parameters,
            l.flops_per_cycle)
        sum = sum + l.parameters
    end
    t.equal(sum, plan.totals.parameters, "parameters of the layers")
    return list, plan, programs, path
end

-- A product of K columns takes 2 K operations for each of its values, the others one; a cycle has 3 x 8 rows.
add("the plan has a row for each layer, once for all iterations of times", function(t)
    local list, plan = layers_of(t, spec(3))
    t.equal(list, {
        "in linear 8x24 1 1560 73728",                      -- 64 x 24 + 24; 2 x 64 x 24 x 24
        "h.N.fc linear 8x24 2 1200 55296",                  -- 2 x (24 x 24 + 24); 2 x 2 x 24 x 24 x 24
        "h.N tanh 8x24 2 0 1152",
        "h.N add 8x24 2 0 1152",
        "out linear 8x10 1 250 11520" })                    -- 24 x 10 + 10; 2 x 24 x 10 x 24
    local forward = 0
    for _, k in ipairs(plan.kernels) do
        if k.role == "forward" and not k.name:find "^loss" and k.name ~= "tally" then
            forward = forward + k.flops * k.calls
        end
    end
    t.equal(forward, 73728 + 55296 + 1152 + 1152 + 11520, "work of the kernels")
    -- batchnorm's buffers are no parameters; a layer that is applied twice has them once; a loss has no layers
    list = layers_of(t, (spec(1):gsub("\nmodel[^\n]*", [[

model(function(batch)
    local fc = linear "fc" { 24 }
    local x = batchnorm "bn" {} (linear "in" { 24 } (batch.input))
    return linear "out" { 10 } (fc(x) * fc(x))
end)]]):gsub('\nloss[^\n]*', [[

loss(function(out, batch) return sum(out * out) end)]]):gsub(', metrics = { "loss", "accuracy" }', "")))
    for i, line in ipairs(list) do list[i] = line:match "^(.-) %d+$" end
    t.equal(list, { "in linear 8x24 1 1560", "bn batchnorm 8x24 1 48", "fc linear 8x24 1 600", "fc linear 8x24 1 0",
        " mul 8x24 1 0", "out linear 8x10 1 250" })
end)

add("the table of layers has aligned columns; on a terminal long names are cut", function(t)
    local text = spec(3):gsub('"in"', '"a_rather_long_name_of_a_layer"')
    local _, _, programs, path = layers_of(t, text)
    local shown = programs.gagen { "plan", path }.out
    t.contains(shown, [[
  layer                          kind    output   times  parameters  forward FLOP
  a_rather_long_name_of_a_layer  linear  (8, 24)      1       1,560        73,728
  h.N.fc                         linear  (8, 24)      2       1,200        55,296
  h.N                            tanh    (8, 24)      2           0         1,152
  h.N                            add     (8, 24)      2           0         1,152
  out                            linear  (8, 10)      1         250        11,520
  total                                                       3,010       142,848
]])
    local terminal = t.load("tests/lua/terminal.lua")
    t.contains(terminal(t, t.gagen .. " plan " .. path, 67), [[
  layer            kind    output   times  parameters  forward FLOP
  a_rath..._layer  linear  (8, 24)      1       1,560        73,728
  h.N.fc           linear  (8, 24)      2       1,200        55,296
]])
    t.contains(terminal(t, t.gagen .. " plan " .. path, 200), "\n  a_rather_long_name_of_a_layer  linear ")
end)

add("each kind of decision of the passes is shown with its reason", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/decisions.lua"
    t.write(path, [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (8)
model(function(batch)
    local x = tanh(linear "fc" { 24 } (batch.input))
    return linear "out" { 10, store = "in_out" } (silu(x * 2) + x)
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
parallel   { "ddp", ranks = 2 }
memory     { recompute = { "tanh_out" }, logits = "chunked", logits_rows = 4 }
train      { updates = 6 }
]])
    local function told(...)
        local made = programs.gagen { "plan", path, "--why", ... }
        t.equal(made.status, 0, made.err)
        return t.match(made.out, "\ndecisions(\n.*)$")
    end
    local text = told()
    for _, line in ipairs {
        "logits +4 rows at a time +memory: logits is \"chunked\"",
        "tanh_out +recomputed +memory: recompute names it",
        "fc.weight +transposed view +a product of each micro%-step reads it by columns",
        "out.weight +home +its readers read rows, or turn columns as they pack them",
        "silu_out +fused +add_out alone reads it",
        "mul_out +not fused +2 nodes read it",
        "bucket 1 +%d+ elements, 4 parameters +neighbours share one of up to %d+ elements",
        "fc_y +fused +its kernel computes tanh_out too",
        "mul_out +barrier +reads tanh_out, written since the last barrier",
    } do t.match(text, "\n  " .. line) end
    t.match(told("--without", "layout"), "\n  fc.weight +home +pass layout is left out")
    t.match(told("--set", 'memory.logits="whole"'), "logits +whole +memory: logits is not")
end)

-- hx: a name that begins as that of the layers h.
add("recomputed values are named by themselves or by their layers", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/recompute_globs.lua"
    t.write(path, [[
data       { "csv", train = "tiny.csv" }
batch      (5)
model {
    linear "hx_1" { 8 }, tanh {},
    times(2) "h" { residual { layernorm "ln" {}, block "mlp" { linear "up" { 8 }, tanh {} }, tanh {} } },
    linear "last" { 3 },
}
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
]])
    local function again(glob)
        local made, list = programs.gagen { "plan", path, "--why", "--set",
            ('memory.recompute={ "%s" }'):format(glob) }, {}
        t.equal(made.status, 0, made.err)
        for name in made.out:gmatch "\n  (%S+) +recomputed " do list[#list + 1] = name end
        table.sort(list)
        return table.concat(list, " ")
    end
    t.equal(again "h.*.ln", "h_ln_y")
    t.equal(again "h.*.mlp*", "h_mlp_tanh_out h_mlp_up_y")
    t.equal(again "h.*", "h_ln_y h_mlp_tanh_out h_mlp_up_y h_tanh_out")
    t.equal(again "h_*", again "h.*")
    t.contains(programs.gagen { "plan", path, "--set", 'memory.recompute={ "g.*" }' }.err, "no value fits 'g.*'")
end)

-- Frozen layers divide the loop h in two, h_0_to_0 and h_1_to_2.
add("values of a divided loop are named as in the spec", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/recompute_divided.lua"
    t.write(path, [[
data       { "csv", train = "tiny.csv" }
batch      (5)
model      { linear "in" { 8 }, times(3) "h" { residual { linear "up" { 8 }, tanh {} } }, linear "last" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, groups = { { "h.0.*", frozen = true } } }
train      { updates = 1 }
]])
    local function told(name)
        local made = programs.gagen { "plan", path, "--why", "--set", ('memory.recompute={ "%s" }'):format(name) }
        return made.err, made.out:match "\n  (%S+) +recomputed "
    end
    t.equal({ told "h_tanh_out" }, { "", "h_1_to_2_tanh_out" })
    t.equal({ told "h_1_to_2_tanh_out" }, { "", "h_1_to_2_tanh_out" })
    t.match((told "tanh_out"), "no value fits 'tanh_out'\n.*values: in_y, h_up_y, h_tanh_out, h_add_out, last_y, loss, loss_lse\n")
end)

add("the same files in any folder and locale", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local one = generated(t, programs, spec(4), "", { "LC_ALL=C", "TZ=UTC" })
    local two = generated(t, programs, spec(4), "/a/longer way", { "LC_ALL=C.UTF-8", "TZ=Asia/Tokyo",
        "COLUMNS=40", "HOME=/nonexistent" })
    local files = host.list(one)
    assert(#files > 8, "too few files")
    t.equal(host.list(two), files)
    t.equal(host.list(two .. "/runtime"), host.list(one .. "/runtime"))
    t.equal(t.run { "diff", "-r", "--no-dereference", "-x", "data", one, two }.out, "")
    -- and the comparison can fail
    local other = generated(t, programs, spec(4):gsub("1e%-2", "2e-2"), "", {})
    t.equal(t.run { "diff", "-rq", "--no-dereference", "-x", "data", one, other }.status, 1)
end)

return tests
