-- Gradient handlers and groups of ranks: four ranks against the formula of each handler, made from the gradients of
-- single micro-batches; what a list says is refused or saved; the norm counts each distinct copy once.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local handled = dofile "tests/lua/handled.lua"

local RANKS = 4
local EP, ENDS = "{ { 0, 1 }, { 2, 3 } }", "{ { 0, 3 } }"
local PAIRS = { { 0, 1 }, { 2, 3 } }
local parallel, spec, write_rows, first_of = handled.parallel, handled.spec, handled.write_rows, handled.first_of
local calls_of = handled.calls_of

-- Trains one update and compares the parameters of each rank, and the norm, with the formula. made(g): what a function
-- of the spec makes of an element; layers: of "h", 3 without.
local function compare(t, name, a, text, reduction, made, layers)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file, log = write_rows(t, programs, a), t.temp() .. "/log"
    local truth = handled.micro_batches(t, programs, file, a, layers)
    local p = programs.build(("handlers_%s_%d"):format(name, a),
        spec { file = file, a = a, parallel = text, layers = layers }, { comm = "mpi" })
    local dump = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 1, "--log", log })
    handled.check(programs, { dump = dump, truth = truth, a = a, reduction = reduction, made = made })
    local event, plan = handled.last_update(log), programs.plan(p)
    if not made then handled.near(event.grad_norm, math.sqrt(handled.squares(truth, a, reduction)), "grad_norm") end
    return event, plan, dump, p
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

add("a layer in a `times` of one has a bucket for each handler", function(t)
    local event, plan = compare(t, "one_layer", 3, parallel("ep = " .. EP,
        '{ "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }'), first_of { { "experts", PAIRS } }, nil, 1)
    t.equal({ event.collectives, event.comm_bytes }, { calls_of(plan), plan.totals.comm_bytes_per_cycle })
end)

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
    local truth = handled.micro_batches(t, programs, file, a)
    local factor = 0.01 / (math.sqrt(handled.squares(truth, a, reduction)) + 1e-6)
    local p = programs.build("handlers_clip", spec { file = file, a = a, more = "clip (0.01)", parallel = parallel(
        "ep = " .. EP, '{ "moe", params = "*.experts.*", group = "ep" }, { "data_parallel" }') }, { comm = "mpi" })
    local dump = programs.dump(p, { ranks = RANKS, "--threads", 2, "--cycles", 1 })
    handled.check(programs, { dump = dump, truth = truth, a = a, reduction = reduction, factor = factor })
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
static size_t elements(const ga_tensor *t) {
    size_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= (size_t)t->shape[i];
    return count;
}
/* As a function(g, w) return 2 * g * g end of the spec. */
static int changes(void *context, ga_tensor *gradients, int n, ga_err *e) {
    (void)context, (void)e;
    for (int k = 0; k < n; k++) {
        double *g = gradients[k].data;
        for (size_t i = 0; i < elements(&gradients[k]); i++) g[i] = 2 * g[i] * g[i];
    }
    return 0;
}
/* A line for each tensor: its name and values. */
static int writes(void *file, const ga_tensor *t) {
    fprintf(file, "%s", t->name);
    for (size_t i = 0; i < elements(t); i++) fprintf(file, " %.17g", ga_get(t->data, t->dtype, (int64_t)i));
    return fprintf(file, "\n") > 0 ? 0 : -1;
}
int main(int argc, char **argv) {
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
    CHECK(handlers_library_set_gradient_handler(m, changes, NULL) == 0);
    CHECK(handlers_library_cycle(m, &e) == 1);
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argv[argc - 1], rank);
    FILE *f = fopen(path, "w");
    CHECK(f && handlers_library_state_dict(m, false, writes, f, &e) == 0);
    fclose(f);
    CHECK(handlers_library_all_gather_in(m, 0, &x, all, 1, GA_F64, &e) == 0 && all[3] == 3);
    handlers_library_close(m);
    if (rank == 0) puts("ok");
    return 0;
}
]]

add("NAME.h: gather, reduce and broadcast over the own list; a handler changes what it sees of its list", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file, folder = write_rows(t, programs, 3), t.temp()
    local truth, reduction = handled.micro_batches(t, programs, file, 3), first_of { { "experts", PAIRS },
        { "^tied", { { 0, 3 } }, "sum" } }
    local p = programs.build("handlers_library", spec { file = file, a = 3, parallel = parallel("ep = " .. EP
        .. ", ends = " .. ENDS, '{ "pipeline_shared", params = "tied.*", group = "ends" }, ' .. MOE) },
        { comm = "mpi", lib = true })
    local drive = p.folder .. "/drive"
    t.write(drive .. ".c", DRIVER)
    local made = t.run { "mpicc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", drive, drive .. ".c",
        p.folder .. "/libhandlers_library.a", "-ljansson", "-lz", "-lm", "-lpthread" }
    t.equal(made.status, 0, made.err)
    local command = t.mpirun(RANKS)
    table.move({ drive, folder }, 1, 2, #command + 1, command)
    command.env = { "GAGEN_DATA=" .. t.root .. "/" .. programs.folder() .. "/data" }
    local result = t.run(command)
    t.equal(result.status, 0, result.err)
    t.contains(result.out, "ok")
    for rank = 0, RANKS - 1 do
        for name, values in host.read(("%s/%d"):format(folder, rank)):gmatch "(%S+)([^\n]*)\n" do
            local g, i = handled.expected(truth, name, rank, 3, reduction), 0
            for value in values:gmatch "%S+" do
                i = i + 1
                local wanted = truth.start[name].values[i] - 0.5 * 2 * g[i] * g[i]
                t.near(tonumber(value), wanted, 1e-7, ("rank %d: %s[%d]"):format(rank, name, i))
            end
            t.equal(i, #g)
        end
    end
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
