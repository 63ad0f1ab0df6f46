-- Ops on the CUDA target against the C target: every op of the catalog, and shapes that the kernels treat in
-- different ways; otherwise as test_cuda.lua.
local devices = dofile "tests/lua/devices.lua"
local same_as_c, open = devices.same_as_c, devices.open

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local F64 = 'precision "f64"\n'

-- The samples of the gradient check, in PARTS programs: a single program takes too long to compile.
local PARTS = 8

for part = 1, PARTS do
    add(("every op of the catalog equals the C target, part %d of %d"):format(part, PARTS), function(t)
        local samples = t.load("tests/numeric/samples.lua")
        local list = samples.models(part, PARTS)
        same_as_c(t, "cuda_ops" .. part, [[
data      { "tensors", train = "tiny.safetensors" }
batch     (6)
accumulate (2)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.05, momentum = 0.9 }
train     { updates = 8, seed = 3 }
model]] .. samples.case(list).model .. "\n" .. F64, 1e-11)
    end)
end

-- More ids and rows of a table than a block has threads; a table read twice.
add("tables of many rows, looked up by many ids, equal the C target", function(t)
    same_as_c(t, "cuda_tables", [[
data      { "tensors", train = "tiny.safetensors" }
batch     (90)
model(function(batch)
    local x = positions "places" { 3 } (embedding "words" { 700, 40 } (batch.ids))
    return unembed { "words" } (pick { axis = 2, index = 2 } (x) + max { axis = 2 } (x))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.5, momentum = 0.5 }
train     { updates = 9, seed = 3 }
]] .. F64, 1e-11)
end)

-- A table of few rows, cut into slices, each looked up by more ids than a block has groups of threads.
add("tables of few rows, looked up by many ids, equal the C target", function(t)
    same_as_c(t, "cuda_few_rows", [[
data      { "tensors", train = "tiny.safetensors" }
batch     (90)
model(function(batch)
    local x = embedding "kinds" { 4, 40 } (batch.ids)
    return linear "c" { 4 } (tanh {} (flatten {} (positions "places" { 3 } (x))))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.5, momentum = 0.5 }
train     { updates = 9, seed = 3 }
]] .. F64, 1e-11)
end)

-- Rows of one warp and of several, ragged; a weight's gradient from several rows, added to.
add("norms of narrow and wide rows equal the C target", function(t)
    local text = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (9)
accumulate (2)
model      { linear "a" { 37 }, layernorm "n" {}, tanh {}, linear "b" { 301 }, rmsnorm "r" {},
             layernorm "m" { bias = false }, linear "c" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.5 }
train      { updates = 8, seed = 4 }
]]
    same_as_c(t, "cuda_norms64", text .. F64, 1e-11)
    if t.all then same_as_c(t, "cuda_norms", text, 1e-4) end
end)

-- Pointwise kernels and rows at their edges: fewer elements at the end, one, 2 or 4 at once, rows of a
-- block, views that neighbours share.
add("neighbours moved at once equal the C target", function(t)
    local function spec(rows, widths, more)
        return ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (%d)
accumulate (2)
model(function(batch)
    local x = gelu {} (linear "a" { %d } (batch.input))
    x = x + softmax {} (log_softmax {} (layernorm "n" {} (x)))
    x = reshape { 2, %d } (silu {} (rmsnorm "r" {} (linear "b" { %d } (x))))
    x = flatten {} (positions "places" { 2 } (x) * reshape { 2, 1 } (mean {} (x)))
    return linear "c" { 3 } (x + softmax {} (x))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
clip       (1)
train      { updates = 8, seed = 4 }
%s]]):format(rows, widths[1], widths[2] // 2, widths[2], more)
    end
    same_as_c(t, "cuda_few64", spec(5, { 52, 528 }, F64), 1e-11)
    same_as_c(t, "cuda_few", spec(3, { 9, 1100 }, ""), 1e-4, devices.LIGHT)
    -- adamw would make elements of gradients that nearly cancel as large as the others
    local sgd = spec(7, { 70, 1030 }, ""):gsub('"adamw", lr = 1e%-2', '"sgd", lr = 0.1, momentum = 0.5')
    if t.all then same_as_c(t, "cuda_few_odd", sgd, 1e-4) end
end)

-- Rows of classes that begin inside of neighbours that are moved at once: losses, their gradients, and hits.
add("losses of rows that begin anywhere equal the C target", function(t)
    local function spec(classes, loss, more)
        return ([[
data       { "csv", train = "tiny.csv", target = "last", split = { fold = 1, of = 5 } }
batch      (5)
accumulate (2)
model      { linear "a" { 9 }, tanh {}, linear "c" { %d } }
loss       %s
optimizer  { "sgd", lr = 1, momentum = 0.5 }
train      { updates = 8, seed = 4 }
eval       { every = 1, metrics = { "loss", "accuracy", "top5" } }
%s]]):format(classes, loss, more)
    end
    same_as_c(t, "cuda_classes64", spec(301, '{ "cross_entropy", label_smoothing = 0.2 }', F64), 1e-11)
    same_as_c(t, "cuda_classes", spec(1027, '"cross_entropy"', ""), 1e-5, devices.LIGHT)
    if t.all then same_as_c(t, "cuda_classes_even", spec(264, '"cross_entropy"', ""), 1e-5) end
end)

-- Planes of one element, of an odd number and of several at once; channels with values for the largest blocks, in
-- groups of rows; a gradient that is added to that of a residual.
add("batchnorm of planes of all sizes equals the C target", function(t)
    local function spec(first, second, precision)
        return ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (8)
accumulate (2)
model(function(batch)
    local x = reshape { 3, %d } (batchnorm "flat" { rows = 4 } (linear "a" { 3 * %d, bias = false } (batch.input)))
    x = x + tanh {} (batchnorm "first" {} (x))
    x = reshape { 2, %d } (tanh {} (linear "b" { 2 * %d } (flatten {} (x))))
    x = x + tanh {} (batchnorm "second" { rows = 4 } (x))
    return linear "c" { 3 } (flatten {} (x))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.5 }
train      { updates = 8, seed = 4 }
precision  "%s"
]]):format(first, first, second, second, precision)
    end
    same_as_c(t, "cuda_batchnorm64", spec(7, 514, "f64"), 1e-9)
    same_as_c(t, "cuda_batchnorm", spec(6, 1024, "f32"), 1e-4, devices.LIGHT)
end)

-- Sums over rows: in the kernels that read these rows, of biases and of a norm's weight and bias, in a loop over layers
-- and out of it, in rows of a warp and of a block; or in parts by kernels of their own.
add("sums over many rows, in other kernels or in parts, equal the C target", function(t)
    local text = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (260)
accumulate (2)
model      { linear "a" { 36 }, times(2) "h" { layernorm "n" {}, linear "fc" { 36 }, tanh {} }, rmsnorm "r" {},
             linear "b" { 520, store = "in_out" }, layernorm "w" {}, linear "c" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.5 }
train      { updates = 8, seed = 4 }
]]
    local sums_found = same_as_c(t, "cuda_sums64", text .. F64, 1e-11, { cycles = t.all and 2 or 1 })
    local programs, environment = open(t)
    local function build(options)
        return programs.build("cuda_sums64_cuda" .. (options and "_parts" or ""), text .. F64 .. 'target "cuda"\n',
            { options = options })
    end
    local sums, parts = build(), build { "--without", "sums" }
    local plan = programs.gagen { "plan", sums.spec }.out
    t.match(plan, "backward_h_n_weight .- norm_sums_36")
    t.equal(plan:find "column_sum", nil)
    local text_of_parts = host.read(parts.folder .. "/kernels.cu")
    t.contains(text_of_parts, " norm_dw_4x36(")
    t.contains(text_of_parts, " column_sum_4x10(")
    local parts_found = programs.dump(parts, { "--cycles", t.all and 2 or 1,
        env = environment(devices.checked(1)) })
    programs.close(parts_found, sums_found, 1e-11, { "parameters", "gradients" })
    if t.all then same_as_c(t, "cuda_sums", text, 1e-5) end
end)

-- 37 windows of 8 bytes, 4 of them for evaluation: five micro-batches of 7, the last one of 5 rows,
-- in cycles of three and two.
add("ids, targets of two axes, short cycles and missing rows equal the C target", function(t)
    local programs = open(t)
    local bytes = {}
    for i = 1, 300 do bytes[i] = string.char(97 + (i * i + i // 7) % 19) end
    t.write(programs.folder() .. "/data/letters.txt", table.concat(bytes))
    same_as_c(t, "cuda_letters", [[
data       { "text", train = "letters.txt", context = 8, split = { eval = 4 }, last = "pad" }
batch      (7)
accumulate { 3, tail = "flush", drain = "consume" }
model      (function(batch)
    local x = reshape { 8, 1 } (batch.input * 0.05)
    return linear "fc2" { 23 } (tanh {} (linear "fc1" { 12 } (x)))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 4.5, seed = 3 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
]] .. F64, 1e-11, { cycles = 5 })
end)

-- Two tiles of queries and keys, two slices of a head; groups, masks that hide whole rows, draws; then `keys` keys for
-- those queries. In the first two cycles the gradients of q and k are rounding errors alone (1e-20), so a third is run.
local function attention(t, rows, positions, keys, more)
    local programs = open(t)
    local input, target = {}, {}
    local function mask_of(n)
        local mask = {}
        for i = 1, 6 * n do mask[i] = i // n % 3 == 1 and 0 or i % 4 end
        return { "mask" .. n, "I32", { 6, n }, mask }
    end
    for i = 1, 6 * 4 do input[i] = math.sin(i * i) end
    for i = 1, 6 do target[i] = i % 3 end
    local file = ("masked%d.safetensors"):format(positions)
    t.write(programs.folder() .. "/data/" .. file, t.load("tests/numeric/rows.lua").file {
        { "input", "F64", { 6, 4 }, input }, mask_of(positions), mask_of(keys), { "target", "I32", { 6 }, target } })
    local text = ([[
data       { "tensors", train = "%s" }
batch      (%d)
model      (function(batch)
    local function of(name, n, width) return reshape { n, width } (linear(name) { n * width } (batch.input)) end
    local q, k = rotary { heads = 2 } (of("q", T, 8)), rotary { heads = 1 } (of("k", T, 4))
    local y = attend { heads = 2, kv_heads = 1, causal = true, dropout = 0.2 } (q, k, of("v", T, 4), batch.maskT)
    y = attend { heads = 1 } (linear "qkv" { 102 } (y))
    local other, values = rotary { heads = 1 } (of("other", S, 34)), of("values", S, 34)
    y = attend { heads = 2, kv_heads = 1, dropout = 0.2 } (linear "wide" { 68 } (y), other, values, batch.maskS)
    y = attend { heads = 1, causal = true } (linear "narrow" { 34 } (y), other, values)
    return linear "out" { 3 } (flatten {} (y))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.01, momentum = 0.5 }
train      { updates = 8, seed = 4 }
%s]]):format(file, rows, more):gsub("%f[%w]T%f[%W]", positions):gsub("%f[%w]S%f[%W]", keys)
    return (text:gsub("maskT", "mask" .. positions):gsub("maskS", "mask" .. keys))
end

add("attention in f64 equals the C target", function(t)
    same_as_c(t, "cuda_attention64", attention(t, 2, 35, 70, F64), 1e-11, { cycles = 3 })
end)

add("attention in f32 equals the C target", function(t)
    same_as_c(t, "cuda_attention", attention(t, 1, 66, 20, ""), 1e-4, { cycles = 3, light = true })
end)

-- Tiles at their edges: products of 12 x 8 tiles of 128 and of 64, the fewest that take them, ragged on all sides.
add("products of every tile size equal the C target", function(t)
    local function wide(rows, first, second, more)
        return ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (%d)
model     { linear "a" { %d }, relu {}, linear "b" { %d }, relu {}, linear "c" { 3 } }
loss      "cross_entropy"
optimizer { "sgd", lr = 0.01 }
train     { updates = 3, seed = 5 }
%s]]):format(rows, first, second, more or "")
    end
    local programs, environment = open(t)
    for _, case in ipairs { { "cuda_tiles64", 33, 705, 449, F64, 1e-12 }, { "cuda_tiles128", 33, 1409, 897, "", 1e-5 } } do
        local name, rows, first, second, more, bound = table.unpack(case)
        local text = wide(rows, first, second, more)
        local oracle = programs.build(name .. "_c", text)
        local device = programs.build(name .. "_cuda", text .. 'target "cuda"\n')
        t.contains(host.read(device.folder .. "/kernels.cu"), bound > 1e-9 and "ROWS = 128" or "ROWS = 64")
        programs.close(programs.dump(device, { "--cycles", 1, env = environment() }),
            programs.dump(oracle, { "--cycles", 1 }), bound, { "parameters", "gradients" })
    end
end)

-- Quotients and remainders by sizes (templates/cuda/divisor.cu): divisors as the host makes them, divisions as kernels do.
local HOST = [[
#include <stdint.h>
#include <stdio.h>
LAUNCH
int main(void) {
    const int others[] = {1000, 1001, 4097, 50257, 65535, 65536, 65537, 1 << 30, (1 << 30) - 1};
    for (int by = 1; by <= 600; by++) {
        const ga_divisor d = divisor(by <= 591 ? by : others[by - 592]);
        printf("{%d, %d, %uu},\n", d.by, d.shift, d.times);
    }
    return 0;
}
]]
local DEVICE = [[
#include <cstdio>
#define GA_DEVICE static inline
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
KERNELS
static const ga_divisor all[] = {
#include "divisors.h"
};
int main() {
    for (const ga_divisor d : all)
        for (int k = 0; k < 4000; k++) {
            const long long near[] = {k, (long long)d.by * k - 1, (long long)d.by * k, 0x7fffffffll - k};
            for (long long n : near)
                if (n >= 0 && n <= 0x7fffffff && ((int)n / d != n / d.by || (int)n % d != n % d.by))
                    return std::printf("%lld / %d\n", n, d.by), 1;
        }
}
]]

add("divisions by sizes are exact", function(t)
    local divisor = require "base.template".embedded "templates/cuda/divisor.cu"
    local folder = t.temp()
    local function write(file, text, name, block)
        t.write(folder .. "/" .. file, (text:gsub(name, function() return divisor(block, {}).text end)))
    end
    write("host.c", HOST, "LAUNCH", "divisor_launch")
    write("device.cpp", DEVICE, "KERNELS", "divisor")
    t.shell(("cd %s && cc -Wall -Wextra -Werror host.c -o host && ./host > divisors.h && c++ -O1 -Wall -Wextra -Werror "
        .. "device.cpp -o device"):format(folder))
    t.equal(t.run { folder .. "/device" }.out, "")
end)

return tests
