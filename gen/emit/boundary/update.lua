-- update: the kernels of the boundary that turn a gradient into new parameters: per parameter group one
-- sweep over its runs of the flat space; an optimizer of tensors or matrices sums over each first.
--
--   element   update_0       w, g, state of an element -> new w, state; called per run of the flat space
--   tensor    update_0_sums  what must be done before, and sums over the tiles of one tensor
--             update_0_scales  of those sums, numbers of the tensor
--             update_0       as above, with these numbers; all three are called per tensor
--   matrix    update_0_start   x of each element, between _scales and the iteration that changes it
--
-- What reads no element is computed once per update, in double, where the update is decided.
local clip = require "emit.boundary.clip"
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local factors = require "emit.boundary.factors"
local ordered = require "base.ordered"
local orthogonal = require "emit.boundary.orthogonal"
local rate = require "emit.boundary.rate"
local runs = require "emit.boundary.runs"
local text = require "base.text"

local update = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- Elements of a tile of an update.
update.TILE = runs.TILE

-- === what a rule says ==========================================================================

-- With a decay, the average of each parameter follows what it has become.
local function with_average(decay, statements)
    if not decay then return statements end
    local list, new_w, average = {}, expr.var "new_w", expr.var "ema"
    for _, s in ipairs(statements) do
        if s[1] == "w" then
            list[#list + 1] = { "new_w", s[2] }
            list[#list + 1] = { "w", new_w }
        else
            list[#list + 1] = s
        end
    end
    list[#list + 1] = { "ema", average + (1 - decay) * (new_w - average) }
    return list
end

-- The rule of a group in expressions: fields, names of what lies in the flat space, of scalars of the
-- run, the statements.
local function rule_of(g, config, group)
    local rule, names = group.rule, {}
    local r = { element = {}, numbers = {}, initial = {} }
    for _, name in ipairs(g.state_names) do names[name], r.element[name] = expr.var(name), true end
    for _, scalar in ipairs(rule.scalars and rule.scalars(group.fields) or {}) do
        local name = scalar[1]
        names[name], r.numbers[name], r.initial[name] = expr.var(name), true, scalar[2]
    end
    r.element.w, r.element.g = true, true
    if rule.scope == "matrix" then r.element.x, r.element.adjust = true, true end
    local fields = rate.with_momentum(config, rule, group.fields)
    local arguments = { fields, expr.var "w", expr.var "g", names,
        expr.var "lr", expr.var "t" }
    if rule.sums then r.before = rule.sums(table.unpack(arguments)) end
    if rule.start then r.start = rule.start(table.unpack(arguments)) end
    if rule.factors then r.factors = rule.factors(fields, expr.var "g", names, expr.var "t") end
    r.statements = with_average(config.optimizer.own.ema, rule.update(table.unpack(arguments)))
    return r
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

-- Whether a hoisted number is one for each layer: with layer_decay, what reads the rate.
local function is_layered(g, hoisted, name)
    for _, h in ipairs(g.layer_rates and hoisted or {}) do
        if h.name == name then
            h.layered = ordered.find(expr.variables(h.e), "lr") ~= nil
            return h.layered
        end
    end
    return false
end

-- What lowers the expressions of one group: hoisted collects what is computed once.
local function lowering(g, config, group, context, r)
    local prefix = ("%s%s_"):format(group.name == tostring(group.index) and "u" or "", group.name)
    local l = { hoisted = {}, named = ordered.map(), prefix = prefix, flops = 0 }
    function l.value(e, element)
        local rest = expr.hoist(expr.lift(e), function(n) return element[n] end, l.hoisted, prefix)
        l.flops = l.flops + expr.count(rest)
        return expr.text(rest, context.target.spelling(g.real, function(name)
            return element[name] and name or "s->" .. name .. (is_layered(g, l.hoisted, name) and "[layer]" or "")
        end, config.optimizer.at))
    end
    return l
end

-- The parameter and the index of element i in an array: w and g lie in the flat space, a state there or in an
-- array of what there is of it, of which a kernel gets the run's beginning.
local function array_access(g, name)
    local state = g.states:get(name)
    if not state or state.dense then return "flat_" .. name, "i" end
    return "kept_" .. name, "i - from"
end

-- The statements as lines: values of the element as constants, state and w as stores.
local function lower(statements, g, r, l, element)
    local out = { lines = {}, formula = {}, stores = {}, writes = {} }
    for _, s in ipairs(statements) do
        local left = s[1]
        out.formula[#out.formula + 1] = (" *   %s = %s"):format(left, expr.shown(expr.lift(s[2])))
        if r.numbers[left] then
            l.named:set(left, { field = l.prefix .. left, value = expr.lift(s[2]), initial = r.initial[left] })
        elseif left == "w" then
            out.lines[#out.lines + 1] = ("flat_w[i] = %s;"):format(l.value(s[2], element))
            out.writes.w = true
        elseif left == "x" and r.start then
            out.lines[#out.lines + 1] = ("direction[i - from] = %s;"):format(l.value(s[2], element))
            out.writes.x = true
        elseif ordered.find(g.state_names, left) then
            local array, index = array_access(g, left)
            out.lines[#out.lines + 1] = ("%s = %s;"):format(left, l.value(s[2], element))
            out.stores[#out.stores + 1] = ("%s[%s] = %s;"):format(array, index, left)
            out.writes[left] = true
        else
            out.lines[#out.lines + 1] = ("const real %s = %s;"):format(left, l.value(s[2], element))
        end
    end
    return out
end

-- === kernels ====================================================================================

-- The arrays that a kernel's lines name, as its parameters and as loads; `writes`: those it changes. `inside`: of
-- the kernel, what an element of a matrix has beside them.
local function element_access(g, config, context, kernel, writes, lines)
    local body = table.concat(lines, "\n")
    local params, loads, given = {}, {}, {}
    local function named(name) return writes[name] or body:find("%f[%w_]" .. name .. "%f[^%w_]") end
    kernel.items = {}
    for _, name in ipairs { "w", "g", table.unpack(g.state_names) } do
        if named(name) then
            local parameter, index = array_access(g, name)
            kernel.items[#kernel.items + 1] = name
            local half = name == "g" and g.half_sums
            params[#params + 1] = (writes[name] and "real *" or half and "const bf16 *" or "const real *") .. parameter
            if name == "w" then
                given[#given + 1] = "w = flat_w[i]"
            elseif name == "g" then
                given[#given + 1] = (half and "g = %s * bf16_widen(flat_g[i])" or "g = %s * flat_g[i]"):format(
                    clip.factor(config, kernel.group))
            else
                loads[#loads + 1] = ("%sreal %s = %s[%s];"):format(writes[name] and "" or "const ", name, parameter,
                    index)
            end
        end
    end
    kernel.traffic = #kernel.items + #ordered.keys(writes) - (g.half_sums and named "g" and 0.5 or 0)
    if kernel.group.rule.scope == "matrix" and named "x" then
        kernel.items[#kernel.items + 1] = writes.x and "started" or "x"
        params[#params + 1] = (writes.x and "real *" or "const real *") .. "direction"
        if not writes.x then given[#given + 1] = "x = direction[i - from]" end
    end
    if named "adjust" then
        kernel.items[#kernel.items + 1], params[#params + 1] = "adjust", "real adjust"
    end
    kernel.layered = body:find("[layer]", 1, true) ~= nil
    if #given > 0 then table.insert(loads, 1, "const real " .. table.concat(given, ", ") .. ";") end
    kernel.reads_step = (body .. table.concat(given)):find("s->", 1, true) ~= nil
    if kernel.reads_step or context.target.looks_at_skip then table.insert(params, 1, "const step *s") end
    return params, loads
end

local function add_item(kernel, params, item, parameter)
    kernel.items[#kernel.items + 1], params[#params + 1] = item, parameter
end

-- Behind the arrays of a kernel: what it takes of sums and scales, its layer, the sizes of its matrices.
local function last_items(kernel, params, numbers, own)
    if numbers then
        add_item(kernel, params, numbers, (numbers == "scales" and "const " or "") .. "double *" .. numbers)
    end
    if kernel.layered then add_item(kernel, params, "layer", "int layer") end
    for _, name in ipairs(own or {}) do add_item(kernel, params, name, "int " .. name) end
end

-- A kernel over a run: one block of threads per `tile`, where a target has blocks.
local function over_range(kernel, params, context, tile)
    table.move({ "from", "to" }, 1, 2, #kernel.items + 1, kernel.items)
    return context.target.sweep(kernel, params, tile)
end

-- Fills a block of the update's template; `what` has the arguments beside the function's head.
local function render(kernel, config, context, block, params, what)
    local target = context.target
    local open = target.open(kernel.name, kernel.launch)
    local file = target.folder .. "/update" .. target.extension
    local arguments = ordered.copy(what, { fn = text.ident(kernel.name),
        params = text.block(target.wrap("", open, params, ""):sub(#open + 1)),
        source = text.comment(("%s, templates/%s"):format(config.optimizer.at, file)),
        threads = kernel.launch and kernel.launch.threads })
    kernel.text = context.template(file)(block, arguments).text:gsub("\n+$", "\n")
    return kernel
end

local function new_kernel(group, suffix, flops)
    return { name = ("update_%s%s"):format(group.name, suffix), section = "boundary", group = group,
        flops = flops, traffic = 0, hoisted = {}, named = ordered.map(), suffix = suffix }
end

-- What a kernel over the rows of matrices takes beside its arrays, and says of an element.
local MATRIX = { "rows", "columns", "tall" }

local function matrix_items(kernel, params)
    if not kernel.group.rule.factors then return end
    add_item(kernel, params, "row", "const real *row_factors")
    add_item(kernel, params, "col_var", "const real *kept_col_var")
end

-- The numbers of a tensor that its sums give.
local function scales_kernel(config, context, group, before, l, sums)
    local lines, formula = {}, {}
    local function given(n) return sums[n] or n == "n" end
    for i, scale in ipairs(before.scales) do
        formula[i] = (" *   %s = %s"):format(scale[1], expr.shown(expr.lift(scale[2])))
        local e = expr.hoist(expr.lift(scale[2]), given, l.hoisted, l.prefix)
        lines[i] = ("scales[%d] = %s;"):format(i - 1, expr.text(e, { call = rate.CALL,
            variable = function(n) return given(n) and n or "s->" .. n end }))
    end
    local kernel = new_kernel(group, "_scales", 0)
    local body = table.concat(lines)
    kernel.alone, kernel.reads_step = true, body:find("s->", 1, true) ~= nil
    kernel.items = { "sums", "tiles" }
    local params = { "const double *sums", context.target.int64 .. " tiles" }
    if body:find("%f[%w_]n%f[^%w_]") then add_item(kernel, params, "n", "double n") end
    add_item(kernel, params, "scales", "double *scales")
    params = context.target.single(kernel, params, kernel.reads_step)
    return render(kernel, config, context, "scales", params, { formula = block_of(formula),
        names = text.block(table.concat(sums.starts, ", ")), totals = sums.totals, scales = block_of(lines) })
end

-- What an optimizer of tensors does before its sweep: two kernels.
local function kernels_before(g, config, context, group, r, l)
    local before, element = r.before, ordered.copy(r.element)
    add_locals(before.statements, element, r.numbers)
    local body = lower(before.statements, g, r, l, element)
    local adds, sums = {}, { starts = {}, totals = {} }
    for i, sum in ipairs(before.sums) do
        sums.starts[i], sums[sum[1]] = sum[1] .. " = 0", true
        adds[i] = ("%s += (double)(%s);"):format(sum[1], l.value(sum[2], element))
        sums.totals[i] = text.ident(sum[1])
        body.formula[#body.formula + 1] = (" *   %s = sum of %s"):format(sum[1], expr.shown(expr.lift(sum[2])))
    end
    local kernel = new_kernel(group, "_sums", l.flops)
    local params, loads = element_access(g, config, context, kernel, body.writes,
        table.move(adds, 1, #adds, #body.lines + 1, ordered.copy(body.lines)))
    local matrix = group.rule.factors ~= nil
    matrix_items(kernel, params)
    last_items(kernel, params, "sums", matrix and MATRIX)
    params = over_range(kernel, params, context, matrix and "matrix" or update.TILE)
    return { render(kernel, config, context, matrix and "matrix_sums" or "sums", params, {
        formula = block_of(body.formula), loads = block_of(loads), statements = block_of(body.lines),
        stores = block_of(body.stores), names = text.block(table.concat(sums.starts, ", ")), adds = block_of(adds),
        totals = sums.totals, tile = not matrix and update.TILE or nil }),
        scales_kernel(config, context, group, before, l, sums) }
end

-- A sweep over elements with the numbers of their tensor.
local function sweep_kernel(g, config, context, group, suffix, statements, r, l)
    local once = {}
    add_locals(statements, r.element, r.numbers)
    l.flops = 1
    local body = lower(statements, g, r, l, r.element)
    local kernel = new_kernel(group, suffix, l.flops)
    local params, loads = element_access(g, config, context, kernel, body.writes, body.lines)
    local used = table.concat(body.lines, "\n")
    for i, scale in ipairs(r.before and r.before.scales or {}) do
        if used:find("%f[%w_]" .. scale[1] .. "%f[^%w_]") then
            once[#once + 1] = ("const real %s = (real)scales[%d];"):format(scale[1], i - 1)
        end
    end
    local matrix = group.rule.factors ~= nil
    matrix_items(kernel, params)
    last_items(kernel, params, #once > 0 and "scales" or nil, matrix and MATRIX)
    params = over_range(kernel, params, context, matrix and "matrix" or nil)
    return render(kernel, config, context, matrix and "matrix_sweep" or "sweep", params, {
        formula = block_of(body.formula), loads = block_of(loads), statements = block_of(body.lines),
        stores = block_of(body.stores), once = block_of(once), tile = not matrix and update.TILE or nil })
end

local function kernels_of(g, config, group, context)
    local r = rule_of(g, config, group)
    local l = lowering(g, config, group, context, r)
    local list = {}
    if group.rule.factors then
        list = factors.kernels(g, config, context, group, r, l, { render = render, new = new_kernel,
            access = element_access, add_item = add_item })
        r.element.row, r.element.column = true, true
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

--- The update kernels, in the order of the groups; `work` and `moved`: operations and elements read or written
--- in an update.
function update.sweeps(g, config, context)
    local list = {}
    for _, group in g.groups:each() do
        local kernels = kernels_of(g, config, group, context)
        table.move(kernels, 1, #kernels, #list + 1, list)
    end
    for _, kernel in ipairs(list) do
        local calls, elements = runs.extent(g, kernel)
        kernel.calls, kernel.work, kernel.moved = calls, kernel.flops * elements,
            math.floor(kernel.traffic * elements)
    end
    local iterations = orthogonal.kernels(g, config, context)
    return table.move(iterations, 1, #iterations, #list + 1, list)
end

-- Numbers per tile and per tensor of rules of tensors and matrices.
local function widths(g, config)
    local size = { sums = 0, scales = 0 }
    for _, group in g.groups:each() do
        local before = rule_of(g, config, group).before or { sums = {}, scales = {} }
        size.sums, size.scales = math.max(size.sums, #before.sums), math.max(size.scales, #before.scales)
    end
    return size
end

--- Doubles that such rules need beside their state.
function update.doubles(g, config) return runs.doubles(g, widths(g, config)) end

--- The calls of the update kernels at the boundary.
function update.calls(g, config, sweeps, target)
    return runs.calls(g, sweeps, target, widths(g, config))
end

--- The functions that the calls name beside kernels.
function update.functions(g, target) return orthogonal.functions(g, target) end

-- === what is computed once per update =============================================================

local function spelled(e, sweep, layered)
    local scale = sweep.group.lr_scale
    return expr.text(e, { number = function(x) return expr.literal(x, "f64") end, call = rate.CALL,
        variable = function(name)
            if sweep.named:has(name) then return "s->" .. sweep.named:get(name).field end
            if name == "t" then return "(double)(t + 1)" end
            if name == "grad_norm" then return "(sqrt(squares) * factor)" end
            if name == "momentum" then return "s->momentum" end
            local factors = (scale ~= 1 and " * " .. expr.literal(scale, "f64") or "")
                .. (layered and " * LAYER_RATES[l]" or "")
            return factors == "" and "s->lr" or ("(s->lr%s)"):format(factors)
        end })
end

-- What part of the rate each depth gets, from before the first layer to behind the last.
local function layer_table(rates)
    local list = ordered.collect(rates, function(x) return expr.literal(x, "f64") end)
    return c_text.wrap("", ("const double LAYER_RATES[%d] = {"):format(#rates), list, "};")
end

--- Assignments, in double, and the fields of the struct step that hold them: { assignments, fields, doubles,
--- reals }: the first fields are so many doubles, of the others `reals` has how many numbers each is.
--- rates: with layer_decay, what part of the rate each depth gets.
function update.scalars(sweeps, rates)
    local assignments, fields, doubles, reals, any = {}, {}, 0, {}, false
    for _, sweep in ipairs(sweeps) do
        for _, number in sweep.named:each() do
            assignments[#assignments + 1] = ("%ss->%s = %s;"):format(number.initial and "if (!s->skip) " or "",
                number.field, spelled(number.value, sweep))
            fields[#fields + 1] = ("double %s; /* %s */"):format(number.field, expr.shown(number.value))
            doubles = doubles + 1
        end
    end
    for _, sweep in ipairs(sweeps) do
        for _, h in ipairs(sweep.hoisted) do
            local n = h.layered and #rates
            assignments[#assignments + 1] = (n and "for (int l = 0; l < %d; l++) s->%s[l] = (real)(%s);"
                or "%ss->%s = (real)(%s);"):format(n or "", h.name, spelled(h.e, sweep, h.layered))
            fields[#fields + 1] = ("real %s%s; /* %s%s */"):format(h.name, n and ("[%d]"):format(n) or "",
                expr.shown(h.e), n and ", of each layer" or "")
            reals[#reals + 1], any = n or 1, any or h.layered
        end
    end
    if any then table.insert(assignments, 1, layer_table(rates)) end
    return { assignments = block_of(assignments), fields = fields, doubles = doubles, reals = reals }
end

--- The numbers that a run keeps beside its arrays: { field, initial }.
function update.numbers(sweeps)
    local list = {}
    for _, sweep in ipairs(sweeps) do
        for _, number in sweep.named:each() do
            if number.initial then list[#list + 1] = number end
        end
    end
    return list
end

--- Whether any of it reads the number of the update.
function update.reads(sweeps, name)
    for _, sweep in ipairs(sweeps) do
        for _, h in ipairs(sweep.hoisted) do
            if ordered.find(expr.variables(h.e), name) then return true end
        end
        for _, number in sweep.named:each() do
            if ordered.find(expr.variables(number.value), name) then return true end
        end
    end
    return false
end

return update
