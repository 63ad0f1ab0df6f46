-- The result of a cycle depends on its rows, not on its micro-steps: every count, tail, table and weight, for four
-- kinds of models, with dropout and shuffling. In f64, so that only the order of sums differs.
-- Each program of several micro-steps is compared with one whose cycles are whole batches of 60 rows, without
-- accumulation, tails and shuffling. A test works out by the definition which rows each cycle has; they are the data of
-- the program of whole batches. A shorter cycle is filled up with rows whose targets are all ignored.

local ordered = require "base.ordered"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local BOUND = 1e-12
local ROWS, WHOLE, CYCLES = 150, 60, 7      -- rows of the data; of a whole batch; most cycles of a comparison
local CONTEXT, IGNORED, SEED = 6, 5, 3
local EMPTY = 13                            -- rows 13 to 24, the second micro-batch of 12, are ignored as a whole

local function is_ignored(i) return i >= EMPTY and i < EMPTY + 12 end

local function label(i)
    if is_ignored(i) or i * i % 7 == 2 then return IGNORED end
    return i * 3 % 5
end

-- === the data of a list of rows ===================================================================

local function csv(list)
    local lines = {}
    for at, i in ipairs(list) do
        local row = {}
        for k = 1, 5 do row[k] = ("%.3f"):format(math.sin(i * k) + (k - 1 == label(i) and 1 or 0)) end
        lines[at] = table.concat(row, ",") .. "," .. label(i)
    end
    return table.concat(lines, "\n") .. "\n"
end

-- The last target of a row is the first id of the next row, so it is the same for all rows: ignored.
local function tokens(list)
    local ids = { IGNORED }
    for _, i in ipairs(list) do
        for p = 1, CONTEXT do
            local k = (i - 1) * CONTEXT + p
            ids[#ids + 1] = (is_ignored(i) or p == CONTEXT) and IGNORED or (k * k * 3 + k * 7 + k // 5) % 11
        end
    end
    return string.pack("<" .. ("I2"):rep(#ids), table.unpack(ids))
end

local IMAGE = 3 * 6 * 6

local function images(list)
    local pixels = { string.pack(">I4I4I4I4I4", 0x804, #list, 3, 6, 6) }
    for _, i in ipairs(list) do
        local row = {}
        for k = 0, IMAGE - 1 do row[k + 1] = (i * 7919 + k * 104729 + (i * k) % 251 * 31) % 256 end
        pixels[#pixels + 1] = string.char(table.unpack(row))
    end
    return table.concat(pixels)
end

local function labels(list)
    local all = { string.pack(">I4I4", 0x801, #list) }
    for at, i in ipairs(list) do all[at + 1] = string.char(label(i)) end
    return table.concat(all)
end

-- The field `train` of each model's data, and the files: by the end of their names, made from a list of rows.
local FILES = {
    mlp = { csv = csv },
    gpt = { bin = tokens },
    vit = { images = images, labels = labels },
}
FILES.llama = FILES.gpt

local function write(t, folder, model, name, list)
    for ending, content in next, FILES[model] do t.write(("%s/%s.%s"):format(folder, name, ending), content(list)) end
end

local DATA = {
    mlp = '"csv", train = "NAME.csv", target = "last"',
    gpt = '"tokens", train = "NAME.bin", context = 6',
    vit = '"idx", train = { "NAME.images", "NAME.labels" }, scale = 1/255, mean = { .5, .5, .5 }, std = { .2, .2, .2 }',
}
DATA.llama = DATA.gpt
local AUGMENTED = { vit = ", crop = { 6, padding = 2 }, flip = true" }

local MODELS = {
    mlp = '{ linear "fc1" { 12 }, relu {}, dropout(DROP), linear "fc2" { 6 } }',
    gpt = [[{
    block "t" {
        embedding "wte" { 11, 8 }, positions "wpe" { 6 }, dropout(DROP),
        times(2) "h" {
            residual { layernorm "ln_1" {}, linear "c_attn" { 24 },
                attend { heads = 2, causal = true, dropout = DROP }, linear "c_proj" { 8 }, dropout(DROP) },
            residual { layernorm "ln_2" {}, linear "c_fc" { 16 }, gelu { "tanh" }, linear "proj" { 8 } },
        },
    },
    unembed { "t.wte" },
}]],
    llama = [[(function(batch)
    local x = embedding "embed" { 11, 8 } (batch.input)
    x = times(2) "layers" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 2 } (linear "q" { 8, bias = false } (h))
        local k = rotary { heads = 1 } (linear "k" { 4, bias = false } (h))
        local a = attend { heads = 2, kv_heads = 1, causal = true } (q, k, linear "v" { 4, bias = false } (h))
        x = x + dropout(DROP)(linear "o" { 8, bias = false } (a))
        h = rmsnorm "norm2" {} (x)
        return x + linear "down" { 8 } (silu {} (linear "gate" { 12 } (h)) * linear "up" { 12 } (h))
    end) (x)
    return linear "head" { 11 } (x)
end)]],
    vit = [[{
    reshape { 3, 3, 2, 3, 2 }, transpose { 1, 3, 5, 2, 4, 6 }, reshape { 9, 12 },
    linear "patch" { 8 }, positions "position" { 9 },
    times(2) "h" {
        residual { layernorm "norm1" {}, linear "qkv" { 24 }, attend { heads = 2 }, linear "proj" { 8 } },
        residual { layernorm "norm2" {}, linear "fc1" { 12 }, gelu {}, dropout(DROP), linear "fc2" { 8 } },
    },
    layernorm "norm" {}, mean { axis = 2 }, linear "head" { 6 },
}]],
}

-- === programs =====================================================================================

-- how: rows, count (of micro-steps), later ({ { cycle, count }, ... }), tail, last, weight, shuffle, optimizer, drop,
-- data (the name of its files)
local function spec(model, how)
    local later = {}
    for i, entry in ipairs(how.later or {}) do later[i] = ("[%d] = %d"):format(entry[1], entry[2]) end
    return ([[
data       { %s%s, shuffle = %s, last = "%s" }
batch      (%d)
accumulate { %d, tail = "%s"%s }
model      %s
loss       { "cross_entropy", ignore = %d, weight = "%s" }
optimizer  %s
precision  "f64"
train      { epochs = 3, seed = %d }
]]):format(DATA[model]:gsub("NAME", how.data or "accumulate_rows"), how.drop and "" or AUGMENTED[model] or "",
        tostring(how.shuffle ~= false), how.last or "drop", how.rows, how.count, how.tail or "drop",
        #later > 0 and (", later = { %s }"):format(table.concat(later, ", ")) or "",
        MODELS[model]:gsub("DROP", how.drop or "0.25"), IGNORED, how.weight or "token",
        how.optimizer or '{ "sgd", lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }', SEED)
end

local function built(t, programs, model, how, list)
    write(t, programs.folder() .. "/data", model, how.data or "accumulate_rows", list)
    local text = spec(model, how)
    return programs.build("accumulate_" .. model .. "_" .. host.sha256(text):sub(1, 12), text)
end

-- The rows from `first` to `last`.
local function run_of(first, last)
    local list = {}
    for i = first, last do list[#list + 1] = i end
    return list
end

-- Micro-steps of cycle `cycle`, from 0.
local function count_of(how, cycle)
    local count = how.count
    for _, entry in ipairs(how.later or {}) do
        if cycle >= entry[1] then count = entry[2] end
    end
    return count
end

-- The micro-batches of an epoch, from 0, by definition: a list of rows each.
local function micro_batches(order, how, epoch)
    local list = {}
    for first = 0, ROWS - 1, how.rows do
        local rows = {}
        for place = first, math.min(first + how.rows, ROWS) - 1 do
            rows[#rows + 1] = 1 + (how.shuffle == false and place or order(SEED, epoch, ROWS, place))
        end
        if #rows == how.rows or how.last == "pad" then list[#list + 1] = rows end
    end
    return list
end

-- The rows of the first `count` cycles by definition: a list of rows each.
local function rows_of_cycles(t, how, count)
    local _, order = dofile(t.root .. "/tests/lua/rng.lua")
    local cycles, rows, steps, epoch = {}, {}, 0, 0     -- steps: micro-steps of the cycle that is not done yet
    while true do
        local list = micro_batches(order, how, epoch)
        for k, part in ipairs(list) do
            table.move(part, 1, #part, #rows + 1, rows)
            steps = steps + 1
            if steps == count_of(how, #cycles) or how.tail == "flush" and k == #list then
                cycles[#cycles + 1], rows, steps = rows, {}, 0
            end
            if #cycles == count then return cycles end
        end
        if how.tail ~= "carry" then rows, steps = {}, 0 end
        epoch = epoch + 1
    end
end

-- The dump of the program of whole batches, after cycles of these rows.
local function whole(t, programs, model, how, cycles)
    local p = built(t, programs, model, { rows = WHOLE, count = 1, shuffle = false, weight = how.weight,
        optimizer = how.optimizer, data = "accumulate_whole" }, run_of(1, CYCLES * WHOLE))
    local list = {}
    for _, rows in ipairs(cycles) do
        assert(#rows <= WHOLE)
        table.move(rows, 1, #rows, #list + 1, list)
        while #list % WHOLE > 0 do list[#list + 1] = EMPTY end
    end
    while #list < CYCLES * WHOLE do list[#list + 1] = EMPTY end
    local folder = t.temp()
    write(t, folder, model, "accumulate_whole", list)
    return programs.dump(p, { "--data", folder, "--cycles", #cycles, "--threads", 1 })
end

-- Cycles of these numbers of rows, of several micro-steps each, must give the parameters and state of whole batches.
local function same(t, model, how, numbers)
    local programs = t.load("tests/lua/programs.lua")(t)
    local cycles, found = rows_of_cycles(t, how, #numbers), {}
    for i, rows in ipairs(cycles) do found[i] = #rows end
    t.equal(found, numbers)
    local p = built(t, programs, model, how, run_of(1, ROWS))
    programs.close(programs.dump(p, { "--cycles", #numbers }), whole(t, programs, model, how, cycles), BOUND)
end

-- Programs whose first two cycles have the same 60 rows; from the third on they differ in how epochs end.
local PAIRS = { rows = 30, count = 2, tail = "carry" }
local PADDED = { rows = 20, count = 3, tail = "flush", last = "pad" }
local DROPPED = { rows = 15, count = 4 }
local FLUSHED = { rows = 12, count = 5, tail = "flush" }

-- Cases that hardly depend on the model: make test tries each with two models.
local OF = { carry = "mlp vit", table = "mlp llama", token = "gpt llama", sample = "gpt vit", sum = "mlp gpt",
    micro = "llama vit", drop = "gpt vit", flush = "mlp llama", padded = "mlp gpt" }

local function add_one_of(what, model, name, f)
    add(("%s: %s"):format(model, name), function(t)
        if not OF[what]:find(model, 1, true) then t.long() end
        f(t)
    end)
end

for _, model in ipairs { "mlp", "gpt", "llama", "vit" } do
    add(model .. ": 1 to 5 micro-steps for the same 60 rows", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local one = whole(t, programs, model, {}, rows_of_cycles(t, { rows = WHOLE, count = 1 }, 2))
        for _, how in ipairs { PAIRS, PADDED, DROPPED, FLUSHED } do
            t.equal(how.rows * how.count, WHOLE)
            local p = built(t, programs, model, how, run_of(1, ROWS))
            programs.close(programs.dump(p, { "--cycles", 2 }), one, BOUND)
        end
    end)

    add_one_of("drop", model, "tail drop leaves two of ten micro-batches out", function(t)
        same(t, model, DROPPED, { 60, 60, 60, 60 })
    end)

    add_one_of("flush", model, "tail flush ends the epoch with a cycle of two", function(t)
        same(t, model, FLUSHED, { 60, 60, 24, 60, 60, 24 })
    end)

    add_one_of("padded", model, "a padded micro-batch counts its rows only", function(t)
        same(t, model, PADDED, { 60, 60, 30, 60, 60, 30 })
    end)

    add_one_of("carry", model, "tail carry lets a cycle span two epochs", function(t)
        same(t, model, PAIRS, { 60, 60, 60, 60, 60 })
        same(t, model, { rows = 10, count = 6, tail = "carry" }, { 60, 60, 60, 60, 60 })
    end)

    add_one_of("table", model, "a table of counts by cycle", function(t)
        same(t, model, { rows = 10, count = 2, later = { { 2, 4 }, { 5, 2 } } }, { 20, 20, 40, 40, 40, 20, 20 })
    end)

    for weight, orders in ordered.each { token = { true, false }, sample = { true }, sum = { false } } do
        add_one_of(weight, model, ("weight %s over unequal masks and an empty micro-step"):format(weight), function(t)
            for _, shuffle in ipairs(orders) do
                same(t, model, { rows = 12, count = 5, tail = "flush", weight = weight, shuffle = shuffle,
                    optimizer = weight == "sum" and '{ "sgd", lr = 1e-3, momentum = 0.9 }' or nil }, { 60, 60, 24, 60 })
            end
        end)
    end

    -- With momentum 1 and rate 0 the state is the sum of the updates' gradients. After the four micro-batches of an
    -- epoch as updates of their own come the same as one. A micro-step of weight 0 is skipped as an update of its own,
    -- and adds nothing to an update of several.
    add_one_of("micro", model, "weight micro is the mean of the micro-steps' means", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local p = built(t, programs, model, { rows = 12, count = 1, later = { { 4, 4 } }, weight = "micro",
            shuffle = false, drop = "0", optimizer = '{ "sgd", lr = 0, momentum = 1 }', data = "accumulate_micro" },
            run_of(1, 48))
        local function sums(cycles)
            return programs.tensors(programs.dump(p, { "--cycles", cycles }) .. "/state.safetensors")
        end
        local apart, both = sums(4), sums(5)
        local counted, compared = 3, 0          -- of four micro-steps one is ignored
        for name, tensor in next, both do
            local gap, size = 0, 0
            for i, x in ipairs(tensor.values) do
                local expected = apart[name].values[i] / counted
                gap = math.max(gap, math.abs(x - apart[name].values[i] - expected))
                size = math.max(size, math.abs(expected))
            end
            if not (gap <= BOUND * size) then
                error(("%s differs by %.3g of %.3g"):format(name, gap, size))
            end
            compared = compared + 1
        end
        assert(compared > 0)
    end)
end

-- Missing rows must not contribute, although the model computes NaN from rows of zeros. 80 rows: with 12 per
-- micro-step the last of seven has 8; with 80 one micro-step has all, so their order does not matter.
add("missing rows have weight 0, also in a model that gives NaN for zeros", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local lines = {}
    for i = 1, 80 do lines[i] = ("%.3f,%.3f,%d"):format(1.5 + math.sin(i), 1.5 + math.cos(3 * i), label(i)) end
    t.write(programs.folder() .. "/data/positive.csv", table.concat(lines, "\n") .. "\n")
    local function of(name, rows, accumulate, more)
        return programs.build("accumulate_inverse_" .. name, ([[
data       { "csv", train = "positive.csv", eval = "positive.csv", target = "last", last = "pad"%s }
batch      (%d)
accumulate { %d, tail = "flush" }
model(function(batch) return linear "fc" { 6 } (1 / batch.input) end)
loss       { "cross_entropy", ignore = %d }
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
precision  "f64"
train      { updates = 3, seed = 3 }
%s]]):format(name == "stream" and ", stream = true" or "", rows, accumulate, IGNORED, more or ""))
    end
    local one = programs.dump(of("one", 80, 1), {})
    programs.close(programs.dump(of("cut", 12, 7), {}), one, BOUND)
    programs.close(programs.dump(of("stream", 12, 7), {}), one, BOUND)
    programs.close(programs.dump(of("device", 12, 7, 'target "cuda"\n'), { env = environment() }), one, 1e-10)
end)

return tests
