-- interface: the fields of a target, the object that gen/emit/targets/NAME/target.lua returns. Code outside
-- gen/emit/targets never asks for the target's name: it asks for a capability or calls a function of the object.
-- A missing field, an unknown one or one of another type is an error when the target is loaded.
local ordered = require "base.ordered"

local interface = {}

local function field(name, type, doc, optional) return { name = name, type = type, doc = doc, optional = optional } end

-- Fields by purpose; nil of an optional field means no.
interface.fields = {
    -- description and capabilities
    field("doc", "string", "what a program for it is, in a few words"),
    field("runs", "boolean", "whether it writes a whole program: model.c, main.c, Makefile and the runtime too"),
    field("device", "boolean", "whether kernels work on memory that is not the host's"),
    field("threads", "boolean", "whether the workers of a team call each kernel together"),
    field("gathers", "boolean", "whether kernels can gather from other processes, as ops of the catalog with "
        .. "`exchanges` do", true),
    field("gather_parameters", "table", "the parameters of such a kernel, behind first_parameters", true),
    field("rank_groups", "boolean", "whether groups of ranks can exchange apart from others", true),
    field("narrow_wire", "boolean", "whether parts of the gradient, and chunks of "
        .. "parameters, can travel to other processes in 16 bits", true),
    field("library", "boolean", "whether the program is also a library (emit/program/library.lua)"),
    field("tail", "boolean", "whether a cycle may have a number of micro-steps that is known only when it runs", true),

    -- emitting the ops of the catalog (targets/ops.lua)
    field("folder", "string", "the folder of its templates, below templates/"),
    field("extension", "string", "the end of their names"),
    field("ops", "table", "by op: { arguments(kernel, node, op, dtype, target), launch(node, dtype), helper, block, "
        .. "blocks }; an op's entry in the catalog may have them instead"),
    field("behind", "table", "ops whose kernels compute a pointwise node behind their result (passes/fusion.lua), as "
        .. "keys; nil: none", true),
    field("drops", "table", "ops whose kernels compute a dropout of their result, before what stands behind it, as "
        .. "keys; nil: none", true),
    field("few", "function", "(node, kernel, dtype): how a pointwise kernel moves several elements at once "
        .. "(targets/cuda/few.lua), or nil; nil: it does not", true),
    field("few_of_sweep", "function", "(g): how many neighbouring elements a sweep of an update moves at once; nil: "
        .. "one", true),
    field("narrows", "boolean", "whether a sweep may write copies of parameters in 16 bits (passes/layout.lua)", true),
    field("parts", "table", "by op that sums over rows: (node): in how many parts of the rows (passes/parts.lua); nil: "
        .. "none", true),
    field("whole", "function", "(config): a function of a node conv2d_dw of one part and its op: whether a kernel "
        .. "writes the gradient in the order of the weight (passes/parts.lua); nil: never", true),
    field("sums_rows", "table", "ops whose kernels sum the rows that they read, too (passes/sums.lua): true, or (node, "
        .. "real): in how many parts of the rows, nil: not at all; nil: none", true),
    field("writes_half", "function", "(config): by op, (node): whether its kernel writes all results in 16 bits, not "
        .. "only those of the catalog (passes/precision.lua); nil: none does", true),
    field("turns", "function", "(config): the rows of a product from which on it reads its weight by columns as fast "
        .. "as a transposed copy by rows; nil: never", true),
    field("turns_once", "function", "(config): whether weights of convolutions that are turned for the gradient of an "
        .. "input are turned once in an update, not in each micro-step; nil: never", true),
    field("widens_once", "function", "(config): a function of the strides of a product of 16 bits (op.gemm): whether "
        .. "its left operand is widened once for all its tiles (passes/widened.lua); nil: never", true),
    field("panels", "function", "(config): products read weights as panels that an update has packed, in blocks of "
        .. "this number of rows and columns, where no axis is smaller; nil: none", true),
    field("channels", "table", "by op that sums the values of channels: (node): in how many equal parts of the rows; "
        .. "conv2d: (node, rows): in how many tiles it computes so many rows (passes/channels.lua); nil: none", true),
    field("together", "table", "ops with one input and one result whose kernel takes several nodes at once "
        .. "(passes/together.lua), as keys; nil: none", true),
    field("octets", "function", "(config): a function of the attributes of a convolution, of what a product of it "
        .. "reads or computes, \"x\", \"dy\" or \"weight\", and of the rows of the batch: whether the product gathers "
        .. "octets of channels (passes/octets.lua, layout.lua); nil: never", true),
    field("strides", "function", "(config): a function of a node and its op: the names of operands whose rows may be "
        .. "further apart than they are long, and whether it is a product that moves 16 bytes of them at once "
        .. "(passes/strides.lua); nil: none", true),
    field("launch", "function", "(how): the launch for { over = n }, { rows =, width = } or { blocks =, threads = }; "
        .. "a target with it needs a launch for each op", true),

    -- text of types, numbers and expressions
    field("i32", "string", "the type of whole numbers in kernels"),
    field("int64", "string", "the type of the numbers of updates and cycles"),
    field("index", "string", "the index of an element where a view divides it"),
    field("by_rows", "boolean", "whether pointwise kernels go along rows where they read or write columns of wider "
        .. "rows", true),
    field("spelling", "function", "(dtype, variable, at): how base/expr.lua prints expressions of this type"),
    field("call", "function", "(name, dtype): the name of a math function"),
    field("load", "function", "(tensor, place): an element as a number to compute with"),
    field("store", "function", "(kernel, place, value): the statement that writes an element of the first result"),
    field("exact", "function", "(statements, exact): whether their result is a number of bf16 before it is rounded; "
        .. "exact: the inputs, as keys, that are; nil: results are always rounded", true),
    field("late", "function", "(kernel, statements, computed): the statements of a result that is rounded in rows "
        .. "(targets/c/rounding.lua), or nil: one by one; nil: all are", true),
    field("scalar", "function", "(name, tensor): how a kernel reads a scalar of the step"),
    field("parameter", "function", "(tensor, name, writes): the declaration of a parameter of a kernel"),
    field("first_parameters", "table", "the parameters that stand before those of each kernel"),
    field("iteration", "string", "the parameter that counts the iterations of a loop, for draws"),
    field("open", "function", "(name, launch): what stands before the parameters of a kernel"),
    field("wrap", "function", "(pad, open, list, tail): a call or declaration in lines of at most 100 columns"),
    field("rate_spelling", "function", "(config, argument): how boundary/rate.lua spells the functions of the rate"),

    -- calls of the host in forward, backward and the cycle
    field("worker", "string", "the first argument of each call"),
    field("worker_parameter", "string", "its declaration"),
    field("barrier", "string", "the call that waits for all workers; nil: kernels run one behind the other", true),
    field("branch", "table", "{ begins, ends, marks, joins, all }: the calls around those that run beside others; "
        .. "that mark the end of branch %d, and wait for it, or for all; nil: none do", true),
    field("branches", "number", "operations of the smallest kernel beside which none runs: programs with one have no "
        .. "branches; nil: no program has", true),
    field("named", "function", "(tensor): the declaration of the address of a value with a name of its own in "
        .. "an iteration"),
    field("pointer", "function", "(tensor): the address of a tensor"),
    field("run_offset", "function", "(tensor, run): what is added to it for some rows"),
    field("adds", "function", "(out): whether a call adds to a result, or nil: it never does"),
    field("nothing", "string", "the body of an empty pass"),
    field("no_views", "string", "the same of copies of weights"),
    field("micro_arguments", "string", "the arguments of micro(), %s the number of the micro-step"),
    field("cycle_parameters", "string", "the parameters of a cycle"),
    field("cycle_opening", "string", "its first line", true),

    field("added", "function", "(g, ops): what the nodes of a graph add, by which kernels are shared; kernels have it, "
        .. "too; nil: each has its own", true),
    field("graph_sizes", "function", "(g): the numbers of micro-steps whose cycles are launched as one graph; nil: all "
        .. "cycles have a function, and nothing is a graph", true),
    field("rates", "function", "(real): how fast it works: { flops, matrix_flops, twin_flops, cluster_flops, attends, "
        .. "gradient, walks, bytes, link_bytes } per second, call_us, like = in words; nil: as the profile of the "
        .. "processor says", true),
    field("graph_facts", "function", "(g): what plan.json says of the graphs", true),

    -- fields of the program's structures
    field("batch_field", "function", "(tensor): its declaration in the struct batch, and a comment"),
    field("batch_place", "function", "(tensor, at): its value"),
    field("field", "function", "(tensor, name): its declaration in a struct of model.h"),
    field("place", "function", "(tensor, base, offset): its value"),
    field("views", "string", "the declaration of v, where copies of weights begin"),
    field("gradient_field", "function", "(name): the declaration of a gradient of 16 bits"),
    field("gradient_place", "function", "(name, offset): its value"),

    -- memory
    field("arenas", "function", "(g, config, add): the arenas of training, add(name, bytes, what, memory, sharded, "
        .. "by_rank, filed), memory nil, \"pinned\" or \"device\"; by_rank: bytes is that of each rank; filed: "
        .. "{ held, windows } of states whose last elements lie in a file (emit/boundary/state_file.lua)"),
    field("open_shard", "function", "(name, shard, there): the lines that give a rank's part of an array its memory; "
        .. "there: of a device, the shard of what lies on it; nil: all, false: nothing"),
    field("loader_memory", "string", "the memory that batches are read into, \"pinned\"; nil: the host's", true),

    -- files and libraries
    field("kernels_file", "string", "the file that the command `kernels` prints"),
    field("kernels", "function", "(g, config, context, found): its functions { name, text, ... }; found: of "
        .. "boundary.kernels"),
    field("calls", "function", "(all, found, context): the records of all calls of step.c"),
    field("render", "function", "(g, config, context, all, found, header, files): its own files, step.c among them"),
    field("main", "function", "(config): arguments of templates/program/main.c and the README"),
    field("header", "function", "(g, config, facts, updates): more arguments of model.h"),
    field("sizes", "function", "(config, context): more lines of its sizes"),
    field("model", "function", "(config, facts): more arguments of model.c"),
    field("flat_places", "function", "(g): more assignments where model.c places the flat space"),
    field("constants", "function", "(config, context): more constants of model.c, { name, value }"),
    field("saved", "function", "(g): the line that puts what it has chosen at the start into the state of a "
        .. "checkpoint, or nil; nil: it chooses nothing", true),
    field("alone", "function", "(functions, context): what these texts of kernels share, in a file of C that needs "
        .. "nothing else; nil: there are no such files", true),
    field("makefile", "function", "(config): more arguments of the Makefile"),
    field("runtime", "function", "(config): files of the runtime that are its own"),
    field("wants_header", "function", "(name): whether a header of the runtime belongs to the program"),
    field("engines", "function", "(config): the engines of runtime/comm.h, the fastest last"),
    field("launcher", "string", "the command that starts its ranks; nil: they are processes with the variables of "
        .. "torchrun", true),
    field("ranks_library", "string", "the library that sums over ranks, with memory outside the plan"),

    -- the boundary: addresses and calls of an update
    field("updates", "string", "the number of updates done"), field("cycles", "string", "the number of cycles done"),
    field("nominal", "string", "the weight of a full cycle"),
    field("scaler_argument", "string", "the settings of the scale of the loss, as an argument"),
    field("rate", "function", "(config, what, t): the call of the function of the rate"),
    field("element", "string", "the index of an element of the gradient"),
    field("lane", "string", "the index, in brackets, of the sum that this element is added to, if there are several"),
    field("count_nonfinite", "function", "(name): the statement that counts a number that is not finite"),
    field("place_type", "string", "the declaration of an address"),
    field("fixed_place_type", "string", "the same of one that stays"),
    field("services", "table", "by op of g.boundary that is no kernel over a run: { call, stops, kernel }: the "
        .. "call, maybe a function of the node, the line that follows behind the barrier, the name of the kernel if "
        .. "there is one"),
    field("state_need", "string", "the line with which a loop over parts begins whose states may lie in a file; nil: "
        .. "no state does", true),
    field("move_step", "string", "what the call of batchnorm_move begins with"),
    field("array", "function", "(array): the address of a whole array of the flat space, { kind, name }"),
    field("operand_parameter", "function", "(parameter): what a function over a run is given for an operand"),
    field("operand_place", "function", "(parameter, all, place): the declaration of its elements in array `all`"),
    field("operand_number", "function", "(parameter, value): the declaration of a number"),
    field("over_run", "function", "(kernel, over): the parameters of a kernel over a run, and its first lines. over: "
        .. "elements, tiles; matrix, rows, columns, each (of matrices); one (worker)"),
    field("step_of", "function", "(kernel): what the call of a kernel over a run begins with"),
    field("over_square", "function", "(kernel, own): sets the launch of a kernel over a square matrix"),
}

--- Refuses a target whose fields are not those of the interface.
function interface.check(target, name)
    if type(target) ~= "table" then
        error(("target '%s': gen/emit/targets/%s/target.lua returns no table"):format(name, name), 0)
    end
    local known = { name = true }
    for _, f in ipairs(interface.fields) do
        local value = target[f.name]
        known[f.name] = true
        if value == nil and not f.optional then
            error(("target '%s' has no %s: %s"):format(name, f.name, f.doc), 0)
        end
        if value ~= nil and type(value) ~= f.type then
            error(("target '%s': %s is a %s, expected a %s: %s"):format(name, f.name, type(value), f.type, f.doc), 0)
        end
    end
    for key in ordered.each(target) do
        if not known[key] then error(("target '%s' has an unknown field '%s'"):format(name, key), 0) end
    end
end

return interface
