-- update: the kernels that turn a gradient into new parameters: per parameter group and part of its rule one function
-- over a run of elements (passes/update.lua has the nodes that call them).
--
--   update_all_sums    what must be done before, and sums over the tiles of one tensor
--   update_all_scales  numbers of the tensor from these sums
--   update_all_start   x of each element of a matrix, before the iteration
--   update_all         w, g, state of an element -> new w, state
--
-- A sub-expression that reads no element is computed once per update, in double, where the update is decided.
local clip = require "emit.boundary.clip"
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local factors = require "emit.boundary.factors"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local ranges = require "emit.boundary.ranges"
local rate = require "emit.boundary.rate"
local text = require "base.text"
local update_names = require "passes.update_names"
local update_pass = require "passes.update"
local update_rule = require "passes.update_rule"

local update = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- Elements of a tile of an update.
update.TILE = update_pass.TILE

-- === expressions =================================================================================

-- Names of kernels' own variables: a state of that name is called otherwise in C.
local OWN = {}
for name in ([[s t i r c l first end from to n count rows columns tall tiles layer worker sums scales row column all
    direction adjust handler x w g
    size mean sum at few wide behind chunks matrices real double int if for do while return const
    static enum struct]]):gmatch "%S+" do
    OWN[name] = true
end

-- The C variable of an element's state.
local function local_name(g, name)
    return ordered.find(g.state_names, name) and OWN[name] and "state_" .. name or name
end

local function reads_element(e, element)
    for _, name in ipairs(expr.variables(e)) do
        if element[name] then return true end
    end
    return false
end

-- Names that a list of statements gives to values of an element; to numbers of the update otherwise.
local function add_locals(statements, element, numbers)
    for _, s in ipairs(statements) do
        if not reads_element(expr.lift(s[2]), element) then
            numbers[s[1]] = numbers[s[1]] or not element[s[1]] or nil
        elseif not numbers[s[1]] then
            element[s[1]] = true
        end
    end
end

-- A number of the update as C computes it, in double. kernel: { group, named }.
local function spelled(e, kernel, layered)
    local scale = kernel.group.lr_scale
    return expr.text(e, { number = function(x) return expr.literal(x, "f64") end, call = rate.CALL,
        variable = function(name)
            if kernel.named:has(name) then return "s->" .. kernel.named:get(name).field end
            if name == "t" then return "(double)(t + 1)" end
            if name == "grad_norm" then return "(sqrt(squares) * factor)" end
            if name == "momentum" then return "s->momentum" end
            local parts = (scale ~= 1 and " * " .. expr.literal(scale, "f64") or "")
                .. (layered and " * LAYER_RATES[l]" or "")
            return parts == "" and "s->lr" or ("(s->lr%s)"):format(parts)
        end })
end

-- Whether each layer has its own value of e: with layer_decay, if e reads the rate.
local function is_layered(rates, e) return rates ~= nil and ordered.find(expr.variables(e), "lr") ~= nil end

-- Whether the number of this name is.
local function reads_layer(g, hoisted, name)
    for _, h in ipairs(hoisted) do
        if h.name == name then return is_layered(g.layer_rates, h.e) end
    end
    return false
end

-- Lowers the expressions of one group. `hoisted` collects the numbers that decide computes once, by name. Groups share
-- equal numbers. If two different numbers want one name, the later group's number ends in the group's word. `numbers`:
-- the numbers of all groups by their text in C, and the names in use.
local function lowering(g, config, group, context, numbers)
    local suffix = g.groups:size() > 1 and "_" .. group.word or ""
    local l = { hoisted = {}, named = ordered.map(), flops = 0, group = group }
    function l.field(name) return name .. suffix end
    function l.name_of(e)
        local key = spelled(e, l, is_layered(g.layer_rates, e))
        local wanted = e.label or e.op == "var" and (e.name == "lr" and "rate" or e.name .. "_real") or "number"
        if not numbers.by_text[key] then
            local own = numbers.names[wanted] and l.field(wanted) or wanted
            numbers.by_text[key] = update_names.unused(numbers.names, own)
        end
        return numbers.by_text[key]
    end
    function l.value(e, element)
        local rest = expr.hoist(expr.lift(e), function(n) return element[n] end, l.hoisted, l.name_of)
        l.flops = l.flops + expr.count(rest)
        return expr.text(rest, context.target.spelling(g.real, function(name)
            return element[name] and local_name(g, name)
                or "s->" .. name .. (reads_layer(g, l.hoisted, name) and "[layer]" or "")
        end, config.optimizer.at))
    end
    return l
end

-- The text of element i of an array, "w", "g" or a state; of neighbours in registers element k.
local function element_of(name, few) return (few and "of_%s.at[k]" or "run_%s[i]"):format(name) end

-- The statements as lines: values of the element as constants, state and w as stores. few: neighbours are in registers.
local function lower(statements, g, r, l, element, group, few)
    local out = { lines = {}, formula = {}, stores = {}, writes = {} }
    for _, s in ipairs(statements) do
        local left = s[1]
        out.formula[#out.formula + 1] = c_text.formula(left, expr.shown(expr.lift(s[2])))
        if r.numbers[left] then
            -- a number that a run keeps is in checkpoints by this name
            local kept = r.initial[left] and ("%s%s_%s"):format(group.name == tostring(group.index) and "u" or "",
                group.name, left)
            l.named:set(left, { field = kept or l.field("rule_" .. left), value = expr.lift(s[2]),
                initial = r.initial[left] })
        elseif left == "w" then
            out.lines[#out.lines + 1] = ("%s = %s;"):format(element_of("w", few), l.value(s[2], element))
            out.writes.w = true
        elseif left == "x" and r.start then
            out.lines[#out.lines + 1] = ("direction[i] = %s;"):format(l.value(s[2], element))
            out.writes.x = true
        elseif ordered.find(g.state_names, left) then
            local name = local_name(g, left)
            out.lines[#out.lines + 1] = ("%s = %s;"):format(name, l.value(s[2], element))
            out.stores[#out.stores + 1] = ("%s = %s;"):format(element_of(left, few), name)
            out.writes[left] = true
        else
            out.lines[#out.lines + 1] = ("const real %s = %s;"):format(left, l.value(s[2], element))
        end
    end
    return out
end

-- === kernels ====================================================================================

-- The operands of a kernel, in the order of its parameters: tensors of its nodes and numbers of their runs.
local function add_operand(kernel, item, parameter)
    kernel.operands[#kernel.operands + 1] = { item, parameter }
end

local function pointer(is_written) return is_written and "real *" or "const real *" end

-- Gives a kernel the arrays that its lines name as operands; returns the loads of elements. writes: what it changes.
-- few: neighbours are in registers.
local function element_access(g, config, kernel, writes, lines, few)
    local body = table.concat(lines, "\n")
    local loads, given = {}, {}
    local function named(name) return body:find("%f[%w_]" .. name .. "%f[^%w_]") ~= nil end
    local half, share, by_handler = g.half_sums, clip.share(g, config)
    if writes.w or named "w" then
        add_operand(kernel, "w", pointer(writes.w) .. "run_w")
        given[#given + 1] = "w = " .. element_of("w", few)
    end
    if named "g" then
        add_operand(kernel, "g", (half and "const bf16 *" or "const real *") .. "run_g")
        given[#given + 1] = (half and "g = %s * bf16_widen(%s)" or "g = %s * %s"):format(
            clip.factor(config, kernel.group) .. share, element_of("g", few))
    end
    for _, state in ipairs(g.state_names) do
        local name = local_name(g, state)
        if writes[state] or named(name) then
            add_operand(kernel, "state." .. state, pointer(writes[state]) .. "run_" .. state)
            loads[#loads + 1] = ("%sreal %s = %s;"):format(writes[state] and "" or "const ", name,
                element_of(state, few))
        end
    end
    kernel.traffic = #kernel.operands + #ordered.keys(writes) - (half and named "g" and 0.5 or 0)
    if named "g" and by_handler then add_operand(kernel, table.unpack(by_handler)) end
    if kernel.group.rule.scope == "matrix" and (writes.x or named "x") then
        add_operand(kernel, writes.x and "started" or "x", pointer(writes.x) .. "direction")
        if not writes.x then given[#given + 1] = "x = direction[i]" end
    end
    if named "adjust" then add_operand(kernel, "adjust", "real adjust") end
    kernel.layered = body:find("[layer]", 1, true) ~= nil
    if #given > 0 then table.insert(loads, 1, "const real " .. table.concat(given, ", ") .. ";") end
    kernel.reads_step = (body .. table.concat(given)):find("s->", 1, true) ~= nil
    return loads
end

-- Behind the arrays of a kernel: what it takes of sums and scales, its layer, the sizes of its matrices.
local function last_operands(kernel, numbers, own)
    local constant = numbers == "scales" and "const " or ""
    if numbers then add_operand(kernel, numbers, constant .. "double *" .. numbers) end
    if kernel.layered then add_operand(kernel, "layer", "int layer") end
    for _, name in ipairs(own or {}) do add_operand(kernel, name, "int " .. name) end
end

--- Gives a kernel over a run its text, from a block of the update's template; `what` has the arguments beside the
--- function's head. over: how the run is cut where a target has blocks of threads (targets/interface.lua).
function update.render(g, kernel, config, context, block, over, what)
    local target = context.target
    if over ~= "one" and over ~= "each" then add_operand(kernel, "count", target.int64 .. " count") end
    local params, lines = ranges.head(g, kernel, target, over)
    local open = target.open(kernel.name, kernel.launch)
    local file = target.folder .. "/update" .. target.extension
    local arguments = ordered.copy(what, { fn = text.ident(kernel.name),
        params = text.block(target.wrap("", open, params, ""):sub(#open + 1)),
        source = text.comment(("%s, templates/%s"):format(kernel.at or config.optimizer.at, file)),
        operands = #lines > 0 and block_of(lines) or nil,
        threads = kernel.launch and kernel.launch.threads })
    kernel.text = context.template(file)(block, arguments).text:gsub("\n+$", "\n")
    return kernel
end

local function new_kernel(group, part, flops, prefix)
    return { name = ("%supdate_%s%s"):format(prefix or "", group.word, part), section = "boundary", group = group,
        operands = {}, flops = flops, traffic = 0, hoisted = {}, named = ordered.map(), part = part }
end

-- The arguments of a kernel over the rows of matrices beside its arrays; it says them of an element.
local MATRIX = { "rows", "columns", "tall" }

local function matrix_operands(kernel)
    if not kernel.group.rule.factors then return end
    add_operand(kernel, "row", "const real *row_factors")
    add_operand(kernel, "state.col_var", "const real *run_col_var")
end

-- The numbers of a tensor that its sums give.
local function scales_kernel(g, config, context, group, before, l, sums)
    local lines, formula = {}, {}
    local function given(n) return sums[n] or n == "n" end
    for i, scale in ipairs(before.scales) do
        formula[i] = c_text.formula(scale[1], expr.shown(expr.lift(scale[2])))
        local e = expr.hoist(expr.lift(scale[2]), given, l.hoisted, l.name_of)
        lines[i] = ("scales[%d] = %s;"):format(i - 1, expr.text(e, { call = rate.CALL,
            variable = function(n) return given(n) and n or "s->" .. n end }))
    end
    local kernel = new_kernel(group, "_scales", 0)
    local body = table.concat(lines)
    kernel.reads_step = body:find("s->", 1, true) ~= nil
    add_operand(kernel, "sums", "const double *sums")
    add_operand(kernel, "tiles", context.target.int64 .. " tiles")
    if body:find("%f[%w_]n%f[^%w_]") then add_operand(kernel, "n", "double n") end
    add_operand(kernel, "scales", "double *scales")
    return update.render(g, kernel, config, context, "scales", "one", { formula = block_of(formula),
        names = text.block(table.concat(sums.starts, ", ")), totals = sums.totals, scales = block_of(lines) })
end

-- The work of an optimizer of tensors before its sweep: two kernels.
local function kernels_before(g, config, context, group, r, l)
    local before, element = r.before, ordered.copy(r.element)
    add_locals(before.statements, element, r.numbers)
    local body = lower(before.statements, g, r, l, element, group)
    local adds, sums = {}, { starts = {}, totals = {} }
    for i, sum in ipairs(before.sums) do
        sums.starts[i], sums[sum[1]] = sum[1] .. " = 0", true
        adds[i] = ("%s += (double)(%s);"):format(sum[1], l.value(sum[2], element))
        sums.totals[i] = text.ident(sum[1])
        body.formula[#body.formula + 1] = c_text.formula(sum[1], "sum of " .. expr.shown(expr.lift(sum[2])))
    end
    local kernel = new_kernel(group, "_sums", l.flops)
    local loads = element_access(g, config, kernel, body.writes,
        table.move(adds, 1, #adds, #body.lines + 1, ordered.copy(body.lines)))
    local matrix = group.rule.factors ~= nil
    matrix_operands(kernel)
    last_operands(kernel, "sums", matrix and MATRIX)
    local block, over = matrix and "matrix_sums" or "sums", matrix and "matrix" or "tiles"
    return { update.render(g, kernel, config, context, block, over, {
        formula = block_of(body.formula), loads = block_of(loads), statements = block_of(body.lines),
        stores = block_of(body.stores), names = text.block(table.concat(sums.starts, ", ")), adds = block_of(adds),
        totals = sums.totals, tile = not matrix and update.TILE or nil }),
        scales_kernel(g, config, context, group, before, l, sums) }
end

-- The lines that read neighbours of each array, and those that write the changed ones. half: the type of copies that
-- are written beside the parameters, or nil.
local function neighbours(kernel, writes, half)
    local reads, stores = {}, {}
    for _, operand in ipairs(kernel.operands) do
        local name, item = operand[2]:match "%*run_([%w_]+)$", operand[1]:match "[%w_]+$"
        if name then
            reads[#reads + 1] = ("auto of_%s = ga_read<FEW>(run_%s + first);"):format(name, name)
            if writes[item] then
                stores[#stores + 1] = ("ga_write(run_%s + first, of_%s);"):format(name, name)
            end
        end
    end
    if half then
        add_operand(kernel, "narrow_w", half .. " *run_narrow_w")
        kernel.traffic = kernel.traffic + 0.5
        reads[#reads + 1] = ("ga_few<%s, FEW> of_narrow_w;"):format(half)
        stores[#stores + 1] = "ga_write(run_narrow_w + first, of_narrow_w);"
    end
    return block_of(reads), block_of(stores)
end

-- The kernel of a sweep that has neighbours in registers; `body`: of lower().
local function few_kernel(g, config, context, kernel, body, few)
    local lines = element_access(g, config, kernel, body.writes, body.lines, true)
    table.move(body.lines, 1, #body.lines, #lines + 1, lines)
    table.move(body.stores, 1, #body.stores, #lines + 1, lines)
    local half = g.narrows and g.half
    lines[#lines + 1] = half and ("of_narrow_w.at[k] = %s_narrow(of_w.at[k]);"):format(half) or nil
    local reads, writes = neighbours(kernel, body.writes, half)
    last_operands(kernel)
    local used = table.concat(lines, "\n")
    local kept = used:find("s->", 1, true) ~= nil and not used:find "s%->%w+%[%l"       -- those of a table stay there
    return update.render(g, kernel, config, context, "sweep_few", "elements", {
        formula = block_of(body.formula), few = few, reads = reads, lines = block_of(lines), writes = writes,
        kept = kept })
end

-- A sweep over elements with the numbers of their tensor.
local function sweep_kernel(g, config, context, group, part, statements, r, l)
    local once = {}
    add_locals(statements, r.element, r.numbers)
    l.flops = 1
    local few = not r.before and group.rule.scope == "element" and context.target.few_of_sweep
    local body = lower(statements, g, r, l, r.element, group, few)
    local kernel = new_kernel(group, part, l.flops, context.kernel_prefix)
    if few then return few_kernel(g, config, context, kernel, body, few(g)) end
    local loads = element_access(g, config, kernel, body.writes, body.lines)
    local used = table.concat(body.lines, "\n")
    for i, scale in ipairs(r.before and r.before.scales or {}) do
        if used:find("%f[%w_]" .. scale[1] .. "%f[^%w_]") then
            once[#once + 1] = ("const real %s = (real)scales[%d];"):format(scale[1], i - 1)
        end
    end
    local matrix = group.rule.factors ~= nil
    matrix_operands(kernel)
    last_operands(kernel, #once > 0 and "scales" or nil, matrix and MATRIX)
    local block, over = matrix and "matrix_sweep" or "sweep", matrix and "matrix" or "elements"
    return update.render(g, kernel, config, context, block, over, {
        formula = block_of(body.formula), loads = block_of(loads), statements = block_of(body.lines),
        stores = block_of(body.stores), once = block_of(once), tile = not matrix and update.TILE or nil })
end

local function kernels_of(g, config, group, context, numbers)
    local r = update_rule.of(g, config, group)
    local l = lowering(g, config, group, context, numbers)
    local list = {}
    if group.rule.factors then
        list = factors.kernels(g, config, context, group, r, l, { render = update.render, new = new_kernel,
            access = element_access, add_operand = add_operand })
    end
    if r.before then
        local before = kernels_before(g, config, context, group, r, l)
        table.move(before, 1, #before, #list + 1, list)
        for _, scale in ipairs(r.before.scales) do r.element[scale[1]] = true end
    end
    if r.start then list[#list + 1] = sweep_kernel(g, config, context, group, "_start", r.start, r, l) end
    local kernel = sweep_kernel(g, config, context, group, "", r.statements, r, l)
    list[#list + 1] = kernel
    kernel.hoisted, kernel.named = l.hoisted, l.named
    return list
end

--- The update kernels, in the order of the groups. context.kernel_prefix: what the names of sweeps begin with.
function update.functions(g, config, context)
    local list, numbers = {}, { by_text = {}, names = {} }
    for _, group in g.groups:each() do
        local own = kernels_of(g, config, group, context, numbers)
        table.move(own, 1, #own, #list + 1, list)
    end
    return list
end

--- The same for nodes: each node of g.boundary that calls one gets its record.
function update.kernels(g, config, context)
    local list, by_name = update.functions(g, config, context), {}
    for _, kernel in ipairs(list) do by_name[kernel.name] = kernel end
    graph.walk(g.boundary, function(node)
        local a = node.attrs
        local kernel = a and a.part and by_name[("update_%s%s"):format(a.group.word, a.part)]
        if kernel then
            local count = a.part == "_scales" and 0 or a.range.n
            node.kernel = ordered.copy(kernel, { node = node, flops = kernel.flops * count,
                bytes = math.floor(kernel.traffic * count) * (g.real == "f64" and 8 or 4) })
        end
    end)
    return list
end

-- === what is computed once per update =============================================================

-- The part of the rate that each depth gets, from before the first layer to behind the last.
local function layer_table(rates)
    local list = ordered.collect(rates, function(x) return expr.literal(x, "f64") end)
    return c_text.wrap("", ("const double LAYER_RATES[%d] = {"):format(#rates), list, "};")
end

--- Assignments, in double, and the fields of the struct step that hold them: { assignments, fields, doubles,
--- reals }: the first fields are so many doubles, of the others `reals` has how many numbers each is.
--- rates: with layer_decay, what part of the rate each depth gets.
function update.scalars(kernels, rates)
    local assignments, fields, doubles, reals, any, seen = {}, {}, 0, {}, false, {}
    local function add(kernel, h)
        local layered = is_layered(rates, h.e)
        local n = layered and #rates
        assignments[#assignments + 1] = (n and "for (int l = 0; l < %d; l++) s->%s[l] = (real)(%s);"
            or "%ss->%s = (real)(%s);"):format(n or "", h.name, spelled(h.e, kernel, layered))
        fields[#fields + 1] = ("real %s%s; /* %s%s */"):format(h.name, n and ("[%d]"):format(n) or "",
            expr.shown(h.e), n and ", of each layer" or "")
        reals[#reals + 1], any, seen[h.name] = n or 1, any or layered, true
    end
    for _, kernel in ipairs(kernels) do
        for _, number in kernel.named:each() do
            assignments[#assignments + 1] = ("%ss->%s = %s;"):format(number.initial and "if (!s->skip) " or "",
                number.field, spelled(number.value, kernel))
            fields[#fields + 1] = ("double %s; /* %s */"):format(number.field, expr.shown(number.value))
            doubles = doubles + 1
        end
    end
    for _, kernel in ipairs(kernels) do
        for _, h in ipairs(kernel.hoisted) do
            if not seen[h.name] then add(kernel, h) end
        end
    end
    if any then table.insert(assignments, 1, layer_table(rates)) end
    return { assignments = block_of(assignments), fields = fields, doubles = doubles, reals = reals }
end

--- The numbers that a run keeps beside its arrays: { field, initial }.
function update.numbers(kernels)
    local list = {}
    for _, kernel in ipairs(kernels) do
        for _, number in kernel.named:each() do
            if number.initial then list[#list + 1] = number end
        end
    end
    return list
end

--- Whether any of it reads the number of the update.
function update.reads(kernels, name)
    for _, kernel in ipairs(kernels) do
        for _, h in ipairs(kernel.hoisted) do
            if ordered.find(expr.variables(h.e), name) then return true end
        end
        for _, number in kernel.named:each() do
            if ordered.find(expr.variables(number.value), name) then return true end
        end
    end
    return false
end

return update
