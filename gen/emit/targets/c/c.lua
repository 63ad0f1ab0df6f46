-- c: how the C target spells types, literals, pointers and calls. Everything here is C text made
-- from checked names and numbers; templates get it as text.block.
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local c = { folder = "c", extension = ".c", worker = "w", worker_parameter = "ga_worker *w",
    barrier = "ga_barrier(w);", of_half = "_half", nothing = "(void)m, (void)b;",
    i32 = "int32_t", index = "i",
    views = "real *const v = (real *)m->memory[ARENA_VIEWS].base;",
    sweep_step = "w, &m->step", move_step = "w",
    iteration = "int64_t iteration",
    micro_arguments = "w, m, %s",
    cycle_parameters = "ga_worker *w, void *arg", cycle_opening = "    model *m = arg;", tail = true }

c.TYPE = { f32 = "float", f64 = "double", i32 = "int32_t" }

-- The C library's functions; of f32, the program brings some of its own (templates/c/math.c).
local F32_CALL = { sqrt = "sqrtf", exp = "expf", log = "logf", tanh = "tanhf", erf = "erff",
    sin = "sinf", cos = "cosf", abs = "fabsf", pow = "powf", min = "fminf", max = "fmaxf",
    floor = "floorf", log1p = "log1pf", expm1 = "expm1f" }
local F64_CALL = { abs = "fabs", min = "fmin", max = "fmax" }
local OWN_F32_CALL = ordered.copy(F32_CALL,
    { exp = "ga_expf", log = "ga_logf", tanh = "ga_tanhf", erf = "ga_erff" })

-- spelling(dtype, variable, at) and call(name, dtype) of a target whose f32 functions these are.
local function functions(f32_call)
    return function(dtype, variable, at)
        return { number = function(x) return expr.literal(x, dtype, at) end,
            call = dtype == "f32" and f32_call or F64_CALL, variable = variable }
    end, function(name, dtype)
        return text.ident((dtype == "f32" and f32_call or F64_CALL)[name] or name)
    end
end

--- spelling: how expressions are printed for elements of `dtype`; `variable` maps names to C text, `at`
-- is the place to blame for a number that the type cannot hold. call: the name of a math function in
-- the program's type. library_*: the same, of the library alone.
c.spelling, c.call = functions(OWN_F32_CALL)
c.library_spelling, c.library_call = functions(F32_CALL)

--- The C type of the elements of a tensor of numbers.
function c.type_of(t) return text.ident(graph.is_half(t) and t.dtype or "real") end

--- The C text of `value`, an element of a tensor, as a number to compute with.
function c.load(t, value)
    return graph.is_half(t) and ("%s_widen(%s)"):format(t.dtype, value) or value
end

--- What is stored of the C text of a number in an element of a tensor.
function c.stored(t, value)
    return graph.is_half(t) and ("%s_narrow(%s)"):format(t.dtype, value) or value
end

--- The statement that writes `value` to `target`, such as "y[i]", an element of the first result, adding
--- if the kernel can.
function c.store(kernel, target, value)
    local y = graph.writes(kernel.node)[1].tensor
    if kernel.can_add then value = ("add ? %s + %s : %s"):format(c.load(y, target), value, value) end
    return text.block(("%s = %s;"):format(target, c.stored(y, value)))
end

-- Number of iterations finished when the loop variable of `region` is l.
local function finished(region)
    if region.step > 0 then return "l" end
    return ("(%d - l)"):format(region.count - 1)
end

--- " + l * (size_t)64": where the value of the present iteration lies, behind that of the first.
function c.slot_offset(t)
    local p = t.place
    if not t.scope or p.slots == 1 then return "" end
    local index = "l"
    if p.carry then
        local k = finished(p.carry.region)
        if p.carry.kept then
            index = p.slot == "now" and k or "(" .. k .. " + 1)"
        else
            index = p.slot == "now" and ("(%s & 1)"):format(k) or ("((%s + 1) & 1)"):format(k)
        end
    end
    return (" + %s * (size_t)%d"):format(index, p.stride * (graph.is_half(t) and 2 or 1))
end

-- The same where l itself counts: l_64 is declared once per iteration, see c.strides.
local function short_offset(t)
    return (c.slot_offset(t):gsub("^ %+ l %* %(size_t%)(%d+)$", " + l_%1"))
end

--- What an iteration's lines declare first: how far the values of iteration l lie behind the first.
function c.strides(lines, pad)
    local seen, list = {}, {}
    for _, line in ipairs(lines) do
        for stride in line:gmatch("%f[%w_]l_(%d+)") do
            if not seen[stride] then
                list[#list + 1] = ("l_%s = l * (size_t)%s"):format(stride, stride)
                seen[stride] = true
            end
        end
    end
    return #list > 0 and c.wrap(pad, "const size_t ", list, ";") or nil
end

-- The address of a run of an array.
local function range_pointer(t)
    local p = t.place
    local base = t.array[1] == "partials" and "m->partials" or ("m->%s_%s"):format(t.array[1], t.array[2])
    return base .. (p.offset > 0 and (" + %d"):format(p.offset) or "") .. (p.slots > 1 and " + l_" .. p.stride or "")
end

--- The C expression of the address of a tensor, in a function with `model *m` and `batch *b`.
function c.pointer(t)
    local arena = t.place.arena
    if t.kind == "argument" then return t.name end
    if t.array then return range_pointer(t) end
    if arena == "batch" then return "b->" .. t.name end
    if arena == "step" then return "m->step.seed" end
    if arena == "sums" then return "m->sums" end
    if arena == "parameters" then return "m->w." .. t.name .. short_offset(t) end
    if arena == "gradients" then return "m->g." .. t.param.value.name .. short_offset(t) end
    if arena == "residues" then return "m->residue." .. t.param.value.name .. short_offset(t) end
    if arena == "collected" then return ("m->flat_g + %d%s"):format(t.place.offset, short_offset(t)) end
    if arena == "views" then return "m->v." .. t.name .. short_offset(t) end
    return "m->a." .. t.name .. short_offset(t)
end

--- What is added to the address of a tensor for the rows of a node's run.
function c.run_offset(t, run)
    local width = graph.elements(t.shape) // run.whole
    return run.scope and (" + l_%d"):format(run.rows * width) or run.first > 0 and (" + %d"):format(run.first * width)
        or ""
end

local ELEMENT = { i32 = "int32_t", facts = "ga_micro", bf16 = "bf16", f16 = "f16" }

--- A field of the struct batch, and its comment; its value where its memory begins at `at`.
function c.batch_field(t)
    return ("const %s *%s;"):format(ELEMENT[t.dtype] or "real", t.name), c.shape(t)
end

function c.batch_place(t, at)
    return (".%s = (const %s *)(%s),"):format(t.name, ELEMENT[t.dtype] or "real", at)
end

--- The field of a tensor in the structures of model.h; `name` may be followed by spaces.
function c.field(t, name) return ("%s *%s"):format(ELEMENT[t.dtype] or "real", name) end

--- How the field of a tensor at `offset` elements behind `base` is set.
function c.place(t, base, offset)
    local own = ELEMENT[t.dtype]
    local text = own and ".%s = (" .. own .. " *)(%s + %d)," or ".%s = %s + %d,"
    return text:format(t.name, base, offset)
end

--- "real *y" or "const int32_t *target"; scalars by value.
function c.parameter(t, name, writes)
    if #t.shape == 0 then
        return ("%s %s"):format("real", name)
    end
    local type_name = ELEMENT[t.dtype] or t.kind == "scalar" and "double" or "real"
    return writes and ("%s *%s"):format(type_name, name) or ("const %s *%s"):format(type_name, name)
end

--- How a kernel reads a scalar of the step.
function c.scalar(name) return name end

--- What stands before the parameters of a kernel, and the parameters that all kernels have.
function c.open(name) return ("static void %s("):format(name) end
c.first_parameters = { "ga_worker *w" }

c.int64, c.updates, c.cycles = "int64_t", "m->count.update", "m->count.cycle"
c.nominal, c.scaler_argument = "m->nominal", "&SCALER, "

--- What the schedule gives ("lr", "momentum") after `t` updates.
function c.rate(config, what, t) return ("%s_model_%s(m, %s)"):format(config.name, what, t) end

--- What gradient_partials calls an element, and how it counts one that is not finite.
c.element = "i + j"
function c.count_nonfinite(name) return ("bad[j] += isfinite(%s) ? 0 : 1;"):format(name) end

--- How addresses are declared.
c.place_type, c.fixed_place_type = "real *", "real *const "

--- The calls of nodes of the boundary that one worker does, and what follows behind the barrier.
c.services = {
    buckets_finish = { call = "buckets_finish(w, m);" },
    handler = { call = "call_handlers(w, m);" },
    small_sum = { call = "small_sum(w, m);", stops = "if (ga_team_status(w) < 0) return;" },
    sum_up = { call = "sum_up(w, m);" },
    decide = { call = "decide(w, m);", stops = "if (ga_team_status(w) < 0 || m->step.skip) return;" },
}

--- The parameters of a kernel of the boundary that one worker does; what the call of any begins with.
function c.single(_, own, reads_step)
    local all = { "ga_worker *worker", reads_step and "const step *s" or nil }
    return table.move(own, 1, #own, #all + 1, all)
end

function c.step_of(reads_step) return reads_step and c.sweep_step or "w" end

--- The parameters of an update kernel: its own and the elements of a run.
function c.sweep(_, own)
    local all = table.move(own, 1, #own, 2, { "ga_worker *worker" })
    all[#all + 1] = "int64_t count"
    return all
end

--- The same of a kernel over rows and columns of matrices, or over whole matrices, without a run.
function c.matrices(_, own, over)
    if over then return c.sweep(nil, own) end
    return table.move(own, 1, #own, 2, { "ga_worker *worker" })
end

--- A kernel over a square matrix has no launch.
function c.over_square() end

--- The template arguments of a node; `shared` are those that do not depend on the target.
function c.arguments(kernel, node, op, dtype, shared) return shared(kernel, node, op, dtype, c) end

--- The expression of "add to what is there" for an output, where `adds` is the role's; nil: the kernel
-- never adds.
function c.adds(out)
    local acc = out.acc
    if not acc then return nil end
    if not acc.first then return "true" end
    local loop
    for _, region in ipairs(acc.regions) do
        loop = ("l != %d"):format(region.first)
    end
    if out.tensor.kind == "gradient" then return loop and "adds || " .. loop or "adds" end
    return loop or "false"
end

--- A call or declaration broken after commas so that no line is longer than 100 columns;
-- `pad` is the indentation of the first line, `tail` what follows the closing bracket.
function c.wrap(pad, open, list, tail)
    local rows, row = {}, pad .. open
    for i, item in ipairs(list) do
        local piece = item .. (i < #list and ", " or "")
        if #row + #piece > 100 and #row > #pad + #open then
            rows[#rows + 1] = (row:gsub("%s+$", ""))
            row = pad .. "    " .. piece
        else
            row = row .. piece
        end
    end
    rows[#rows + 1] = row .. tail
    return table.concat(rows, "\n")
end

--- "(16, 64)" for comments.
function c.shape(t) return graph.shape_text(t.shape) end

return c
