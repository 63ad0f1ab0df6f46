-- cuda: how the CUDA target spells kernels, launches and addresses: the same interface as emit/targets/c/c.lua.
-- A kernel's launch is { blocks, threads }: one-dimensional, whole warps, decided by its shape alone.
-- Host code passes addresses of device memory (bytes), so offsets carry sizeof(real).
local attention = require "emit.kernels.attention"
local batchnorm = require "emit.kernels.batchnorm"
local c = require "emit.targets.c.c"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local matrices = require "passes.matrices"
local ordered = require "base.ordered"
local pool = require "emit.kernels.pool"
local text = require "base.text"

local BLOCKS_MAX = 65535     -- grid-stride loops go on from there
local THREADS = 256

local cuda = { folder = "cuda", extension = ".cu", worker = "q", worker_parameter = "queue *q", of_half = "",
    nothing = "(void)q, (void)m, (void)b;", i32 = "int", index = "(int)i",
    views = "const ga_address v = m->device_memory[DEVICE_VIEWS];",
    sweep_step = "q, m->block", move_step = "q, m->block",
    iteration = "ga_int64 iteration",
    micro_arguments = "q, m, slot, %s", cycle_parameters = "queue *q, model *m, int slot",
    adds = c.adds, wrap = c.wrap, spelling = c.library_spelling,
    call = c.library_call }

local function ceil(a, b) return (a + b - 1) // b end

local SIZEOF = { bf16 = "bf16", f16 = "f16" }

-- The address of a run of an array.
local function range_pointer(t)
    local p, element = t.place, SIZEOF[t.dtype] or t.array[1] == "partials" and "double" or "real"
    local base = "m->device_" .. (t.array[1] == "state" and "state_" or "") .. t.array[2]
    if p.slots > 1 then return ("%s + sizeof(%s) * (%d + (size_t)l * %d)"):format(base, element, p.offset, p.stride) end
    return base .. (p.offset > 0 and (" + sizeof(%s) * %d"):format(element, p.offset) or "")
end

--- The expression of the address of a tensor, in a host function with `model *m` and `batch *b`.
function cuda.pointer(t)
    local arena = t.place.arena
    if t.kind == "argument" then return t.name end
    if t.array then return range_pointer(t) end
    if arena == "batch" then return "b->" .. t.name end
    if arena == "step" then return t.moves and "m->block + offsetof(step, seed)" or "m->step.seed" end
    if arena == "sums" then return "m->block + offsetof(step, sums)" end
    local offset = c.slot_offset(t):gsub("^ %+ (.*) %* %(size_t%)(%d+)$", function(index, n)
        return (" + iteration(%s, %d)"):format(index, math.tointeger(n) // (graph.is_half(t) and 2 or 1))
    end)
    if arena == "parameters" then return "m->w." .. t.name .. offset end
    if arena == "gradients" then return "m->g." .. t.param.value.name .. offset end
    if arena == "residues" then return "m->residue." .. t.param.value.name .. offset end
    if arena == "collected" then return ("m->device_g + sizeof(real) * %d%s"):format(t.place.offset, offset) end
    if arena == "views" then return "m->v." .. t.name .. offset end
    return "m->a." .. t.name .. offset
end

--- What is added to the address of a tensor for the rows of a node's run.
function cuda.run_offset(t, run)
    local width = graph.bytes(t) * (graph.elements(t.shape) // run.whole)
    return run.scope and (" + (ga_address)l * %d"):format(run.rows * width)
        or run.first > 0 and (" + %d"):format(run.first * width) or ""
end

cuda.int64, cuda.updates, cuda.cycles = "ga_int64", "s->update", "s->cycle"
cuda.nominal, cuda.scaler_argument = "s->nominal", ""

--- What the schedule gives ("lr", "momentum") after `t` updates.
function cuda.rate(_, what, t) return ("%s(s, %s)"):format(what == "lr" and "learning_rate" or what, t) end

--- What gradient_partials calls an element, and how it counts one that is not finite.
cuda.element = "i"
function cuda.count_nonfinite(name) return ("bad += !(%s - %s == 0);"):format(name, name) end

--- How addresses are declared.
cuda.place_type, cuda.fixed_place_type = "ga_address ", "const ga_address "

--- The calls of nodes of the boundary that are not kernels over a run.
cuda.services = {
    buckets_finish = { call = "buckets_finish(q, m);" },
    small_sum = { call = "small_sum(q, m);" },
    sum_up = { call = "sum_up(q, m->block);" },
    decide = { call = "decide(q, m->block, m->device_partials);" },
}

--- The parameters of a kernel of the boundary that is one block, and what the call of any begins with: all look
--- whether the update is skipped.
cuda.looks_at_skip = true
function cuda.single(kernel, own)
    kernel.launch = { blocks = 1, threads = THREADS }
    kernel.parameters = table.move(own, 1, #own, 2, { "const step *s" })
    return kernel.parameters
end

function cuda.step_of() return cuda.sweep_step end

--- The parameters of an update kernel: its own and the elements of a run, which decide how many
--- blocks are launched: one per `tile` elements, per `tall` rows for "matrix", or what is enough.
function cuda.sweep(kernel, own, tile)
    kernel.launch = { threads = THREADS,
        blocks = tile == "matrix" and "(unsigned)((count / columns + tall - 1) / tall)"
            or tile and ("(unsigned)((count + %d) / %d)"):format(tile - 1, tile) }
    kernel.parameters = ordered.copy(own)
    table.insert(kernel.parameters, "ga_int64 count")
    return kernel.parameters
end

-- Blocks of a kernel over matrices: a warp per row; a thread per column and chunk of rows.
local BLOCKS = {
    rows = ("(unsigned)((count / columns + %d) / %d)"):format(THREADS // 32 - 1, THREADS // 32),
    columns = ("(unsigned)((count / ((int64_t)rows * columns) * ((rows + %d) / %d) * columns + %d) / %d)")
        :format(matrices.CHUNK - 1, matrices.CHUNK, THREADS - 1, THREADS),
}

--- The same of a kernel over rows and columns of matrices, or over whole matrices: a block for each.
function cuda.matrices(kernel, own, over)
    if over then cuda.sweep(kernel, own) else kernel.parameters = own end
    kernel.launch = { threads = THREADS, blocks = BLOCKS[over] or "(unsigned)matrices" }
    return kernel.parameters
end

--- The launch of a kernel over a square matrix of n rows.
function cuda.over_square(kernel, own)
    kernel.launch = { threads = THREADS,
        blocks = ("(unsigned)(((int64_t)n * n + %d) / %d)"):format(THREADS - 1, THREADS) }
    kernel.parameters = own
end

local ELEMENT = { i32 = "int", facts = "ga_micro", bf16 = "bf16", f16 = "f16" }

--- A field of the struct batch, and its comment; its value where its memory begins at `at`.
function cuda.batch_field(t)
    return ("ga_address %s;"):format(t.name), (ELEMENT[t.dtype] or "real") .. " " .. c.shape(t)
end

function cuda.batch_place(t, at) return (".%s = %s,"):format(t.name, at) end

--- The field of a tensor in the structures of model.h; `name` may be followed by spaces.
function cuda.field(_, name) return "ga_address " .. name end

--- How the field of a tensor at `offset` elements behind `base` is set.
function cuda.place(t, base, offset)
    return (".%s = %s + sizeof(real) * %d,"):format(t.name, base, offset)
end

--- "real *y" or "const int *target" of a kernel; scalars by value.
function cuda.parameter(t, name, writes)
    if #t.shape == 0 then return (t.moves and "const real *" or "real ") .. name end
    local type_name = ELEMENT[t.dtype] or t.kind == "scalar" and "double" or "real"
    return writes and ("%s *%s"):format(type_name, name) or ("const %s *%s"):format(type_name, name)
end

--- How a kernel reads a scalar of the step: what moves from cycle to cycle is not part of a launch.
function cuda.scalar(name, t) return t.moves and "*" .. name or name end

--- What stands before the parameters of a kernel with this launch.
function cuda.open(name, launch) return ("GA_KERNEL(%d) %s("):format(launch.threads, name) end

--- Kernels have no parameter for the worker.
cuda.first_parameters = {}

-- A launch over n elements, each thread one or, beyond the largest grid, several.
local function over(n)
    local threads = n < THREADS and ceil(n, 32) * 32 or THREADS
    return { blocks = math.min(ceil(n, threads), BLOCKS_MAX), threads = threads }
end

-- One block per row, with as many warps as the row can use.
local function per_row(rows, width)
    local threads = width <= 256 and 32 or width <= 2048 and 128 or THREADS
    return { blocks = rows, threads = threads }
end

local function rows_of(node) return graph.elements(node.size.lead or {}) end

-- Tiles of C: large ones when there are enough of them to fill a device, which has 100 or so
-- multiprocessors, else small ones.
local function tiling(M, N, f64)
    if not f64 and ceil(M, 128) * ceil(N, 128) >= 96 then
        return { rows = 128, columns = 128, depth = 8, tall = 8, wide = 8 }
    elseif ceil(M, 64) * ceil(N, 64) >= 96 then
        return { rows = 64, columns = 64, depth = 16, tall = 4, wide = 4 }
    end
    return { rows = 32, columns = 32, depth = 32, tall = 2, wide = 2 }
end

-- "(ga_int64)i * 64 + k" for strides 64 and 1.
local function index_text(i, i_stride, j, j_stride)
    local function term(name, stride)
        return stride == 1 and name or ("(ga_int64)%s * %d"):format(name, stride)
    end
    return text.block(term(i, i_stride) .. " + " .. term(j, j_stride))
end

-- Neighbouring threads load neighbouring addresses: the index with stride 1 runs fastest.
local function gemm(kernel, node, op, dtype)
    local g = op.gemm(node)
    local t = tiling(g.M, g.N, dtype == "f64")
    kernel.launch = { blocks = ceil(g.M, t.rows) * ceil(g.N, t.columns), threads = THREADS }
    local function split(fast_is_depth, extent)
        if fast_is_depth then return text.block("s / DEPTH"), text.block("s % DEPTH") end
        return text.block("s % " .. extent), text.block("s / " .. extent)
    end
    local function load(name, ...)
        local x = ("%s[%s]"):format(name, index_text(...).text)
        return text.block(kernel.half and ("%s_widen(%s)"):format(kernel.half, x) or x)
    end
    local a_i, a_k = split(g.a_col == 1, "ROWS")
    local b_j, b_k = split(g.b_row == 1, "COLUMNS")
    return { M = g.M, N = g.N, K = g.K, rows = t.rows, columns = t.columns, depth = t.depth,
        tall = t.tall, wide = t.wide, a_i = a_i, a_k = a_k, b_j = b_j, b_k = b_k,
        a = load("a", "i", g.a_row, "k", g.a_col), b = load("b", "k", g.b_row, "j", g.b_col),
        value = text.block(node.ins.bias and "bias[j] + sum[u][v]" or "sum[u][v]"),
        store = c.store(kernel, "c[at]", "value") }
end

-- Launch of each op beside the products; nil where it follows from the arguments alone.
local LAUNCH = attention.launch
for _, family in ipairs { conv, pool, batchnorm } do LAUNCH = ordered.copy(LAUNCH, family.launch) end

function LAUNCH.map(node) return over(graph.elements(graph.writes(node)[1].tensor.shape)) end
function LAUNCH.accumulate(node) return over(graph.elements(node.size.S)) end
LAUNCH.accumulate_half = LAUNCH.accumulate
function LAUNCH.dropout(node) return over(graph.elements(node.ins.x.shape)) end
function LAUNCH.copy(node) return over(graph.elements(node.ins.x.shape)) end
function LAUNCH.attend_delta(node) return over(graph.elements(node.outs.delta.tensor.shape)) end
function LAUNCH.rotary(node) return over(node.size.T * node.attrs.d // 2) end
function LAUNCH.loss_seed(node) return over(rows_of(node)) end
function LAUNCH.cross_entropy(node) return per_row(rows_of(node), node.size.C) end
for _, name in ipairs { "cross_entropy_dx", "softmax", "softmax_dx", "log_softmax", "log_softmax_dx",
    "layernorm", "rmsnorm", "norm_dx" } do
    LAUNCH[name] = LAUNCH.cross_entropy
end
function LAUNCH.hit(node) return { blocks = rows_of(node), threads = 32 } end
function LAUNCH.tally(node) return { blocks = 1, threads = over(rows_of(node)).threads } end
LAUNCH.tally_hits, LAUNCH.micro_weight = LAUNCH.tally, LAUNCH.tally
function LAUNCH.column_sum(node)
    return { blocks = node.size.outer * ceil(node.size.inner, 32), threads = THREADS }
end
function LAUNCH.axis_sum(node)
    if node.size.inner == 1 then return per_row(node.size.outer, node.size.n) end
    return LAUNCH.column_sum(node)
end
function LAUNCH.axis_max(node) return over(node.size.outer * node.size.inner) end
function LAUNCH.axis_max_dx(node) return over(graph.elements(node.size.S)) end
function LAUNCH.embedding(node) return over(graph.elements(node.size.lead) * node.size.C) end
function LAUNCH.id_order() return { blocks = 1, threads = THREADS } end
function LAUNCH.embedding_dw(node) return per_row(node.size.R, node.size.C) end
LAUNCH.slice_dx, LAUNCH.concat = LAUNCH.axis_max_dx, LAUNCH.axis_max_dx
function LAUNCH.norm_dw(node) return { blocks = ceil(node.size.C, 32), threads = THREADS } end
function LAUNCH.pack_in_out(node)
    return { blocks = ceil(node.size.N, 32) * ceil(node.size.K, 32), threads = THREADS }
end

-- What a template of this target does not take: the type is always called real.
local UNUSED = { real = true, chunk = true }

--- The template arguments of a node; `shared` are those that do not depend on the target.
function cuda.arguments(kernel, node, op, dtype, shared)
    local arguments
    if op and op.gemm then
        arguments = gemm(kernel, node, op, dtype)
    else
        kernel.launch = node.exprs and LAUNCH.map(node) or LAUNCH[node.op](node, dtype)
        arguments = {}
        for key, value in ordered.each(shared(kernel, node, op, dtype, cuda)) do
            if not UNUSED[key] then arguments[key] = value end
        end
    end
    if node.op == "norm_dw" then
        arguments.init = nil
        arguments.store = text.block(kernel.can_add and "y[j] = add ? y[j] + value : value;"
            or "y[j] = value;")
    end
    arguments.threads = kernel.launch.threads
    return arguments
end

return cuda
