-- Blocked products against plain sums, bit by bit, for each profile: the sizes of
-- tiles, panels and strips must change neither the order nor the rounding of a sum. Where the processor lacks
-- instructions of a profile, headers define these in plain C (tests/matrix).
local math_file = require "emit.targets.c.math"
local matmul = require "emit.targets.c.matmul"
local matrix = require "emit.targets.c.matrix"
local ordered = require "base.ordered"
local profile = require "emit.program.profile"
local template = require "base.template"
local text = require "base.text"

-- Rows, columns, terms: one element, edges of strips and panels, several panels and tiles.
local SHAPES = {
    { 1, 1, 1 }, { 1, 10, 64 }, { 2, 3, 5 }, { 3, 8, 300 }, { 5, 16, 7 }, { 6, 17, 33 }, { 7, 7, 7 },
    { 10, 64, 128 }, { 11, 15, 600 }, { 12, 32, 256 }, { 13, 33, 257 }, { 16, 65, 64 }, { 23, 48, 513 },
    { 64, 10, 784 }, { 65, 49, 31 }, { 97, 100, 1000 }, { 193, 24, 40 }, { 200, 130, 64 }, { 385, 47, 9 },
    -- whole blocks, and more terms than a panel of matrix registers has
    { 32, 64, 3100 }, { 64, 32, 3136 }, { 70, 40, 3136 }, { 544, 416, 40 },
}

-- Layouts of the operands: strides of rows and columns of a and b for a shape.
local LAYOUTS = {
    { "plain", function(M, N, K) return { K, 1, N, 1 } end },
    { "weight_out_in", function(M, N, K) return { K, 1, 1, K } end },
    { "gradient", function(M, N, K) return { 1, M, N, 1 } end },
}

local function read_template(name)
    return template.load(assert(host.read("templates/" .. name)), "templates/" .. name)
end

-- A node for c_text.store: its result has 32 bits.
local NODE = { op = "linear", outs = { y = { tensor = { dtype = "real" } } }, signature = { outs = { "y" } } }

-- All have the same parameters, so that they fit in one table.
local function parameters(has_bias, can_add)
    local function may_be_unused(used) return used and "" or " __attribute__((unused))" end
    return text.block(("ga_worker *w, real *c, const left_operand *a, const operand *b, const real *bias%s, bool add%s")
        :format(may_be_unused(has_bias), may_be_unused(can_add)))
end

-- The slices of the operands of products in blocks, for the way of computing; others are no products in blocks.
local SLICES = { bf16 = 1, bf16x3 = 2, bf16x6 = 3 }

-- Products of bf16 widened to f32, in strips: each tile widens its part of the left operand, or that is f32 already.
local BLOCKS = { widened = "linear_half", mixed = "linear_half" }

-- Layouts of a way of computing: an operand that is widened for all tiles lies by rows.
local function layouts_for(way) return way == "mixed" and { LAYOUTS[1], LAYOUTS[2] } or LAYOUTS end

-- The layouts of a shape by their number: all with make test-all; else one, not the same in all programs.
local function layouts_of(t, shape, way, profile_name)
    local list = layouts_for(way)
    if t.all then return list end
    local turn = tonumber(host.sha256(profile_name .. way):sub(1, 4), 16)
    local number = (shape + shape // #list + turn) % #list + 1
    return { [number] = list[number] }
end

-- products.h and table.h for a way of computing and a profile.
local function kernels_of(t, way, profile_name)
    local linear, slices, functions, rows = read_template "c/matmul.c", read_template "c/slices.c", {}, {}
    local machine = profile.get(profile_name)
    for i, shape in ipairs(SHAPES) do
        local M, N, K = table.unpack(shape)
        for j, layout in next, layouts_of(t, i, way, profile_name) do
            local strides = layout[2](M, N, K)
            local has_bias, can_add = (i + j) % 2 == 0, (i + j) % 3 == 0
            local name = ("%s_%dx%dx%d%s%s"):format(layout[1], M, N, K, has_bias and "_bias" or "",
                can_add and "_add" or "")
            local kernel = { can_add = can_add, profile = machine, node = NODE, half = BLOCKS[way] and "bf16" or nil,
                widens = way == "widened" }
            local arguments = (SLICES[way] and matrix or matmul).product({ M = M, N = N, K = K, a_row = strides[1],
                a_col = strides[2], b_row = strides[3], b_col = strides[4] }, kernel, has_bias, SLICES[way] or way)
            arguments.fn, arguments.source = text.ident(name), text.comment("test")
            arguments.params = parameters(has_bias, can_add)
            local body = kernel.cuts and slices("linear_slices", arguments)
                or linear(BLOCKS[way] or SLICES[way] and "linear_matrix" or "linear", arguments)
            functions[#functions + 1] = body.text
            rows[#rows + 1] = ('{"%s", %s, %d, %d, %d, %d, %d, %d, %d},'):format(name, name, M, N, K,
                table.unpack(strides))
        end
    end
    return table.concat(functions, "\n"), table.concat(rows, "\n") .. "\n"
end

-- The order of the terms of a product in blocks.
local function order_of(way, machine)
    if BLOCKS[way] then return "#define ADDED_LAST\n#include \"base/bf16.h\"\n" end
    if not SLICES[way] then return "" end
    local order = ordered.collect(matrix.ORDER[SLICES[way]] or { { a = 0, b = 0 } }, function(product)
        return ("{%d, %d}"):format(product.a, product.b)
    end)
    return ("#define MATRIX_%s\n#define MATRIX_ORDER %s\n%s#include \"base/bf16.h\"\n"):format(machine.matrix:upper(),
        table.concat(order, ", "), way == "bf16" and "" or ("#define MATRIX_SLICES %d\n"):format(SLICES[way]))
end

-- real.h: the type of results and of operands, and one step of a plain sum.
local function types_of(way, machine)
    local real = way == "f64" and "double" or "float"
    local fma = machine.fma and ("__builtin_fma%s(x, y, z)"):format(way == "f64" and "" or "f")
        or "((x) * (y) + (z))"
    local half = way == "bf16" or BLOCKS[way] ~= nil
    local function operand(name, prefix, is_half)
        return ("typedef %s %s;\n#define %sNUMBER(x) %s\n#define %sOPERAND(x) %s\n"):format(is_half and "bf16" or "real",
            name, prefix, is_half and "bf16_widen(x)" or "(x)", prefix, is_half and "bf16_narrow(x)" or "(x)")
    end
    return ("%stypedef %s real;\n#define PLAIN_FMA(x, y, z) %s\n"):format(order_of(way, machine), real, fma)
        .. operand("operand", "", half) .. operand("left_operand", "LEFT_", half and way ~= "mixed")
end

-- The sources of the runtime that a product needs, where there is no library of another processor's.
local function runtime_sources(t)
    local list = { "-I" .. t.root .. "/runtime" }
    for _, file in ipairs(host.list(t.root .. "/runtime/base")) do
        if file:match "%.c$" then list[#list + 1] = t.root .. "/runtime/base/" .. file end
    end
    return list
end

-- The program for a profile. options: of the compiler in a text; compiler: another one's words. Without either t.compiler
-- takes a fraction of the time, where there is one.
local function build(t, name, way, options, compiler)
    local quick = not options and not compiler and t.compiler
    local machine = profile.get(name)
    local folder = t.root .. "/" .. t.temp()
    local functions, rows = kernels_of(t, way, name)
    local shared = math_file.render(functions, { profile = machine, real = way == "f64" and "f64" or "f32",
        template = read_template, half = BLOCKS[way] and "bf16" or nil,
        slices = way ~= "bf16" and SLICES[way] or nil },
        function(file) return "/* " .. file .. " */\n" end)
    t.write(folder .. "/products.h", functions)
    t.write(folder .. "/table.h", rows)
    t.write(folder .. "/math.c", shared)
    t.write(folder .. "/real.h", types_of(way, machine))
    local more = {}
    for word in (options or quick and "-O0" or "-O1"):gmatch "%S+" do more[#more + 1] = word end
    local command = {}
    for _, list in ipairs { compiler or { quick or "cc" }, { "-std=gnu11", "-Wall", "-Wextra", "-Werror",
        "-ffp-contract=off", "-pthread", "-I" .. folder, "-I" .. t.root, "-I" .. t.root .. "/runtime", "-o",
        folder .. "/products" }, machine.flags, more, { t.root .. "/tests/numeric/products.c" },
        compiler and runtime_sources(t) or { t.root .. "/" .. t.build .. "/libruntime.a" }, { "-lm" } } do
        table.move(list, 1, #list, #command + 1, command)
    end
    local built = t.run(command)
    t.equal(built.status, 0, built.err)
    return folder .. "/products"
end

-- The program must find no sum other than the plain one. before: words of a command in front.
local function check(t, program, way, before)
    local command = table.move(before or {}, 1, #(before or {}), 1, {})
    command[#command + 1] = program
    t.equal(t.run(command).out, ("%d shapes, 0 wrong\n"):format(#SHAPES * (t.all and #layouts_for(way) or 1)))
end

-- Builds for a profile and checks; where this processor does not run it, its instructions in plain C. The other
-- program is built all the same.
local function check_profile(t, name, way)
    local marches = t.load("tests/lua/marches.lua")(t)
    local cross = marches.cross(name)
    local program = build(t, name, way, nil, cross and cross.compiler)
    if not cross and not marches.runs(name) then program = build(t, name, way, "-Og " .. marches.options(name)) end
    check(t, program, way, cross and cross.run)
end

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

for _, name in ipairs { "generic", "x86-64-v3", "x86-64-v4", "aarch64" } do
    for _, way in ipairs { "f32", "f64", "widened", "mixed" } do
        add(("%s %s: every sum as written plainly"):format(name, way), function(t) check_profile(t, name, way) end)
    end
end

for _, case in ipairs { { "sapphirerapids", "bf16" }, { "sapphirerapids", "bf16x6" }, { "sapphirerapids", "bf16x3" },
    { "x86-64-v4-bf16", "bf16" } } do
    local name, way = case[1], case[2]
    add(("%s %s: every sum in the order of the instruction"):format(name, way), function(t)
        check_profile(t, name, way)
    end)
    if profile.runs(name, host.cpu()) then
        add(("%s %s: every sum in the order of the instruction, defined in plain C"):format(name, way), function(t)
            t.long()     -- test_registers compares both
            local marches = t.load("tests/lua/marches.lua")(t)
            check(t, build(t, name, way, "-Og " .. marches.plain(name)), way)
        end)
    end
end

for _, case in ipairs { { "x86-64-v3", "f32" }, { "x86-64-v4", "f64" }, { "x86-64-v3", "f64", long = true },
    { "x86-64-v4", "f32", long = true } } do
    local name, dtype = case[1], case[2]
    add(("%s %s: every sum as written plainly, on a processor without AVX and FMA"):format(name, dtype), function(t)
        if case.long then t.long() end
        local marches = t.load("tests/lua/marches.lua")(t)
        marches.needs_compiler(name)
        check(t, build(t, name, dtype, "-Og " .. marches.without(name, {})), dtype)
    end)
end

-- The gradient of "b" has two rows. gcc warned of its part, whose size it could not see, with -O3 only.
add("a gradient of two rows compiles without warnings", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    programs.build("two_rows", [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (16)
model      { linear "a" { 256 }, relu {}, linear "b" { 2 }, tanh {}, linear "c" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
]], { level = "-O3" })
end)

return tests
