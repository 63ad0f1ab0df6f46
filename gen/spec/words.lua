-- words: the fields of the words of a spec, as data. Types are those of base/check.lua; `values` list the choices
-- that are implemented, others are refused by name.
-- `select`: the first position names an entry of that registry of the catalog, whose fields are added; fields in `own`
-- belong to the word alone. `foreign`: by the names of fields that other systems have, what is here in their place.
-- `example` is a line of a spec that is valid beside
-- model { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }.
local catalog = require "catalog.catalog"
local formats = require "spec.formats"
local folders = require "base.folders"
local ordered = require "base.ordered"

local words = {}

local function field(name, type, more)
    local f = { name = name, type = type }
    for _, key in ipairs { "default", "position", "required", "min", "max", "above", "below",
        "values", "doc", "alternatives" } do
        f[key] = more[key]
    end
    return f
end

local LIMIT = require("base.check").INT_MAX

--- Cycles of a run at most: 2^53, as their numbers are also kept in doubles.
words.MOST_CYCLES = 9007199254740992

local MODES, METRICS = catalog.load().modes, catalog.load().metrics

-- "NAME": its meaning, for each of these entries of the catalog.
local function meanings(entries)
    return table.concat(ordered.collect(entries.keys, function(name)
        return ("\"%s\": %s"):format(name, entries:get(name).doc)
    end), "; ")
end

words.list = {
    { name = "name", example = 'name "my_model"',
      doc = "the program's name; default: the spec's file name", fields = {
        field("name", "str", { position = 1, required = true, doc = "[a-z][a-z0-9_]*" }),
    } },
    { name = "data",
      example = formats.list[1].example,
      required = true, doc = "where the rows come from", fields = {
        field("kind", "str", { position = 1, required = true, values = formats.names, doc = "the file format" }),
        field("train", "str", { required = true, alternatives = { "table" },
            doc = "path of the training files, * stands for any characters; idx and npy: { input, target }" }),
        field("eval", "str", { alternatives = { "table" }, doc = "the same for evaluation" }),
        field("target", "int", { alternatives = { "string" }, min = 1,
            doc = "csv: the target's column by number, from 1, by name, or \"last\"; tensors: its name, default "
                .. "\"target\"" }),
        field("header", "bool", { doc = "csv: the first line has names, not numbers; default: true if the spec uses "
            .. "them" }),
        field("drop", "list", { doc = "csv: columns that are not read, by name or number" }),
        field("columns", "list", { doc = "csv: the columns of the input in this order; default: all but the target and "
            .. "drop" }),
        field("category", "list", { doc = "csv: columns of text, by name or number: the number of a cell is the id of "
            .. "its text, from 0 in the order in which the training rows have them first; of the target: its class" }),
        field("ids", "list", { doc = "csv: columns of category that are no part of batch.input but fields of ids, "
            .. "batch.NAME, for embedding" }),
        field("unknown", "bool", { doc = "csv: texts of an input that no training row has get one id more, the last; "
            .. "default: they are refused" }),
        field("standardize", "bool", { doc = "csv: a number x of the input becomes (x - mean) / std, both of its "
            .. "column over the training rows; ids and the target stay as they are" }),
        field("context", "int", { min = 1, max = 16777216, doc = "text, tokens: ids of one row" }),
        field("scale", "num", { doc = "factor of the inputs; cifar10: 1/255, the others: 1" }),
        field("mean", "list", { doc = "taken from the scaled inputs, one per channel or one for all" }),
        field("std", "list", { doc = "divisors of the difference, one per channel or one for all" }),
        field("crop", "table", { doc = "{ size, padding = 0 }: a random square of a training image" }),
        field("flip", "bool", { doc = "half of the training images are mirrored" }),
        field("split", "table", { doc = "{ fold, of, seed } or { eval = rows, seed }; text, tokens: "
            .. "{ eval = rows } takes the last ones; rows below 1 are a fraction of all" }),
        field("shuffle", "bool", { doc = "a new order each epoch; default: true, with stream false" }),
        field("last", "str", { default = "drop", values = { "drop", "pad" },
            doc = "whether the last incomplete micro-batch is left out or filled up" }),
        field("stream", "bool", { default = false, doc = "csv, text, tokens: the rows of train are read "
            .. "once per epoch in the order of the files and not kept in memory, so files may have any length; "
            .. "needs eval files and train.updates" }),
    } },
    { name = "batch", example = 'batch (16)',
      required = true, doc = "rows per micro-step and rank", fields = {
        field("rows", "int", { position = 1, required = true, min = 1, max = LIMIT, alternatives = { "auto" },
            doc = "rows of one micro-batch; \"auto\": as many as memory.budget allows, of batch.global" }),
        field("global", "int", { min = 1, max = LIMIT,
            doc = "rows per update over all ranks; gives accumulate" }),
    } },
    { name = "accumulate", example = 'accumulate { 4, tail = "flush" }',
      doc = "micro-steps per update", fields = {
        field("count", "int", { position = 1, min = 1, max = 65536,
            doc = "micro-steps of one cycle; default 1" }),
        field("later", "table", {
            doc = "{ [cycle] = count }: micro-steps from that cycle on" }),
        field("tail", "str", { default = "drop", values = { "drop", "flush", "carry" },
            doc = "the last incomplete cycle of an epoch is left out, ends early, or goes on in the next" }),
        field("drain", "str", { default = "skip", values = { "skip", "consume" },
            doc = "whether batches left out by \"drop\" are read; the first pass over a stream reads all" }),
        field("unroll", "int", { default = 16, min = 1, max = 1024,
            doc = "up to this count the cycle is written out" }),
    } },
    { name = "init", example = 'init { { "*.bias", value = 0 }, { "*", normal = 0.02 } }',
      usage = 'init { { glob, normal = sd | uniform = a | value = v | "torch" }, ... }',
      doc = "initial values; the first glob that fits a parameter wins" },
    { name = "loss", example = 'loss { "cross_entropy", label_smoothing = 0.1 }',
      required = true, doc = "the function that is minimised: the name of a loss, or a function(out, batch) that may "
          .. "call losses and gives a value or more per row; the mean is over all its values", select = "losses",
      fields = {
        field("weight", "str", { default = "token", values = { "token", "sample", "micro", "sum" },
            doc = "what the sum of a cycle's losses is divided by: token, the weight of all targets that count; "
                .. "sample, the rows that have such a target; micro, that of each micro-step, then the number "
                .. "of those with a target; sum, nothing" }),
    } },
    { name = "optimizer", example = 'optimizer { "adamw", lr = 1e-3, groups = { { rank = 1, weight_decay = 0 } } }',
      required = true, doc = "the update rule", select = "optimizers", own = {
        field("groups", "list", { doc = "{ { glob | rank = n, lr_scale = 1, frozen = false, FIELD = value }, ... }: "
            .. "the first that fits a parameter wins, in a times for each layer: h.0.* takes the first one; FIELD is "
            .. "one of the rule's. frozen: neither gradient nor update" }),
        field("rest", "table", { alternatives = { "string" }, doc = "muon: { \"name\", FIELD = value }: the "
            .. "optimizer of parameters that are no matrices and of groups with rest = true; the schedule moves its "
            .. "lr in proportion to muon's. Default: \"adamw\"" }),
        field("layer_decay", "num", { above = 0, max = 1, doc = "the rate of a parameter is multiplied by "
            .. "layer_decay^k: k is 0 behind the last layer of times, 1 in it, 2 in the one before, and so on; before "
            .. "the first layer one more than in it" }),
        field("ema", "num", { above = 0, below = 1, doc = "decay of an average of each parameter, e += (1 - ema) "
            .. "(w - e) from the initial w on: saved as NAME.ema; evaluations and --sample use the averages" }),
    } },
    { name = "schedule", example = 'schedule { "cosine", warmup = 50 }',
      doc = "the learning rate over updates", select = "schedules", fields = {
        field("by", "str", { default = "update", values = { "update", "epoch" },
            doc = "the unit of t and of every length of a schedule" }),
        field("product", "bool", { default = false, doc = "of a function: its values are factors of the previous rate, "
            .. "from t = 1 on (torch's MultiplicativeLR)" }),
        field("on_skip", "str", { default = "hold", values = { "hold", "advance" },
            doc = "whether t moves when an update is skipped; epochs always do" }),
        field("compat", "list", { default = {}, doc = "names of quirks to reproduce: warmup_from_zero (the first "
            .. "update has the rate 0) and those of the schedule" }),
        field("auto_lr", "str", { default = "none", values = { "none", "linear", "sqrt" },
            doc = "the optimizer's lr times (rows of an update / base_rows), or its square root" }),
        field("base_rows", "int", { min = 1, doc = "the rows of an update that lr is meant for" }),
    } },
    { name = "gradient", example = "gradient (function(g, w) return g + 0.01 * w end)", fields = {},
      takes_function = "g and w",
      usage = "gradient (function(g, w) return expression end)",
      doc = "the new value of each element g of the mean gradient of a parameter element w, before clipping; "
          .. "once per update" },
    { name = "clip", example = 'clip { 1.0, per_group = true }',
      doc = "gradient clipping at the boundary, of the mean gradient: elements first, then the norm; the "
          .. "factor is min(1, norm / (norm of the gradient + 1e-6))", fields = {
        field("norm", "num", { position = 1, above = 0, doc = "largest norm" }),
        field("p", "num", { default = 2, above = 0, max = 16, alternatives = { "inf" },
            doc = "the norm: (sum of |g|^p)^(1/p), or the largest |g|" }),
        field("value", "num", { above = 0, doc = "largest size of an element" }),
        field("per_group", "bool", { default = false,
            doc = "a norm and a factor for each group of the optimizer; parameters of its `rest` are groups of "
                .. "their own" }),
    } },
    { name = "precision", example = 'precision { "f32", accum = "kahan" }',
      doc = "the type of all arithmetic, and how values are stored", fields = {
        field("compute", "str", { position = 1, default = "f32", values = { "f32", "f64", "bf16", "f16" },
            doc = "f32 or f64; bf16, f16: arithmetic is f32, but activations, their gradients and weights as "
                .. "products read them are stored in 16 bits; parameters, their gradients and state stay f32" }),
        field("accum", "str", { default = "f32", values = { "f32", "bf16", "kahan" },
            doc = "how gradients are summed over the micro-steps: f32, in the type of the arithmetic; kahan, with a "
                .. "second array for the rounding errors; bf16, in half the memory: each sum is rounded to 8 bits, so "
                .. "that summands below 1/512 of it are lost" }),
        field("f32", "str", { default = "auto", values = { "auto", "fma", "bf16x6", "bf16x3" },
            doc = "how products of f32 are computed, on processors with matrix registers (AMX): fma, by multiply-adds; "
                .. "bf16x6, by six products of bf16, with errors below those of fma for sizes of 2^-90 to 2^120; "
                .. "bf16x3, by three, with errors of about 2^-17; auto: bf16x6 there, "
                .. "but fma for convolutions of 3 x 3 taps; fma elsewhere" }),
        field("stochastic", "bool", { default = false,
            doc = "sums of bf16 are rounded up or down at random, with probabilities that make the error 0 on average, "
                .. "so that small summands are not lost" }),
    } },
    { name = "scaler", example = 'scaler { initial_scale = 1024, growth_interval = 500 }',
      doc = "the loss is multiplied by a scale, and the gradient divided by it before anything else uses it; an update "
          .. "whose gradient overflows is skipped. Always on with precision \"f16\", optional with f32 and f64",
      fields = {
        field("initial_scale", "num", { default = 65536, above = 0, max = 1e18, doc = "the scale at the beginning" }),
        field("min_scale", "num", { default = 1, above = 0, max = 1e18, alternatives = { "none" },
            doc = "the least scale; an overflow there is handled by train.on_nonfinite" }),
        field("max_scale", "num", { default = 2 ^ 32, above = 0, max = 1e18, alternatives = { "none" },
            doc = "the greatest scale; \"none\": 2^100, by which f32 still divides" }),
        field("growth_factor", "num", { default = 2, above = 1, max = 65536,
            doc = "factor of the scale when it grows" }),
        field("backoff_factor", "num", { default = 0.5, above = 0, below = 1,
            doc = "factor of the scale when it falls" }),
        field("growth_interval", "int", { default = 1000, min = 1, max = LIMIT,
            doc = "consecutive cycles without an overflow after which the scale grows" }),
        field("hysteresis", "int", { default = 2, min = 0, max = LIMIT,
            doc = "overflows after which the scale falls; then each one lowers it, until it has grown again" }),
        field("static", "num", { above = 0, max = 1e18, doc = "a fixed scale; excludes all other fields" }),
        field("preset", "str", { values = { "torch" },
            doc = "other defaults: those of torch's GradScaler, growth_interval 2000, hysteresis 1, no limits" }),
    } },
    { name = "parallel", example = 'parallel { "zero1", ranks = 2, bucket = "4MiB" }',
      doc = "several processes", fields = {
        field("mode", "str", { position = 1, default = MODES.default, values = MODES.keys,
            doc = "how the work is shared; " .. meanings(MODES) }),
        field("ranks", "int", { min = 1, max = 256, doc = "required number of processes" }),
        field("bucket", "size", { default = "25MiB", doc = "most of the gradient that one collective sums, in "
            .. "elements or bytes; at least one parameter or layer" }),
        field("chunks", "str", { values = { "layer", "search", "utilization" },
            doc = "with zero3, the parameters that are gathered at once: layer (default), those of a layer, or of one "
                .. "iteration of a times; search, utilization: neighbours up to a size that leaves the fewest elements "
                .. "unused, or uses chunks best" }),
        field("chunk_size", "size", { doc = "with zero3, that size, in elements or bytes; nothing is searched" }),
        field("chunk_search_range", "size", { doc = "how far above the least size is searched; default: 2^26 "
            .. "elements" }),
        field("chunk_search_n_grids", "int", { min = 1, max = LIMIT,
            doc = "in how many steps; default: 4096" }),
        field("min_chunk_size", "size", { doc = "the least size; for search 2^25 elements by default, and a model with "
            .. "fewer is not divided; for utilization the largest tensor" }),
        field("prefetch", "int", { min = 0, max = 16,
            doc = "with zero3, how many chunks are gathered ahead of the one in use; default: 1" }),
        field("enable_distributed_storage", "bool", { alternatives = { "owner" },
            doc = "with zero3, whether each process has only a part of each chunk (default: true); owner: each chunk "
                .. "belongs to one process as a whole; false: each process has all, and nothing is gathered" }),
        field("placement", "str", { default = "device", values = { "device", "cuda", "host", "cpu", "auto", "const" },
            doc = "with zero3 on a device, where a process has its cuts of chunks: device, or cuda: values, gradient "
                .. "and state there; host, or cpu: all in host memory, values come up before each use; const: the "
                .. "same, with at most 512 MiB of gathered values; auto: as much on the device as memory.budget has "
                .. "room for. C target: nothing changes" }),
        field("gpu_margin_mem_ratio", "num", { min = 0, max = 1, doc = "with placement auto, the part of the margin, "
            .. "memory.budget less the least plan, whose chunks keep values, gradient and state on the device, in "
            .. "their order: while used + chunk < margin x ratio / 4, in bytes of their values as f32; default: 0" }),
        field("comm", "str", { default = "f32", values = { "f32", "bf16", "f16" },
            doc = "bf16, f16: each process's part of the gradient is rounded to 16 bits on its way; "
                .. "sums are f32, parameters are gathered in full" }),
        field("overlap", "bool", { default = true, doc = "false: no sum over the processes runs beside the backward "
            .. "pass" }),
        field("force_outputs_fp32", "bool", { default = false,
            doc = "the model's output is f32 even if precision is bf16 or f16" }),
        field("sync_batchnorm", "bool", { default = false, doc = "batchnorm normalises over the rows that all "
            .. "processes have in a micro-step, as torch's SyncBatchNorm: two exchanges in it for each layer" }),
        field("groups", "table", { doc = "{ NAME = { { 0, 1 }, { 2, 3 } } }: groups of ranks, each rank at most once "
            .. "in a name; each list exchanges for itself" }),
        field("handlers", "list", { doc = "how gradients are reduced, the first entry that fits a parameter; "
            .. "{ \"data_parallel\" }, for zero1 to zero3 { \"zero\" }: the mean over all processes, the default; with "
            .. "ddp also { \"sequence_parallel\" | \"moe\" | \"pipeline_shared\", params = glob, group = NAME }: the "
            .. "mean, for pipeline_shared the sum, over a list of a group; { params = glob, group = NAME, "
            .. "op = \"mean\" | \"sum\" }; function(g, w): the new value of each element of the mean gradient, behind "
            .. "all others" }),
        field("nvme", "table", { alternatives = { "string" }, doc = "DIR or { DIR, fraction = 1.0 }: that part of the "
            .. "optimizer's state lies in a file in this folder, one for each process and without a name; each update "
            .. "reads and writes it once. Not for lamb, fused_lamb, adafactor and muon: they go over the state of a "
            .. "whole tensor before they update an element, in an order that segments of a file have not" }),
      },
    },
    { name = "memory", example = 'memory { budget = "2GiB", recompute = "auto" }',
      doc = "which values are kept in memory for the backward pass", fields = {
        field("budget", "size", { doc = "largest memory of the plan: of the program, or of the device" }),
        field("recompute", "list", { default = {}, alternatives = { "auto" },
            doc = "globs of values to compute again, by their names or the paths of their layers, such as \"h.*\"; "
                .. "\"auto\": as few as memory.budget needs" }),
        field("logits", "str", { default = "whole", values = { "whole", "chunked", "auto" },
            doc = "chunked: the last layer's output for a cross_entropy, rows x classes, is never whole in memory; "
                .. "auto: only if memory.budget needs it" }),
        field("logits_rows", "int", { default = 256, min = 1, max = LIMIT,
            doc = "chunked: most rows of logits at a time; there is one for each target" }),
    } },
    { name = "train", example = 'train { epochs = 30, seed = 1 }',
      required = true, doc = "how long", fields = {
        field("updates", "int", { min = 1, max = words.MOST_CYCLES, doc = "cycles" }),
        field("epochs", "num", { above = 0, doc = "passes over the training rows" }),
        field("seed", "int", { default = 1, min = 0, doc = "of initial values and order" }),
        field("on_nonfinite", "str", { default = "stop", values = { "stop", "skip", "ignore" },
            doc = "reaction to a gradient that is not finite" }),
        field("skip_z", "num", { above = 0, doc = "an update is skipped if its gradient norm is more than skip_z "
            .. "standard deviations above the mean of earlier norms, once 128 are known" }),
        field("patience", "int", { min = 1, max = LIMIT, doc = "evaluations in a row without improvement that end "
            .. "training; of checkpoint.best, else of the loss; default: any number" }),
        field("min_delta", "num", { min = 0, doc = "a smaller change than this is no improvement; default: 0" }),
        field("allow", "list", { default = {}, doc = "names of warnings that are not given (gagen list warnings)" }),
    } },
    { name = "eval", example = 'eval { every = "epoch", metrics = { "loss", "accuracy" } }',
      doc = "measuring on rows not trained on", fields = {
        field("every", "int", { default = "epoch", alternatives = { "epoch" }, min = 1,
            doc = "cycles between evaluations, or \"epoch\"" }),
        field("batches", "int", { min = 1, max = LIMIT,
            doc = "most batches of an evaluation, of each rank; default: all" }),
        field("metrics", "table", { default = { "loss" },
            doc = "some of " .. meanings(METRICS) .. "; NAME = function(out, batch) ... end, or NAME = { function, "
                .. "better = \"higher\" } where less is not better: the mean of the values that it gives for each "
                .. "row, or for places of rows; a value weighs as the loss of its place, or as those of its row" }),
    } },
    { name = "checkpoint", example = 'checkpoint { every = 100, keep = 3 }',
      doc = "saving the state", fields = {
        field("every", "int", { alternatives = { "epoch", "end" }, min = 1, doc = "cycles between checkpoints, or "
            .. "\"epoch\", or \"end\": only one; default: each tenth of the run, at the evaluation nearest to it, and "
            .. "each epoch of a stream. The end of training always has one" }),
        field("keep", "int", { default = 3, min = 1, max = LIMIT, doc = "number of newest checkpoints that are kept" }),
        field("best", "str", { doc = "\"loss\" or a metric of eval: the checkpoint of the best evaluation stays too" }),
    } },
    { name = "log", example = 'log { every = 10 }',
      doc = "how often a line is written", fields = {
        field("every", "int", { default = 1, min = 1, doc = "cycles between lines" }),
    } },
    { name = "target", example = 'target { "c", march = "generic" }',
      doc = "the language of the program, and the machine that it is built for", fields = {
        field("kind", "str", { position = 1, default = "c", values = folders.inside "gen/emit/targets/",
            doc = "c, or cuda: C and kernels for a device" }),
        field("march", "str", { default = "native", values = { "native", "generic", "x86-64-v3",
            "x86-64-v4", "x86-64-v4-bf16", "sapphirerapids", "aarch64" },
            doc = "the profile the program is built for" }),
        field("arch", "int", { min = 50, max = 999,
            doc = "cuda: the least compute capability, 80 = sm_80; older devices are refused. Products of 16 bits "
                .. "take tensor cores from 80 on, and have kernels for sm_90 beside them with 90; both if nothing is "
                .. "said" }),
        field("threads", "int", { default = "auto", alternatives = { "auto" }, min = 1, max = 1024,
            doc = "of a process; \"auto\": as many as the work of a micro-step keeps busy, and not more than usable "
                .. "cores" }),
    } },
}

--- The word that builds: it takes layers, a function or named tensors instead of fields.
words.model = { name = "model", required = true, usage = "model { layer, ... } | function(batch) return tensor end",
    doc = "the layers in order, or a function from the fields of the batch to the result",
    example = 'model { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }' }

--- The value of a word's field in a spec that does not give one.
function words.default(word, name)
    for _, f in ipairs(words.find(word).fields) do
        if f.name == name then return f.default end
    end
end

--- The declaration of a word.
function words.find(name)
    for _, word in ipairs(words.list) do
        if word.name == name then return word end
    end
end

--- The layers of the spec language that are structure, not arithmetic.
words.structure = {
    { name = "times", named = true, doc = "the same layers n times, each with parameters of its own; layers "
        .. "applied before it share theirs in all iterations",
      usage = 'times(n) "name" { layer, ... } | function(x) return tensor end',
      example = 'times(3) "h" { residual { linear "fc" { 8 }, relu {} } }' },
    { name = "block", named = true, doc = "a name in front of the names inside; a layer that was applied "
        .. "before keeps its name and parameters: local l = linear ..., used twice, shares them",
      usage = 'block "name" { layer, ... } | function(x) return tensor end',
      example = 'block "encoder" { linear "fc1" { 8 }, relu {}, linear "fc2" { 8 } }' },
    { name = "residual", named = false, doc = "x + layers(x), or shortcut(x) + layers(x)",
      usage = "residual { layer, ..., shortcut = { layer, ... } }",
      example = 'residual { linear "fc" { 8 }, relu {} }' },
}

return words
