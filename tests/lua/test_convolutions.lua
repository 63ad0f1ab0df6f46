-- Convolutions with both gradients against plain sums in double of the same operands: of bf16 and of f32 in blocks, on
-- matrix registers, on vectors and on their instructions in plain C (tests/matrix); and of f32, and of bf16 widened to
-- f32, in strips.
-- Any number of threads computes the same bits.
local kernels = require "emit.kernels.kernels"
local math_file = require "emit.targets.c.math"
local profile = require "emit.program.profile"
local targets = require "emit.targets.targets"
local template = require "base.template"
local catalog = require "catalog.catalog"

-- images, planes in, height, width, planes out, window, stride, padding, dilation, groups; "plain": without a bias, and
-- without kernels that add
local SHAPES = {
    { 3, 64, 8, 8, 64, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 2, 32, 16, 16, 48, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
    { 5, 64, 8, 8, 32, { 1, 1 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, 1 },
    { 2, 3, 23, 37, 24, { 7, 7 }, { 2, 2 }, { 3, 3 }, { 1, 1 }, 1 },
    { 3, 40, 9, 7, 24, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 2 },
    { 2, 6, 11, 10, 6, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 6 },
    { 3, 16, 13, 12, 20, { 3, 3 }, { 1, 1 }, { 2, 2 }, { 2, 2 }, 1 },
    { 7, 69, 5, 5, 33, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 4, 32, 3, 3, 600, { 3, 3 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 3, 12, 21, 19, 16, { 3, 2 }, { 3, 2 }, { 0, 1 }, { 2, 1 }, 1 },
    { 9, 16, 24, 38, 32, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 4 },   -- the last partial sum has no places
    { 1, 4, 24, 24, 32, { 16, 16 }, { 8, 8 }, { 4, 4 }, { 1, 1 }, 1 },
    { 2, 16, 70, 5, 16, { 5, 1 }, { 4, 1 }, { 1, 0 }, { 1, 1 }, 1 },
    { 19, 10, 4, 4, 40, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },    -- blocks of several images
    { 11, 9, 7, 6, 12, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
    { 17, 12, 5, 4, 20, { 1, 1 }, { 2, 3 }, { 0, 0 }, { 1, 1 }, 1 },
    { 1, 3, 3, 1400, 5, { 3, 5 }, { 1, 1 }, { 1, 2 }, { 1, 1 }, 1 },    -- blocks of parts of a row
    { 2, 5, 30, 30, 7, { 3, 3 }, { 1, 1 }, { 12, 12 }, { 12, 12 }, 1 },
    { 2, 4, 6, 6, 8, { 2, 2 }, { 1, 1 }, { 4, 4 }, { 1, 1 }, 1 },       -- places without a tap inside
    { 8, 64, 8, 8, 96, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },     -- from here on planes are copied by lines
    { 4, 160, 16, 16, 64, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 2, 32, 32, 64, 32, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
    { 4, 32, 32, 32, 64, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
    { 8, 64, 16, 16, 32, { 3, 1 }, { 1, 2 }, { 1, 0 }, { 1, 1 }, 1 },
    { 8, 32, 9, 20, 32, { 3, 5 }, { 1, 1 }, { 2, 4 }, { 2, 2 }, 1 },
    { 2, 128, 34, 32, 64, { 3, 5 }, { 1, 1 }, { 2, 4 }, { 2, 2 }, 2 },
    { 2, 64, 9, 48, 64, { 2, 3 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 2 },
    { 32, 32, 5, 7, 32, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 8, 64, 8, 16, 32, { 4, 4 }, { 1, 1 }, { 2, 2 }, { 1, 1 }, 1 },
    { 16, 64, 4, 4, 64, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 5, 48, 9, 7, 40, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },     -- places of one tap
    { 3, 140, 20, 30, 150, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 19, 64, 4, 4, 64, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 2 },
    { 2, 17, 13, 19, 33, { 1, 1 }, { 3, 2 }, { 0, 0 }, { 1, 1 }, 1 },
    { 3, 32, 6, 5, 40, { 1, 1 }, { 1, 1 }, { 2, 1 }, { 1, 1 }, 1 },
    { 4, 30, 9, 8, 18, { 3, 1 }, { 1, 1 }, { 1, 0 }, { 1, 1 }, 1 },     -- rows follow each other in the copy, too
    { 5, 32, 32, 32, 48, { 1, 1 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, 1, "plain" },  -- sums of one tap lie in the results
    { 3, 144, 40, 24, 48, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 2, "plain" },
    { 2, 20, 19, 16, 24, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1, "plain" },
    { 19, 140, 4, 4, 152, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1, "plain" },
    { 11, 34, 19, 13, 24, { 1, 1 }, { 3, 2 }, { 0, 0 }, { 1, 1 }, 1, "plain" },
    { 2, 64, 71, 40, 32, { 1, 1 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, 2, "plain" },
    { 2, 160, 9, 7, 24, { 1, 1 }, { 1, 2 }, { 0, 0 }, { 1, 1 }, 1, "plain" },
    { 3, 64, 18, 15, 150, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },  -- gradients of weights that turn one operand
    { 9, 64, 7, 6, 70, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 5, 64, 33, 31, 102, { 1, 1 }, { 2, 3 }, { 0, 0 }, { 1, 1 }, 2 },
    { 4, 100, 16, 17, 64, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 9, 32, 24, 38, 16, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },   -- the last partial sums have no places
    { 2, 96, 20, 20, 300, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 5, 2, 21, 13, 33, { 5, 3 }, { 2, 1 }, { 2, 2 }, { 1, 2 }, 1 },    -- few channels with several taps
    { 3, 6, 32, 32, 80, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 2, "plain" },
    { 3, 40, 12, 16, 5, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 32, 20, 7, 7, 24, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },    -- from here on by squares, on vectors
    { 3, 24, 11, 14, 40, { 3, 3 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 },
    { 5, 72, 16, 16, 48, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 2 },
    { 2, 33, 20, 34, 70, { 3, 3 }, { 1, 1 }, { 2, 2 }, { 1, 1 }, 1 },
    { 1, 16, 5, 300, 16, { 3, 3 }, { 1, 1 }, { 1, 0 }, { 1, 1 }, 1 },
    { 11, 70, 8, 8, 65, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { 3, 20, 31, 29, 24, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },   -- from here on with a stride
    { 16, 24, 8, 16, 40, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
    { 4, 72, 32, 16, 96, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, 2 },
    { 2, 33, 28, 34, 70, { 3, 3 }, { 2, 2 }, { 3, 3 }, { 1, 1 }, 1 },
    { 2, 32, 33, 17, 64, { 3, 3 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, 1 },
    { 16, 65, 11, 17, 48, { 3, 3 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, 1 },
}

-- The first of those that are computed by squares on vectors.
local FIRST_SQUARES = #SHAPES - 11

-- The shapes of a program: those by squares without `turn`; all with make test-all, else the part `turn`, { n, of }:
-- every of-th from the n-th on. Programs of one kind have different parts.
local function shapes_of(t, turn)
    if not turn then return table.move(SHAPES, FIRST_SQUARES, #SHAPES, 1, {}) end
    if t.all then return SHAPES end
    local list = {}
    for i = turn[1], #SHAPES, turn[2] do list[#list + 1] = SHAPES[i] end
    return list
end

local function attributes(s)
    local a = { channels = s[2], height = s[3], width = s[4], out = s[5], window = s[6], stride = s[7], padding = s[8],
        dilation = s[9], groups = s[10] }
    local function places(i, extent)
        return (extent + 2 * a.padding[i] - a.dilation[i] * (a.window[i] - 1) - 1) // a.stride[i] + 1
    end
    a.rows, a.columns = places(1, a.height), places(2, a.width)
    return a
end

-- A node of an op for these attributes. size: the lengths of its shapes by letter that are known, gets the others;
-- without: an operand that the op does not have; adds: whether the kernel can add.
local function node_of(context, name, a, size, without, adds)
    local op = context.ops[name]
    local node = { op = name, attrs = a, size = size, ins = {}, outs = {}, signature = op.signature, at = "test:1" }
    if op.letters then op.letters(node, size) end
    local function tensor(operand)
        local shape = {}
        for letter in op.signature.shape[operand]:gmatch "%u" do shape[#shape + 1] = size[letter] end
        return { name = operand, kind = "value", shape = shape,
            dtype = context.half and op.half[operand] and "bf16" or "real" }
    end
    for _, operand in ipairs(op.signature.ins) do
        node.ins[operand] = operand ~= without and tensor(operand) or nil
    end
    node.outs.y = { tensor = tensor "y", acc = adds and {} or nil }
    return node
end

-- The name of a kernel's function, and whether its squares have 4 x 4 results.
local function function_of(context, ...)
    local kernel = kernels.make(node_of(context, ...), "backward", context)
    return kernel.fn.name, kernel.squares and kernel.squares.name.text == "4" or false
end

-- The calls of the kernels of a weight's gradient, in parts and added up, or in one part and in its order, and whether
-- squares have 4 x 4 results.
local function gradient_calls(context, a, images, adds)
    local node, last = node_of(context, "conv2d_dw", a, images), adds and ", true" or ""
    if images.N == 1 and context.whole(node, context.ops.conv2d_dw) then
        local name, by_4 = function_of(context, "conv2d_dw_whole", a, images, nil, adds)
        return ("%s(w, dw, dy, x%s);"):format(name, last), "", by_4
    end
    local kernel = kernels.make(node, "backward", context)
    local sum = function_of(context, "conv2d_dw_sum", a, images, nil, adds)
    return ("%s(w, partial, dy, x);"):format(kernel.fn.name), ("%s(w, dw, partial%s);"):format(sum, last),
        kernel.squares and kernel.squares.name.text == "4" or false
end

-- The calls of a shape's kernels, and a row of the table.
local function calls_of(context, number, s)
    local a, plain = attributes(s), s[11] == "plain"
    local has_bias, adds = not plain and number % 2 == 0, not plain and number % 3 > 0
    local images = { B = s[1], C = a.channels, H = a.height, W = a.width, I = a.channels // a.groups, O = a.out,
        R = a.window[1], S = a.window[2], P = a.rows, Q = a.columns }
    local turned = { O = a.out, I = images.I, R = images.R, S = images.S }
    local forward, forward_by_4 = function_of(context, "conv2d", a, images, not has_bias and "bias" or nil)
    local turn = function_of(context, "conv2d_turned", a, turned)
    images.N = turned.N
    local dx, dx_by_4 = function_of(context, "conv2d_dx", a, images, nil, adds)
    local dw, sum, dw_by_4 = gradient_calls(context, a, images, adds)
    local last = adds and ", true" or ""
    local lines = {
        ("static void forward_%d(ga_worker *w) { %s(w, y, x, weight%s); }"):format(number, forward,
            has_bias and ", bias" or ""),
        ("static void turn_%d(ga_worker *w) { %s(w, turned, weight); }"):format(number, turn),
        ("static void dx_%d(ga_worker *w) { %s(w, dx, dy, turned%s); }"):format(number, dx, last),
        ("static void dw_%d(ga_worker *w) { %s }"):format(number, dw),
        ("static void sum_%d(ga_worker *w) { (void)w; %s }\n"):format(number, sum) }
    local sizes = { s[1], a.channels, a.height, a.width, a.out, a.rows, a.columns, a.window[1], a.window[2],
        a.stride[1], a.stride[2], a.padding[1], a.padding[2], a.dilation[1], a.dilation[2], a.groups }
    return table.concat(lines, "\n"), ("{{forward_%d, turn_%d, dx_%d, dw_%d, sum_%d}, %s, %s, {%s, %s, %s}, {%s}},\n")
        :format(number, number, number, number, number, has_bias, adds, forward_by_4, dx_by_4, dw_by_4,
        table.concat(sizes, ", "))
end

local function read_template(name)
    return template.load(assert(host.read("templates/" .. name)), "templates/" .. name)
end

local function head(file) return "/* " .. file .. " */\n" end

-- The texts of kernels.h, calls.h and table.h for a profile, these shapes and operands of "f32", whose products are
-- computed as `f32` says, or of "bf16".
local function texts_of(name, shapes, dtype, f32)
    local config = { precision = dtype, profile = name, target = "c", f32 = f32 or "auto" }
    local context = { ops = {}, real = "f32", half = dtype == "bf16" and dtype or nil, names = {}, helpers = {},
        slices = profile.slices(config), functions = kernels.functions(),
        profile = profile.get(name), target = targets.get "c", template = read_template }
    context.whole = context.target.whole(config)
    for name, op in catalog.load().ops:each() do context.ops[name] = op end
    local calls, rows, functions = {}, {}, {}
    for i, shape in ipairs(shapes) do calls[i], rows[i] = calls_of(context, i, shape) end
    for i, f in ipairs(context.functions.list) do functions[i] = f.text end
    functions = table.concat(functions, "\n")
    return math_file.render(functions, context, head) .. "\n" .. functions, table.concat(calls), table.concat(rows)
end

-- The program for a profile; turn: of shapes_of(); f32: how products of f32 are computed; options: of the compiler in a
-- text. t.compiler takes an eighth of the time, where it has no options of gcc.
local function build(t, name, dtype, turn, f32, options)
    local machine, folder, words = profile.get(name), t.root .. "/" .. t.temp(), {}
    local compiler = not options and t.compiler or "cc"
    for word in (options or compiler == "cc" and "-O1" or "-O0"):gmatch "%S+" do words[#words + 1] = word end
    local functions, calls, rows = texts_of(name, shapes_of(t, turn), dtype, f32)
    t.write(folder .. "/kernels.h", functions)
    t.write(folder .. "/calls.h", calls)
    t.write(folder .. "/table.h", rows)
    local command = { compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off",
        "-pthread", "-I" .. folder, "-I" .. t.root, "-I" .. t.root .. "/runtime", "-o", folder .. "/convolutions" }
    local build = t.root .. "/" .. t.build
    for _, list in ipairs { machine.flags, words, machine.matrix == "registers" and { "-DMATRIX" } or {},
        dtype == "f32" and { "-DF32" } or {}, { t.root .. "/tests/numeric/convolutions.c",
        build .. "/tests/numeric/convolution_sums.o", build .. "/libruntime.a", "-lm" } } do
        table.move(list, 1, #list, #command + 1, command)
    end
    local built = t.run(command)
    t.equal(built.status, 0, built.err)
    return folder .. "/convolutions"
end

-- The program must find no sum other than the plain one, with one thread and with three.
local function check(t, program, turn)
    t.equal(t.run({ program }).out, ("%d shapes, 0 wrong\n"):format(#shapes_of(t, turn)))
end

local tests = {}

for _, case in ipairs { { "sapphirerapids", "bf16", 1 }, { "sapphirerapids", "f32", 2, "bf16x6" },
    { "x86-64-v4-bf16", "bf16", 2 } } do
    local name, turn, f32 = case[1], { case[3], 2 }, case[4]
    local text = case[2] .. " in blocks, " .. name .. "%s: convolutions and both gradients are the plain sums"
    tests[#tests + 1] = { text:format "", function(t)
        local marches = t.load("tests/lua/marches.lua")(t)
        marches.needs_compiler(name)
        local program = build(t, name, case[2], turn, f32)
        if not marches.runs(name) then
            program = build(t, name, case[2], turn, f32, "-Og " .. marches.options(name))
        end
        check(t, program, turn)
    end }
    if profile.runs(name, host.cpu()) then
        tests[#tests + 1] = { text:format ", in plain C", function(t)
            t.long()    -- where the processor lacks the instructions, the test above has them in plain C
            local marches = t.load("tests/lua/marches.lua")(t)
            check(t, build(t, name, case[2], turn, f32, "-Og " .. marches.plain(name)), turn)
        end }
    end
end

for n, name in ipairs { "generic", "x86-64-v3", "x86-64-v4" } do
    local turn = { n, 3 }
    for _, dtype in ipairs { "f32", "bf16" } do
        tests[#tests + 1] = { ("%s on vectors, %s: convolutions and both gradients are the plain sums"):format(dtype,
            name), function(t)
            local marches = t.load("tests/lua/marches.lua")(t)
            marches.needs_compiler(name)
            local program = build(t, name, dtype, turn)
            if not marches.runs(name) then
                program = build(t, name, dtype, turn, nil, "-Og " .. marches.options(name))
            end
            check(t, program, turn)
        end }
    end
end

for _, dtype in ipairs { "f32", "bf16" } do
    tests[#tests + 1] = { dtype .. " by squares: profiles with multiply-adds compute the same bits", function(t)
        local marches = t.load("tests/lua/marches.lua")(t)
        local known
        for _, name in ipairs { "x86-64-v3", "x86-64-v4", dtype == "f32" and "sapphirerapids" or nil } do
            marches.needs_compiler(name)
            local options = not marches.runs(name) and "-Og " .. marches.options(name) or nil
            local found = t.run({ build(t, name, dtype, nil, nil, options), "bits" }).out
            t.equal(select(2, found:gsub("\n", "\n")), #SHAPES - FIRST_SQUARES + 1)
            known = known or found
            -- Blocks compute the gradients of inputs that are not by squares: those of the last three shapes.
            local compared = name == "sapphirerapids" and 9 * #"0123456789abcdef\n" or #known
            t.equal(found:sub(1, compared), known:sub(1, compared))
        end
    end }
end

return tests
