-- Chunked logits (memory { logits = "chunked" }): losses, gradients, parameters and evaluations equal those of whole
-- logits, on both targets, and the plan has no tensor of the size of all logits.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- 56 places in a micro-batch of 8 rows, in runs of at most 20: two of 19 and one of 18.
local ROWS = 20

local GPT = [[
data       { "text", train = "tongue.txt", context = 8, split = { eval = 9 }, last = "pad" }
batch      (7)
eval       { every = 3, metrics = { "loss", "accuracy", "top5" } }
train      { updates = 6, seed = 3 }
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
]]

local BODY = [[
model {
    block "t" {
        embedding "wte" { 23, 16 }, positions "wpe" { 8 },
        times(2) "h" { residual { layernorm "ln" {}, linear "qkv" { 48 }, attend { heads = 2, causal = true },
                                  linear "proj" { 16 } } },
        layernorm "ln_f" {},
    },
    %s,
}
]]

local TIED, UNTIED = BODY:format('unembed { "t.wte" }'), BODY:format('linear "head" { 23 }')
local STORED = BODY:format('linear "head" { 23, store = "in_out", bias = false }')

-- Two classes of rows of four numbers: 30 rows in runs of 10.
local CLASSES = [[
data       { "csv", train = "tiny2.csv", target = "last", split = { eval = 13 } }
batch      (30)
model      { linear "fc1" { 9 }, tanh {}, linear "fc2" { 2 } }
eval       { every = 2, metrics = { "loss", "accuracy", "f1" } }
train      { updates = 4, seed = 5 }
optimizer  { "sgd", lr = 0.1 }
]]

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, bytes, rows = programs.folder() .. "/data/", {}, {}
    for i = 1, 700 do bytes[i] = string.char(97 + (i * i + i // 7) % 23) end
    t.write(folder .. "tongue.txt", table.concat(bytes))
    for i = 1, 90 do
        rows[i] = ("%d,%d,%d,%d,%d"):format(i % 5, i * i % 7, i % 3, i % 11, (i * i + i // 4) % 2)
    end
    t.write(folder .. "tiny2.csv", table.concat(rows, "\n") .. "\n")
    return programs
end

-- The program of a spec with these `logits`, at most `rows` rows at a time.
local function build(programs, name, text, logits, rows, more, how)
    return programs.build(name .. "_" .. logits, ('%smemory { logits = "%s", logits_rows = %d%s }\n'):format(text,
        logits, rows or ROWS, more or ""), how)
end

-- The log's updates and evaluations, without times.
local function measured(programs, p, o)
    local list = {}
    for _, e in ipairs(programs.events(p, o or {})) do
        if e.event == "update" or e.event == "eval" then
            list[#list + 1] = { e.event, e.cycle, e.rows, e.loss, e.weight or 0, e.grad_norm or 0, e.accuracy or 0,
                e.f1 or 0, e.top5 or 0 }
        end
    end
    return list
end

local CASES = {
    -- The sums of a tied or unbiased head run over the same rows in the same order: the same bits.
    { "tied, one micro-step", GPT .. TIED .. 'loss "cross_entropy"\n', how = { probe = true } },
    { "tied, four micro-steps and a tail", GPT .. TIED .. 'accumulate { 4, tail = "flush" }\nloss "cross_entropy"\n' },
    { "stored in_out, a sum", GPT .. STORED .. 'accumulate (2)\nloss { "cross_entropy", weight = "sum" }\n' },
    { "a bias, four micro-steps, f64", GPT .. UNTIED .. 'accumulate (4)\nloss "cross_entropy"\nprecision "f64"\n',
        bound = 1e-12 },
    { "micro-steps that weigh the same, smoothing, ignored targets", GPT .. UNTIED .. 'accumulate (3)\n'
        .. 'loss { "cross_entropy", weight = "micro", label_smoothing = 0.1, ignore = 5 }\nprecision "f64"\n',
        bound = 1e-12 },
    { "activations of 16 bits", GPT .. UNTIED .. 'accumulate (2)\nloss "cross_entropy"\nprecision "bf16"\n', bound = 1e-5 },
    { "rows that weigh the same, frozen embeddings", (GPT .. UNTIED):gsub("optimizer  { (.-) }\n",
        'optimizer { %1, groups = { { "t.*", frozen = true } } }\n') .. 'accumulate { 2, tail = "carry" }\n'
        .. 'loss { "cross_entropy", weight = "sample", ignore = 3 }\nprecision "f64"\n', bound = 1e-12 },
    { "two classes with weights", CLASSES .. 'loss { "cross_entropy", class_weights = { 0.5, 2 }, weight = "micro" }\n'
        .. 'precision "f64"\naccumulate (2)\n', bound = 1e-12, rows = 11 },
}

for i, case in ipairs(CASES) do
    add("the same as with whole logits: " .. case[1], function(t)
        local programs = open(t)
        local name = "logits_" .. i
        local whole = build(programs, name, case[2], "whole", case.rows, nil, case.how)
        local chunked = build(programs, name, case[2], "chunked", case.rows, nil, case.how)
        local expected, found = t.temp(), t.temp()
        local a = measured(programs, whole, { "--dump", expected })
        local b = measured(programs, chunked, { "--threads", 3, "--dump", found })
        if case.bound then
            programs.close(found, expected, case.bound, { "parameters", "gradients" })
        else
            programs.identical(found, expected, { "parameters", "gradients" })
        end
        t.equal(#a, #b)
        for k, row in ipairs(a) do
            for j, x in ipairs(row) do
                if type(x) == "number" then t.near(b[k][j], x, 1e-6 * math.abs(x), row[1] .. k .. ": " .. j)
                else t.equal(b[k][j], x) end
            end
        end
    end)
end

add("any number of threads and a stop inside a cycle give the same bits", function(t)
    local programs = open(t)
    local p = build(programs, "logits_threads", GPT .. UNTIED .. 'accumulate (4)\nloss "cross_entropy"\n', "chunked")
    local one = programs.dump(p, { "--threads", 1 })
    for threads = 2, 4 do
        programs.identical(programs.dump(p, { "--threads", threads }), one, { "parameters", "gradients" })
    end
    local stopped = programs.train(p, { "--stop-micro", 6, status = 75 }).checkpoint
    programs.identical(programs.dump(p, { "--resume", "latest", "--checkpoint", stopped }), one,
        { "parameters", "gradients" })
end)

for _, weight in ipairs { "token", "micro" } do
    add("gradients against finite differences: weight " .. weight, function(t)
        local _, report = t.load("tests/numeric/numeric.lua")(t).differences { batch = 7, rows = 28,
            accumulate = "(3)", more = 'memory { logits = "chunked", logits_rows = 3 }',
            loss = ('{ "cross_entropy", weight = "%s", label_smoothing = 0.2, class_weights = { 0.5, 2, 1 } }')
                :format(weight), model = ' { linear "a" { 5 }, tanh {}, linear "b" { 3 } }' }
        for _, name in ipairs { "a.weight", "a.bias", "b.weight", "b.bias" } do
            t.contains("\n" .. report, "\n" .. name .. ": ok")
        end
    end)
end

add("the CUDA target equals the C target", function(t)
    open(t)
    local devices = dofile "tests/lua/devices.lua"
    local memory = ('memory { logits = "chunked", logits_rows = %d }\n'):format(ROWS)
    devices.same_as_c(t, "logits_tied", GPT .. TIED .. 'accumulate (2)\nloss "cross_entropy"\nprecision "f64"\n'
        .. memory, 1e-11)
    devices.same_as_c(t, "logits_bias", GPT .. UNTIED .. 'accumulate { 3, tail = "flush" }\nloss { "cross_entropy", '
        .. 'weight = "micro", label_smoothing = 0.1 }\n' .. memory, 1e-4, { cycles = 4, light = true })
end)

add("a device samples and evaluates like the CPU, and the CPU as with whole logits", function(t)
    local programs = open(t)
    local _, environment = dofile("tests/lua/devices.lua").open(t)
    local text = GPT .. UNTIED .. 'loss "cross_entropy"\n'
    local chunked = build(programs, "logits_sample", text, "chunked")
    local checkpoint = programs.train(chunked, {}).checkpoint
    local function said(p, env)
        local o = { "--resume", "latest", "--checkpoint", checkpoint, "--sample", 20, "--temperature", 0, env = env }
        return programs.train(p, o).out
    end
    local expected = said(build(programs, "logits_sample", text, "whole"))
    t.equal(#expected, 22)
    t.equal(said(chunked), expected)
    local device = build(programs, "logits_sample_cuda", text .. 'target "cuda"\n', "chunked")
    t.equal(said(device, environment()), expected)
    local a, b = measured(programs, chunked, { "--eval", "--resume", "latest", "--checkpoint", checkpoint }),
        measured(programs, device, { "--eval", "--resume", "latest", "--checkpoint", checkpoint, env = environment() })
    t.equal(#a, 1)
    t.near(b[1][4], a[1][4], 1e-5)
    t.equal(b[1][7], a[1][7])
end)

-- The tensors of a plan as large as all logits, and the bytes of its activations.
local function large(plan, bytes)
    local list, activations = {}, nil
    for _, tensor in ipairs(plan.tensors) do
        if tensor.bytes >= bytes then list[#list + 1] = tensor.name end
    end
    for _, arena in ipairs(plan.arenas) do
        if arena.name:match("activations$") then activations = arena.bytes end
    end
    return list, activations
end

add("no activation has the size of the logits, and the planned bytes are mapped", function(t)
    local programs = open(t)
    local text = GPT .. 'model { embedding "wte" { 3000, 8 }, layernorm "ln" {}, unembed { "wte" } }\n'
        .. 'loss "cross_entropy"\n'
    for _, target in ipairs { "c", "cuda" } do
        local plans = {}
        for _, logits in ipairs { "whole", "chunked" } do
            local path = programs.folder() .. "/logits_plan.lua"
            t.write(path, text .. ('memory { logits = "%s", logits_rows = 8 }\ntarget "%s"\n'):format(logits, target))
            plans[logits] = programs.plan { name = "logits_plan", spec = path }
        end
        local all = 7 * 8 * 3000 * 4
        local list, bytes = large(plans.whole, all)
        t.equal(#list, 2)
        local none, less = large(plans.chunked, all)
        t.equal(none, {})
        assert(less < bytes - 2 * all + 2 * all // 6, ("%d of %d bytes"):format(less, bytes))
        local a, b = plans.whole.totals, plans.chunked.totals
        t.equal(b.flops_per_cycle, a.flops_per_cycle, "no logit is computed twice")
        t.equal(a.bytes - b.bytes, bytes - less)
    end
    local p = programs.build("logits_memory", text .. 'memory { logits = "chunked", logits_rows = 8 }\n',
        { ldflags = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say",
          sources = { "tests/e2e/count_memory.c" } })
    local bytes, late = t.match(programs.train(p, { "--cycles", 3 }).err,
        "counted: (%d+) bytes in %d+ mappings, %d+ calls, (%d+) after ready\n$")
    t.equal(tonumber(bytes), programs.plan(p).totals.bytes)
    t.equal(tonumber(late), 0)
end)

add("recomputation, passes left out and few rows change no bit", function(t)
    local programs = open(t)
    local text = GPT .. TIED .. 'accumulate (2)\nloss "cross_entropy"\n'
    local expected = programs.dump(build(programs, "logits_plain", text, "whole"), {})
    for i, more in ipairs { ', recompute = { "*" }', ', recompute = { "t_ln_f_y" }' } do
        local p = build(programs, "logits_again" .. i, text, "chunked", nil, more)
        programs.identical(programs.dump(p, {}), expected, { "parameters", "gradients" })
        local again = 0
        for _ in host.read(p.folder .. "/step.c"):gmatch("%(w, m%->a%.ln_f_y_again,") do again = again + 1 end
        t.equal(again, 1, "the last norm is computed again once, not for each run")
    end
    local function step(name, ...)
        local path = programs.folder() .. "/logits_same.lua"
        t.write(path, text .. ('memory { logits = "chunked", logits_rows = %d }\n'):format(name == "rows" and 56 or 5))
        local result = programs.gagen { "show", path, "step.c", ... }
        t.equal(result.status, 0, result.err)
        return (t.match(result.out, "\nstatic void forward.-\n%}"))
    end
    local whole = step("rows")
    t.contains(whole, "tally(")
    t.equal(step("passes", "--without", "head_by_rows"), whole)
    t.equal(step("runs"):find("tally(", 1, true), nil)
end)

-- The values of NAME.0, NAME.1, ... and NAME_rest, concatenated.
local function joined(tensors, name)
    local list, l = {}, 0
    while tensors[name .. "." .. l] do
        table.move(tensors[name .. "." .. l].values, 1, tensors[name .. "." .. l].count, #list + 1, list)
        l = l + 1
    end
    local rest = tensors[name .. "_rest"]
    return table.move(rest.values, 1, rest.count, #list + 1, list), l
end

add("probes see each run of rows", function(t)
    local programs = open(t)
    local case, seen = CASES[1], {}
    for _, logits in ipairs { "whole", "chunked" } do
        local p = build(programs, "logits_1", case[2], logits, nil, nil, case.how)
        p = { name = p.name, spec = p.spec, folder = p.folder, train = p.probe }
        seen[logits] = programs.tensors(programs.dump(p, { "--cycles", 1, "--check-finite", "--profile" })
            .. "/micro-0.safetensors")
    end
    for _, name in ipairs { "loss", "loss_lse", "unembed_out", "d_unembed_out", "d_t_ln_f_y" } do
        local found, runs = joined(seen.chunked, name)
        t.equal(runs, 2)
        t.equal(found, seen.whole[name].values, name)
    end
end)

add("two ranks equal one", function(t)
    local programs = open(t)
    local text = GPT:gsub("batch      %(7%)", "batch (%%d)") .. UNTIED .. 'loss "cross_entropy"\nprecision "f64"\n'
        .. ('memory { logits = "chunked", logits_rows = %d }\n'):format(ROWS)
    local one = programs.build("logits_one", text:format(6))
    local two = programs.build("logits_two", text:format(3) .. 'parallel "ddp"\n', { comm = "mpi" })
    programs.close(programs.dump(two, { ranks = 2 }), programs.dump(one, {}), 1e-12, { "parameters", "gradients" })
end)

add("the library trains and evaluates, and refuses functions that need the output", function(t)
    local programs = open(t)
    local text = 'name "looped"\n' .. CLASSES .. 'loss "cross_entropy"\n'
    local p = programs.build("logits_library", text .. 'memory { logits = "chunked", logits_rows = 11 }\n',
        { lib = true })
    t.write(p.folder .. "/drive.c", [[
#include "looped.h"
#include <stdio.h>
int main(void) {
    static float input[120], out[60];
    static int32_t target[30];
    for (int i = 0; i < 120; i++) input[i] = (float)(i % 7) / 7;
    for (int i = 0; i < 30; i++) target[i] = i % 2;
    looped *m = NULL;
    ga_err e = {0};
    const looped_batch b = {input, target, 30};
    looped_metrics sums = {0};
    if (looped_open(&m, &(looped_options){.quiet = 1}, &e) < 0) return puts(e.msg) > 0;
    if (looped_backward(m, &b, &e) < 0 || looped_step(m, &e) != 1) return puts(e.msg) > 0;
    if (looped_validation_step(m, &b, &sums, &e) < 0) return puts(e.msg) > 0;
    printf("%d rows %.4f, output %d\n", (int)sums.rows, sums.loss_sum / sums.weight, (int)looped_output_elements(m));
    printf("%d %s\n", looped_predict_step(m, &b, out, &e) < 0, e.msg);
    printf("%d %s\n", looped_backward_by_grad(m, &b, out, &e) < 0, e.msg);
    looped_close(m);
    return 0;
}
]])
    local built = t.run { "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder,
        "-o", p.folder .. "/drive", p.folder .. "/drive.c", p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm", "-pthread" }
    t.equal(built.status, 0, built.err)
    local data = t.root .. "/" .. programs.folder() .. "/data"
    local result = t.run { p.folder .. "/drive", env = { "GAGEN_DATA=" .. data } }
    t.equal(result.status, 0, result.out .. result.err)
    t.match(result.out, "30 rows 0%.%d+, output 0\n")
    t.match(result.out, '1 predict: the output is never whole in memory: .* memory { logits = "whole" }\n')
    t.match(result.out, "1 backward_by_grad: the output is never whole in memory")
end)

add("models without such logits are refused", function(t)
    local programs = open(t)
    local function refused(text, ...)
        local path = programs.folder() .. "/logits_refused.lua"
        t.write(path, text)
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, result.err)
        for _, part in ipairs { ... } do t.contains(result.err, part) end
    end
    local chunked = 'memory { logits = "chunked" }\n'
    local function changed(model) return (CLASSES:gsub("model [^\n]*", model)) end
    refused(changed('model { linear "fc" { 2 }, relu {} }') .. 'loss "cross_entropy"\n' .. chunked,
        'memory: logits = "chunked" is for', "here the model does not end in linear or unembed")
    refused(CLASSES:gsub(", metrics = [^}]*}", "") .. "loss(function(out, batch) return mean(out * out) end)\n"
        .. chunked, "here the loss is no cross_entropy")
    refused(CLASSES .. 'loss "cross_entropy"\nmemory { logits = "some" }\n', "'whole', 'chunked', 'auto'")
    refused(CLASSES .. 'loss "cross_entropy"\nmemory { logits = "auto" }\n',
        'memory: logits is "auto", expected memory')
    refused(CLASSES .. 'loss "cross_entropy"\nmemory { logits = "chunked", logits_rows = 0 }\n', "logits_rows")
end)

return tests
