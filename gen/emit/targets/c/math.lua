-- math: the text of math.c: the pieces of templates/c (math.c, matmul.c, ...) that a program's kernels use, each before
-- its first use.
local c = require "emit.targets.c.c"
local matmul = require "emit.targets.c.matmul"
local matrix = require "emit.targets.c.matrix"
local ordered = require "base.ordered"
local squares_conv = require "emit.targets.c.squares_conv"
local text = require "base.text"
local vector_conv = require "emit.targets.c.vector_conv"

local math_file = {}

-- The C expression of a * b + c on vectors for each instruction set, and the header that declares it. renamed: clang
-- has another name for it from version 19 on.
local VECTOR_FMA = {
    avx2 = { f32 = "__builtin_ia32_vfmaddps256(a, b, c)", f64 = "__builtin_ia32_vfmaddpd256(a, b, c)",
        renamed = true },
    avx512 = { f32 = "_mm512_fmadd_ps(a, b, c)", f64 = "_mm512_fmadd_pd(a, b, c)",
        include = "<immintrin.h>" },
    portable = { f32 = "PORTABLE_VEC_FMA(a, b, c)", f64 = "PORTABLE_VEC_FMA(a, b, c)" },
    neon = { f32 = "vfmaq_f32(c, a, b)", f64 = "vfmaq_f64(c, a, b)", include = "<arm_neon.h>" },
}

local function vectors(context)
    local fma = VECTOR_FMA[context.profile.fma]
    return { bytes = context.profile.vector, fma = text.block(fma and fma[context.real] or "a * b + c"),
        renamed = fma and fma.renamed or false }
end

local function scalar_fma(context)
    local fma = context.profile.fma
    return { value = text.block(fma == "portable" and "PORTABLE_FMA(a, b, c)" or fma and "__builtin_fmaf(a, b, c)"
        or "a * b + c") }
end

-- The multiply-add of a file for processors with and without one.
local function portable_fma() return { scalar = text.ident "__builtin_fmaf" } end

local function portable_vec_fma(context)
    local f32 = context.real == "f32"
    local lanes, each = f32 and 4 or 2, {}
    for i = 0, lanes - 1 do
        each[#each + 1] = ("__builtin_fma%s((a)[%d], (b)[%d], (c)[%d])"):format(f32 and "f" or "", i, i, i)
    end
    return { builtin = text.ident(f32 and "__builtin_ia32_vfmaddps" or "__builtin_ia32_vfmaddpd"),
        each = text.block(table.concat(each, ", ")) }
end

-- The header that declares the multiply-add, or the products of bf16.
local function fma_header(profile)
    local fma = VECTOR_FMA[profile.fma]
    return fma and fma.include
end

-- The headers of the matrix registers, of bf16, the type that they multiply, and of what flushes denormals.
local function matrix_header() return "<immintrin.h>" end
local function denormals_header() return '"runtime/base/denormals.h"' end
local function bf16_header() return '"runtime/base/bf16.h"' end

local function strip(context)
    local rows, vectors = matmul.strip(context.profile)
    return { rows = rows, vectors = vectors }
end

-- The type of elements that strips of the program widen into panels, or false; that of a function that does so.
local function strip_sums(context, uses)
    local widens = uses { "widening_%d+x%d+", "packed_widening_%d+x%d+" }
    return { half = widens and text.ident(context.half) }
end
local function widening(_, _, kind, sums) return kind:find "widening" and { half = sums.half } or {} end

local function conv_sums(context)
    local rows, vectors = vector_conv.most(context.profile)
    return { rows = rows, vectors = vectors }
end

local function square_sums(context)
    local rows, vectors = squares_conv.most(context.profile)
    return { rows = rows, vectors = vectors }
end

-- The elements of x, `step` rows of `columns` each: every step-th from the first on, then from the second on, ...
local function parted(step, columns)
    local list = {}
    for first = 0, step - 1 do
        for i = 0, columns - 1 do list[#list + 1] = ("x[%d]"):format(i * step + first) end
    end
    return { parted = text.block(table.concat(list, ", ")) }
end

local function rows(context) return { exp = c.call("exp", context.real) } end

-- The integers of the numbers' size: their type, the bit of the sign, all other bits.
local function integers(context)
    if context.real == "f32" then
        return { whole = text.ident "int32_t", last = 31, most = text.block "0x7fffffff" }
    end
    return { whole = text.ident "int64_t", last = 63, most = text.block "0x7fffffffffffffff" }
end

local function half(context) return { half = text.ident(context.half) } end
local function half_panel(context) return { half = text.ident(context.half), depth = matmul.MOST.depth } end
local function half_part(context) return { half = text.ident(context.half), tall = matmul.MOST.tall } end

-- Elements of a vector; bits: of vectors that one instruction widens elements to, if that has a name of its own.
local WIDENED = { avx2 = 256, avx512 = 512 }
local function half_vector(context)
    local bits = WIDENED[context.profile.fma] or false
    return { half = text.ident(context.half), bf16 = context.half == "bf16", bits = bits }
end

-- The header that declares that instruction.
local function widening_header(profile) return WIDENED[profile.fma] and "<immintrin.h>" end

-- Products on the matrix registers: the slices of an operand and its type in C, and the order of their products.
local function slices(context) return { count = context.slices or 1 } end
local function operand(context) return { type = text.ident(context.slices and "float" or "bf16") } end
local function parts(context) return { parts = context.slices and 1 or 2 } end
local function rest(context) return { rest = context.slices ~= nil } end
local function order(context) return { order = matrix.ORDER[context.slices] } end

-- Whether a loop of the program, all with UNROLL inside, has four passes written out.
local function four(_, uses) return { four = uses { "UNROLL_FOUR" } } end

local function nothing() return {} end

-- A piece is in the program if a kernel, or a later piece, uses one of its names. sized: it has functions for numbers
-- of rows and columns, named as one of these; matrix: only for profiles with this; sliced: only for programs whose
-- operands have slices, or only for others; turned: only where vectors have 16 floats, or only elsewhere; eights: only
-- where vectors have at least 8 floats, or only elsewhere; narrows: only where an instruction rounds vectors to bf16,
-- or only elsewhere.
local PIECES = {
    { file = "math", block = "unroll", arguments = four, names = { "UNROLL" } },
    { file = "math", block = "independent", arguments = nothing, names = { "INDEPENDENT" } },
    { file = "math", block = "portable_vec_fma", arguments = portable_vec_fma, names = { "PORTABLE_VEC_FMA" } },
    { file = "math", block = "vectors", arguments = vectors, include = fma_header,
        names = { "vec", "vec_load", "vec_fma", "VEC_LANES" } },
    { file = "math", block = "portable_fma", arguments = portable_fma, names = { "PORTABLE_FMA" } },
    { file = "math", block = "fmaf", arguments = scalar_fma, names = { "ga_fmaf" } },
    { file = "math", block = "bits", arguments = nothing, names = { "ga_bits", "ga_from_bits" } },
    { file = "math", block = "grown", arguments = nothing, names = { "ga_grown", "ga_less_ln2" } },
    { file = "math", block = "expf", arguments = nothing, names = { "ga_expf" } },
    { file = "math", block = "logf", arguments = nothing, names = { "ga_logf" } },
    { file = "math", block = "tanhf", arguments = nothing, names = { "ga_tanhf" } },
    { file = "math", block = "erff", arguments = nothing, names = { "ga_erff" } },
    { file = "math", block = "rows", arguments = rows, names = { "row_exp_sum" } },
    { file = "math", block = "rows_exp", arguments = rows, names = { "rows_exp" } },
    { file = "math", block = "fetch", arguments = nothing, names = { "fetch_row" } },
    { file = "math", block = "ask", arguments = nothing, names = { "ask_rows" } },
    { file = "math", block = "greatest", arguments = integers, names = { "row_greatest" } },
    { file = "half", block = "vec_widen", arguments = half_vector, include = widening_header, names = { "vec_widen" } },
    { file = "strip", block = "strip", arguments = strip, names = { "strip" } },
    { file = "strip", block = "strip_sums", arguments = strip_sums, more = widening,
        sized = { "strip", "first", "asking", "asking_first", "packed", "packed_first", "packing", "packing_first",
            "widening", "packed_widening" },
        names = { "strip_sums", "strip_%d+x%d+", "first_%d+x%d+", "asking_%d+x%d+", "asking_first_%d+x%d+",
            "packed_%d+x%d+", "packed_first_%d+x%d+", "packing_%d+x%d+", "packing_first_%d+x%d+",
            "widening_%d+x%d+", "packed_widening_%d+x%d+" } },
    { file = "matmul", block = "fetch_lines", arguments = nothing, names = { "fetch_lines" } },
    { file = "eights", block = "turn_eights", eights = true, arguments = nothing, names = { "turn_eights" } },
    { file = "eights", block = "turned_eights", eights = true, arguments = nothing, names = { "turned_eights" } },
    { file = "eights", block = "turn_rows", eights = false, arguments = nothing, names = { "turn_rows" } },
    { file = "eights", block = "turn_rows_in_eights", eights = true, arguments = nothing, names = { "turn_rows" } },
    { file = "conv_sums", block = "conv_sums", sized = { "conv_sums" }, arguments = conv_sums,
        names = { "conv_sums", "conv_sums_%d+x%d+" } },
    { file = "square_sums", block = "square_part", sized = { "square_part" }, arguments = nothing,
        more = parted, names = { "square_part_%d+x%d+" } },
    { file = "conv_sums", block = "outputs_of_tiles", arguments = nothing, names = { "outputs_of_tiles" } },
    { file = "square_sums", block = "square_sums", sized = { "square_sums", "square_rows" },
        arguments = square_sums, names = { "square_sums_%d+x%d+", "square_rows_%d+x%d+" } },
    { file = "half", block = "widen_row", arguments = half, names = { "widen_row" } },
    { file = "half", block = "widen_rows", arguments = half, names = { "widen_rows" } },
    { file = "half", block = "narrow_row", narrows = false, arguments = half, names = { "narrow_row" } },
    { file = "half", block = "narrow_row_of_pairs", narrows = true, arguments = nothing, include = matrix_header,
        names = { "narrow_row" } },
    { file = "table", block = "numbers", arguments = nothing, include = denormals_header, names = { "BF16_NUMBERS" } },
    { file = "matrix", block = "registers", arguments = nothing, include = matrix_header, names = { "matrix_begin" } },
    { file = "matrix", block = "slices", arguments = slices, include = bf16_header, names = { "SLICES" } },
    { file = "matrix", block = "tile_height", arguments = nothing, names = { "tile_height" } },
    { file = "matrix", block = "sums", matrix = "registers", arguments = nothing,
        names = { "matrix_load", "matrix_store" } },
    { file = "matrix", block = "step", matrix = "registers", sliced = false, arguments = nothing,
        names = { "matrix_step" } },
    { file = "matrix", block = "terms", matrix = "registers", sliced = false, arguments = nothing,
        names = { "matrix_terms" } },
    { file = "matrix", block = "operands_of_slices", sliced = true, arguments = nothing, names = { "add_product" } },
    { file = "matrix", block = "terms_of_slices", sliced = true, arguments = order, names = { "matrix_terms" } },
    { file = "slices", block = "product_of_slices", sliced = true, arguments = order,
        names = { "matrix_add_product" } },
    { file = "matrix", block = "block", matrix = "registers", arguments = nothing, names = { "matrix_block" } },
    { file = "matrix", block = "block_of_parts", matrix = "registers", arguments = nothing,
        names = { "matrix_block_of_parts" } },
    { file = "matrix", block = "matrix_start", arguments = nothing, names = { "matrix_start" } },
    { file = "matrix", block = "vec_bits", arguments = nothing, names = { "vec_bits", "at_most" } },
    { file = "matrix", block = "pairs", arguments = nothing, names = { "bf16_pairs", "store_pairs" } },
    { file = "matrix", block = "block_of_vectors", matrix = "vectors", arguments = nothing, include = matrix_header,
        names = { "matrix_block" } },
    { file = "matrix", block = "blocks_of_parts", matrix = "vectors", arguments = nothing,
        names = { "matrix_block_of_parts" } },
    { file = "matrix", block = "matrix_narrow", arguments = nothing, include = matrix_header,
        names = { "matrix_narrow" } },
    { file = "matrix", block = "matrix_finish", arguments = nothing, names = { "matrix_finish" } },
    { file = "matrix", block = "matrix_look_up", arguments = nothing, include = matrix_header,
        names = { "matrix_look_up" } },
    { file = "matrix", block = "matrix_look_up_sums", arguments = nothing, include = matrix_header,
        names = { "matrix_look_up_sums" } },
    { file = "matrix", block = "pairs_along", sliced = false, arguments = nothing, names = { "pairs_along" } },
    { file = "matrix", block = "pairs_across", sliced = false, arguments = nothing, names = { "pairs_across" } },
    { file = "matrix", block = "some", arguments = nothing, names = { "some" } },
    { file = "matrix", block = "slices_of_row", sliced = true, arguments = nothing, names = { "slices_of_row" } },
    { file = "matrix", block = "slices_along", sliced = true, arguments = nothing, names = { "pairs_along" } },
    { file = "slices", block = "cut", sliced = true, arguments = nothing, names = { "matrix_cut" } },
    { file = "matrix", block = "slices_of_pairs", sliced = true, arguments = nothing, names = { "slices_of_pairs" } },
    { file = "matrix", block = "slices_across", sliced = true, arguments = nothing, names = { "pairs_across" } },
    { file = "matrix", block = "turn_vectors", arguments = nothing, include = matrix_header,
        names = { "turn_vectors" } },
    { file = "matrix", block = "turn_block", turned = false, arguments = nothing, names = { "turn_block" } },
    { file = "matrix", block = "turn_block_of_vectors", turned = true, arguments = nothing, names = { "turn_block" } },
    { file = "matrix", block = "store_turned", arguments = nothing, names = { "store_turned" } },
    { file = "matrix", block = "matrix_pack_rows", arguments = operand, names = { "matrix_pack_rows" } },
    { file = "matrix", block = "turned_rows", sliced = true, arguments = nothing, names = { "turned_rows" } },
    { file = "matrix", block = "matrix_pack_columns", sliced = false, arguments = operand,
        names = { "matrix_pack_columns" } },
    { file = "matrix", block = "matrix_pack_columns_in_slices", sliced = true, arguments = nothing,
        names = { "matrix_pack_columns" } },
    { file = "panels", block = "put_pairs", arguments = nothing, include = matrix_header,
        names = { "round_block", "put_pairs", "put_turned_pairs" } },
    { file = "matrix", block = "matrix_part_rows", arguments = operand, names = { "matrix_part_rows" } },
    { file = "matrix", block = "matrix_part_columns", sliced = false, arguments = operand,
        names = { "matrix_part_columns" } },
    { file = "matrix", block = "matrix_part_columns_in_slices", sliced = true, arguments = nothing,
        names = { "matrix_part_columns" } },
    { file = "attention_matrix", block = "cuts", arguments = parts, names = { "CUT_PARTS", "CUTS" } },
    { file = "attention_matrix", block = "tile_pack", arguments = operand, names = { "tile_pack" } },
    { file = "attention_matrix", block = "tile_exp", arguments = rest, include = matrix_header,
        names = { "tile_exp" } },
    { file = "attention_matrix", block = "cut_pairs", arguments = nothing, names = { "cut_pairs" } },
    { file = "attention_matrix", block = "tile_lanes", arguments = nothing, names = { "tile_lanes", "tile_vector" } },
    { file = "attention_matrix", block = "tile_turn", arguments = nothing, names = { "tile_turn" } },
    { file = "attention_matrix", block = "tile_matrix", arguments = nothing, names = { "tile_matrix" } },
    { file = "attention_matrix", block = "tile_gradients", arguments = nothing, names = { "tile_gradients" } },
    { file = "matmul", block = "pack_rows", arguments = nothing, names = { "pack_rows" } },
    { file = "matmul", block = "pack_columns", eights = false, arguments = nothing, names = { "pack_columns" } },
    { file = "matmul", block = "pack_columns_in_eights", eights = true, turned = false, arguments = nothing,
        names = { "pack_columns" } },
    { file = "matmul", block = "pack_columns_turned", turned = true, arguments = nothing, names = { "pack_columns" } },
    { file = "matmul", block = "part_term", arguments = nothing, names = { "part_term" } },
    { file = "matmul", block = "part_columns", arguments = nothing, names = { "part_columns" } },
    { file = "matmul", block = "pack_half_rows", arguments = half, names = { "pack_half_rows" } },
    { file = "matmul", block = "pack_half_columns", arguments = half_panel, names = { "pack_half_columns" } },
    { file = "matmul", block = "part_half_columns", arguments = half_part, names = { "part_half_columns" } },
}

-- Whether a text has one of these names as a whole word. A plain search comes first: it is a hundred times faster if
-- the text has none.
local function has_name(body, names)
    for _, name in ipairs(names) do
        if body:find(name:match("^[%w_]+"), 1, true) and body:find("%f[%w_]" .. name .. "%f[^%w_]") then return true end
    end
    return false
end

-- The functions of a piece for some rows and columns, such as strip_6x16, that the kernels call, each once.
local function sized_functions(piece, kernels, context, given)
    local known, list = {}, {}
    for name, kind, rows, columns in kernels:gmatch("%f[%w_](([%l_]+)_(%d+)x(%d+))%(") do
        if not known[name] and ordered.find(piece.sized, kind) then
            known[name] = true
            rows, columns = math.tointeger(rows), math.tointeger(columns)
            local arguments = { name = text.ident(name), rows = rows, columns = columns }
            if piece.more then arguments = ordered.copy(arguments, piece.more(rows, columns, kind, given)) end
            list[#list + 1] = context.template(("c/%s.c"):format(piece.file))(kind .. "_function", arguments).text
                :gsub("\n+$", "\n")
        end
    end
    return table.concat(list)
end

-- The order of #include lines: the system's headers first.
local function include_key(name) return (name:sub(1, 1) == "<" and "1" or "2") .. name end

-- Whether a piece is for programs of this kind.
local function fits(piece, context)
    local sliced, turned = context.slices ~= nil, context.profile.fma == "avx512" and context.real == "f32"
    local eights = context.profile.vector >= 32 and context.real == "f32"
    local narrows = context.half == "bf16" and context.profile.matrix ~= nil
    return (piece.sliced == nil or piece.sliced == sliced) and (piece.turned == nil or piece.turned == turned)
        and (piece.eights == nil or piece.eights == eights) and (piece.narrows == nil or piece.narrows == narrows)
        and (not piece.matrix or piece.matrix == context.profile.matrix)
end

--- The text of math.c for kernels with this text; nil if they need nothing of it.
function math_file.render(kernels, context, header)
    local body, headers, found = "", { "<math.h>", "<string.h>" }, false
    local function uses(names) return has_name(kernels, names) or has_name(body, names) end
    for i = #PIECES, 1, -1 do
        local piece = PIECES[i]
        if fits(piece, context) and uses(piece.names) then
            local given = piece.arguments(context, uses)
            local block = context.template(("c/%s.c"):format(piece.file))(piece.block, given).text:gsub("\n+$", "\n")
            if piece.sized then block = block .. "\n" .. sized_functions(piece, kernels, context, given) end
            body = block .. (found and "\n" or "") .. body
            found = true
            local more = piece.include and piece.include(context.profile)
            if more and not ordered.find(headers, more) then headers[#headers + 1] = more end
        end
    end
    if not found then return nil end
    table.sort(headers, function(a, b) return include_key(a) < include_key(b) end)
    local includes = table.concat(ordered.collect(headers, function(name) return ("#include %s\n"):format(name) end))
    return header("math.c", "what the kernels share") .. "\n" .. includes .. "\n" .. body
end

return math_file
