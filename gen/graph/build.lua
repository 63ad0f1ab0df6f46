-- build: the builder used by layers, gradients and passes. It appends nodes to the current body,
-- infers shapes from the op's signature and names what it makes after the layer that asked.
-- Invariant: a tensor has one writer, except gradients, whose further writers add (Out.acc).
local diag = require "base.diag"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local view = require "graph.view"

local build = {}
build.__index = build

--- Where build.keep_full is set, real results are never stored in 16 bits: losses and what leads back from them.

--- A builder on graph g. `ops` is the catalog's map from op name to entry.
function build.new(g, ops)
    return setmetatable({
        graph = g, ops = ops, body = g.forward, scope = nil, path = {}, at = g.name,
    }, build)
end

-- The tokens of patterns that were met before.
local known_tokens = {}

-- "..., K" as { "...", "K" }.
local function tokens_of(pattern)
    local tokens = known_tokens[pattern]
    if not tokens then
        tokens = {}
        for token in pattern:gmatch("[^,%s]+") do tokens[#tokens + 1] = token end
        known_tokens[pattern] = tokens
    end
    return tokens
end

local function substitute_shape(pattern, letters, lead)
    local shape = {}
    for _, token in ipairs(tokens_of(pattern)) do
        if token == "..." then
            for _, extent in ipairs(lead) do shape[#shape + 1] = extent end
        elseif type(letters[token]) == "table" then
            table.move(letters[token], 1, #letters[token], #shape + 1, shape)
        else
            shape[#shape + 1] = math.tointeger(tonumber(token)) or letters[token]
        end
    end
    return shape
end

-- Refuses real numbers where whole ones are needed, and the other way round.
local function check_dtype(self, node, name, wanted, tensor)
    if wanted == "any" or (wanted == "i32") == (tensor.dtype == "i32") then return end
    diag.fail(self.at, ("%s: '%s' has %s, expected %s"):format(node.op, name,
        tensor.dtype == "i32" and "whole numbers" or "real numbers",
        wanted == "i32" and "whole numbers, such as ids or classes" or "real ones: x * 1.0"), {})
end

-- Unifies one shape with a pattern such as "..., K"; fills letters and lead. "*" is any shape.
local function unify(node, name, pattern, shape, seen)
    if pattern == "*" then return end
    local tokens = tokens_of(pattern)
    local ellipsis = tokens[1] == "..."
    local fixed = ellipsis and #tokens - 1 or #tokens
    local lead_rank = #shape - fixed
    local function refuse(found, expected)
        diag.fail(node.at, ("%s: '%s' has shape %s: %s, expected %s"):format(
            node.op, name, graph.shape_text(shape), found, expected), {})
    end
    if lead_rank < 0 or (lead_rank > 0 and not ellipsis) then
        refuse(#shape .. " axes", "(" .. pattern .. ")")
    end
    if ellipsis then
        local lead = table.move(shape, 1, lead_rank, 1, {})
        if seen.lead and graph.shape_text(seen.lead) ~= graph.shape_text(lead) then
            refuse("leading axes " .. graph.shape_text(lead), graph.shape_text(seen.lead))
        end
        seen.lead = lead
    end
    for i = 1, fixed do
        local token, extent = tokens[(ellipsis and 1 or 0) + i], shape[lead_rank + i]
        local bound = math.tointeger(tonumber(token)) or seen[token]
        if bound and bound ~= extent then
            refuse("axis " .. (lead_rank + i) .. " is " .. extent, bound)
        end
        seen[token] = extent
    end
end

--- The dotted path of the current block, with `name` behind it.
function build:full_name(name)
    local parts = table.move(self.path, 1, #self.path, 1, {})
    if name and name ~= "" then parts[#parts + 1] = name end
    return table.concat(parts, ".")
end

--- The name that keys what a layer draws at random for each row of x: no two in the program have the same.
function build:draw_name(what, x)
    local rows = self.graph.inputs[1].shape[1]
    if x.shape[1] ~= rows or graph.rowless(x) then
        diag.fail(self.at, ("%s: the value has shape %s, expected the %d rows of the batch as its first axis")
            :format(what, graph.shape_text(x.shape), rows), {})
    end
    local draws, path = self.graph.draws, self:full_name(what)
    draws[path] = (draws[path] or 0) + 1
    return draws[path] == 1 and path or path .. "." .. draws[path]
end

-- The type of an output: that of the first input where the op takes any.
local function dtype_of(node, signature, name)
    local dtype = signature.dtype[name]
    if dtype == "any" then return node.ins[signature.ins[1]].dtype end
    return dtype == "full" and "real" or dtype
end

-- Whether a node reads nothing that has the rows of the batch as its first axis.
local function reads_no_rows(node)
    for _, tensor in ipairs(graph.reads(node)) do
        if not graph.rowless(tensor) then return false end
    end
    return true
end

-- Gives `out`, made by an op that moves values, their range and its places, unless it is not known.
local function set_range(node, out)
    local list = graph.reads(node)
    for _, tensor in ipairs(list) do
        if not tensor.limit then return end
    end
    for _, tensor in ipairs(list) do
        if not out.low or tensor.low < out.low then out.low, out.low_place = tensor.low, tensor.low_place end
        if not out.limit or tensor.limit > out.limit then
            out.limit, out.high_place = tensor.limit, tensor.high_place
        end
    end
end

--- The extents of the letters of an op's shapes in a node with these inputs, as it sees them (passes/copies.lua);
--- refuses inputs that do not fit.
function build.sizes(node, entry)
    local seen = {}
    for _, name in ipairs(entry.signature.ins) do
        local tensor = node.ins[name]
        local shape = tensor and (node.shapes and node.shapes[name] or tensor.shape)
        if shape then unify(node, name, entry.signature.shape[name], shape, seen) end
    end
    if entry.letters then entry.letters(node, seen) end
    return seen
end

--- Appends a node. ins: name -> tensor, attrs: plain values, names: out name -> tensor name.
-- Returns the node; node.outs[x].tensor are its results.
function build:node(op, ins, attrs, names)
    local entry = self.ops[op] or error("no op '" .. tostring(op) .. "' in the catalog")
    local node = { op = op, ins = ins, outs = {}, attrs = attrs or {}, at = self.at,
        scope = self.scope, signature = entry.signature, path = self:full_name(), keep_full = self.keep_full }
    for _, name in ipairs(entry.signature.ins) do
        if ins[name] then
            check_dtype(self, node, name, entry.signature.dtype[name], ins[name])
        elseif not entry.signature.optional[name] then
            error(op .. ": missing input '" .. name .. "'")
        end
    end
    local seen = build.sizes(node, entry)
    node.size = seen
    if entry.view then
        local v, x = entry.view(node), expr.var "x"
        node.statements = { { op .. "_out", entry.value and entry.value(node, x) or x } }
        node.views = { x = not view.plain(v) and v or nil }
    end
    local rowless = not entry.rows and reads_no_rows(node)
    for _, name in ipairs(entry.signature.outs) do
        if not entry.omit or not entry.omit(node, name) then
            local shape = substitute_shape(entry.signature.shape[name], seen, seen.lead or {})
            local tensor = graph.tensor(self.graph, {
                name = names and names[name] or self:value_name(node, name), shape = shape,
                dtype = dtype_of(node, entry.signature, name), kind = "value", at = self.at,
                def = node, scope = self.scope, rowless = rowless,
                keep_full = self.keep_full or entry.signature.dtype[name] == "full" or nil,
            })
            if entry.signature.dtype[name] == "any" then set_range(node, tensor) end
            node.outs[name] = { tensor = tensor, columns = entry.columns and entry.columns(node) }
        end
    end
    self.body[#self.body + 1] = node
    return node
end

--- The name of a result: the layer's path and the op, unless the layer said otherwise.
function build:value_name(node, out)
    local name = self:full_name(self.layer_name or node.op)
    return name .. (out == "y" and "_out" or "_" .. out)
end

--- The single result "y" of an op.
function build:value(op, ins, attrs, name)
    local node = self:node(op, ins, attrs, name and { y = name })
    return node.outs.y.tensor
end

-- The shape of a pointwise result: what all inputs broadcast to, the rows of the batch only to rows.
local function common_shape(self, tensors, what)
    local shape
    local function refuse(other, expected)
        diag.fail(self.at, ("%s: shapes %s and %s differ, expected %s"):format(what,
            graph.shape_text(shape), graph.shape_text(other), expected), {})
    end
    for _, tensor in ipairs(tensors) do
        if tensor.kind ~= "scalar" and not (shape and view.same(shape, tensor.shape)) then
            local common = view.common(shape or tensor.shape, tensor.shape)
            if not common then refuse(tensor.shape, "equal ones, or 1 where they differ") end
            shape = common
        end
    end
    for _, tensor in ipairs(tensors) do
        if not graph.rowless(tensor) and #tensor.shape < #shape then
            refuse(tensor.shape, "as many axes: the first of both is the rows")
        end
    end
    return shape
end

-- The distinct tensors with a variable each; `variables` has one entry per given tensor.
local function name_inputs(tensors)
    local keys, variables = ordered.map(), {}
    for i, tensor in ipairs(tensors) do
        if not keys:has(tensor) then keys:set(tensor, "x" .. (keys:size() + 1)) end
        variables[i] = expr.var(keys:get(tensor))
    end
    return keys, variables
end

-- How each input is found, for those whose shape is not that of the result.
local function views_of(keys, shape)
    local views = {}
    for tensor, key in keys:each() do
        local moved = tensor.kind ~= "scalar" and not view.same(tensor.shape, shape)
        local v = moved and view.broadcast(tensor.shape, shape)
        if v and not view.plain(v) then views[key] = v end
    end
    return views
end

--- A pointwise node: f(variables) gives the expression over the inputs; only inputs it reads are
-- kept, and an expression that is one of the inputs adds no node, but one of whole numbers makes real
-- ones of them. Inputs are broadcast as torch does, but the rows of a batch only to rows. rule =
-- { entry, fields } is what autodiff differentiates; node.views says how inputs that are broadcast are
-- found. `result` names the statement ("relu_dx", "add_out"); a rule is its own name for it.
function build:map(tensors, f, name, rule, result)
    local shape = common_shape(self, tensors, rule and rule.entry.name or "map")
    local keys, variables = name_inputs(tensors)
    local e = expr.lift(f(table.unpack(variables)))
    local read = expr.variables(e)
    local ins, order = {}, {}
    for tensor, key in keys:each() do
        if e.op == "var" and e.name == key and tensor.dtype ~= "i32" and #tensor.shape == #shape
            and graph.elements(tensor.shape) == graph.elements(shape) then
            return tensor
        end
        if ordered.find(read, key) or rule then ins[key], order[#order + 1] = tensor, key end
    end
    local node = { op = "map", ins = ins, outs = {}, attrs = { rule = rule, variables = variables },
        at = self.at, scope = self.scope, path = self:full_name(),
        statements = { { result or rule.entry.name .. "_out", e } },
        views = views_of(keys, shape), signature = { ins = order, outs = { "y" } }, keep_full = self.keep_full }
    local tensor = graph.tensor(self.graph, { name = name or self:value_name(node, "y"),
        shape = shape, kind = "value", at = self.at, def = node, scope = self.scope,
        rowless = reads_no_rows(node), keep_full = self.keep_full })
    node.outs.y = { tensor = tensor }
    self.body[#self.body + 1] = node
    return tensor
end

--- x as elements of another type, by a pointwise node.
function build:cast(x, dtype, name)
    local node = { op = "map", ins = { x = x }, outs = {}, attrs = {}, at = self.at, scope = self.scope,
        path = self:full_name(), statements = { { dtype .. "_out", expr.var "x" } }, views = {},
        signature = { ins = { "x" }, outs = { "y" } } }
    local tensor = graph.tensor(self.graph, { name = name, shape = x.shape, dtype = dtype, kind = "value",
        at = self.at, def = node, scope = self.scope, rowless = x.rowless })
    node.outs.y = { tensor = tensor }
    self.body[#self.body + 1] = node
    return tensor
end

--- x, summed over what a broadcast from `shape` to x's shape repeated: of that shape again.
function build:sum_to(x, shape)
    local runs = view.summed(x.shape, shape)
    for i, run in ipairs(runs) do
        local smaller = {}
        for axis, extent in ipairs(x.shape) do
            smaller[axis] = (axis < run.first or axis > run.last) and extent or 1
        end
        x = self:value("axis_sum", { x = x }, { first = run.first, last = run.last,
            shape = i == #runs and shape or smaller })
    end
    return x
end

-- The names of a parameter in files: in a region one for each iteration, "h.0.x.weight" of "h.%d.x.weight".
local function saved_names(name, region)
    local list = {}
    for i = 1, region and region.count or 1 do
        list[i] = region and name:format(region.first + i - 1) or name
    end
    return list
end

--- A trainable parameter of the current layer. init = { kind, ... } as the catalog's layers give.
-- It belongs to the current scope, or to that of self.owner, if set: the layer was made there.
function build:param(suffix, shape, init)
    local g = self.graph
    local name = self:full_name(suffix)
    local shared = self.shared and self.shared[suffix]
    if shared then return self:share(shared, shape) end
    local region = self.scope
    if self.owner then region = self.owner.scope end
    local saved = saved_names(name, region)
    for _, one in ipairs(saved) do
        local other = g.param_named[one]
        if other then
            diag.fail(self.at, ("parameter '%s' exists already: give the layer another name, or apply one layer "
                .. "twice to share its parameters"):format(one),
                { notes = { { at = other.at, message = "the first one is here" } } })
        end
    end
    local param = { name = name, shape = shape, region = region, at = self.at, init = init,
        count = region and region.count or 1, first = region and region.first or 0, state = {}, kept = {},
        views = {} }
    param.value = graph.tensor(g, { name = name, shape = shape, kind = "param",
        at = self.at, param = param, scope = region })
    g.params[#g.params + 1] = param
    for _, one in ipairs(saved) do g.param_named[one] = param end
    if self.shared then self.shared[suffix] = param end
    return param.value
end

--- A tensor that is saved with the parameters of the current layer, but not trained: nodes write it. It
-- starts as `value`.
function build:buffer(suffix, shape, value)
    local tensor = self:param(suffix, shape, { kind = "value", value = value })
    tensor.param.buffer, tensor.param.frozen = true, true
    return tensor
end

--- The parameter of a layer that is applied once more.
function build:share(param, shape)
    if graph.shape_text(param.shape) ~= graph.shape_text(shape) then
        diag.fail(self.at, ("'%s' is %s from its first use, here it would be %s"):format(param.name,
            graph.shape_text(param.shape), graph.shape_text(shape)), {})
    end
    if not graph.inside(self.scope, param.region) then
        diag.fail(self.at, ("'%s' belongs to a `times`: its layer cannot be used outside, but one that is applied "
            .. "before the `times` may be used in it"):format((param.name:gsub("%%d", "N"))), {})
    end
    return param.value
end

--- Opens a region; close_region ends it. Carries are added by build:carry.
function build:open_region(name, count, first, step)
    local region = { op = "times", name = name, count = count, first = first or 0,
        step = step or 1, body = {}, carries = {}, scope = self.scope, at = self.at }
    self.body[#self.body + 1] = region
    region.outer_body = self.body
    self.body, self.scope = region.body, region
    return region
end

function build:close_region(region)
    self.body, self.scope = region.outer_body, region.scope
    region.outer_body = nil
end

--- A value carried by a region: returns the carry with its inner argument; set carry.result later
-- by build:carry_result, which also makes the outer value carry.out.
function build:carry(region, init, name)
    local carry = { init = init, region = region }
    carry.arg = graph.tensor(self.graph, { name = name .. "_in", shape = init.shape,
        dtype = init.dtype, kind = "value", at = self.at, scope = region, carry = carry,
        keep_full = init.keep_full })
    region.carries[#region.carries + 1] = carry
    return carry
end

function build:carry_result(carry, result, name)
    local def = result.def
    if not def or def.scope ~= carry.region or result.carried then
        result = self:value("copy", { x = result }, nil, name .. "_next")
    end
    result.carried = carry
    carry.result = result
    carry.out = graph.tensor(self.graph, { name = name, shape = result.shape,
        dtype = result.dtype, kind = "value", at = self.at, scope = carry.region.scope, keep_full = carry.arg.keep_full,
        def = carry.region, carry_out = carry })
    return carry.out
end

return build
