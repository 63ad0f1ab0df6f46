-- batchnorm: batch normalisation with running statistics; names, initial values and equations are those of torch's
-- nn.BatchNorm. running_mean, running_var and num_batches_tracked are saved but not trained.
local diag = require "base.diag"
local graph = require "graph.graph"

local function fail(b, message, ...)
    diag.fail(b.at, ("batchnorm '%s': "):format(b:full_name()) .. message:format(...), {})
end

-- The rows of a group. They must divide the rows of a micro-batch and give more than one value per channel.
local function rows_of(b, f, x)
    local batch = b.graph.inputs[1].shape[1]
    if #x.shape < 2 or x.shape[1] ~= batch or graph.rowless(x) then
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

-- The running statistics: tensors that the forward pass reads and updates.
local function buffers(b, channels)
    local batches = b:buffer("num_batches_tracked", { 1 }, 0)
    batches.param.saved_shape = {}           -- a scalar in checkpoints, as in torch's
    return { running_mean = b:buffer("running_mean", { channels }, 0),
        running_var = b:buffer("running_var", { channels }, 1), batches = batches }
end

-- The tensor in which a cycle collects values for a buffer, and which the boundary consumes. It occupies the
-- buffer's place in the flat space of gradients, as a buffer has no gradient.
local function collected(b, kept)
    local param = kept.param
    if param.collected then
        fail(b, 'running = "cycle" of a layer that is applied twice, expected one of its own for each, or "micro"')
    end
    param.collected = graph.tensor(b.graph, { name = "cycle_" .. kept.name, shape = kept.shape, kind = "collected",
        at = b.at, param = param, scope = param.region })
    return param.collected
end

-- Updates the running statistics: after each group, or for all groups of a cycle together at its boundary.
local function update_running(b, kept, ins, attrs)
    if attrs.running == "micro" then
        local moved = b:node("batchnorm_running", ins, attrs).outs
        for _, name in ipairs { "running_mean", "running_var", "batches" } do moved[name].tensor = kept[name] end
        return
    end
    if b.graph.ranks then ins.centre = kept.running_mean end
    local made = b:node(b.graph.ranks and "batchnorm_add" or "batchnorm_collect", ins, attrs).outs
    for _, name in ipairs { "running_mean", "running_var", "batches" } do
        made[name].tensor = collected(b, kept[name])
    end
end

layer "batchnorm" {
    doc = "(x - mean) / sqrt(variance + eps) weight + bias for each channel, over the rows and what lies behind; "
        .. "running estimates in evaluation",
    named = true,
    fields = {
        { name = "eps", type = "num", default = 1e-5, above = 0, doc = "added to the variance" },
        { name = "momentum", type = "num", default = 0.1, min = 0, max = 1,
          doc = "the weight of a group's statistics in the running ones" },
        { name = "rows", type = "int", min = 1, max = 2147483647,
          doc = "rows whose statistics are taken together; default: those of a micro-batch" },
        { name = "running", type = "str", default = "micro", values = { "micro", "cycle" },
          doc = "what moves the running estimates: each group, as torch, with ranks those of rank 0; or once per "
              .. "update the average and the variance of all values of the cycle on all ranks, not at all if the "
              .. "update is skipped" },
    },
    example = 'local y = flatten {} (batchnorm "bn" {} (reshape { 2, 4 } (x)))',
    apply = function(b, f, x)
        local channels, micro = x.shape[2], b.graph.micro
        local attrs = { rows = rows_of(b, f, x), eps = f.eps, given_rows = f.rows, name = b:full_name() }
        local weight = b:param("weight", { channels }, { kind = "value", value = 1 })
        local bias = b:param("bias", { channels }, { kind = "value", value = 0 })
        local kept = buffers(b, channels)
        local stats = b:node("batchnorm_stats", { x = x, running_mean = kept.running_mean,
            running_var = kept.running_var, micro = micro }, attrs, { mean = b:full_name("mean"),
            var = b:full_name("var"), rstd = b:full_name("rstd") }).outs
        local mean, var = stats.mean.tensor, stats.var.tensor
        update_running(b, kept, { mean = mean, var = var, micro = micro }, { momentum = f.momentum, running = f.running,
            n = attrs.rows * graph.elements(x.shape) // (x.shape[1] * channels) })
        return b:value("batchnorm", { x = x, weight = weight, bias = bias, mean = mean, rstd = stats.rstd.tensor },
            attrs, b:full_name("y"))
    end,
}
