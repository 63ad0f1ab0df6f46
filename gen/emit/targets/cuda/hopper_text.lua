-- hopper_text: the text of twins (targets/cuda/hopper.lua), with the functions that they call.
local cuda = require "emit.targets.cuda.cuda"
local graph = require "graph.graph"
local hopper = require "emit.targets.cuda.hopper"
local ordered = require "base.ordered"
local text = require "base.text"

-- The functions that twins of each kind call, besides those that all do.
local ALL = { "hopper gates", "hopper copies", "hopper groups", "hopper_product strips" }
local HELPERS = {
    products = { "hopper clusters", "hopper_product runs", "hopper_product walks", "hopper_product slices",
        "hopper_product run_terms", "hopper_product beside", "hopper_product multiply", "hopper_product sums",
        "hopper_product products", "hopper_product totals" },
    attention = { "hopper_attention tiles", "hopper_attention copies", "hopper_attention products" },
    gradient = { "hopper_attention_dx walks", "hopper_attention_dx facts", "hopper_attention_dx steps" },
    whole = { "hopper_attention_dx whole" },
}
local COMPARE = { "hopper_compare compare" }

-- Their products: blocks of hopper.cu, each for so many columns.
local PRODUCTS = { products = { "products", hopper.NARROW, hopper.WIDE }, attention = { "head_products", 64, 128 } }

-- "c, a, b": the names of parameters.
local function names_of(parameters)
    return table.concat(ordered.collect(parameters, function(p) return p:match "([%a_][%w_]*)$" end), ", ")
end

-- The parameters of a kernel, with its sizes.
local function parameters_of(kernel)
    local list = ordered.copy(kernel.parameters)
    for _, size in ipairs(kernel.sizes and kernel.sizes.list or {}) do list[#list + 1] = size[1] end
    return list
end

-- Parameters in parentheses behind `open`, without what stands before them.
local function wrapped(open, ...)
    local list = {}
    for _, more in ipairs { ... } do table.move(more, 1, #more, #list + 1, list) end
    return text.block(cuda.wrap("", open, list, ""):sub(#open + 1))
end

local PARTS, SUMS = { "const float *parts" }, { "float *parts" }
local PLACE, SUM_OF_ROW = { "int row", "int column" }, { "float (&sums)[8]" }

-- The parameters of a twin behind those of the kernel.
local function own_parameters(twin)
    local list = { twin.parts_bytes and SUMS[1] or nil }
    for _, box in ipairs(twin.boxes) do
        list[#list + 1] = ("const __grid_constant__ ga_boxes %s_boxes"):format(box.parameter)
    end
    return list
end

-- The operands of a product whose sums are `eights` times four registers of a thread, as lines of inline PTX.
local function registers(half, eights)
    local count, names, list = 4 * eights, {}, {}
    for v = 0, eights - 1, 4 do
        local row, places = {}, {}
        for k = v, v + 3 do
            for e = 0, 3 do
                row[#row + 1] = "%" .. 4 * k + e
                places[#places + 1] = ('"+f"(d[%d][%d])'):format(k, e)
            end
        end
        local last = v + 4 == eights
        names[#names + 1] = ('"%s%s%s "'):format(v == 0 and "{" or "", table.concat(row, ", "), last and "}," or ",")
        for k = 1, 16, 8 do
            list[#list + 1] = table.concat(places, ", ", k, k + 7) .. (last and k > 1 and "" or ",")
        end
    end
    return { half = half, eights = eights, wide = 8 * eights,
        first = { count, count + 1, count + 2, count + 3, count + 4 },
        names = text.block(table.concat(names, "\n")), registers = text.block(table.concat(list, "\n")) }
end

-- The functions that the twins of kernels call.
local function functions(kernels, context, half)
    local out, found = {}, {}
    local function add(list)
        for _, helper in ipairs(list) do
            local file, block = helper:match "(%S+) (%S+)"
            out[#out + 1] = context.template(("cuda/%s.cu"):format(file))(block, { half = half, type = half }).text
        end
    end
    local function add_kind(kind)
        if found[kind] then return end
        found[kind] = true
        local products = PRODUCTS[kind] or {}
        for k = 2, #products do
            local arguments = registers(half, products[k] // 8)
            out[#out + 1] = context.template("cuda/hopper.cu")(products[1], arguments).text
        end
        add(HELPERS[kind])
    end
    add(ALL)
    for _, kernel in ipairs(kernels) do
        for _, kind in ipairs(kernel.launch.twin.helpers) do add_kind(kind) end
    end
    add(COMPARE)
    return out
end

-- The parameters of a product's kernels that compute and add up tiles: without those of sums of an operand alone.
local function own_of(kernel, twin)
    return ordered.collect(parameters_of(kernel), function(p)
        return not (twin.left_out and p:match "[%w_]+$" == twin.left_out) and p or nil
    end)
end

-- The text of the twin of a kernel, whose kernels are named NAME_boxes and so on. shared, of a product: { wide, the
-- columns of tiles, 0 if they differ by size; has_parts: whether tiles come in parts }.
local function twin_text(kernel, name, shared, context)
    local twin = kernel.launch.twin
    local p, own, more = own_of(kernel, twin), twin.arguments, {}
    if own.beside then more[1] = ("const %s_beside &beside"):format(name) end
    if own.c and own.c.drops then more[#more + 1] = "const ga_drops &drops" end
    local params = { names = text.block(names_of(p)),
        read = wrapped(("GA_DEVICE %s_beside %s_read("):format(name, name), p, PLACE),
        row = wrapped(("GA_DEVICE void %s_row("):format(name), p, PLACE, SUM_OF_ROW, more),
        boxes = wrapped(("GA_KERNEL(384, 1) %s_boxes("):format(name), p, own_parameters(twin)),
        parts = wrapped(("GA_KERNEL(256, 4) %s_parts("):format(name), p, PARTS) }
    local arguments = ordered.copy(twin.arguments, { fn = text.ident(name), params = params })
    return context.template(twin.file)(twin.block, ordered.copy(arguments, twin.wide and shared or {})).text
end

-- The text of the kernels NAME_sums and NAME_totals: of sums of an operand beside a product.
local function sums_text(kernel, name, context)
    local twin, p = kernel.launch.twin, parameters_of(kernel)
    local params = { totals = wrapped(("GA_KERNEL(256) %s_totals("):format(name), p, PARTS),
        sums = wrapped(("GA_KERNEL(256) %s_sums("):format(name), p, SUMS) }
    return context.template("cuda/matmul.cu")("boxes_sums", { fn = text.ident(name), params = params,
        tile = twin.arguments.tile, c = twin.arguments.c, sums = twin.sums.operand, terms = twin.sums.beside }).text
end

-- Adds texts to `out`, those that are the same once; returns the name of each kernel's, the key being the kernel.
-- wanted(kernel): the name that its text has if no other text has it; make(kernel, name): the text.
local function add_texts(out, names, kernels, wanted, make)
    local known, chosen = {}, {}
    for _, kernel in ipairs(kernels) do
        local name = wanted(kernel)
        local body = make(kernel, name)
        if not known[body] then
            known[body] = graph.unique(names, name)
            out[#out + 1] = known[body] == name and body or make(kernel, known[body])
        end
        chosen[kernel] = known[body]
    end
    return chosen
end

--- The text of the twins of kernels, with the functions that they call. Twins of the same text are one: twin.fn is the
--- name that the kernels of a twin begin with, twin.summing that of the kernels of sums beside it.
return function(kernels, context)
    local own, names, sums_names, shared = hopper.of(kernels), { names = {} }, { names = {} }, {}
    local out = functions(own, context, text.ident(context.half))
    table.insert(out, 1, "#ifdef " .. hopper.GUARD .. "\n")
    local function wanted(kernel)
        return ((kernel.kernel or kernel).name:gsub("_tile_%d+x%d+_?%d*$", ""))
    end
    local function wanted_boxes(kernel)
        local twin = kernel.launch.twin
        return twin.sums and not twin.sums.beside and wanted(kernel):gsub("_sums", "") or wanted(kernel)
    end
    local function general(kernel, name) return twin_text(kernel, name, { wide = 0, has_parts = true }, context) end
    local chosen = add_texts({}, { names = {} }, own, wanted_boxes, general)
    for _, kernel in ipairs(own) do
        local twin, name = kernel.launch.twin, chosen[kernel]
        local all = shared[name] or { wide = twin.wide, has_parts = false }
        shared[name] = { wide = all.wide == twin.wide and twin.wide or 0, has_parts = all.has_parts or twin.tiles > 0 }
    end
    chosen = add_texts(out, names, own, wanted_boxes, function(kernel, name)
        return twin_text(kernel, name, shared[chosen[kernel]], context)
    end)
    local summing = ordered.collect(own, function(kernel) return kernel.launch.twin.sums and kernel or nil end)
    local of_sums = add_texts(out, sums_names, summing, wanted,
        function(kernel, name) return sums_text(kernel, name, context) end)
    for _, kernel in ipairs(own) do
        kernel.launch.twin.fn, kernel.launch.twin.summing = chosen[kernel], of_sums[kernel]
    end
    out[#out + 1] = "#endif\n"
    return table.concat(out, "\n")
end
