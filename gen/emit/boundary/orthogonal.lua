-- orthogonal: the Newton-Schulz iteration of a rule of scope "matrix": per shape the products it is made of, and a
-- function that does its steps; per choice of coefficients a polynomial.
--
--   gram = x x', square = gram gram, square = a I + b gram + c square, y = square x; then x and y change places
--
-- A matrix with more rows than columns is multiplied from the other side: gram = x' x, y = x square.
local ordered = require "base.ordered"
local scratch = require "passes.scratch"
local text = require "base.text"

local orthogonal = {}

local function shape_of(param)
    local rows, columns = scratch.whole(param.shape)
    return rows, columns, math.min(rows, columns)
end

--- The name of the function that does all steps for a parameter of a group.
function orthogonal.name(param, group)
    return ("orthogonalize_%s_%dx%d"):format(group.name, scratch.whole(param.shape))
end

-- C (M x N) of A and B with these strides, as a kernel; at: what its comment names.
local function product(name, gemm, context, at)
    local target = context.target
    local file = target.folder .. "/matmul" .. target.extension
    local kernel = { name = name, section = "boundary", profile = context.profile, hoisted = {}, named = ordered.map(),
        work = 2 * gemm.M * gemm.N * gemm.K, moved = gemm.M * gemm.N + gemm.K * (gemm.M + gemm.N) }
    -- for the template's arguments it is a kernel of the graph, for all else one of the update
    kernel.node = { outs = { y = { tensor = { dtype = context.real } } }, signature = { ins = {}, outs = { "y" } } }
    local arguments = target.product(gemm, kernel, false, context.real)
    kernel.node = nil
    kernel.parameters = table.move({ "real *c", "const real *a", "const real *b" }, 1, 3,
        #target.first_parameters + 1, ordered.copy(target.first_parameters))
    local open = target.open(name, kernel.launch)
    arguments.fn, arguments.source = text.ident(name), text.comment(("%s, templates/%s"):format(at, file))
    arguments.params = text.block(target.wrap("", open, kernel.parameters, ""):sub(#open + 1))
    kernel.text = context.template(file)("linear", arguments).text:gsub("\n+$", "\n")
    return kernel
end

-- The three products for matrices of rows x columns.
local function products(rows, columns, context, at)
    local side, shape = math.min(rows, columns), ("%dx%d"):format(rows, columns)
    local wide = rows <= columns
    local gram = wide and { M = side, N = side, K = columns, a_row = columns, a_col = 1, b_row = 1, b_col = columns }
        or { M = side, N = side, K = rows, a_row = 1, a_col = columns, b_row = columns, b_col = 1 }
    local plain = { M = wide and side or rows, N = wide and columns or side, K = side,
        a_row = side, a_col = 1, b_row = wide and columns or side, b_col = 1 }
    return {
        product("gram_" .. shape, gram, context, at),
        product("square_" .. side, { M = side, N = side, K = side, a_row = side, a_col = 1, b_row = side, b_col = 1 },
            context, at),
        product("apply_" .. shape, plain, context, at),
    }
end

-- square = a I + b gram + c square, for the coefficients of a group.
local function polynomial(group, config, context)
    local target = context.target
    local kernel = { name = "polynomial_" .. group.name, section = "boundary", hoisted = {}, named = ordered.map(),
        work = 0, moved = 0, calls = 0 }
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

-- Each matrix of the rule once for each group and shape: f(param, group, first of its shape).
local function each_shape(g, f)
    local functions, shapes = {}, {}
    for _, param in ipairs(g.params) do
        local group = param.used and g.groups:get(param.group)
        if group and group.rule.scope == "matrix" then
            local name, rows, columns = orthogonal.name(param, group), scratch.whole(param.shape)
            local shape = rows .. "x" .. columns
            f(param, group, functions[name] == nil, shapes[shape] == nil)
            functions[name], shapes[shape] = true, true
        end
    end
end

--- The kernels of the iterations, with what all their calls in an update do.
function orthogonal.kernels(g, config, context)
    local list, by_name = {}, {}
    local function add(kernel)
        by_name[kernel.name], list[#list + 1] = kernel, kernel
        kernel.calls, kernel.each, kernel.moved_each = 0, kernel.work, kernel.moved
        kernel.work, kernel.moved = 0, 0
    end
    local function count(name, calls, each, moved)
        local kernel = by_name[name]
        kernel.calls, kernel.work = kernel.calls + calls, kernel.work + calls * (each or kernel.each)
        kernel.moved = kernel.moved + calls * (moved or kernel.moved_each)
    end
    each_shape(g, function(param, group, _, is_new)
        local rows, columns, side = shape_of(param)
        for _, kernel in ipairs(is_new and products(rows, columns, context, config.optimizer.at) or {}) do
            if not by_name[kernel.name] then add(kernel) end
        end
        if not by_name["polynomial_" .. group.name] then add(polynomial(group, config, context)) end
        local shape, calls = ("%dx%d"):format(rows, columns), group.fields.ns_steps * param.count
        count("gram_" .. shape, calls)
        count("square_" .. side, calls)
        count("polynomial_" .. group.name, calls, 3 * side * side, 3 * side * side)
        count("apply_" .. shape, calls)
    end)
    return list
end

-- The steps for one shape.
local function function_of(param, group, g, target)
    local rows, columns, side = shape_of(param)
    local o, shape = g.orthogonal, ("%dx%d"):format(rows, columns)
    local function at(offset)
        return offset == 0 and target.scratch or target.behind(target.scratch, tostring(offset))
    end
    local function call(name, ...)
        return target.wrap("        ", name .. "(", { target.worker, ... }, ");")
    end
    local x, square = { "y", "square", "x" }, { "y", "x", "square" }
    local steps, barrier = group.fields.ns_steps, target.barrier and "        " .. target.barrier
    local out = {
        ("/* %d step%s of Newton and Schulz: the matrix of %d x %d that lies at x becomes nearly orthogonal."):format(
            steps, steps > 1 and "s" or "", rows, columns),
        (" * It is left %s. */"):format(steps % 2 == 1 and "at y" or "there"),
        ("static void %s(%s, model *m) {"):format(orthogonal.name(param, group), target.worker_parameter),
        ("    %sx = %s;"):format(target.place_type, at(o.x)),
        ("    %sy = %s;"):format(target.place_type, at(o.y)),
        ("    %sgram = %s;"):format(target.fixed_place_type, at(o.gram)),
        ("    %ssquare = %s;"):format(target.fixed_place_type, at(o.square)),
        ("    for (int k = 0; k < %d; k++) {"):format(steps),
    }
    local function add(line) out[#out + 1] = line end
    add(call("gram_" .. shape, "gram", "x", "x"))
    add(barrier)
    add(call("square_" .. side, "square", "gram", "gram"))
    add(barrier)
    add(call("polynomial_" .. group.name, "square", "gram", tostring(side)))
    add(barrier)
    add(call("apply_" .. shape, table.unpack(rows <= columns and x or square)))
    add(barrier)
    add(("        %sswap = x;"):format(target.fixed_place_type))
    add("        x = y;")
    add("        y = swap;")
    add("    }")
    add("}")
    return table.concat(out, "\n")
end

--- The functions that the calls of matrices name.
function orthogonal.functions(g, target)
    local out = {}
    each_shape(g, function(param, group, is_new)
        if is_new then out[#out + 1] = function_of(param, group, g, target) end
    end)
    return text.block(table.concat(out, "\n\n"))
end

return orthogonal
