-- The CUDA target: kernels.cu is compiled for the device at start, and the host launches the kernels.
local batchnorms = require "emit.targets.cuda.ops_batchnorm"
local c_text = require "emit.targets.c_text"
local columns = require "emit.targets.cuda.columns"
local cuda = require "emit.targets.cuda.cuda"
local cuda_files = require "emit.targets.cuda.files"
local cuda_ops = require "emit.targets.cuda.ops"
local cuda_step = require "emit.targets.cuda.step"
local few = require "emit.targets.cuda.few"
local graphs = require "emit.targets.cuda.graphs"
local hopper = require "emit.targets.cuda.hopper"
local launches = require "emit.targets.cuda.launches"
local ordered = require "base.ordered"
local plain = require "emit.targets.cuda.plain"
local rates = require "emit.targets.cuda.rates"
local rows = require "emit.targets.cuda.rows"
local tensor = require "emit.targets.cuda.tensor"
local tensor_conv = require "emit.targets.cuda.tensor_conv"

return ordered.copy(ordered.copy(cuda, cuda_files), {
    doc = "C and kernels for a device",
    runs = true, device = true, threads = false, library = false, gathers = true, rank_groups = true,
    ops = cuda_ops, few = few.pointwise, few_of_sweep = few.of_sweep, narrows = true,
    behind = { linear = true, linear_dx = true, linear_in_out = true, linear_in_out_dx = true,
        conv2d = true, conv2d_dx = true, batchnorm = true, norm_dx = true },
    drops = { linear = true, linear_in_out = true },
    writes_half = function() return { attend_dx = function() return true end } end,
    parts = { column_sum = columns.parts, norm_dw = columns.parts, conv2d_dw = tensor_conv.parts },
    channels = { batchnorm_stats = batchnorms.parts, batchnorm_sums = batchnorms.parts, conv2d = tensor_conv.tiles },
    together = { conv2d_dw_sum = true },
    sums_rows = { linear_dw = true, linear_in_out_dw = true, norm_dx = rows.parts },
    launch = launches.described, octets = tensor_conv.octets, strides = tensor.strides,
    load = c_text.load, store = c_text.store,
    loader_memory = "pinned", turns = tensor.turns,
    kernels_file = "kernels.cu", kernels = cuda_step.kernels, calls = cuda_step.calls, render = cuda_step.render,
    added = plain.added, graph_sizes = graphs.sizes, graph_facts = graphs.facts, rates = rates.of,
    ranks_library = "NCCL", branches = hopper.LEAST,       -- twins share memory for parts of their results
})
