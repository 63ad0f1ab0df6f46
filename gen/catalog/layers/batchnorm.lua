-- batchnorm: a layer with running statistics; names, initial values and equations as torch's nn.BatchNorm
-- has them. running_mean, running_var and num_batches_tracked are saved, but not trained.
local diag = require "base.diag"
local graph = require "graph.graph"

local function fail(b, message, ...)
    diag.fail(b.at, ("batchnorm '%s': "):format(b:full_name()) .. message:format(...), {})
end

-- The rows of a group, which must divide those of a micro-batch and give more than one value per channel.
local function rows_of(b, f, x)
    local batch = b.graph.inputs[1].shape[1]
    if #x.shape < 2 or x.shape[1] ~= batch then
        fail(b, "shape %s found, expected the %d rows of the batch, channels, and what lies behind them",
            graph.shape_text(x.shape), batch)
    end
    local rows = f.rows or batch
    if batch % rows ~= 0 then
        fail(b, "rows is %d, which does not divide the %d rows of a micro-batch", rows, batch)
    end
    if rows * graph.elements(x.shape) // (batch * x.shape[2]) < 2 then
        fail(b, "one value per channel in a group of %d row%s found, expected two or more", rows,
            rows > 1 and "s" or "")
    end
    return rows
end

-- The running statistics, tensors that the forward pass reads and moves.
local function buffers(b, channels)
    local batches = b:buffer("num_batches_tracked", { 1 }, 0)
    batches.param.saved_shape = {}           -- a single number, as torch has it
    return { running_mean = b:buffer("running_mean", { channels }, 0),
        running_var = b:buffer("running_var", { channels }, 1), batches = batches }
end

layer "batchnorm" {
    doc = "(x - mean) / sqrt(variance + eps) weight + bias for each channel, over the rows and what lies behind; "
        .. "running estimates in evaluation",
    named = true,
    fields = {
        { name = "eps", type = "num", default = 1e-5, above = 0, doc = "added to the variance" },
        { name = "momentum", type = "num", default = 0.1, min = 0, max = 1,
          doc = "how far a group's statistics move the running ones" },
        { name = "rows", type = "int", min = 1, max = 2147483647,
          doc = "rows whose statistics are taken together; default: those of a micro-batch" },
    },
    example = 'local y = flatten {} (batchnorm "bn" {} (reshape { 2, 4 } (x)))',
    apply = function(b, f, x)
        local channels, facts = x.shape[2], b.graph.facts
        local attrs = { rows = rows_of(b, f, x), eps = f.eps, given_rows = f.rows, name = b:full_name() }
        local weight = b:param("weight", { channels }, { kind = "value", value = 1 })
        local bias = b:param("bias", { channels }, { kind = "value", value = 0 })
        local kept = buffers(b, channels)
        local stats = b:node("batchnorm_stats", { x = x, running_mean = kept.running_mean,
            running_var = kept.running_var, facts = facts }, attrs, { mean = b:full_name("mean"),
            var = b:full_name("var"), rstd = b:full_name("rstd") }).outs
        local mean, var = stats.mean.tensor, stats.var.tensor
        local moved = b:node("batchnorm_running", { mean = mean, var = var, facts = facts },
            { momentum = f.momentum, n = attrs.rows * graph.elements(x.shape) // (x.shape[1] * channels) })
        for _, name in ipairs { "running_mean", "running_var", "batches" } do moved.outs[name].tensor = kept[name] end
        return b:value("batchnorm", { x = x, weight = weight, bias = bias, mean = mean, rstd = stats.rstd.tensor },
            attrs, b:full_name("y"))
    end,
}
