-- cuda: kernels, launches and addresses of the CUDA target, as text. The fields are those of targets/interface.lua.
-- Host code computes device addresses in bytes, so offsets contain sizeof(real).
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local matrices = require "passes.matrices"
local update_pass = require "passes.update"

local THREADS = 256

local cuda = { folder = "cuda", extension = ".cu", worker = "q", worker_parameter = "queue *q",
    nothing = "(void)q, (void)m, (void)b;", no_views = "(void)q, (void)m;", i32 = "int", index = "(int)i",
    views = "const ga_address v = m->device_memory[DEVICE_VIEWS];",
    move_step = "q, m->block",
    branch = { begins = "branch_begin(q);", marks = "branch_mark(q, %d);", ends = "branch_end(q);",
        joins = "branch_join(q, %d);", all = "branches_join(q);" },
    iteration = "ga_int64 iteration",
    micro_arguments = "q, m, slot, %s", cycle_parameters = "queue *q, model *m, int slot",
    adds = c_text.adds, wrap = c_text.wrap }

local spelling
spelling, cuda.call = c_text.functions()

-- Functions of kernels of 16 bits (templates/cuda/half.cu), those without fusion too, so that both give the same bits.
local HALF_CALL = { tanh = "ga_tanh", erf = "ga_erf", exp = "ga_exp" }

--- The spelling of statements; of_half: whether the kernel's elements have 16 bits.
function cuda.spelling(dtype, variable, at, of_half)
    local s = spelling(dtype, variable, at)
    if of_half then s.call = ordered.copy(s.call, HALF_CALL) end
    return s
end

local ELEMENT = { i32 = "int", micro = "ga_micro", bf16 = "bf16", f16 = "f16" }

-- " + iteration(l, H_PARAMS)": the offset of the present iteration's value from the first one, in bytes.
local function slot_offset(t)
    local index, distance = c_text.slot(t)
    if not index then return "" end
    return (" + iteration(%s, %s%s)"):format(index:match("^%((.*)%)$") or index, distance,
        graph.is_half(t) and " / 2" or "")
end

local function address_of_value(t) return "m->a." .. c_text.field(t) .. slot_offset(t) end

--- The address of a whole array, { kind, name }.
function cuda.array(array)
    if array[1] == "views" then return "m->device_memory[DEVICE_VIEWS]" end
    return "m->device_" .. (array[1] == "state" and "state_" or "") .. array[2]
end

--- The expression of the address of a tensor, in a host function with `model *m` and `batch *b`.
function cuda.pointer(t)
    local arena = t.place.arena
    if t.kind == "argument" then return t.name end
    if arena == "batch" then return "b->" .. t.name end
    if arena == "step" then return t.moves and "m->block + offsetof(step, seed)" or "m->step.seed" end
    if arena == "sums" then return "m->block + offsetof(step, sums)" end
    local offset = slot_offset(t)
    local function in_ring(place) return place and place .. " * sizeof(real)" or offset end
    if arena == "parameters" then return "m->w." .. c_text.field(t) .. in_ring(c_text.chunk(t.param)) end
    if arena == "gradients" then return "m->g." .. c_text.field(t.param.value) .. in_ring(c_text.window(t.param)) end
    if arena == "residues" then return "m->residue." .. c_text.field(t.param.value) .. offset end
    if arena == "collected" then return "m->g." .. c_text.field(t.param.value) .. offset end
    if arena == "views" then return "m->v." .. c_text.field(t) .. offset end
    return c_text.is_named(t) and c_text.field(t) or address_of_value(t)
end

--- The declaration of the address variable of a value in a loop body (c_text.is_named).
function cuda.named(t)
    return ("const ga_address %s = %s"):format(c_text.field(t), address_of_value(t))
end

--- The offset of the rows of a node's run in a tensor, as text added to its address.
function cuda.run_offset(t, run)
    local width = graph.bytes(t) * (graph.elements(t.shape) // run.whole)
    return run.scope and (" + sizeof(%s) * l * %s"):format(ELEMENT[t.dtype] or "real", t.place.rows)
        or run.first > 0 and (" + %d"):format(run.first * width) or ""
end

cuda.int64, cuda.updates, cuda.cycles = "ga_int64", "s->update", "s->cycle"
cuda.nominal, cuda.scaler_argument = "s->nominal", ""

--- The call that gives a value of the schedule ("lr", "momentum") after `t` updates.
function cuda.rate(_, what, t) return ("%s(s, %s)"):format(what == "lr" and "learning_rate" or what, t) end

--- Texts for the functions of the rate (boundary/rate.lua); `argument`: the name of their parameter.
function cuda.rate_spelling(_, argument)
    local function head(name) return ("GA_DEVICE double %s(const step *s, ga_int64 %s)"):format(name, argument) end
    return { int64 = "ga_int64", model = "s->", total = "s->schedule_total",
        numbers = "s->", unused = {}, helper = "GA_DEVICE ", kept = "static __device__ ",
        lr = head "learning_rate", momentum = head "momentum" }
end

--- The index of an element in gradient_partials, that of its sum, and the statement that counts a non-finite element.
cuda.element, cuda.lane = "i", ""
function cuda.count_nonfinite(name) return ("bad += !(%s - %s == 0);"):format(name, name) end

--- Types of address variables.
cuda.place_type, cuda.fixed_place_type = "ga_address ", "const ga_address "

--- The calls of boundary nodes that are not kernels over a run.
cuda.services = {
    buckets_finish = { call = "buckets_finish(q, m);" },
    small_sum = { call = "small_sum(q, m);", kernel = "small_values" },
    norm_sum = { call = "norm_sum(q, m);", kernel = "own_norms" },
    parameters_gather = { call = "parameters_gather(q, m);" },
    sum_up = { call = "sum_up(q, m->block);", kernel = "sum_up" },
    decide = { call = function(node)
        return node.ins.partials1 and "decide(q, m->block, m->device_partials);" or "decide(q, m->block);"
    end, kernel = "decide" },
}

--- The first line of a loop over parts whose states may lie in a file.
cuda.state_need = "if (!state_need(q, m, r, filed)) continue;"

local HOST_TYPE = { real = "real", double = "double", int = "int", bool = "bool", ga_int64 = "int64_t" }

--- The declaration of a kernel's parameter in the host function that launches the kernel.
function cuda.operand_parameter(parameter)
    local name, type_name = parameter:match "[%w_]+$", parameter:match "^[%w_]+"
    return (parameter:find("*", 1, true) and "ga_address " or (HOST_TYPE[type_name] or type_name) .. " ") .. name
end

--- How the launch of a kernel over a run finds its operands: where the elements of a layer are, a number.
function cuda.operand_place(parameter, all, place)
    return ("%s = %s + sizeof(%s) * (size_t)%s;"):format(cuda.operand_parameter(parameter), all,
        parameter:match "([%w_]+) %*", place)
end

function cuda.operand_number(parameter, value)
    return ("%s = %s;"):format(cuda.operand_parameter(parameter), value)
end

-- Blocks of a kernel over a run, by how the run is cut. Of "elements" there are as many as are useful.
local BLOCKS = {
    one = 1, each = "(unsigned)matrices",
    tiles = ("(unsigned)((count + %d) / %d)"):format(update_pass.TILE - 1, update_pass.TILE),
    matrix = "(unsigned)((count / columns + tall - 1) / tall)",
    rows = ("(unsigned)((count / columns + %d) / %d)"):format(THREADS // 32 - 1, THREADS // 32),
    columns = ("(unsigned)((count / ((int64_t)rows * columns) * ((rows + %d) / %d) * columns + %d) / %d)")
        :format(matrices.CHUNK - 1, matrices.CHUNK, THREADS - 1, THREADS),
}

--- The parameters of a kernel over a run, and what its call begins with: those of a rule look for a skipped update.
function cuda.over_run(kernel, over)
    kernel.launch = { threads = THREADS, blocks = BLOCKS[over] }
    kernel.parameters = { (kernel.reads_step or kernel.group) and "const step *s" or nil }
    for _, operand in ipairs(kernel.operands) do kernel.parameters[#kernel.parameters + 1] = operand[2] end
    return kernel.parameters, {}
end

function cuda.step_of(kernel) return (kernel.reads_step or kernel.group) and "q, m->block" or "q" end

-- The short names of arrays in the model.
local SHORT = { parameters = "w", gradients = "g" }

--- The lines that give a rank's part of an array, "state_NAME", "gradients" or "parameters", its memory. there: the
--- shard of what lies on the device; nil: all of it, false: nothing.
function cuda.open_shard(array, shard, there)
    local upper, short = array:upper(), SHORT[array]
    local placed = ("m->%s = (real *)m->memory[ARENA_%s].base;"):format(short and "flat_" .. short or array, upper)
    if there == false then
        return { ('GA_TRY(open_pinned(m, ARENA_%s, "%s", bytes_of(&m->%s), e));'):format(upper, array, shard),
            placed }
    end
    local own = ("&m->%s%s"):format(shard, there and ", &m->" .. there or "")
    return { c_text.wrap("", "GA_TRY(open_shard(", { "m", "DEVICE_" .. upper, "ARENA_" .. upper,
        ('"%s"'):format(array), own, "e" }, "));"), placed,
        ("m->device_%s = m->device_memory[DEVICE_%s];"):format(short or array, upper) }
end

--- The launch of a kernel over a square matrix of n rows.
function cuda.over_square(kernel, own)
    kernel.launch = { threads = THREADS,
        blocks = ("(unsigned)(((int64_t)n * n + %d) / %d)"):format(THREADS - 1, THREADS) }
    kernel.parameters = own
end

--- A field of the struct batch, and its comment; batch_place is its initializer, for memory at `at`.
function cuda.batch_field(t)
    return ("ga_address %s;"):format(t.name), (ELEMENT[t.dtype] or "real") .. " " .. c_text.shape(t)
end

function cuda.batch_place(t, at) return (".%s = %s,"):format(t.name, at) end

--- The field of a tensor in the structures of model.h; `name` may be followed by spaces.
function cuda.field(_, name) return "ga_address " .. name end

--- The initializer of a tensor's field, `offset` elements after `base`.
function cuda.place(t, base, offset)
    return (".%s = %s + sizeof(real) * %d,"):format(c_text.field(t), base, offset)
end

--- The field of a 16-bit gradient, and its initializer, `offset` elements after the first gradient.
function cuda.gradient_field(name) return ("ga_address %s;"):format(name) end
function cuda.gradient_place(name, offset) return (".%s = flat + sizeof(bf16) * %d,"):format(name, offset) end

--- "real *y" or "const int *target" of a kernel; scalars by value.
function cuda.parameter(t, name, writes)
    if #t.shape == 0 then return (t.moves and "const real *" or "real ") .. name end
    local type_name = ELEMENT[t.dtype] or t.kind == "scalar" and "double" or "real"
    return writes and ("%s *%s"):format(type_name, name) or ("const %s *%s"):format(type_name, name)
end

--- The text by which a kernel reads a scalar of the step: by address if it changes between launches of a graph.
function cuda.scalar(name, t) return t.moves and "*" .. name or name end

--- The text before the parameters of a kernel with this launch.
function cuda.open(name, launch) return ("GA_KERNEL(%d) %s("):format(launch.threads, name) end

--- Kernels have no parameter for a worker.
cuda.first_parameters = {}

--- The parameters of a kernel that reads what all ranks gave (gather_statistics in step.c).
cuda.gather_parameters = { "const double *all", "int ranks" }

return cuda
