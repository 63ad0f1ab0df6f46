-- orthogonal: the functions of g.iterations (passes/update.lua): per choice of coefficients a polynomial, and a loop
-- over the steps, which calls it beside products.
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local orthogonal = {}

-- square = a I + b gram + c square, for the coefficients of a group.
local function polynomial(group, config, context)
    local target = context.target
    local kernel = { name = "polynomial_" .. group.word, section = "boundary", hoisted = {}, named = ordered.map(),
        operands = { "square", "gram" }, at = config.optimizer.at }
    local own = table.move({ "real *square", "const real *gram", "int n" }, 1, 3, #target.first_parameters + 1,
        ordered.copy(target.first_parameters))
    target.over_square(kernel, own)
    local open = target.open(kernel.name, kernel.launch)
    local file = target.folder .. "/orthogonal" .. target.extension
    local coefficients = ordered.collect(group.fields.ns_coefficients, function(x)
        return text.number(x, context.real, config.optimizer.at)
    end)
    kernel.text = context.template(file)("polynomial", { fn = text.ident(kernel.name),
        params = text.block(target.wrap("", open, own, ""):sub(#open + 1)),
        source = text.comment(("%s, templates/%s"):format(config.optimizer.at, file)),
        a = coefficients[1], b = coefficients[2], c = coefficients[3],
        threads = kernel.launch and kernel.launch.threads }).text:gsub("\n+$", "\n")
    return kernel
end

--- The kernels of the iterations; make(node): that of a product. Each node gets its record.
function orthogonal.kernels(g, config, context, make)
    local list, by_name = {}, {}
    for _, f in ipairs(g.iterations) do
        for _, node in ipairs(f.region.body) do
            local name = node.kernel_name or "polynomial_" .. f.group.word
            local kernel = by_name[name]
            if not kernel then
                kernel = node.kernel_name and make(node) or polynomial(f.group, config, context)
                list[#list + 1], by_name[name] = kernel, kernel
            end
            local n = graph.elements(node.outs[node.signature.outs[1]].tensor.shape)
            node.kernel = ordered.copy(kernel, { node = node, flops = kernel.flops or 3 * n,
                bytes = kernel.bytes or 3 * n * (g.real == "f64" and 8 or 4) })
            kernel.flops, kernel.bytes, kernel.node = node.kernel.flops, node.kernel.bytes, nil
        end
    end
    return list
end

-- The lines of a function; lines_of prints the calls of a body.
local function function_of(f, target, lines_of)
    local place = target.place_type
    local out = {
        ("/* %d step%s of Newton and Schulz: the matrix of %d x %d at x becomes nearly orthogonal.\n"
            .. " * The result is at %s. */"):format(f.steps,
            f.steps > 1 and "s" or "", f.rows, f.columns, f.steps % 2 == 1 and "y" or "x"),
        target.wrap("", ("static void %s("):format(f.name), { target.worker_parameter, "model *m", place .. "x",
            place .. "y", place .. "gram", place .. "square" }, ") {"),
        "    (void)m; /* train-probe looks at it */",
        ("    for (int step = 0; step < %d; step++) {"):format(f.steps),
    }
    local calls = lines_of(f.region.body, "        ")
    table.move(calls, 1, #calls, #out + 1, out)
    table.move({ ("        %sswap = x;"):format(target.fixed_place_type), "        x = y;", "        y = swap;",
        "    }", "}" }, 1, 5, #out + 1, out)
    return table.concat(out, "\n")
end

--- The functions that nodes of g.boundary call.
function orthogonal.functions(g, target, lines_of)
    return text.block(table.concat(ordered.collect(g.iterations, function(f)
        return function_of(f, target, lines_of)
    end), "\n\n"))
end

return orthogonal
