-- Gradient handlers and groups of ranks: four ranks against the formula of each handler, made from the gradients of
-- single micro-batches; what a list says is refused or saved; the norm counts each distinct copy once.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS, ROWS, RATE = 4, 3, 0.5

-- The last micro-batch has one row, so ranks have other weights: rows of A micro-steps of all ranks, less two.
local function write_rows(t, programs, a)
    local lines, state = {}, 3
    local function digit()
        state = (state * 75 + 74) % 65537
        return state % 10
    end
    for i = 1, RANKS * ROWS * a - 2 do
        lines[i] = ("%d,%d,%d,%d,%d"):format(digit(), digit(), digit(), digit(), digit() % 3)
    end
    local name = ("handlers_%d.csv"):format(a)
    t.write(programs.folder() .. "/data/" .. name, table.concat(lines, "\n") .. "\n")
    return name
end

local MODEL = [[{
    linear "tied" { 6, bias = false }, tanh {},
    times(3) "h" { residual { linear "experts.up" { 6 }, tanh {}, linear "mix" { 6 } } },
    linear "head" { 3 },
}]]

-- o: { file, a, parallel, rate, more = further words }.
local function spec(o)
    return table.concat({ ('data { "csv", train = %q, target = "last", scale = 1/10, shuffle = false, last = "pad" }')
        :format(o.file), ("batch (%d)\naccumulate { %d }"):format(ROWS, o.a), "model " .. MODEL,
        'loss { "cross_entropy", weight = "sample" }',
        o.optimizer or ('optimizer { "sgd", lr = %g }'):format(o.rate or RATE), 'precision "f64"',
        "train { updates = 50, seed = 7 }", 'checkpoint { every = "end" }', o.parallel or "", o.more or "" }, "\n")
end

local EP, ENDS = "{ { 0, 1 }, { 2, 3 } }", "{ { 0, 3 } }"

local function parallel(groups, handlers, more)
    return ('parallel { "ddp", ranks = %d, groups = { %s }, handlers = { %s }%s }'):format(RANKS, groups, handlers,
        more or "")
end

-- === the truth ===================================================================================

-- The sums of the rows' gradients in each micro-batch, and how many rows it has, at the values that training starts
-- with: by a program of one rank whose rate is 0.
local function micro_batches(t, programs, file, a)
    local p = programs.build("handlers_truth_" .. a, spec { file = file, a = 1, rate = 0 })
    local list = {}
    for k = 0, RANKS * a - 1 do
        local dump = programs.dump(p, { "--cycles", k + 1, "--threads", 1 })
        list[k] = { gradients = programs.tensors(dump .. "/gradients.safetensors"),
            rows = k == RANKS * a - 1 and ROWS - 2 or ROWS }
        list.start = list.start or programs.tensors(dump .. "/parameters.safetensors")
    end
    return list
end

-- The mean gradient over the rows of these ranks. A dump is divided by the rows of a full micro-batch.
local function mean_over(truth, name, ranks, a)
    local sum, rows = {}, 0
    for i = 1, truth.start[name].count do sum[i] = 0 end
    for _, rank in ipairs(ranks) do
        for k = 0, a - 1 do
            local micro = truth[k * RANKS + rank]
            rows = rows + micro.rows
            for i, x in ipairs(micro.gradients[name].values) do sum[i] = sum[i] + ROWS * x end
        end
    end
    for i = 1, #sum do sum[i] = sum[i] / rows end
    return sum
end

-- The result that rank `rank` must have after an update. reduction(name): { lists, op }; lists that do not name a rank
-- leave it alone.
local function list_of(lists, rank)
    for _, list in ipairs(lists) do
        for _, other in ipairs(list) do
            if other == rank then return list end
        end
    end
    return { rank }
end

local ALL = { { 0, 1, 2, 3 } }

local function expected(truth, name, rank, a, reduction)
    local r = reduction(name)
    local list = list_of(r.lists, rank)
    local mean = mean_over(truth, name, list, a)
    for i = 1, #mean do mean[i] = mean[i] * (r.op == "sum" and #list or 1) end
    return mean
end

-- The sum of squares of each distinct copy.
local function squares(truth, a, reduction)
    local sum = 0
    for name in next, truth.start do
        for rank = 0, RANKS - 1 do
            if list_of(reduction(name).lists, rank)[1] == rank then
                for _, g in ipairs(expected(truth, name, rank, a, reduction)) do sum = sum + g * g end
            end
        end
    end
    return sum
end

local function near(found, wanted, what)
    if not (math.abs(found - wanted) <= 1e-12 * math.max(1, math.abs(wanted))) then
        error(("%s: %.17g found, %.17g expected"):format(what, found, wanted), 2)
    end
end

-- === cases =======================================================================================

local function last_update(t, log)
    local found
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then found = event end
    end
    return found
end

-- Trains one update and compares the parameters of each rank, and the norm, with the formula. made(g): what a function
-- of the spec makes of an element.
local function compare(t, name, a, text, reduction, made)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file, log = write_rows(t, programs, a), t.temp() .. "/log"
    local truth = micro_batches(t, programs, file, a)
    local p = programs.build(("handlers_%s_%d"):format(name, a), spec { file = file, a = a, parallel = text },
        { comm = "mpi" })
    local dump = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 1, "--log", log })
    for rank = 0, RANKS - 1 do
        local own = programs.tensors(("%s/parameters-%dof%d.safetensors"):format(dump, rank + 1, RANKS))
        for tensor, found in next, own do
            local g, start = expected(truth, tensor, rank, a, reduction), truth.start[tensor].values
            for i, w in ipairs(found.values) do
                near(w, start[i] - RATE * (made and made(g[i]) or g[i]), ("rank %d: %s[%d]"):format(rank, tensor, i))
            end
        end
    end
    local event, plan = last_update(t, log), programs.plan(p)
    if not made then near(event.grad_norm, math.sqrt(squares(truth, a, reduction)), "grad_norm") end
    return event, plan, dump, p
end

-- A function that gives a parameter its reduction: the first of { pattern, lists, op } that fits.
local function first_of(entries)
    return function(name)
        for _, entry in ipairs(entries) do
            if name:find(entry[1]) then return { lists = entry[2], op = entry[3] or "mean" } end
        end
        return { lists = ALL, op = "mean" }
    end
end

local PAIRS = { { 0, 1 }, { 2, 3 } }

local function calls_of(plan)
    local calls = 0
    for _, c in ipairs(plan.collectives) do calls = calls + c.calls end
    return calls
end

for _, a in ipairs { 1, 3 } do
    add(("moe: two groups of two are equal inside and differ between, %d micro-steps"):format(a), function(t)
        local event, plan, dump = compare(t, "moe", a, parallel("ep = " .. EP,
            '{ "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }'),
            first_of { { "experts", PAIRS } })
        t.equal({ event.collectives, event.comm_bytes }, { calls_of(plan), plan.totals.comm_bytes_per_cycle })
        local function bytes(rank) return host.read(("%s/parameters-%dof4.safetensors"):format(dump, rank)) end
        t.equal(bytes(1) == bytes(2) and bytes(3) == bytes(4), true)
        t.equal(bytes(1) == bytes(3), false)
    end)
end

add("pipeline_shared: tied copies are summed, others have their own", function(t)
    compare(t, "ends", 3, parallel("ends = " .. ENDS,
        '{ "pipeline_shared", params = "tied.weight", group = "ends" }, { "data_parallel" }'),
        first_of { { "^tied", { { 0, 3 } }, "sum" } })
end)

add("sequence_parallel, and entries with a group and an op, in an order of their own", function(t)
    compare(t, "mixed", 3, parallel("seq = { { 0, 2 }, { 1, 3 } }, three = { { 3, 1, 0 } }",
        '{ params = "h.*.bias", group = "three", op = "sum" }, { params = "head.*", group = "three", op = "mean" }, '
        .. '{ "sequence_parallel", group = "seq" }', ', bucket = "1KiB", overlap = false'),
        first_of { { "^h%..*bias", { { 0, 1, 3 } }, "sum" }, { "^head", { { 0, 1, 3 } } },
            { ".", { { 0, 2 }, { 1, 3 } } } })
end)

add("moe with groups of one reduces nothing, and with all ranks is data_parallel", function(t)
    local event, plan = compare(t, "alone", 1, parallel("own = { { 0 }, { 1 }, { 2 }, { 3 } }",
        '{ "moe", params = "*.experts.*", group = "own" }, { "data_parallel" }'), first_of { { "experts", { } } })
    t.equal({ event.collectives, event.comm_bytes }, { calls_of(plan), plan.totals.comm_bytes_per_cycle })
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = write_rows(t, programs, 3)
    local function trained(name, text)
        local p = programs.build("handlers_" .. name, spec { file = file, a = 3, parallel = text, more = "clip (0.05)" },
            { comm = "mpi" })
        return programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 2 })
    end
    programs.identical(trained("all", parallel("ep = { { 0, 1, 2, 3 } }", '{ "moe", group = "ep" }')),
        trained("ddp", 'parallel { "ddp" }'), { "parameters", "gradients" })
end)

add("a function sees the mean gradient of the rank's own list", function(t)
    compare(t, "function", 3, parallel("ep = " .. EP, '{ "moe", params = "*.experts.*", group = "ep" }, '
        .. '{ "data_parallel" }, function(g, w) return 2 * g end, function(g, w) return g * g end'),
        first_of { { "experts", PAIRS } }, function(g) return (2 * g) ^ 2 end)
end)

-- Colossal-AI's test_grad_handler: with experts over 1, 2 and 4 ranks, the gradients of an expert are equal in the ranks
-- that have it (there to a tolerance, here to the bit), and differ elsewhere; all others are equal everywhere.
add("ported: gradients of experts over 1, 2 and 4 ranks are equal in the ranks that have them", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = write_rows(t, programs, 3)
    for size, lists in next, { "{ 0, 1, 2, 3 }", "{ 0, 2 }, { 1, 3 }", [4] = "{ 0 }, { 1 }, { 2 }, { 3 }" } do
        local p = programs.build("handlers_experts_" .. size, spec { file = file, a = 3,
            parallel = parallel(("dp = { %s }"):format(lists),
                '{ "moe", params = "*.experts.*", group = "dp" }, { "data_parallel" }') }, { comm = "mpi" })
        local dump, own = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 1 }), {}
        for rank = 0, RANKS - 1 do
            own[rank] = programs.tensors(("%s/gradients-%dof4.safetensors"):format(dump, rank + 1))
        end
        for name, first in next, own[0] do
            for rank = 1, RANKS - 1 do
                local same = not name:find "experts" or rank % size == 0
                t.equal(own[rank][name].bytes == first.bytes, same, ("%d: %s of rank %d"):format(size, name, rank))
            end
        end
    end
end)

-- The factor of a clip follows from the norm of the distinct copies.
add("a clip by the norm takes that of the distinct copies", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local a, reduction = 3, first_of { { "experts", PAIRS } }
    local file = write_rows(t, programs, a)
    local truth = micro_batches(t, programs, file, a)
    local factor = 0.01 / (math.sqrt(squares(truth, a, reduction)) + 1e-6)
    local p = programs.build("handlers_clip", spec { file = file, a = a, more = "clip (0.01)", parallel = parallel(
        "ep = " .. EP, '{ "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }') }, { comm = "mpi" })
    local dump = programs.dump(p, { ranks = RANKS, "--threads", 2, "--cycles", 1 })
    for rank = 0, RANKS - 1 do
        for tensor, found in next, programs.tensors(("%s/parameters-%dof4.safetensors"):format(dump, rank + 1)) do
            local g = expected(truth, tensor, rank, a, reduction)
            for i, w in ipairs(found.values) do
                near(w, truth.start[tensor].values[i] - RATE * factor * g[i], tensor)
            end
        end
    end
end)

-- === files =======================================================================================

local MOE = '{ "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }'
local ADAMW = 'optimizer { "adamw", lr = 1e-2, weight_decay = 0.05, ema = 0.9 }\nclip (0.1)'

local function files_of(folder)
    local list = {}
    for _, name in ipairs(host.list(folder)) do
        if name:find "%.safetensors$" then list[#list + 1] = name end
    end
    table.sort(list)
    return list
end

-- Each rank's own parameters and state.
local function own_files()
    local list = {}
    for rank = 1, RANKS do
        list[#list + 1] = ("parameters-%dof%d"):format(rank, RANKS)
        list[#list + 1] = ("state-%dof%d"):format(rank, RANKS)
    end
    return list
end

add("a checkpoint has a file for each list, and resuming it gives the bits of a run that was not stopped", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("handlers_saved", spec { file = write_rows(t, programs, 6), a = 3, optimizer = ADAMW,
        parallel = parallel("ep = " .. EP, MOE) }, { comm = "mpi" })
    local whole = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 4 })
    for _, stop in ipairs { { "--cycles", 2, 0, "cycle-000000002" }, { "--stop-micro", 7, 75, "cycle-000000002-r1" } } do
        local folder, status = t.temp(), stop[3]
        programs.train(p, { ranks = RANKS, "--threads", 1, "--checkpoint", folder, stop[1], stop[2], status = status })
        local wanted = { "group-ep-0.safetensors", "group-ep-1.safetensors", "model.safetensors",
            "optimizer.safetensors" }
        for rank = RANKS, 1, -1 do
            if status == 75 then table.insert(wanted, 1, ("gradient-%dof4.safetensors"):format(rank)) end
        end
        t.equal(files_of(folder .. "/" .. stop[4]), wanted)
        local resumed = programs.dump(p, { ranks = RANKS, "--threads", 2, "--cycles", 4, "--checkpoint", folder,
            "--resume", "latest" })
        programs.identical(resumed, whole, own_files())
    end
end)

add("a checkpoint of other groups, or of none, is refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = write_rows(t, programs, 6)
    local function built(name, text)
        return programs.build("handlers_" .. name, spec { file = file, a = 3, optimizer = ADAMW, parallel = text },
            { comm = "mpi" })
    end
    local function refused(p, from, message)
        local result = programs.train(p, { ranks = RANKS, "--threads", 1, "--cycles", 2, "--resume", from, status = 1 })
        t.contains(result.err, message)
    end
    local saved = built("saved", parallel("ep = " .. EP, MOE))
    local folder = programs.train(saved, { ranks = RANKS, "--threads", 1, "--cycles", 1 }).checkpoint
        .. "/cycle-000000001"
    refused(built("crossed", parallel("ep = { { 0, 2 }, { 1, 3 } }", MOE)), folder,
        "is of the ranks 0 1, and here of 0 2: written with other groups of ranks")
    refused(built("plain", ('parallel { "ddp", ranks = %d }'):format(RANKS)), folder,
        "has group-ep-0.safetensors, which this program has no use for: written with other groups of ranks")
    local plain = built("plain", ('parallel { "ddp", ranks = %d }'):format(RANKS))
    refused(saved, programs.train(plain, { ranks = RANKS, "--threads", 1, "--cycles", 1 }).checkpoint
        .. "/cycle-000000001", "has no group-ep-0.safetensors, which this program needs")
end)

-- === the boundary alone ==========================================================================

add("nothing is exchanged off the boundary", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("handlers_moe_3", spec { file = write_rows(t, programs, 3), a = 3,
        parallel = parallel("ep = " .. EP, MOE) }, { comm = "mpi" })
    local text, starts = host.read(p.folder .. "/step.c"), 0
    for line in text:gmatch "[^\n]*bucket_start%b()" do
        starts = starts + 1
        t.match(line, "if %(reduces")
    end
    assert(starts >= 4, starts .. " starts")
    t.match(text, "/%* moe: the mean over ep { 0 1 } { 2 3 }: h%.%*%.experts%.up%.weight, h%.%*%.experts%.up%.bias %*/")
end)

add("the header of step.c says what the mode does where the spec has no list", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/handlers_default.lua"
    local file = write_rows(t, programs, 1)
    local LINES = {
        ddp = { "the last", "data_parallel: the mean over all ranks, the default of ddp: all trained parameters" },
        zero2 = { "each", "zero: the mean over all ranks, divided as the mode says, the default of zero2: all trained "
            .. "parameters" },
    }
    for mode, lines in next, LINES do
        t.write(path, spec { file = file, a = 1, parallel = ("parallel %q"):format(mode) })
        local shown = programs.gagen { "show", path, "step.c" }
        t.equal(shown.status, 0, shown.err)
        t.contains(shown.out, ("in %s micro-step of a cycle: */\n/* %s */\n"):format(lines[1], lines[2]))
    end
    t.write(path, spec { file = file, a = 1 })
    assert(not programs.gagen({ "show", path, "step.c" }).out:find("over the ranks", 1, true))
end)

-- === NAME.h ======================================================================================

local DRIVER = [[
#include "handlers_library.h"
#include <stdio.h>
#include <stdlib.h>
#define CHECK(x) do { if (!(x)) { fprintf(stderr, "not so: %s: %s\n", #x, e.msg); exit(1); } } while (0)
static int ignores(void *context, ga_tensor *gradients, int n, ga_err *e) {
    (void)context, (void)gradients, (void)n, (void)e;
    return 0;
}
int main(void) {
    handlers_library *m;
    ga_err e = {0};
    CHECK(handlers_library_open(&m, &(handlers_library_options){.threads = 1, .quiet = 1}, &e) == 0);
    const int rank = handlers_library_rank(m), ep = handlers_library_group(m, "ep"), place = rank % 2;
    double x = rank + 1, all[4] = {0}, most = rank;
    CHECK(ep > 0 && handlers_library_group(m, NULL) == 0 && handlers_library_group(m, "none") < 0);
    CHECK(handlers_library_all_gather_in(m, ep, &x, all, 1, GA_F64, &e) == 0);
    CHECK(all[0] == x - place && all[1] == x - place + 1 && all[2] == 0);
    CHECK(handlers_library_reduce_in(m, ep, &x, 1, GA_F64, GA_MEAN, -1, &e) == 0);
    CHECK(x == rank - place + 1.5);
    CHECK(handlers_library_reduce_in(m, ep, &most, 1, GA_F64, GA_MAX, -1, &e) == 0);
    CHECK(most == rank - place + 1);
    x = rank;
    CHECK(handlers_library_broadcast_in(m, ep, &x, sizeof x, 1, &e) == 0);
    CHECK(x == rank - place + 1);
    CHECK(handlers_library_broadcast_in(m, ep, &x, sizeof x, 2, &e) == GA_INPUT);
    CHECK(handlers_library_reduce_in(m, 7, &x, 1, GA_F64, GA_SUM, -1, &e) == GA_INPUT);
    CHECK(handlers_library_set_gradient_handler(m, ignores, NULL) == GA_INPUT); /* it would need whole gradients */
    CHECK(handlers_library_set_gradient_handler(m, NULL, NULL) == 0);
    CHECK(handlers_library_cycle(m, &e) == 1);
    CHECK(handlers_library_all_gather_in(m, 0, &x, all, 1, GA_F64, &e) == 0 && all[3] == 3);
    handlers_library_close(m);
    if (rank == 0) puts("ok");
    return 0;
}
]]

add("NAME.h: gather, reduce and broadcast over the own list", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("handlers_library", spec { file = write_rows(t, programs, 3), a = 3,
        parallel = parallel("ep = " .. EP, MOE) }, { comm = "mpi", lib = true })
    local drive = p.folder .. "/drive"
    t.write(drive .. ".c", DRIVER)
    local made = t.run { "mpicc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", drive, drive .. ".c",
        p.folder .. "/libhandlers_library.a", "-ljansson", "-lz", "-lm", "-lpthread" }
    t.equal(made.status, 0, made.err)
    local command = t.mpirun(RANKS)
    command[#command + 1] = drive
    command.env = { "GAGEN_DATA=" .. t.root .. "/" .. programs.folder() .. "/data" }
    local result = t.run(command)
    t.equal(result.status, 0, result.err)
    t.contains(result.out, "ok")
end)

-- === refused =====================================================================================

add("lists that cannot be are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file, path = write_rows(t, programs, 1), programs.folder() .. "/handlers_refused.lua"
    local function refused(text, message, more)
        t.write(path, spec { file = file, a = 1, parallel = text, more = more })
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, text)
        t.contains(result.err, message)
    end
    refused(parallel("ep = { { 0, 1 }, { 1, 2 } }", MOE), "group 'ep': rank 1 is in lists 1 and 2, expected once")
    refused(parallel("ep = { { 0, 4 } }", MOE), "group 'ep': list 1: 4 is no rank, expected 0 to 3")
    refused(parallel("ep = { 0, 1 }", MOE), "group 'ep': list 1 is empty or no list")
    refused(parallel("Ep = " .. EP, MOE), "groups: expected names = lists of ranks")
    refused(parallel("eq = " .. EP, MOE), "handler 1: group 'ep' is unknown, expected one of parallel.groups: eq")
    refused(parallel("ep = " .. EP, '{ "moe", params = "*.experts.*", group = "ep" }'), "no handler fits tied.weight")
    refused(parallel("ep = " .. EP, '{ "moe", params = "*.nothing.*", group = "ep" }, { "data_parallel" }'),
        "handler 1: no parameter fits '*.nothing.*'")
    refused(parallel("ep = " .. EP, '{ "moe" }'), "handler 1: \"moe\" without group")
    refused(parallel("ep = " .. EP, '{ "moe", group = "ep", op = "sum" }'),
        "handler 1: op is given, and \"moe\" has its own")
    refused(parallel("ep = " .. EP, '{ params = "*", group = "ep" }'),
        "expected a name such as \"moe\", or group and op")
    refused(parallel("ep = " .. EP, '{ "zero" }'), "handler 1: \"zero\" with \"ddp\", which reduces otherwise")
    refused('parallel { "zero1", ranks = 4, groups = { ep = { { 0, 1 } } }, handlers = { { "moe", group = "ep" } } }',
        "handler 1: with \"zero1\" each gradient is reduced over all ranks")
    refused('parallel { handlers = { { "data_parallel" } } }', "handlers is given, but the mode is \"none\"")
    refused('parallel { "ddp", groups = { ep = { { 0, 1 } } } }', "groups name ranks: expected ranks = n")
    refused('parallel { "ddp", handlers = { { "data_parallel" }, function(g, w) return g + 1 end } }',
        "of g = 0 and w = 0 the function makes 1, expected 0")
    refused('parallel { "ddp", handlers = { { "data_parallel" }, function(g, w) return 2 * g end } }',
        "given beside functions of parallel.handlers", "gradient (function(g, w) return g end)")
    refused(parallel("ep = " .. EP, MOE), "the target \"cuda\" exchanges with all ranks alone",
        'target "cuda"')
end)

add("zero1 to zero3 take functions behind \"zero\"", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = write_rows(t, programs, 3)
    local function trained(name, text, more)
        local p = programs.build("handlers_" .. name, spec { file = file, a = 3, parallel = text, more = more },
            { comm = "mpi" })
        return programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 2 })
    end
    local list = ', handlers = { { "zero" }, function(g, w) return g + 0.01 * w end } }'
    local wanted = trained("word", 'parallel { "zero1" }', "gradient (function(g, w) return g + 0.01 * w end)")
    for _, mode in ipairs { "zero1", "zero2", "zero3" } do
        programs.close(trained(mode, ('parallel { "%s"'):format(mode) .. list), wanted, 1e-12, { "parameters" })
    end
end)

return tests
