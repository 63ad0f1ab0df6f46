-- --sample computes one row, and one position where keys and values are kept. The truth is the forward pass over the
-- whole micro-batch that training and evaluations have: programs are edited to compute it too, and to say how far apart
-- the outputs are. All memory of values is NaN at first, so that what nobody wrote is noticed.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local LINE = "the quick brown fox jumps over the lazy dog. "

local HEAD = [[
data       { "text", train = "line.txt", context = %d, split = { eval = 4 } }
batch      (%d)
]]
local TAIL = [[
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
init       { { "*wte.weight", normal = 1 } }
train      { updates = 5, seed = 3 }
]]

local function spec(context, batch, model, more)
    return HEAD:format(context, batch) .. model .. "\n" .. TAIL .. (more or "")
end

local GPT = [[
model      { embedding "wte" { 28, 24 }, positions "wpe" { 11 },
             times(3) "h" {
                 residual { layernorm "ln" {}, linear "qkv" { 72 }, attend { heads = 2, causal = true, dropout = 0.2 },
                            linear "proj" { 24 } },
                 residual { layernorm "ln2" {}, linear "up" { 50 }, gelu { "tanh" }, dropout(0.1),
                            linear "down" { 24 } } },
             layernorm "ln_f" {}, linear "head" { 28 } }]]

-- Odd sizes: heads of 6 elements, 15 positions.
local LLAMA = [[
model(function(batch)
    local function project(name, width) return linear(name) { width, bias = false } end
    local x = embedding "wte" { 28, 30 } (batch.input)
    x = times(2) "layers" (function(x)
        local h = rmsnorm "norm" {} (x)
        local q, k = rotary { heads = 5 } (project("q", 30)(h)), rotary { heads = 1 } (project("k", 6)(h))
        x = x + project("o", 30)(attend { heads = 5, kv_heads = 1, causal = true } (q, k, project("v", 6)(h)))
        h = rmsnorm "norm2" {} (x)
        return x + project("down", 30)(silu {} (project("gate", 41)(h)) * project("up", 41)(h))
    end) (x)
    return project("head", 28)(rmsnorm "last" {} (x))
end)]]

-- One layer outside of a loop.
local PLAIN = [[
model      { embedding "wte" { 28, 20 }, positions "wpe" { 65 },
             residual { layernorm "ln" {}, linear "qkv" { 60 }, attend { heads = 4, causal = true },
                        linear "proj" { 20 } },
             linear "head" { 28 } }]]

-- At each position the mean of all positions is read.
local MIXED = [[
model(function(batch)
    local x = embedding "wte" { 28, 24 } (batch.input)
    x = x + attend { heads = 2, causal = true } (linear "qkv" { 72 } (x))
    return linear "head" { 28 } (x + reshape { 1, 24 } (mean { axis = 2 } (x)))
end)]]

-- A product reads ids that lie in memory under another shape.
local RESHAPED = [[
model(function(batch)
    local x = reshape { 9, 1 } (batch.input * 0.05)
    return linear "head" { 28 } (tanh {} (linear "fc" { 12 } (x)))
end)]]

-- Reductions along an axis of a reshaped value, also one that the value in memory does not have, and batchnorm of one.
local REDUCED = [[
model(function(batch)
    local x = embedding "wte" { 28, 24 } (batch.input)
    local y = sum { axis = 3 } (reshape { 9, 3, 8 } (x)) + mean { axis = 4 } (reshape { 9, 8, 3 } (x))
        + max { axis = 3 } (reshape { 9, 3, 8 } (x))
    return linear "head" { 28 } (y + reshape { 9, 8 } (batchnorm "bn" {} (reshape { 18, 4 } (y))))
end)]]

-- Planes of images, whose statistics are those of training; the rows of a group are no longer those of a micro-batch.
local PLANES = [[
model(function(batch)
    local x = reshape { 1, 9, 8 } (embedding "wte" { 28, 8 } (batch.input))
    x = relu(batchnorm "bn" {} (conv2d "c" { 4, 3, padding = 1 } (x)))
    return linear "head" { 28 } (reshape { 9, 32 } (transpose { 1, 3, 2, 4 } (x)))
end)]]

local CHECK = [[
        GA_TRY(read_output(m, w.n - 1, x, e));
        static real full[OUTPUT_WIDTH];
        double gap = 0, size = 0;
        void *kept = malloc(m->memory[ARENA_ACTIVATIONS].bytes);
        memcpy(kept, m->memory[ARENA_ACTIVATIONS].base, m->memory[ARENA_ACTIVATIONS].bytes);
        GA_TRY(NAME_model_evaluate_batch(m, e));
        GA_TRY(read_output(m, w.n - 1, full, e));
        memcpy(m->memory[ARENA_ACTIVATIONS].base, kept, m->memory[ARENA_ACTIVATIONS].bytes);
        free(kept);
        for (int id = 0; id < IDS; id++) {
            const double apart = fabs((double)x[id] - full[id]);
            gap = apart >= gap || isnan(apart) ? apart : gap; /* NaN stays: nothing compares with it */
            size = fmax(size, fabs(full[id]));
        }
        ga_say("gap %.9g %.9g", gap, size);
]]

-- The largest gap over all tokens of a sample, as a share of the largest output; and the program.
local function largest_gap(t, name, text, options)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/line.txt", LINE:rep(40))
    local p = programs.build(name, text)
    local source = host.read(p.folder .. "/sample.c")
    local check = CHECK:gsub("NAME", name)
    local edited, count = source:gsub("        GA_TRY%(read_output%(m, w%.n %- 1, x, e%)%);\n", function()
        return check
    end)
    t.equal(count, 1)
    edited, count = edited:gsub("    window w = ", "    memset(m->memory[ARENA_ACTIVATIONS].base, 0xff, "
        .. "m->memory[ARENA_ACTIVATIONS].bytes);\n    window w = ")
    t.equal(count, 1)
    local checkpoint = programs.train(p, {}).checkpoint
    programs.edit(p, "sample.c", "#include <stdlib.h>\n" .. edited)
    local result = programs.train(p, table.move(options or {}, 1, 9, 5, { "--checkpoint", checkpoint, "--sample",
        40 }))
    local worst, lines = 0, 0
    for gap, size in result.err:gmatch "gap (%S+) (%S+)" do
        lines, gap = lines + 1, tonumber(gap) or math.huge
        worst = math.max(worst, gap / tonumber(size))
    end
    t.equal(lines, 40)
    return worst, p
end

local function keeps(p) return host.read(p.folder .. "/one_row.c"):find("forward_position", 1, true) ~= nil end

-- name, spec, bound, whether positions are kept, options of train.
local CASES = {
    { "gpt", spec(11, 3, GPT), 1e-5, true },
    { "gpt_prompt", spec(11, 3, GPT), 1e-5, true, { "--prompt", "the quick" } },
    { "gpt_alone", spec(11, 1, GPT), 1e-5, true },
    { "gpt_threads", spec(11, 3, GPT), 1e-5, true, { "--threads", 3 } },
    { "llama", spec(15, 4, LLAMA), 1e-5, true },
    { "plain", spec(65, 2, PLAIN), 1e-5, true, { "--prompt", LINE .. "the quick bro" } },
    { "gpt_f64", spec(11, 3, GPT, 'precision "f64"\n'), 1e-13, true },
    { "gpt_bf16", spec(11, 3, GPT, 'precision "bf16"\n'), 1e-2, true },
    { "llama_f64", spec(15, 4, LLAMA, 'precision "f64"\n'), 1e-13, true },
    { "llama_bf16", spec(15, 4, LLAMA, 'precision "bf16"\n'), 1e-2, true },
    { "mixed", spec(9, 3, MIXED), 1e-5, false },
    { "reshaped", (spec(9, 3, RESHAPED):gsub("init [^\n]*\n", "")), 1e-5, false },
    { "reduced", spec(9, 3, REDUCED), 1e-5, false },
    { "planes", spec(9, 3, PLANES), 1e-5, false },
    { "gpt_recompute", spec(11, 3, GPT, 'memory { recompute = { "*" } }\n'), 1e-5, true },
}

for _, case in ipairs(CASES) do
    add(case[1] .. ": the same output as over the whole micro-batch", function(t)
        local worst, p = largest_gap(t, "one_row_" .. case[1], case[2], case[5])
        t.equal(keeps(p), case[4])
        local plan = host.read(p.folder .. "/plan.json")
        t.equal({ plan:find('_cache"', 1, true) ~= nil, plan:find("; the cache of --sample, ", 1, true) ~= nil },
            { case[4], case[4] })
        assert(worst <= case[3], ("outputs differ by %.3g, at most %.3g expected"):format(worst, case[3]))
    end)
end

return tests
