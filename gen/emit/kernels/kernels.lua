-- kernels: a node becomes a call of a function in kernels.c, made from a template block of its op's family, with sizes
-- and formulas filled in. Nodes whose functions have the same text share one function, named after op and shape. The
-- record of a call gives its line in step.c, in `gagen plan` and in a profile.
--
--   linear 'fc1', linear 'fc2' of 64 x 64    ->    linear_16x64x64(w, m->a.fc1_y, m->a.x, m->v.fc1_weight, ...)
--                                                  linear_16x64x64(w, m->a.fc2_y, m->a.fc1_y, m->v.fc2_weight, ...)
local c_text = require "emit.targets.c_text"
local cost = require "graph.cost"
local expr = require "base.expr"
local graph = require "graph.graph"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"
local parameters = require "emit.kernels.parameters"
local statements = require "base.statements"
local text = require "base.text"
local view = require "graph.view"

local kernels = {}

-- The name of a node's call in plans and profiles.
local function call_name(node, section)
    local out = node.named or graph.result(node)
    if node.kernel_name then return node.kernel_name end
    if out.kind == "scalar" then return node.op end
    if node.op:find "^accumulate" then return (out.name:gsub("^d_", "accumulate_")) end
    local name = out.name
    if node.run and node.run.rest and not name:find("_rest$") then name = name .. "_rest" end
    section = node.section or section
    if section == "views" then return "pack_" .. name end
    if section ~= "backward" then return name:gsub("_out$", ""):gsub("_y$", "") .. "_forward" end
    if name:sub(1, 2) == "d_" then return "backward_" .. name:sub(3) end
    return "backward_" .. name
end

-- Template arguments of nodes that are not ops of the catalog.
local ARGUMENTS = {}

-- A value that is read once and takes at most this many operations is written inside the statement that reads it.
local MOST_INSIDE = 6

-- The view of what is written among all columns; nil: it is all of them.
local function written_view(out)
    if not out.columns then return nil end
    return view.new(graph.written(out), view.strides(out.tensor.shape), out.columns.first - 1)
end

-- The width of the rows that a pointwise node goes along, where it reads or writes columns of wider rows; else nil.
local function width_of(node)
    local out = graph.writes(node)[1]
    local shape, wider, own = graph.written(out), out.columns ~= nil, written_view(out)
    local width = shape[#shape]
    if own and not view.by_rows(own, width) then return nil end
    for _, key in ipairs(node.signature.ins) do
        local v = node.views[key]
        if v and not view.by_rows(v, width) then return nil end
        wider = wider or v ~= nil
    end
    return wider and width or nil
end

-- The index of an element that a view finds; along rows of `width` elements, of column j in row r.
local function index_of(v, width, target)
    if not width then return view.text(v, target.index) end
    return ("(size_t)r * %d + %sj"):format(view.by_rows(v, width), v.offset > 0 and v.offset .. " + " or "")
end

-- Lines that load each element that is read; `shown`: the element of each input, as the kernel's comment shows it; and
-- `named`: x2 for the element of in2, where the input has another name. launch: a device keeps the inputs' names.
-- width: of the rows that the kernel goes along, or nil. few: how it moves neighbours at once, or nil.
local function loads_of(node, type_name, read, width, few, target, launch)
    local lines, shown, named, taken, number, count = {}, {}, {}, {}, {}, 0
    for _, key in ipairs(node.signature.ins) do
        local t, v = node.ins[key], node.views[key]
        if not number[t] then
            count = count + 1
            number[t] = count
        end
        local array = parameters.array_name(number[t])
        shown[key] = v and ("%s[%s]"):format(array, view.text(v, "i")) or array
        if read[key] then
            local value = array
            if t.kind ~= "scalar" then
                local cast = t.dtype == "i32" and type_name == "real" and "(real)" or ""
                value = c_text.load(t, cast .. (few and few.element(key, array, t)
                    or ("%s[%s]"):format(array, v and index_of(v, width, target) or "i")))
            end
            local own = launch and key or "x" .. number[t]
            while taken[own] do own = own .. "b" end       -- the same array, found by another view
            taken[own], named[key] = true, expr.var(own)
            lines[#lines + 1] = ("const %s %s = %s;"):format(type_name, own, value)
        end
    end
    return lines, shown, named
end

-- The names of statements without suffixes: { "silu", "mul_da" }.
local function words_of(list)
    return ordered.collect(list, function(s) return (s[1]:gsub("_%d+$", ""):gsub("_out$", "")) end)
end

-- "silu, add, exp, ..., mul": of many names the first three and the last.
local function words_shown(list)
    local words = words_of(list)
    if #words > 6 then words = { words[1], words[2], words[3], "...", words[#words] } end
    return table.concat(words, ", ")
end

-- Columns of the longest formula in a kernel's comment; a longer formula is replaced by the names of its statements.
local MOST_SHOWN = 72

local function formula_of(node, list, shown)
    local formula = #list == 1 and expr.shown(list[1][2], function(name) return shown[name] end)
    return text.comment(formula and #formula <= MOST_SHOWN and formula or words_shown(node.statements))
end

-- Columns of indentation of a statement in a pointwise kernel.
local INDENT = 12

local function broken(line) return statements.broken("", line, 100 - INDENT) end

-- The inputs of a pointwise node whose elements have 16 bits, as keys.
local function half_inputs(node)
    local out = {}
    for _, key in ipairs(node.signature.ins) do out[key] = graph.is_half(node.ins[key]) end
    return out
end

-- Arguments of a pointwise kernel: a load per input, the statements, and the store of the last one, in a row that is
-- rounded as a whole where the target does so (`late`). i32 results are computed in i32, all others in the program's
-- type.
function ARGUMENTS.map(kernel, node, _, dtype, target)
    local written, width = graph.writes(node)[1], target.by_rows and width_of(node)
    local out, few = written.tensor, target.few and target.few(node, kernel, dtype)
    local type_name = out.dtype == "i32" and target.i32 or "real"
    local list, read = statements.split_all(statements.tidy(node.statements, MOST_INSIDE), "part_"), {}
    local late = target.late and graph.is_half(out) and not (width or kernel.can_add) and target.late(kernel, list, {})
    list = late or list
    for _, key in ipairs(statements.inputs(list)) do read[key] = true end
    local loads, shown, named = loads_of(node, type_name, read, width, few, target, kernel.launch)
    local spelling = target.spelling(dtype, nil, node.at, kernel.half)
    if kernel.half then spelling.call = ordered.copy(spelling.call, { rounded = kernel.half .. "_rounded" }) end
    local spelled = kernel.launch and list or statements.substitute(list, named)
    local lines, value = statements.text(spelled, type_name, spelling)
    if kernel.can_add then
        lines[#lines + 1] = ("const real value = %s;"):format(value)
        value = "value"
    end
    for _, line in ipairs(lines) do loads[#loads + 1] = broken(line) end
    local own = written_view(written)
    local place = own and index_of(own, width, target) or "i"
    local exact = target.exact and target.exact(list, half_inputs(node))
    local store = broken(late and ("row[k] = %s;"):format(value)
        or c_text.store(kernel, few and "to.at[k]" or ("out[%s]"):format(place), value, exact).text)
    if width and (store .. table.concat(loads)):find "%[i%]" then
        table.insert(loads, 1, "const size_t i = (size_t)r * WIDTH + j;")
    elseif (few or late) and table.concat(loads):find "%f[%w_]i%f[^%w_]" then
        table.insert(loads, 1, ("const %s i = first + k;"):format(few and target.int64 or "int"))
    end
    return { n = not kernel.sizes and graph.elements(graph.written(written)) or nil,
        formula = formula_of(node, list, shown), width = width, row = late and text.ident "out" or nil,
        few = few and few.count, rest = few and few.rest, reads = few and text.block(table.concat(few.reads, "\n")),
        loads = text.block(table.concat(loads, "\n")), store = text.block(store) }
end

-- The block of a pointwise kernel with these arguments.
local function pointwise_block(arguments)
    return arguments.few and "map_few" or arguments.width and "map_rows" or arguments.row and "map_late" or "map"
end

-- Average bytes per element that a kernel reads and writes.
local function bytes_each(node, dtype)
    local full, bytes, elements = dtype == "f64" and 8 or 4, 0, 0
    local function count(t)
        local n = graph.elements(t.shape)
        elements, bytes = elements + n, bytes + n * (graph.is_half(t) and 2 or full)
    end
    for _, t in ipairs(graph.reads(node)) do count(t) end
    for _, out in ipairs(graph.writes(node)) do count(out.tensor) end
    return bytes / elements
end

-- Elements of the gradients that a node over a run of rows adds to; each run reads them again.
local function added(node)
    local n = 0
    for _, out in ipairs(node.run and graph.writes(node) or {}) do
        if out.acc and not out.run then n = n + graph.elements(out.tensor.shape) end
    end
    return n
end

-- The text of a kernel's helpers, listed as "a b" (targets/ops.lua), and of its tables: blocks of template files that
-- stand before the first kernel that needs them. "a:half" also gets the type of products' inputs as `type`, and as
-- `half` if it has 16 bits; "a:form" gets kernel.squares as `form`, and a program has one for each of these names.
local function helper_text(kernel, context, target)
    local out = {}
    local names = (kernel.sizes and kernel.sizes.types or "") .. " " .. (ops.helper(kernel.node, target, kernel) or "")
    for name, told in names:gmatch("([%w_]+)(:?%S*)") do
        local form = told == ":form" and kernel.squares
        local key = form and name .. ":" .. form.name.text or name
        if not context.helpers[key] then
            local file, half = ("%s/%s%s"):format(target.folder, name, target.extension), context.half
            local arguments = form and { form = form } or told ~= "" and { half = half and text.ident(half) or false,
                type = text.ident(half or "real") } or {}
            out[#out + 1] = context.template(file)(name, arguments).text:gsub("\n*$", "\n\n", 1)
            context.helpers[key] = true
        end
    end
    for _, t in ipairs(kernel.tables or {}) do
        if not context.helpers[t.name.text] then
            out[#out + 1] = context.template(("%s/table%s"):format(target.folder, target.extension))("table", t).text
            context.helpers[t.name.text] = true
        end
    end
    return table.concat(out)
end

-- Most statement names in a kernel's name; of a longer list the first and the last are used.
local MOST_WORDS = 3

-- The operation of a function: "gelu", "add_relu", "silu_to_mul" or "linear_gelu". own: the name of the node's op.
local function op_name(node, own)
    local list = node.statements or node.behind and node.behind.statements
    if node.drops then own = own .. "_dropout" end
    if not list then return own end
    local words = words_of(list)
    if #words > MOST_WORDS then words = { words[1], "to", words[#words] } end
    return (node.behind and own .. "_" or "") .. table.concat(words, "_")
end

-- "linear_4096x768x3072": the operation with M, N, K of a product; for other nodes with the shape of the first result,
-- if it is an array, and the op's own detail, if it is no kernel of a device.
local function function_name(node, op, launch)
    local y = graph.result(node)
    local shape = y.kind ~= "scalar" and graph.seen(node, node.signature.outs[1], y) or {}
    if op.gemm then
        local g = op.gemm(node)
        shape = { g.M, g.N, g.K }
    end
    local parts = { op_name(node, node.op), #shape > 0 and table.concat(shape, "x") or nil }
    parts[#parts + 1] = not launch and op.detail and op.detail(node) or nil
    return table.concat(parts, "_")
end

-- The text of a kernel's function, named `name`.
local function function_text(kernel, name, block, file, arguments, context)
    local target, list = context.target, ordered.copy(kernel.parameters)
    local behind = not kernel.launch and kernel.node.behind    -- a device's kernels with and without it may be one
    for i, size in ipairs(kernel.sizes and kernel.sizes.list or {}) do list[#kernel.parameters + i] = size[1] end
    local open = target.open(name, kernel.launch)
    arguments.fn = text.ident(name)
    arguments.params = text.block(target.wrap("", open, list, ""):sub(#open + 1))
    arguments.source = text.comment("templates/" .. file
        .. (behind and "; behind each result: " .. table.concat(words_of(behind.statements), ", ") or ""))
    return (context.template(file)(block, arguments).text:gsub("\n+$", "\n"))
end

-- Adds the values of a table under these keys to a list of texts, and those of the tables in it; false if one is a
-- function or missing.
local function add_values(parts, values, keys)
    for _, key in ipairs(keys) do
        local value = values[key]
        local kind, n = type(value), #parts
        if text.is(value) then kind, value = "text", value.text end
        if kind == "nil" or kind == "function" then return false end
        if kind == "table" then
            local inner = ordered.keys(value)
            parts[n + 1] = table.concat(inner, " ")
            if not add_values(parts, value, inner) then return false end
        else
            parts[n + 1], parts[n + 2] = kind, tostring(value)
        end
    end
    return true
end

-- The values of a kernel's sizes, as the host writes them, and the arrays that are missing.
local function sizes_text(kernel)
    local sizes = kernel.sizes or { list = {} }
    local values = ordered.collect(sizes.list, function(size)
        return type(size[2]) == "table" and table.concat(size[2], ", ") or size[2]
    end)
    values[#values + 1] = table.concat(ordered.keys(sizes.missing or {}), " ")
    return table.concat(values, "\n")
end

-- All that the text of a kernel's function follows from, as a text that is made faster than the function's own; nil if
-- an argument of the template is no plain value. The calls of a block have arguments of the same names.
local function template_key(kernel, name, block, file, arguments, functions)
    local where = file .. ": " .. block
    local names = functions.names_of[where] or ordered.keys(arguments)
    functions.names_of[where] = names
    local parts = { where, name, table.concat(kernel.parameters, ", "), sizes_text(kernel) }
    local launch = kernel.launch or {}
    local known = add_values(parts, arguments, names) and add_values(parts, launch, ordered.keys(launch))
    return known and table.concat(parts, "\n") or nil
end

-- The function of this text for these template arguments: a known one, or a new one.
local function with_text(kernel, wanted, more, block, file, arguments, context)
    local functions = context.functions
    local body = function_text(kernel, wanted, block, file, arguments, context)
    local key = body .. more
    local found = functions.by_text[key]
    if not found then
        found = { name = graph.unique(functions, wanted), launch = kernel.launch, parameters = kernel.parameters }
        if found.name ~= wanted then body = function_text(kernel, found.name, block, file, arguments, context) end
        found.text = helper_text(kernel, context, context.target) .. body
        functions.by_text[key] = found
    end
    return found
end

-- The function for these template arguments: an existing one of the same text, or a new one in context.functions. With
-- sizes it launches a kernel that functions of other sizes launch, too.
local function function_with(kernel, node, wanted, block, file, arguments, context)
    local functions, blocks = context.functions, kernel.launch and kernel.launch.blocks or ""
    local found
    if not kernel.sizes then
        found = with_text(kernel, wanted, blocks, block, file, arguments, context)
    else
        local name = (kernel.sizes.plain and kernel.sizes.op or op_name(node, kernel.sizes.op or node.op))
            .. kernel.sizes.kind
        local own = with_text(kernel, name, "", block, file, arguments, context)
        local key = table.concat({ wanted, own.name, blocks, sizes_text(kernel) }, "\n")
        found = functions.by_text[key]
        if not found then
            found = { name = graph.unique(functions, wanted), launch = kernel.launch, parameters = kernel.parameters,
                kernel = own, sizes = kernel.sizes }
            functions.by_text[key] = found
        end
    end
    if not found.listed then
        found.listed = true
        functions.list[#functions.list + 1] = found
    end
    return found
end

-- The function of a kernel.
local function function_of(kernel, node, op, context)
    local target, functions = context.target, context.functions
    local arguments = ops.arguments(kernel, node, op, context.real, target, node.statements and ARGUMENTS.map)
    local family, block = "pointwise", node.statements and pointwise_block(arguments)
    if not block then family, block = ops.place(ops.block(kernel, node, op, target), op) end
    local file = target.folder .. "/" .. family .. target.extension
    kernel.parameters = parameters.of(kernel, node, target)
    local wanted = function_name(node, op, kernel.launch)
    local key = template_key(kernel, wanted, block, file, arguments, functions)
    local found = key and functions.by_arguments[key]
        or function_with(kernel, node, wanted, block, file, arguments, context)
    if key then functions.by_arguments[key] = found end
    return found
end

--- A table for kernels.make that collects the functions of a program: `list` has { name, text, launch, parameters } in
--- the order of kernels.c. One that launches a kernel with its sizes has no text, but kernel, of the same form, and
--- sizes.
function kernels.functions()
    return { list = {}, by_arguments = {}, names_of = {}, by_text = {}, names = {}, tables = { names = {} } }
end

--- The kernel record of a node: { name, node, section, fn, flops, bytes, can_add }; fn is its function.
function kernels.make(node, section, context)
    local op = context.ops[node.op]
    expr.blame(node.at)
    local half = context.half          -- products of the boundary have the program's type
    if op and op.gemm and not graph.is_half(node.ins[node.signature.ins[2]]) then half = nil end
    local kernel = { node = node, section = section, profile = context.profile, half = half, slices = context.slices,
        arch = context.arch, known_tables = context.functions.tables,
        added = context.added,
        draws = (op.draws or node.drops) and node.ins.micro ~= nil, ends = op.ends, exchanges = op.exchanges,
        name = graph.unique(context, call_name(node, section)) }
    kernel.flags = parameters.flags(node, context.target)
    kernel.can_add = #kernel.flags > 0
    local work = cost(node, context.ops)
    kernel.flops = work.flops
    kernel.bytes = math.floor((work.elements + added(node)) * bytes_each(node, context.real))
    kernel.fn = function_of(kernel, node, op, context)
    expr.blame(nil)
    return kernel
end

-- The distance from the address of a tensor to that of one position, as a sum.
local function position_offset(node, name, tensor)
    local start, step = node.starts and node.starts[name] or 0, node.steps and node.steps[tensor] or 0
    return (start > 0 and " + " .. start or "") .. (step > 1 and " + position * " .. step or step > 0 and " + position"
        or "")
end

-- The address of the part of a tensor that a node uses.
local function address(node, name, tensor, target)
    local _, some = graph.seen(node, name, tensor)
    return target.pointer(tensor) .. (some and target.run_offset(tensor, node.run) or "")
        .. position_offset(node, name, tensor)
end

-- The call of a kernel, and its comment: the shape of the result, the place in the spec, and node.why, if set.
local function call_text(kernel, pad, target, behind)
    local node, list, shape = kernel.node, { target.worker, kernel.exchanges and "m" or nil }, nil
    for _, name in ipairs(node.signature.outs) do
        local tensor = node.outs[name] and node.outs[name].tensor
        if tensor then
            list[#list + 1] = address(node, name, tensor, target)
            shape = shape or graph.shape_text((graph.seen(node, name, tensor)))
        end
    end
    for _, operand in ipairs(parameters.operands(node)) do
        local t = operand[1]
        list[#list + 1] = node.statements and target.pointer(t) .. position_offset(node, operand[3], t)
            or address(node, operand[3], t, target)
    end
    if kernel.draws then list[#list + 1] = c_text.layer(node.scope) end
    for i in ipairs(kernel.flags) do list[#list + 1] = kernel.flags.conditions[i] end
    if kernel.ends then list[#list + 1] = "reduces" end
    if node.attrs.position then list[#list + 1] = "position" end
    local comment = ("%s %s%s"):format(shape, node.at:gsub("^.*/", ""), node.why and "; " .. node.why or "")
    local call = target.wrap(pad, kernel.fn.name .. "(", list, ");" .. behind)
    return c_text.commented(pad, call, text.comment(comment).text)
end

--- The call of a kernel in step.c, and again in the library; `behind` is the text after the call on its line.
function kernels.call(kernel, pad, target, behind)
    local key = pad .. "|" .. behind
    kernel.calls = kernel.calls or {}
    kernel.calls[key] = kernel.calls[key] or call_text(kernel, pad, target, behind)
    return kernel.calls[key]
end

return kernels
