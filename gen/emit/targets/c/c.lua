-- c: types, literals, addresses and calls of the C target, as C text made from checked names and numbers; templates get
-- it as text.block. The fields are those of targets/interface.lua.
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local rounding = require "emit.targets.c.rounding"

local c = { folder = "c", extension = ".c", worker = "w", worker_parameter = "ga_worker *w",
    barrier = "ga_barrier(w);", nothing = "(void)m, (void)b;", no_views = "(void)m;",
    i32 = "int32_t", index = "i", by_rows = true,
    views = "real *const v = (real *)m->memory[ARENA_VIEWS].base;",
    move_step = "w",
    iteration = "int64_t iteration",
    micro_arguments = "w, m, %s",
    cycle_parameters = "ga_worker *w, void *arg", cycle_opening = "    model *m = arg;", tail = true,
    adds = c_text.adds, wrap = c_text.wrap, exact = rounding.is_exact }

-- For f32 the program has some functions of its own (templates/c/math.c).
c.spelling, c.call = c_text.functions { exp = "ga_expf", log = "ga_logf", tanh = "ga_tanhf", erf = "ga_erff" }

--- The statements of a result of bf16 that is rounded in rows, without the roundings that make no difference then; nil:
--- it is rounded one by one, as it may be denormal, for which rows may have 0. computed: as rounding.late has it.
function c.late(kernel, list, computed)
    if kernel.half ~= "bf16" then return nil end
    local late = rounding.late(list, computed)
    return rounding.is_computed(late, computed) and late or nil
end

-- " + l * H_PARAMS": the offset of the present iteration's value from the first one, in elements.
local function slot_offset(t)
    local index, distance = c_text.slot(t)
    return index and (" + %s * %s"):format(index, distance) or ""
end

local ELEMENT = { i32 = "int32_t", micro = "ga_micro", bf16 = "bf16", f16 = "f16" }

local function address_of_value(t) return "m->a." .. c_text.field(t) .. slot_offset(t) end

--- The address of a whole array, { kind, name }.
function c.array(array)
    return array[1] == "partials" and "m->partials" or ("m->%s_%s"):format(array[1], array[2])
end

--- The C expression of the address of a tensor, in a function with `model *m` and `batch *b`.
function c.pointer(t)
    local arena = t.place.arena
    if t.kind == "argument" then return t.name end
    if arena == "batch" then return "b->" .. t.name end
    if arena == "step" then return "m->step.seed" end
    if arena == "sums" then return "m->sums" end
    local offset = slot_offset(t)
    if arena == "parameters" then
        local place = "m->w." .. c_text.field(t) .. (c_text.chunk(t.param) or offset)
        if not graph.is_half(t) then return place end
        return ("(%s *)%s"):format(t.dtype, place:find(" ", 1, true) and "(" .. place .. ")" or place)
    end
    if arena == "gradients" then
        return "m->g." .. c_text.field(t.param.value) .. (c_text.window(t.param) or offset)
    end
    if arena == "residues" then return "m->residue." .. c_text.field(t.param.value) .. offset end
    if arena == "collected" then return "m->g." .. c_text.field(t.param.value) .. offset end
    if arena == "views" then return "m->v." .. c_text.field(t) .. offset end
    return c_text.is_named(t) and c_text.field(t) or address_of_value(t)
end

--- The declaration of the pointer variable of a value in a loop body (c_text.is_named).
function c.named(t)
    return ("%s *const %s = %s"):format(ELEMENT[t.dtype] or "real", c_text.field(t), address_of_value(t))
end

--- The offset of the rows of a node's run in a tensor, as text added to its address.
function c.run_offset(t, run)
    local width = graph.elements(t.shape) // run.whole
    return run.scope and " + l * " .. t.place.rows or run.first > 0 and (" + %d"):format(run.first * width)
        or ""
end

--- A field of the struct batch, and its comment; batch_place is its initializer, for memory at `at`.
function c.batch_field(t)
    return ("const %s *%s;"):format(ELEMENT[t.dtype] or "real", t.name), c_text.shape(t)
end

function c.batch_place(t, at)
    return (".%s = (const %s *)(%s),"):format(t.name, ELEMENT[t.dtype] or "real", at)
end

-- The type of a tensor's address in the structures of model.h: that of parameters is also that of their gradients.
local function field_type(t) return t.kind ~= "param" and ELEMENT[t.dtype] or nil end

--- The field of a tensor in the structures of model.h; `name` may be followed by spaces.
function c.field(t, name) return ("%s *%s"):format(field_type(t) or "real", name) end

--- The initializer of a tensor's field, `offset` elements after `base`.
function c.place(t, base, offset)
    local own = field_type(t)
    local text = own and ".%s = (" .. own .. " *)(%s + %d)," or ".%s = %s + %d,"
    return text:format(c_text.field(t), base, offset)
end

--- The field of a 16-bit gradient, and its initializer, `offset` elements after the first gradient.
function c.gradient_field(name) return ("bf16 *%s;"):format(name) end
function c.gradient_place(name, offset) return (".%s = flat + %d,"):format(name, offset) end

--- "real *y" or "const int32_t *target"; scalars by value.
function c.parameter(t, name, writes)
    if #t.shape == 0 then
        return ("%s %s"):format("real", name)
    end
    local type_name = ELEMENT[t.dtype] or t.kind == "scalar" and "double" or "real"
    return writes and ("%s *%s"):format(type_name, name) or ("const %s *%s"):format(type_name, name)
end

--- The text by which a kernel reads a scalar of the step.
function c.scalar(name) return name end

--- The text before the parameters of a kernel, and the first parameters of all kernels.
function c.open(name) return ("static void %s("):format(name) end
c.first_parameters = { "ga_worker *w" }
c.gather_parameters = { "model *m" }

c.int64, c.updates, c.cycles = "int64_t", "m->count.update", "m->count.cycle"
c.nominal, c.scaler_argument = "m->nominal", "&SCALER, "

--- The call that gives a value of the schedule ("lr", "momentum") after `t` updates.
function c.rate(config, what, t) return ("%s_model_%s(m, %s)"):format(config.name, what, t) end

--- Texts for the functions of the rate (boundary/rate.lua); `argument`: the name of their parameter.
function c.rate_spelling(config, argument)
    local function head(what)
        return ("double %s_model_%s(const model *m, int64_t %s)"):format(config.name, what, argument)
    end
    return { int64 = "int64_t", model = "m->", total = "(double)m->schedule_total",
        numbers = "m->step.", unused = { "m", argument }, says_unused = true, helper = "static ",
        kept = "static _Thread_local ", lr = head "lr", momentum = "static " .. head "momentum" }
end

--- The index of an element in gradient_partials, that of its sum, and the statement that counts a non-finite element.
c.element, c.lane = "i + j", "[j]"
function c.count_nonfinite(name) return ("bad[j] += isfinite(%s) ? 0 : 1;"):format(name) end

--- Types of address variables.
c.place_type, c.fixed_place_type = "real *", "real *const "

--- The calls of boundary nodes that one worker executes, and the statement after the barrier.
c.services = {
    buckets_finish = { call = "buckets_finish(w, m);" },
    handler = { call = "call_handlers(w, m);" },
    small_sum = { call = "small_sum(w, m);", stops = "if (ga_team_status(w) < 0) return;" },
    norm_sum = { call = "norm_sum(w, m);", stops = "if (ga_team_status(w) < 0) return;" },
    parameters_gather = { call = "parameters_gather(w, m);" },
    sum_up = { call = "sum_up(w, m);" },
    state_finish = { call = "state_finish(w, m);", stops = "if (ga_team_status(w) < 0) return;" },
    decide = { call = "decide(w, m);", stops = "if (ga_team_status(w) < 0 || m->step.skip) return;" },
}

--- The first line of a loop over parts whose states may lie in a file.
c.state_need = "if (!state_need(w, m, r, GA_STATE_ALL)) return;"

--- Operands of a kernel over a range, in C: the parameter, the place of a layer's elements, a number.
function c.operand_parameter(parameter) return parameter end
function c.operand_place(parameter, all, place) return ("%s = %s + %s;"):format(parameter, all, place) end
function c.operand_number(parameter, value) return ("const %s = %s;"):format(parameter, value) end

--- The parameters of a kernel over a range, its first lines, and the first arguments of a call.
function c.over_run(kernel)
    local all, own = { "ga_worker *worker", kernel.reads_step and "const step *s" or nil }, kernel.over_run
    return table.move(own.parameters, 1, #own.parameters, #all + 1, all), own.lines
end

function c.step_of(kernel) return kernel.reads_step and "w, &m->step" or "w" end

-- The fields of the model for arrays that are called otherwise.
local FLAT = { parameters = "flat_w", gradients = "flat_g" }

--- The lines that give a rank's part of an array, "state_NAME", "gradients" or "parameters", its memory.
function c.open_shard(array, shard)
    local arena, field = "ARENA_" .. array:upper(), FLAT[array] or array
    return { ("GA_TRY(open_shard(m, %s, \"%s\", &m->%s, e));"):format(arena, array, shard),
        ("m->%s = (real *)m->memory[%s].base;"):format(field, arena) }
end

--- A kernel over a square matrix has no launch.
function c.over_square() end

return c
