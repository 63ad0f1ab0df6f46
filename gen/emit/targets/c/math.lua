-- math: the text of math.c: the pieces of templates/c/math.c and matmul.c that a program's kernels use, each before
-- its first use.
local c = require "emit.targets.c.c"
local matmul = require "emit.targets.c.matmul"
local text = require "base.text"

local math_file = {}

-- The C expression of a * b + c on vectors for each instruction set, and the header that declares it.
local VECTOR_FMA = {
    avx2 = { f32 = "__builtin_ia32_vfmaddps256(a, b, c)", f64 = "__builtin_ia32_vfmaddpd256(a, b, c)" },
    avx512 = { f32 = "_mm512_fmadd_ps(a, b, c)", f64 = "_mm512_fmadd_pd(a, b, c)",
        include = "<immintrin.h>" },
    neon = { f32 = "vfmaq_f32(c, a, b)", f64 = "vfmaq_f64(c, a, b)", include = "<arm_neon.h>" },
}

local function vectors(profile, dtype)
    local fma = VECTOR_FMA[profile.fma]
    return { bytes = profile.vector, fma = text.block(fma and fma[dtype] or "a * b + c") }
end

local function scalar_fma(profile)
    return { value = text.block(profile.fma and "__builtin_fmaf(a, b, c)" or "a * b + c") }
end

-- The header that declares the multiply-add, or the matrix registers.
local function fma_header(profile)
    local fma = VECTOR_FMA[profile.fma]
    return fma and fma.include
end
local function matrix_header() return "<immintrin.h>" end

local function strip(profile)
    local rows, vectors = matmul.strip(profile)
    return { rows = rows, vectors = vectors }
end

local function rows(_, dtype) return { exp = c.call("exp", dtype) } end

-- The integers of the numbers' size: their type, the bit of the sign, all other bits.
local function order(_, dtype)
    if dtype == "f32" then return { whole = text.ident "int32_t", last = 31, most = text.block "0x7fffffff" } end
    return { whole = text.ident "int64_t", last = 63, most = text.block "0x7fffffffffffffff" }
end

local function half(_, _, name) return { half = text.ident(name) } end

local function nothing() return {} end

-- A piece is in the program if a kernel, or a later piece, uses one of its names.
local PIECES = {
    { file = "math", block = "vectors", arguments = vectors, include = fma_header,
        names = { "vec", "vec_load", "vec_fma", "VEC_LANES" } },
    { file = "math", block = "fmaf", arguments = scalar_fma, names = { "ga_fmaf" } },
    { file = "math", block = "bits", arguments = nothing, names = { "ga_bits", "ga_from_bits" } },
    { file = "math", block = "grown", arguments = nothing, names = { "ga_grown", "ga_less_ln2" } },
    { file = "math", block = "expf", arguments = nothing, names = { "ga_expf" } },
    { file = "math", block = "logf", arguments = nothing, names = { "ga_logf" } },
    { file = "math", block = "tanhf", arguments = nothing, names = { "ga_tanhf" } },
    { file = "math", block = "erff", arguments = nothing, names = { "ga_erff" } },
    { file = "math", block = "rows", arguments = rows, names = { "row_exp_sum" } },
    { file = "math", block = "greatest", arguments = order, names = { "row_greatest" } },
    { file = "matmul", block = "strip", arguments = strip, names = { "strip", "strip_%d+x%d+" } },
    { file = "half", block = "widen_row", arguments = half, names = { "widen_row" } },
    { file = "half", block = "narrow_row", arguments = half, names = { "narrow_row" } },
    { file = "matmul", block = "pack_half_rows", arguments = half, names = { "pack_half_rows" } },
    { file = "matmul", block = "pack_half_columns", arguments = half, names = { "pack_half_columns" } },
    { file = "matmul", block = "widen_rows", arguments = half, names = { "widen_rows" } },
    { file = "matrix", block = "registers", arguments = nothing, include = matrix_header, names = { "matrix_begin" } },
    { file = "matrix", block = "block", arguments = nothing, names = { "matrix_block", "matrix_terms" } },
    { file = "matrix", block = "pairs", arguments = nothing, names = { "bf16_pairs", "at_most", "store_pairs" } },
    { file = "matrix", block = "pairs_along", arguments = nothing, names = { "pairs_along" } },
    { file = "matrix", block = "pairs_across", arguments = nothing, names = { "pairs_across" } },
    { file = "matrix", block = "turn_pairs", arguments = nothing, names = { "turn_pairs" } },
    { file = "matrix", block = "matrix_pack_rows", arguments = nothing, names = { "matrix_pack_rows" } },
    { file = "matrix", block = "matrix_pack_columns", arguments = nothing, names = { "matrix_pack_columns" } },
    { file = "matrix", block = "matrix_part_rows", arguments = nothing, names = { "matrix_part_rows" } },
    { file = "matrix", block = "matrix_part_columns", arguments = nothing, names = { "matrix_part_columns" } },
    { file = "matmul", block = "pack_rows", arguments = nothing, names = { "pack_rows" } },
    { file = "matmul", block = "pack_columns", arguments = nothing, names = { "pack_columns" } },
}

-- Whether a text has one of these names as a whole word. A plain search comes first: it is a hundred times faster if
-- the text has none.
local function has_name(body, names)
    for _, name in ipairs(names) do
        if body:find(name:match("^[%w_]+"), 1, true) and body:find("%f[%w_]" .. name .. "%f[^%w_]") then return true end
    end
    return false
end

-- The strip functions that the kernels call, each once.
local function strip_functions(kernels, context)
    local known, list = {}, {}
    for name, rows, columns in kernels:gmatch("(strip_(%d+)x(%d+))%(") do
        if not known[name] then
            known[name] = true
            list[#list + 1] = context.template("c/matmul.c")("strip_function", { name = text.ident(name),
                rows = math.tointeger(rows), columns = math.tointeger(columns) }).text:gsub("\n+$", "\n")
        end
    end
    return table.concat(list)
end

--- The text of math.c for kernels with this text; nil if they need nothing of it.
function math_file.render(kernels, context, header)
    local body, include, found = "", nil, false
    for i = #PIECES, 1, -1 do
        local piece = PIECES[i]
        if has_name(kernels, piece.names) or has_name(body, piece.names) then
            local block = context.template(("c/%s.c"):format(piece.file))(piece.block,
                piece.arguments(context.profile, context.real, context.half)).text:gsub("\n+$", "\n")
            if piece.block == "strip" then block = block .. "\n" .. strip_functions(kernels, context) end
            body = block .. (found and "\n" or "") .. body
            found, include = true, include or piece.include and piece.include(context.profile)
        end
    end
    if not found then return nil end
    local includes = "#include <math.h>\n#include <string.h>\n"
    if include then includes = ("#include %s\n"):format(include) .. includes end
    return header("math.c", "what the kernels share") .. "\n" .. includes .. "\n" .. body
end

return math_file
