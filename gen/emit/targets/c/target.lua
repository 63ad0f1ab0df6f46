-- The C target: all workers of a team (runtime/base/team.h) call the functions of kernels.c, in host memory.
local c = require "emit.targets.c.c"
local c_files = require "emit.targets.c.files"
local c_ops = require "emit.targets.c.ops"
local c_step = require "emit.targets.c.step"
local c_text = require "emit.targets.c_text"
local matmul = require "emit.targets.c.matmul"
local matrix = require "emit.targets.c.matrix"
local ordered = require "base.ordered"
local squares_conv = require "emit.targets.c.squares_conv"

return ordered.copy(ordered.copy(c, c_files), {
    doc = "C for the CPU",
    runs = true, device = false, threads = true, library = true, narrow_wire = true, rank_groups = true,
    gathers = true,
    ops = c_ops, load = c_text.load, store = c_text.store,
    behind = { linear = true, linear_dx = true, linear_in_out = true, linear_in_out_dx = true, norm_dx = true,
        batchnorm = true },
    turns = matmul.turns, widens_once = matmul.widens_once, turns_once = matrix.turns_once, panels = matrix.panels,
    writes_half = matrix.writes_half, whole = squares_conv.whole,
    kernels_file = "kernels.c", kernels = c_step.kernels, calls = c_step.calls, render = c_step.render,
    alone = c_step.alone,
    ranks_library = "MPI", launcher = "mpirun",
})
