-- The sizes of chunks of parameters by two rules, against the values that Colossal-AI's functions gave.
local chunk_size = require "passes.chunk_size"

local shipped = dofile "tests/lua/shipped.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A GPT-2 of `layers` layers, with the sizes of its tensors in the order of the model.
local function gpt2(layers, width, words, positions)
    local sizes = { words * width, positions * width }
    for _ = 1, layers do
        for _, n in ipairs { width, width, 3 * width * width, 3 * width, width * width, width, width, width,
            4 * width * width, 4 * width, 4 * width * width, width } do
            sizes[#sizes + 1] = n
        end
    end
    table.move({ width, width }, 1, 2, #sizes + 1, sizes)
    return sizes
end

-- BERT base with a classifier of two classes.
local function bert()
    local w = 768
    local sizes = { 30522 * w, 512 * w, 2 * w, w, w }
    for _ = 1, 12 do
        for _ = 1, 4 do table.move({ w * w, w }, 1, 2, #sizes + 1, sizes) end       -- queries, keys, values, output
        table.move({ w, w, 4 * w * w, 4 * w, 4 * w * w, w, w, w }, 1, 8, #sizes + 1, sizes)
    end
    return table.move({ w * w, w, 2 * w, 2 }, 1, 4, #sizes + 1, sizes)
end

local function sum(sizes)
    local n = 0
    for _, size in ipairs(sizes) do n = n + size end
    return n
end

add("utilization of three tensors", function(t)
    local function of(chunk) return select(2, chunk_size.utilization({ 4, 4, 4 }, 1, 1, chunk)) end
    t.near(of(10), 0.6, 1e-12)
    t.equal(of(12), 1.0)
    t.equal({ chunk_size.utilization({ 4, 4, 4 }, 8, 4) }, { 4, 1.0 })
end)

add("search: a small GPT-2 on 1 and 4 ranks", function(t)
    for _, ranks in ipairs { 1, 4 } do
        local sizes = gpt2(2, 128, 50258, 1024)
        t.equal({ chunk_size.search(sizes, 2 ^ 20 | 0, 2 ^ 20 // 128 | 0, 0, ranks) }, { 527872, 0 })
    end
end)

add("search and utilization: GPT-2 of 124 million parameters", function(t)
    local sizes = gpt2(12, 768, 50257, 1024)
    t.equal(sum(sizes), 124439808)
    t.equal({ chunk_size.search(sizes, 1 << 26, 4096, 1 << 25, 1) }, { 85852160, 9728 })
    t.equal({ chunk_size.search(sizes, 1 << 24, 4096, (32 << 20) // 4, 1) }, { 22052864, 2369024 })
    local chunk, used = chunk_size.utilization(sizes, 1 << 26, 4096, 1 << 25)
    t.equal(chunk, 85852160)
    t.near(used, 0.99989, 5e-6)
end)

add("search: BERT of 109 million parameters", function(t)
    local sizes = bert()
    t.equal(sum(sizes), 109483778)
    t.equal({ chunk_size.search(sizes, 1 << 26, 4096, 1 << 25, 1) }, { 86048768, 5886 })
    t.equal({ chunk_size.search(sizes, 1 << 24, 4096, (32 << 20) // 4, 1) }, { 21856256, 1382142 })
end)

add("search: all tensors together are below the least size", function(t)
    t.equal(chunk_size.search({ 11181642 }, 1 << 26, 4096, 1 << 25, 1), nil)
end)

-- The answers of `gagen check` for a model of layers beside each other, or in a loop.
add("check names the size, or why it cannot be", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    programs.folder()
    local path = programs.folder() .. "/chunk_size.lua"
    local function checked(words, status, message, model)
        t.write(path, ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (4)
model     %s
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 2 }
parallel  { "zero3", %s }
]]):format(model or '{ linear "a" { 24 }, relu {}, linear "b" { 25 }, relu {}, linear "c" { 3 } }', words))
        local result = programs.gagen { "check", path }
        t.equal(result.status, status, result.err)
        t.match(result.err, message)
        return result
    end
    -- of 96, 24, 600, 25, 75 and 3 elements; 607 in one chunk
    checked('chunk_size = "4KB"', 0, ": chunks: 1,000 elements, 4,000 bytes: chunk_size\n")
    checked('chunks = "search", min_chunk_size = 100, chunk_search_range = 256, chunk_search_n_grids = 256', 0,
        ": chunks: 823 elements, 3,292 bytes: 0 of all chunks are unused\n")
    checked('chunks = "search"', 0, ': chunks: one that is gathered: too small to shard: 823 elements are fewer than '
        .. 'min_chunk_size, 33,554,432: each process has all of them, as with "ddp"\n')
    checked('chunks = "utilization", chunk_search_n_grids = 1000', 1, "chunk_search_range is 67108864 elements, expected a "
        .. "multiple of chunk_search_n_grids, 1000")
    checked('chunks = "utilization", min_chunk_size = 16', 1, "min_chunk_size is 16 elements, expected at least those of "
        .. "the largest tensor that counts, 600")
    checked("chunk_size = 300, chunk_search_range = 8", 1, "chunk_search_range is given, and no size of chunks is searched")
    -- chunks that begin and end inside of layers, and one with all of them
    local model = '{ linear "a" { 16 }, times(3) "h" { linear "b" { 16 }, relu {} }, linear "c" { 3 } }'
    checked("chunk_size = 300", 0, "chunks: 300 elements", model)
    checked("chunk_size = 900", 0, "chunks: 900 elements", model)
    checked("chunk_size = 10", 1, "parallel: 208 chunks, expected at most 128: larger ones",
        '{ linear "a" { 16 }, times(102) "h" { linear "b" { 16 }, relu {} }, linear "c" { 3 } }')
end)

-- The lines of `gagen check` about shipped specs, in elements and bytes; sizes and unused elements are those of the functions.
local SHIPPED = {
    { "gpt2_124m", "gpt2tokens", "", "85,852,160 elements, 343,408,640 bytes: 9,728 of all chunks are unused" },
    { "gpt2_124m", "gpt2tokens", ', min_chunk_size = "32MiB", chunk_search_range = 16777216',
        "22,052,864 elements, 88,211,456 bytes: 2,369,024 of all chunks are unused" },
    { "bert_sst2", "sst2", "", "86,048,768 elements, 344,195,072 bytes: 5,886 of all chunks are unused" },
    { "bert_sst2", "sst2", ', min_chunk_size = "32MiB", chunk_search_range = 16777216',
        "21,856,256 elements, 87,425,024 bytes: 1,382,142 of all chunks are unused" },
    { "resnet18_cifar10", "cifar-10-batches-bin", "", "one that is gathered: too small to shard: 11,173,962 elements" },
}

for i, case in ipairs(SHIPPED) do
    local name, folder, words, message = table.unpack(case)
    add(("check: %s%s"):format(name, words), function(t)
        local programs = shipped.open(t, folder)
        local path = ("%s/chunks_%d.lua"):format(programs.folder(), i)
        t.write(path, shipped.text(t, name))
        local result = programs.gagen { "check", path, "--set", ('parallel = { "zero3", ranks = 1, chunks = "search"%s }')
            :format(words) }
        t.equal(result.status, 0, result.err)
        t.contains(result.err, ": chunks: " .. message)
    end)
end

return tests
