-- update: the kernels of the boundary that turn a gradient into new parameters: per parameter group one
-- sweep over its runs of the flat space; an optimizer of tensors sums over each tensor first.
--
--   element   update_0       w, g, state of an element -> new w, state; called per run of the flat space
--   tensor    update_0_sums  what must be done before, and sums over the tiles of one tensor
--             update_0_scales  of those sums, numbers of the tensor
--             update_0       as above, with these numbers; all three are called per tensor
--
-- What reads no element is computed once per update, in double, where the update is decided.
local clip = require "emit.clip"
local c = require "emit.c"
local expr = require "base.expr"
local ordered = require "base.ordered"
local rate = require "emit.rate"
local text = require "base.text"

local update = {}

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- Elements of a tile of an update.
update.TILE = 4096

local function tiles_of(n) return (n + update.TILE - 1) // update.TILE end

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
    local rule, names = config.optimizer.rule, {}
    local r = { element = {}, numbers = {}, initial = {} }
    for _, name in ipairs(g.state_names) do names[name], r.element[name] = expr.var(name), true end
    for _, scalar in ipairs(rule.scalars and rule.scalars(group.fields) or {}) do
        local name = scalar[1]
        names[name], r.numbers[name], r.initial[name] = expr.var(name), true, scalar[2]
    end
    r.element.w, r.element.g = true, true
    local arguments = { rate.with_momentum(config, group.fields), expr.var "w", expr.var "g", names,
        expr.var "lr", expr.var "t" }
    if rule.sums then r.before = rule.sums(table.unpack(arguments)) end
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
    local prefix = ("u%d_"):format(group.index)
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
        elseif ordered.find(g.state_names, left) then
            out.lines[#out.lines + 1] = ("%s = %s;"):format(left, l.value(s[2], element))
            out.stores[#out.stores + 1] = ("flat_%s[i] = %s;"):format(left, left)
            out.writes[left] = true
        else
            out.lines[#out.lines + 1] = ("const real %s = %s;"):format(left, l.value(s[2], element))
        end
    end
    return out
end

-- === kernels ====================================================================================

-- The arrays of the flat space that a kernel's lines name, as its parameters and as loads; `writes`: those
-- it changes.
local function element_access(g, config, kernel, writes, lines)
    local body = table.concat(lines, "\n")
    local params, loads, given = { "const step *s" }, {}, {}
    kernel.arrays = {}
    for _, name in ipairs { "w", "g", table.unpack(g.state_names) } do
        if writes[name] or body:find("%f[%w_]" .. name .. "%f[^%w_]") then
            kernel.arrays[#kernel.arrays + 1] = name
            params[#params + 1] = (writes[name] and "real *flat_" or "const real *flat_") .. name
            if name == "w" then
                given[#given + 1] = "w = flat_w[i]"
            elseif name == "g" then
                given[#given + 1] = ("g = %s * flat_g[i]"):format(clip.factor(config, kernel.group))
            else
                loads[#loads + 1] = ("%sreal %s = flat_%s[i];"):format(writes[name] and "" or "const ", name, name)
            end
        end
    end
    kernel.layered = body:find("[layer]", 1, true) ~= nil
    if #given > 0 then table.insert(loads, 1, "const real " .. table.concat(given, ", ") .. ";") end
    kernel.traffic = #kernel.arrays + #ordered.keys(writes)
    return params, loads
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
    return { name = ("update_%d%s"):format(group.index, suffix), section = "boundary", group = group,
        flops = flops, traffic = 0, hoisted = {}, named = ordered.map(), suffix = suffix }
end

-- What an optimizer of tensors does before its sweep: two kernels.
local function kernels_before(g, config, context, group, r, l)
    local before, element = r.before, ordered.copy(r.element)
    add_locals(before.statements, element, r.numbers)
    local body = lower(before.statements, g, r, l, element)
    local names, adds, totals, sums = {}, {}, {}, {}
    for i, sum in ipairs(before.sums) do
        names[i], sums[sum[1]] = sum[1] .. " = 0", true
        adds[i] = ("%s += (double)(%s);"):format(sum[1], l.value(sum[2], element))
        totals[i] = text.ident(sum[1])
        body.formula[#body.formula + 1] = (" *   %s = sum of %s"):format(sum[1], expr.shown(expr.lift(sum[2])))
    end
    local kernel = new_kernel(group, "_sums", l.flops)
    local params, loads = element_access(g, config, kernel, body.writes, table.move(adds, 1, #adds, #body.lines + 1,
        ordered.copy(body.lines)))
    params[#params + 1] = "double *sums"
    params[#params + 1] = kernel.layered and "int layer" or nil
    params = context.target.sweep(kernel, params, update.TILE)
    local list = { render(kernel, config, context, "sums", params, {
        formula = block_of(body.formula), loads = block_of(loads), statements = block_of(body.lines),
        stores = block_of(body.stores), names = text.block(table.concat(names, ", ")), adds = block_of(adds),
        totals = totals, tile = update.TILE }) }
    local scale_lines, formula = {}, {}
    for i, scale in ipairs(before.scales) do
        formula[i] = (" *   %s = %s"):format(scale[1], expr.shown(expr.lift(scale[2])))
        local e = expr.hoist(expr.lift(scale[2]), function(n) return sums[n] end, l.hoisted, l.prefix)
        scale_lines[i] = ("scales[%d] = %s;"):format(i - 1, expr.text(e, { call = rate.CALL,
            variable = function(n) return sums[n] and n or "s->" .. n end }))
    end
    local scales = new_kernel(group, "_scales", 0)
    scales.reads_step = table.concat(scale_lines):find("s->", 1, true) ~= nil
    params = context.target.single(scales, { "const double *sums", context.target.int64 .. " tiles",
        "double *scales" }, scales.reads_step)
    list[2] = render(scales, config, context, "scales", params, { formula = block_of(formula),
        names = text.block(table.concat(names, ", ")), totals = totals, scales = block_of(scale_lines) })
    return list
end

local function kernels_of(g, config, group, context)
    local r = rule_of(g, config, group)
    local l = lowering(g, config, group, context, r)
    local list, once = {}, {}
    if r.before then
        list = kernels_before(g, config, context, group, r, l)
        for i, scale in ipairs(r.before.scales) do
            r.element[scale[1]] = true
            once[i] = ("const real %s = (real)scales[%d];"):format(scale[1], i - 1)
        end
    end
    add_locals(r.statements, r.element, r.numbers)
    l.flops = 1
    local body = lower(r.statements, g, r, l, r.element)
    local kernel = new_kernel(group, "", l.flops)
    local params, loads = element_access(g, config, kernel, body.writes, body.lines)
    if r.before then params[#params + 1] = "const double *scales" end
    params[#params + 1] = kernel.layered and "int layer" or nil
    params = context.target.sweep(kernel, params)
    list[#list + 1] = render(kernel, config, context, "sweep", params, { formula = block_of(body.formula),
        loads = block_of(loads), statements = block_of(body.lines), stores = block_of(body.stores),
        once = block_of(once), tile = update.TILE })
    kernel.hoisted, kernel.named = l.hoisted, l.named
    return list
end

--- The update kernels, in the order of the groups.
function update.sweeps(g, config, context)
    local list = {}
    for _, group in g.groups:each() do
        local kernels = kernels_of(g, config, group, context)
        table.move(kernels, 1, #kernels, #list + 1, list)
    end
    for _, kernel in ipairs(list) do kernel.calls, kernel.elements = update.extent(g, config, kernel) end
    return list
end

-- === where they run =============================================================================

--- The runs of the flat space that the kernels of an update are called for: { group, offset, n, count,
--- stride }, and for an optimizer of tensors `tile` and `index`: of the first iteration's sums and scales.
function update.ranges(g, config)
    if config.optimizer.rule.scope ~= "tensor" then return g.segments, 0, 0 end
    local list, tile, index = {}, 0, 0
    for _, param in ipairs(g.params) do
        if param.used then
            local f = param.flat
            list[#list + 1] = { group = param.group, offset = f.offset, n = f.n, count = param.count,
                stride = f.stride, tile = tile, index = index, layer = param.layer }
            tile, index = tile + tiles_of(f.n) * param.count, index + param.count
        end
    end
    return list, tile, index
end

--- How often a kernel is called in an update, and over how many elements in all.
function update.extent(g, config, kernel)
    local calls, elements = 0, 0
    for _, s in ipairs((update.ranges(g, config))) do
        if s.group == kernel.group.index then
            calls, elements = calls + s.count, elements + s.n * s.count
        end
    end
    return calls, elements
end

-- Numbers per tile and per tensor of an optimizer of tensors.
local function widths(g, config)
    local sums, scales = 0, 0
    if config.optimizer.rule.sums then
        for _, group in g.groups:each() do
            local before = rule_of(g, config, group).before
            sums, scales = math.max(sums, #before.sums), math.max(scales, #before.scales)
        end
    end
    return sums, scales
end

--- Doubles that an optimizer of tensors needs beside its state: sums of tiles, then scales.
function update.doubles(g, config)
    local _, tiles, tensors = update.ranges(g, config)
    local sums, scales = widths(g, config)
    return tiles * sums + tensors * scales
end

local function plus(base, l, stride)
    return l and stride > 0 and ("(%d + l * %d)"):format(base, stride) or tostring(base)
end

-- The call of one kernel over one run; l: whether it is inside a loop over layers.
local function call_of(kernel, s, g, target, size, l)
    local array, arguments = target.flat, ""
    local tiles = tiles_of(s.n)
    local from, to = s.offset, s.offset + s.n
    if l then
        from, to = ("%d + l * %d"):format(from, s.stride), ("%d + l * %d"):format(to, s.stride)
    end
    local sums = s.tile and target.doubles(plus(s.tile * size.sums, l, tiles * size.sums))
    local scales = s.tile and target.doubles(plus(size.tiles * size.sums + s.index * size.scales, l, size.scales))
    if kernel.suffix == "_scales" then
        return ("%s(%s, %s, %d, %s);"):format(kernel.name, target.single_step(kernel.reads_step), sums, tiles,
            scales)
    end
    for _, name in ipairs(kernel.arrays) do arguments = arguments .. array:format(name) end
    local more = s.tile and ", " .. (kernel.suffix == "_sums" and sums or scales) or ""
    if kernel.layered then more = more .. ", " .. (l and s.layer .. " + (int)l" or s.layer) end
    return ("%s(%s%s%s, %s, %s);"):format(kernel.name, target.sweep_step, arguments, more, from, to)
end

local function calls_of(suffix, g, config, sweeps, target, out)
    local by_group = {}
    for _, kernel in ipairs(sweeps) do
        if kernel.suffix == suffix then by_group[kernel.group.index] = kernel end
    end
    local ranges, tiles = update.ranges(g, config)
    local size = { tiles = tiles }
    size.sums, size.scales = widths(g, config)
    for _, s in ipairs(ranges) do
        local kernel, loop = by_group[s.group], s.count > 1
        if kernel and loop then
            out[#out + 1] = ("for (int64_t l = 0; l < %d; l++)"):format(s.count)
        end
        if kernel then
            out[#out + 1] = (loop and "    " or "") .. call_of(kernel, s, g, target, size, loop)
        end
    end
end

--- The calls of the update kernels at the boundary.
function update.calls(g, config, sweeps, target)
    local out = {}
    if config.optimizer.rule.scope == "tensor" then
        for _, suffix in ipairs { "_sums", "_scales" } do
            calls_of(suffix, g, config, sweeps, target, out)
            out[#out + 1] = target.barrier
        end
    end
    calls_of("", g, config, sweeps, target, out)
    return block_of(out)
end

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
    return c.wrap("", ("const double LAYER_RATES[%d] = {"):format(#rates), list, "};")
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
