-- Parameters divided over the ranks and gathered before use: programs end with the bits of zero2 where sums over the
-- elements do not depend on the division, and are those of one rank with the same rows.
local compile = require "command.compile"
local graph = require "graph.graph"
local verify = require "graph.verify"

local cover = dofile "tests/lua/cover.lua"
local json = dofile "tests/lua/json.lua"
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- === a cover of pairs ============================================================================

local SEARCH = 'chunks = %q, min_chunk_size = %d, chunk_search_range = 2048, chunk_search_n_grids = 16'

-- Each dimension and its values. The first value of a dimension is the simple one.
local DIMENSIONS = {
    { "prefetch", 1, 0, 3 },
    { "ranks", 2, 3, 4, 1 },
    { "model", "mlp", "gpt", "llama", "bert", "resnet", "batchnorm" },
    { "a", 1, 3, 4 },
    { "memory", "", 'memory { recompute = { "*" } }', 'memory { logits = "chunked", logits_rows = 8 }' },
    { "clip", "", "clip (0.1)", "clip { value = 0.01 }" },
    { "precision", "f64", "f32", "bf16", "f16" },
    { "optimizer", "adamw", "ema", "sgd", "lamb", "muon", "adafactor", "frozen" },
    { "comm", "f32", "bf16" },
    { "storage", "", "owner", "false" },
    { "chunks", "", "chunk_size = 100000", "chunk_size = 150", "chunk_size = 800", SEARCH:format("search", 500),
        SEARCH:format("utilization", 2400) },
}

local function fits(case)
    local tokens = ranked.MODELS[case.model].rows == "tokens"
    if case.memory:find "logits" and not tokens then return false end
    if case.comm ~= "f32" and case.precision == "f64" then return false end
    if case.storage == "false" and case.prefetch ~= 1 then return false end
    return not (case.optimizer == "muon" and case.precision ~= "f64" and case.precision ~= "f32")
end

-- As test_parallel has them.
local BOUNDS, NARROW_BOUND = { f64 = 1e-12, f32 = 1e-5 }, 4e-3
local ELEMENTS = { adamw = true, ema = true, sgd = true, frozen = true }

-- Where a chunk belongs to one rank, or is whole in each; nothing is gathered there.
local STORAGE = { [""] = "", owner = ', enable_distributed_storage = "owner"',
    ["false"] = ", enable_distributed_storage = false" }

local function parallel(mode, case)
    local own = mode == "zero3" and (case.chunks ~= "" and ", " .. case.chunks or "") .. STORAGE[case.storage]
        .. (case.storage ~= "false" and (", prefetch = %d"):format(case.prefetch) or "") or ""
    return ("parallel { %q, comm = %q%s }"):format(mode, case.comm, own)
end

-- The losses of the evaluations in a log.
local function measured(log)
    local list = {}
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "eval" then list[#list + 1] = event.loss end
    end
    assert(#list > 0, log .. ": no evaluation")
    return list
end

local function complete(case)
    case.tail, case.weight, case.eval = "flush", "sample", "eval { every = 1, batches = 2 }"
    case.split = "split = { eval = 24 }"
    return case
end

local function compare(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local released = t.load("tests/lua/released.lua")(t, programs)
    local name = "zero3_" .. host.sha256(ranked.spec(case, 3, case.a, parallel("zero3", case))):sub(1, 12)
    local cycles = case.precision == "f64" and 3 or 1
    local function trained(mode, suffix)
        local text = ranked.spec(case, 3, case.a, parallel(mode, case))
        local p = mode == "zero3" and case.storage ~= "false" and released.build(name .. suffix, text)
            or programs.build(name .. suffix, text, { comm = "mpi" })
        local log = t.temp() .. "/log"
        local dump = programs.dump(p, { ranks = case.ranks, "--threads", 2, "--cycles", cycles, "--log", log,
            env = p.env })
        return dump, measured(log)
    end
    local many, loss = trained("zero3", "")
    if ELEMENTS[case.optimizer] and case.clip ~= "clip (0.1)" then
        local like, like_loss = trained(case.storage == "false" and "ddp" or "zero2", "_2")
        programs.identical(many, like, { "parameters", "gradients", "state" })
        t.equal(loss, like_loss)
    end
    if case.comm ~= "f32" or case.model == "resnet" and case.ranks > 1 then return end  -- statistics of rank 0 alone
    local one = programs.dump(programs.build(name .. "_1", ranked.spec(case, 3, case.a * case.ranks, "")),
        { "--cycles", cycles })
    local bound = BOUNDS[case.precision]
    programs.close(many, one, bound or NARROW_BOUND, { "parameters" }, bound and programs.difference or programs.distance)
end

-- The cover of the triples with make test-all, else cases of that of pairs which have each value at least twice.
local CASES = host.environment "GAGEN_TEST_ALL" and cover.cases(DIMENSIONS, fits, 3, 3)
    or cover.few(DIMENSIONS, cover.cases(DIMENSIONS, fits, 2, 3), 2)

for _, case in ipairs(CASES) do
    add("as zero2 and as one rank: " .. cover.name(DIMENSIONS, case), function(t) compare(t, complete(case)) end)
end

-- === planted errors ==============================================================================

local PLANTED = ranked.GATHERED .. "parallel   { %s }\n"

-- Modes; the chunks of SIZED begin and end inside of layers, those of OWNER belong to one rank each, those of HALF are
-- gathered in 16 bits, with HALF2 to compare.
local ZERO2, ZERO3, SIZED = '"zero2"', '"zero3"', '"zero3", chunk_size = 900'
local OWNER, NARROW = '"zero3", enable_distributed_storage = "owner"', ' }\nprecision { "bf16"'
local HALF, HALF_SIZED, HALF2 = ZERO3 .. NARROW, SIZED .. NARROW, ZERO2 .. NARROW

-- The program of a mode, with or without a change of a file. change: { pattern, text } of the spec. Returns the losses of
-- its evaluations and updates, or the message that ended it, and a function that trains again and returns the same.
local function losses(t, mode, planted, change)
    local programs, text = t.load("tests/lua/programs.lua")(t), PLANTED:format(mode)
    local released = t.load("tests/lua/released.lua")(t, programs)
    ranked.write_tokens(t, programs)
    if change then text = text:gsub(change[1], (change[2]:gsub("%%", "%%%%"))) end
    local name, zero2 = "planted_" .. host.sha256(text):sub(1, 8), mode:find(ZERO2, 1, true)
    local p = zero2 and programs.build(name, text, { comm = "mpi" }) or released.build(name, text)
    if planted then
        local file, from, to = table.unpack(planted, 2)
        local before = host.read(p.folder .. "/" .. file)
        local first, last = before:find(from, 1, true)
        assert(first and not before:find(from, last + 1, true), file .. ": not once there: " .. from)
        programs.edit(p, file, before:sub(1, first - 1) .. to .. before:sub(last + 1), released.how)
    end
    local function run()
        local log = t.temp() .. "/log"
        local result = programs.train(p, { ranks = 2, "--threads", 2, "--log", log, status = false, env = p.env })
        if result.status ~= 0 then return "ended with " .. result.status end
        local list = {}
        for _, event in ipairs(json.lines(host.read(log))) do
            if event.event == "eval" or event.event == "update" then list[#list + 1] = event.loss end
        end
        return list
    end
    return run(), run
end

local NEED = "    chunk_need(w, m, &%s_CHUNKS, %d);\n"
local BACKWARD_NEED = "chunk_need(w, m, &BACKWARD_CHUNKS, 1 + H_LAYERS - 1 - l);"

-- A window for each layer, and nothing behind the last one: windows still have the values of the forward pass when the
-- backward pass comes, and nothing else gathers there.
local MANY_WINDOWS = '"zero3", prefetch = 4'
local MANY = { "^.*\nparallel", [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { eval = 300 } }
batch      (8)
accumulate (2)
model      { linear "in" { 10 }, times(5) "h" { residual { layernorm "ln" {}, linear "fc" { 20 }, gelu {},
             linear "proj" { 10 } } } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 3, seed = 7 }
eval       { every = 1 }
parallel]] }
local MANY_NEED = "chunk_need(w, m, &BACKWARD_CHUNKS, H_LAYERS - 2 - l);"

-- A convolution whose backward pass reads its weight in another order.
local CONVOLUTIONS = { "^.*\nparallel", [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { eval = 300 } }
batch      (8)
model      { reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, padding = 1 }, relu {}, conv2d "conv2" { 7, 3, stride = 2 },
             relu {}, flatten {}, linear "fc1" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 3, seed = 7 }
eval       { every = 1 }
target     { "c", march = "generic" }
parallel]] }

local TURNED = "conv2d_turned_315(w, m->a.conv2_conv2d_turned_out, m->w.conv2_weight);"


-- The head reads 16 bits; the embedding reads the table as it is, and where both are one it is gathered so.
local TIED = { "model .-\nloss", 'model { embedding "wte" { 11, 12 }, times(5) "h" { residual { layernorm "ln" {}, '
    .. 'linear "fc" { 20 }, gelu {}, linear "proj" { 12 } } }, layernorm "ln_f" {}, unembed { "wte" } }\nloss' }

-- A copy of a table that an embedding reads too, rounded behind its gather.
local COPY = "    bf16_11x12(w, m->a.wte_weight_bf16, m->w.wte_weight);"

-- { the error, the file, a text of it, another one, mode, the change of the spec }
local ERRORS = {
    { "a late need", "step.c", NEED:format("FORWARD", 0), "" },
    { "a layer is not needed", "step.c", "chunk_need(w, m, &FORWARD_CHUNKS, 1 + l);", "if (l > 0) chunk_need(w, m, "
        .. "&FORWARD_CHUNKS, 1 + l);" },
    { "a missing gather in the backward pass", "step.c", BACKWARD_NEED, ";" },
    { "a missing gather in the backward pass, where windows still have the values", "step.c", MANY_NEED,
        "ga_barrier(w);", MANY_WINDOWS, MANY },
    { "a missing view", "step.c", TURNED, "if (m->count.micro < 0) { " .. TURNED .. " }", ZERO3, CONVOLUTIONS },
    { "a view of the gather before", "step.c", TURNED, "if (m->count.micro == 0) { " .. TURNED .. " }",
        ZERO3, CONVOLUTIONS },
    { "a missing gather in an evaluation", "step.c", NEED:format("EVALUATION", 0), "" },
    { "an early release: gathers run further ahead than there are windows", "update.c", "PREFETCH = 1", "PREFETCH = 2" },
    { "kernels that do not wait for the gather", "update.c", "order->chunks[k], &m->error);", "order->chunks[k] + 100, "
        .. "&m->error);" },
    { "the window of another layer", "model.h", "return l % 2 * (int64_t)H_PARAMS;", "return (l + 1) % 2 * "
        .. "(int64_t)H_PARAMS;" },
    { "the table of needs is a layer late", "step.c", "NEEDS_1[] = {-1, 1, -1, -1, 3}", "NEEDS_1[] = {-1, -1, 1, -1, 3}",
        SIZED },
    { "a layer lies elsewhere in its chunk", "model.h", "h_chunk_2(int l) {\n    static const int64_t at[] = {0, 672, 1232",
        "h_chunk_2(int l) {\n    static const int64_t at[] = {0, 672, 1216", SIZED },
    { "a release one layer early", "update.c", "PREFETCH = 1", "PREFETCH = 2", SIZED },
    { "a bucket that starts a layer early", "step.c", "STARTS_1[] = {-1, 1, -1, -1, 3}", "STARTS_1[] = {-1, -1, 1, -1, 3}",
        SIZED },
    { "another rank's part", "update.c", ".shard = m->flat_w + ga_division_place(&m->division, i)};\n    const int code",
        ".shard = m->flat_w};\n    const int code" },
    { "an owner gives the values of another chunk", "update.c", ".shard = m->flat_w + ga_division_place(&m->division, i)};\n"
        .. "    const int code", ".shard = m->flat_w + ga_division_place(&m->division, i - i % 2)};\n    const int code",
        OWNER },
    { "what is sent in 16 bits is of the update before", "update.c", "    sent_pack(w, m);", "    if (m->count.cycle == 0) "
        .. "sent_pack(w, m);", HALF },
    { "a rank sends the words of another chunk", "update.c", "m->words + m->sent.places[i]", "m->words", HALF },
    { "a copy in 16 bits of the update before", "step.c", COPY, "    if (m->count.cycle == 0)\n    " .. COPY, HALF, TIED },
    { "gradients of one micro-step alone", "update.c", ".add = adds", ".add = adds && false" },
}

add("no error is planted: the losses of zero2", function(t)
    for _, mode in ipairs { ZERO3, SIZED, OWNER } do t.equal(losses(t, mode), (losses(t, ZERO2))) end
    t.equal(losses(t, MANY_WINDOWS, nil, MANY), (losses(t, ZERO2, nil, MANY)))
    t.equal(losses(t, ZERO3, nil, CONVOLUTIONS), (losses(t, ZERO2, nil, CONVOLUTIONS)))
end)

add("chunks are gathered in 16 bits: the losses of zero2", function(t)
    for _, change in ipairs { false, TIED } do
        local like = losses(t, HALF2, nil, change)
        for _, mode in ipairs { HALF, HALF_SIZED } do t.equal(losses(t, mode, nil, change), like) end
    end
end)

-- The layer "a" is there from its first use to its second one, while others share memory.
add("a layer that is applied twice: the losses of zero2", function(t)
    local change = { "model .-\nloss", [[model(function(batch)
        local a = linear "a" { 12 }
        local x = tanh {} (a (embedding "wte" { 11, 12 } (batch.input)))
        for i = 1, 4 do x = tanh {} (linear("b" .. i) { 12 } (x)) end
        return linear "head" { 11 } (tanh {} (linear "c" { 12 } (tanh {} (a (x)))))
    end)
loss]] }
    t.equal(losses(t, ZERO3, nil, change), (losses(t, ZERO2, nil, change)))
end)

for _, planted in ipairs(ERRORS) do
    local name, mode, change = planted[1], planted[5], planted[6]
    add("planted: " .. name .. ": found", function(t)
        local expected = losses(t, mode == HALF and HALF2 or ZERO2, nil, change)
        local found, again = losses(t, mode or ZERO3, planted, change)
        for n = 1, 4 do     -- a gather for which nobody waits may be there in time
            if n > 1 then found = again() end
            if type(found) == "string" then return end
            local same = #found == #expected
            for i, loss in ipairs(expected) do same = same and loss == found[i] end
            if not same then return end
        end
        error "nobody noticed it"
    end)
end


-- === the check of the graph ======================================================================

-- The lowered graph of the planted spec.
local function lowered(t, mode)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local path = programs.folder() .. "/zero3_verify.lua"
    t.write(path, PLANTED:format(mode))
    return (compile(path, {}))
end

-- The first node, or loop, of a body that a function accepts.
local function first(body, accepts)
    local found
    graph.walk(body, function(node) found = found or accepts(node) and node or nil end)
    return assert(found)
end

local function gathers(node) return node.gathers end

-- Moves the window of a chunk outside of loops, with its parameters.
local function move_window(g, i, place)
    for _, param in ipairs(g.buckets[i].params) do
        param.chunk = { offset = param.chunk.offset + place - g.chunks.places[i] }
    end
    g.chunks.places[i] = place
end

-- { the error, the change of the graph, the message, words of the mode }
local BROKEN = {
    { "a late need", function(g)
        local node = first(g.forward, gathers)
        node.gathers = nil
    end, "reads wte.weight of chunk 1, which is not there" },
    { "a need behind the read", function(g)
        local loop = first(g.forward, function(node) return node.op == "times" end)
        local node = first(loop.body, gathers)
        loop.body[#loop.body].gathers, node.gathers = node.gathers, nil
    end, "reads h.%%d.ln.weight of chunk 6, which is not there" },
    { "an early release: a window that another chunk takes", function(g)
        move_window(g, 1, g.chunks.places[7])       -- the embedding and the norm behind the layers
        move_window(g, 8, g.chunks.places[7])       -- the norm and the head
    end, "reads ln_f.weight of chunk 7, which is not there" },
    { "the window of another layer", function(g)
        g.chunks.places[3] = g.chunks.places[2]
    end, "takes the memory of chunk %d, which is under way" },
    { "a missing gather in an evaluation", function(g)
        first(g.evaluation, gathers).gathers = nil
    end, "reads head.weight of chunk 8, which is not there" },
    { "a missing gather in the backward pass", function(g)
        first(g.backward, gathers).gathers = nil
    end, "which is not there" },
    { "another order", function(g)
        local order = g.chunks.orders.backward
        order[2], order[3] = order[3], order[2]
    end, "which is not there" },
    { "an entry of the table of needs", function(g)
        local loop = first(g.forward, function(node) return node.op == "times" end)
        local at = first(loop.body, gathers).gathers[1].at
        at[1], at[2] = nil, at[1]
    end, "reads h.%%d.fc.weight of chunk 2, which is not there", SIZED },
    { "an entry of the table of places", function(g)
        local loop = first(g.forward, function(node) return node.op == "times" end)
        local offsets = first(loop.body, gathers).ins.weight.param.chunk.run.offsets
        offsets[2] = offsets[2] - 16
    end, "reads layer 2 of h.%%d.fc.weight at element %-?%d+ of chunk %d, and it lies at %d+", SIZED },
    { "a bucket that starts a layer early", function(g)
        local at = first(g.backward, function(node) return node.completes_at end).completes_at[1].at
        at[3], at[2] = at[2], nil
    end, "writes the gradient of h.%%d.%S+ behind the start of bucket %d", SIZED },
    { "a window that is written too early", function(g)
        first(g.backward, function(node) return node.needs_at end).needs_at = nil
    end, "writes the window of bucket %d while bucket %d is on its way from there", SIZED },
    { "an entry of the table of gradients", function(g)
        local param = g.buckets[2].params[1]
        param.window.run.offsets[2] = param.window.run.offsets[2] + 16
    end, "writes the gradient of layer 2 of h.%%d.%S+ at element %d+ of bucket %d, expected %d+", SIZED },
    { "a release one layer early", function(g) g.chunks.prefetch = 2 end,
        "takes the memory of chunk %d, which is under way", SIZED },
}

for _, broken in ipairs(BROKEN) do
    add("verify: " .. broken[1], function(t)
        local g = lowered(t, broken[4] or ZERO3)
        verify(g, "mine")
        broken[2](g)
        t.fails(function() verify(g, "mine") end, "after pass mine: .*" .. broken[3])
    end)
end

-- === evaluations =================================================================================

-- The tied head is behind the forward pass too, so the table stays.
add("an evaluation gathers each chunk once", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    for chunks, head in next, { [8] = 'linear "head" { 11 }', [7] = 'unembed { "wte" }' } do
        local text, log = PLANTED:format(ZERO3):gsub('linear "head" { 11 }', head), t.temp() .. "/log"
        local p = programs.build("zero3_counted_" .. chunks, text, { comm = "mpi",
            sources = { "tests/e2e/count_mpi.c" } })
        local err = programs.train(p, { ranks = 2, "--threads", 1, "--eval", "--log", log }).err
        local rows, seen = nil, 0
        for _, event in ipairs(json.lines(host.read(log))) do rows = event.event == "eval" and event.rows or rows end
        for scattered, gathered in err:gmatch "counted: (%d+) scattered, (%d+) gathered" do
            t.equal({ tonumber(scattered), tonumber(gathered) }, { 0, chunks * math.ceil(rows / 6) })  -- 3 rows of 2 ranks
            seen = seen + 1
        end
        t.equal(seen, 2)
    end
end)

add("an evaluation before training has the loss of one process", function(t)
    local programs, loss = t.load("tests/lua/programs.lua")(t), {}
    ranked.write_tokens(t, programs)
    for mode, ranks in next, { none = 1, zero3 = 2 } do
        local p = programs.build("zero3_before_" .. mode, PLANTED:format('"' .. mode .. '"'), { comm = ranks > 1 and "mpi" or nil })
        local log = t.temp() .. "/log"
        programs.train(p, { ranks = ranks > 1 and ranks or nil, "--threads", 1, "--eval", "--log", log })
        for _, event in ipairs(json.lines(host.read(log))) do loss[mode] = loss[mode] or event.loss end
    end
    t.near(loss.zero3, loss.none, 1e-6)
end)

-- === too few elements to divide ===================================================================

add("a search below min_chunk_size: the program of ddp", function(t)
    local programs, dumps = t.load("tests/lua/programs.lua")(t), {}
    ranked.write_tokens(t, programs)
    for i, mode in ipairs { '"ddp"', '"zero3", chunks = "search"' } do
        local p = programs.build("zero3_small_" .. i, PLANTED:format(mode), { comm = "mpi" })
        dumps[i] = programs.dump(p, { ranks = 2, "--threads", 1 })
        local plan = programs.plan(p, "--ranks", "2")
        t.equal(plan.collectives[1].kind, "all_reduce")
        t.equal(plan.collectives[2].kind, "small", "one chunk")
    end
    programs.identical(dumps[2], dumps[1], { "parameters", "gradients" })
end)

-- === files =======================================================================================

-- Biases have a group of their own, so that zero2 has them apart, and chunks have tensors in the order of the model.
add("chunks of a size: checkpoints have the bytes of zero2, and each resumes the other", function(t)
    local programs, built, folders = t.load("tests/lua/programs.lua")(t), {}, {}
    ranked.write_tokens(t, programs)
    for i, mode in ipairs { ZERO2, SIZED } do
        local text = PLANTED:format(mode):gsub("optimizer [^\n]*", 'optimizer { "adamw", lr = 0.01, groups = '
            .. '{ { "*.bias", weight_decay = 0.1 } } }')
        built[i], folders[i] = programs.build("zero3_files_" .. i, text, { comm = "mpi" }), t.temp() .. "/checkpoints"
        programs.train(built[i], { ranks = 2, "--threads", 1, "--stop-micro", 2, "--checkpoint", folders[i], status = 75 })
    end
    local compared = 0
    for _, name in ipairs(host.list(folders[1] .. "/cycle-000000001")) do
        if name:find "safetensors$" then
            compared = compared + 1
            assert(host.read(folders[1] .. "/cycle-000000001/" .. name)
                == host.read(folders[2] .. "/cycle-000000001/" .. name), name .. ": other bytes")
        end
    end
    t.equal(compared, 2, "model and optimizer")
    local dumps = {}
    for i, p in ipairs(built) do
        dumps[i] = programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 3, "--checkpoint", folders[3 - i],
            "--resume", "latest" })
    end
    programs.identical(dumps[2], dumps[1], { "parameters", "gradients", "state" })
end)

-- === what is refused =============================================================================

add("refused: words and options that zero3 does not have", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    ranked.write_tokens(t, programs)
    local path = programs.folder() .. "/zero3_refused.lua"
    local function refused(parallel, message)
        t.write(path, (PLANTED:gsub("parallel [^\n]*", "parallel " .. parallel)))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1)
        t.match(result.err, message)
    end
    refused('{ "zero3", bucket = "1MiB" }', 'refused.lua:%d+: parallel: bucket is given, and with "zero3" a chunk')
    refused('{ "zero2", prefetch = 2 }', 'refused.lua:%d+: parallel: prefetch is given, and with "zero2" each process')
    refused('{ "zero2", enable_distributed_storage = "owner" }', 'refused.lua:%d+: parallel: enable_distributed_storage is '
        .. 'given, and with "zero2" each process')
    refused('{ "zero3", enable_distributed_storage = false, prefetch = 1 }', 'refused.lua:%d+: parallel: prefetch is given, '
        .. 'and with enable_distributed_storage = false nothing is gathered')
    refused('{ "zero3", enable_distributed_storage = "owners" }', 'enable_distributed_storage is \'owners\', expected true '
        .. 'or false or "owner"')
    t.write(path, (PLANTED:format(ZERO3):gsub("times%(5%)", "times(126)")))
    local result = programs.gagen { "check", path }
    t.equal(result.status, 1)
    t.match(result.err, 'parallel: 129 chunks, expected at most 128')
    local p = programs.build("zero3_refused", PLANTED:format(ZERO3), { comm = "mpi" })
    for option, message in next, { ["--predict"] = "predict: the parameters are divided", ["--watch"] = "watch: the "
        .. "parameters are divided", ["--save-weights"] = "save.weights: the parameters are divided" } do
        local value = option == "--watch" and "head.weight" or p.folder .. "/weights"
        local o = { ranks = 2, option, value, status = false }
        if option == "--predict" then table.move({ "--out", p.folder .. "/out.npy" }, 1, 2, #o + 1, o) end
        local ended = programs.train(p, o)
        assert(ended.status ~= 0, option .. " is not refused")
        t.match(ended.err, message)
    end
end)

return tests
