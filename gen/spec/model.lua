-- model: replays the recorded events of a spec into the builder, which turns layers into nodes.
-- Invariant: a layer creates its parameters at its first application; later applications share them. Parameters
-- belong to the scope in which the layer was created: a layer created outside a `times` function and applied inside
-- has one set of parameters for all iterations.
local check = require "base.check"
local cost = require "graph.cost"
local diag = require "base.diag"
local graph = require "graph.graph"
local losses = require "spec.losses"
local operands = require "spec.operands"
local ordered = require "base.ordered"
local parts = require "spec.parts"

local model = {}

local Player = {}
Player.__index = Player

local function context(player, event, what)
    local at = player.path .. ":" .. event.line
    return { what = what, locate = function(name)
        if name then return diag.field(at, name) end
        return at
    end }
end

-- Refuses a name that is missing, empty, too long or of other characters than identifiers of C have.
local function check_name(player, event)
    local name = event.name
    local ok = name and #name <= 96 and not name:find("__", 1, true)
    for part in ((name or "") .. "."):gmatch("([^.]*)%.") do
        ok = ok and part:match("^[%w_]+$") ~= nil
    end
    if not ok then
        local found = name == "" and "the name is empty" or ("name '%s'"):format(name or "")
        diag.fail(player.path .. ":" .. event.line, ("%s: %s: letters, digits and _ expected, "
            .. "parts separated by dots, no two _ together, at most 96"):format(event.kind, found), { found = name })
    end
end

local function what_of(event)
    return event.name and ("%s '%s'"):format(event.kind, event.name) or event.kind
end

-- "1 tensor", "1 or 4 tensors", "1, 3 or 4 tensors".
local function counted(counts)
    local text = tostring(counts[#counts])
    for i = #counts - 1, 1, -1 do
        text = counts[i] .. (i == #counts - 1 and " or " or ", ") .. text
    end
    return text .. (counts[#counts] == 1 and " tensor" or " tensors")
end

-- Refuses a number of input tensors that the layer does not take. takes: the list of possible numbers, or "several"
-- for one or more.
local function check_count(at, what, takes, found)
    if takes == "several" and found > 0 then return end
    if takes ~= "several" and ordered.find(takes, found) then return end
    diag.fail(at, ("%s: got %d tensor%s, expected %s"):format(what, found, found == 1 and "" or "s",
        takes == "several" and "one or more" or counted(takes)), {})
end

local ONE = { 1 }

-- Refuses a number among the inputs of a layer: its author may mean a field.
local function check_tensors(at, what, layer, list)
    for i, operand in ipairs(list) do
        if type(operand) == "number" then
            local field = layer.fields[1] and ("; fields are written %s { %s = %s } (x)"):format(what,
                layer.fields[1].name, operand) or ""
            diag.fail(at, ("%s: input %d is the number %s, expected %s%s"):format(what, i, operand,
                layer.takes == "several" and "tensors" or counted(layer.takes or ONE), field), {})
        end
    end
end

-- Calls make(), which appends the nodes of one layer and returns its result, and notes the layer in graph.layers. The
-- ops of a loss are no layers.
function Player:noted(kind, name, make)
    local b, g = self.b, self.b.graph
    local body, first, params = b.body, #b.body + 1, #g.params + 1
    local y = make()
    if b.keep_full then return y end
    g.layers[#g.layers + 1] = { name = name, kind = kind, shape = y.shape, count = b.scope and b.scope.count or 1,
        nodes = table.move(body, first, #body, 1, {}), params = table.move(g.params, params, #g.params, 1, {}) }
    return y
end

-- Applies a pointwise op to a list of tensors and numbers.
function Player:pointwise(entry, fields, list, at)
    local b = self.b
    b.at = at
    if #list ~= entry.arity then
        diag.fail(at, ("%s: takes %d values, got %d"):format(entry.name, entry.arity, #list), {})
    end
    local problem = entry.check and entry.check(fields)
    if problem then diag.fail(at, ("%s: %s"):format(entry.name, problem), {}) end
    local bound, tensors = operands.bind(entry, list)
    if #tensors == 0 then
        diag.fail(at, entry.name .. ": at least one operand must be a tensor", {})
    end
    operands.beside(at, entry.name, tensors)
    local name = b:full_name(entry.name) .. "_out"
    local y = self:noted(entry.name, b:full_name(), function()
        return b:map(tensors, function(...) return bound.value(fields, ...) end, name,
            { entry = bound, fields = fields })
    end)
    return y
end

-- Refuses named fields of a list of layers, except those in `known`.
local function check_list(at, kind, list, known)
    for name in ordered.each(list) do
        if type(name) == "string" and not ordered.find(known, name) then
            diag.fail(at, ("%s: unknown field '%s', expected a list of layers"):format(kind, name),
                { found = name, hint = diag.suggest(name, known) })
        end
    end
end

-- Applies a layer, or a list of layers in turn, to x; known: the fields that the list may have.
function Player:chain(list, x, event, known)
    if list.layer then return self:apply(list.layer, { x }) end
    check_list(self.path .. ":" .. event.line, event.kind, list, known or {})
    for i, item in ipairs(list) do
        if type(item) ~= "table" or item.tensor then
            diag.fail(self.path .. ":" .. event.line,
                ("%s: position %d is not a layer"):format(event.kind, i), {})
        end
        x = self:chain(item, x, event)
    end
    return x
end

-- f() with a component added to the path of names.
function Player:inside(event, component, f)
    local path = self.b.path
    self.b.path = table.move(path, 1, #path, 1, {})
    table.insert(self.b.path, component)
    local result = f()
    self.b.path = path
    return result
end

function Player:open_times(event, x)
    local b, at = self.b, self.path .. ":" .. event.line
    check_name(self, event)
    b.at = at
    if b.scope then diag.fail(at, "times: inside another times is not available", {}) end
    local count = check.value({ name = "count", type = "int", min = 1, max = 65536 }, event.count,
        context(self, event, "times"))
    local region = b:open_region(b:full_name(event.name), count, 0, 1)
    region.path = b.path
    b.path = table.move(b.path, 1, #b.path, 1, {})
    table.insert(b.path, event.name .. ".%d")
    local carry = b:carry(region, x, region.name)
    return region, carry
end

function Player:close_times(region, carry, result)
    local b = self.b
    if table.concat(result.shape, ",") ~= table.concat(carry.arg.shape, ",") then
        diag.fail(region.at, ("times '%s': the body turns shape (%s) into (%s), expected the same")
            :format(region.name, table.concat(carry.arg.shape, ", "),
            table.concat(result.shape, ", ")), {})
    end
    b.path = region.path
    local out = b:carry_result(carry, result, region.name .. "_out")
    b:close_region(region)
    return out
end

local STRUCTURE = {}

function STRUCTURE.times(self, event, ins)
    local region, carry = self:open_times(event, ins[1])
    return self:close_times(region, carry, self:chain(event.args, carry.arg, event))
end

function STRUCTURE.block(self, event, ins)
    check_name(self, event)
    return self:inside(event, event.name, function()
        return self:chain(event.args, ins[1], event)
    end)
end

function STRUCTURE.residual(self, event, ins)
    local x = ins[1]
    local y = self:chain(event.args, x, event, { "shortcut" })
    local shortcut = event.args.shortcut
    if shortcut ~= nil then
        if type(shortcut) ~= "table" or shortcut.tensor then
            diag.fail(diag.field(self.path .. ":" .. event.line, "shortcut"), ("residual: shortcut is a %s, expected "
                .. "a layer or a list of layers"):format(type(shortcut) == "table" and "tensor" or type(shortcut)), {})
        end
        x = self:chain(shortcut, x, event)
    end
    local wanted, found = graph.shape_text(x.shape), graph.shape_text(y.shape)
    if wanted ~= found then
        diag.fail(self.path .. ":" .. event.line, ("residual: the layers give shape %s, expected %s as %s")
            :format(found, wanted, shortcut and "the shortcut gives" or "it is given"), {})
    end
    return self:pointwise(self.catalog.pointwise:get("add"), {}, { x, y },
        self.path .. ":" .. event.line)
end

-- The losses of a call of a rule of the catalog; ins: what the model gives, and the targets.
function Player:loss(rule, args, ins, at)
    local what = rule.name
    if not self.called then
        diag.fail(at, what .. ": a loss stands in the function of the word loss: loss { function(out, batch) ... end }",
            {})
    end
    check_count(at, what, { 2 }, #ins)
    self.b.at = at
    local fields = check.fields(rule.fields, args, check.context(what, at))
    local output, target = table.unpack(operands.spread(self.b, what, ins))
    return losses.of_call(self.b, self.called, rule, fields, output, target, at)
end

--- Applies layer `id` to tensors and returns the result. applied_at: the place of the call, nil inside a list.
function Player:apply(id, ins, applied_at)
    local event = self.layers[id]
    local at = self.path .. ":" .. event.line
    if STRUCTURE[event.kind] then
        check_count(applied_at or at, what_of(event), ONE, #ins)
        local y = STRUCTURE[event.kind](self, event, ins)
        return y
    end
    local layer, what = self.catalog.layers:get(event.kind), what_of(event)
    local rule = self.catalog.losses:get(event.kind)
    if rule then
        local list = self:loss(rule, event.args, ins, at)
        return list
    end
    if not layer then
        local entry = self.catalog.pointwise:get(event.kind)
        local fields = check.fields(entry.fields, event.args, context(self, event, what))
        return self:pointwise(entry, fields, ins, at)
    end
    if layer.named then check_name(self, event) end
    self.b.at = at
    local fields = check.fields(layer.fields, event.args, context(self, event, what))
    check_count(applied_at or at, what, layer.takes or ONE, #ins)
    event.shared = event.shared or {}
    local y = self:make_layer(layer, event, fields, operands.spread(self.b, what, ins))
    return y
end

-- Appends the nodes of a layer; tensors are named after it. event: its name and shared parameters, or neither.
function Player:make_layer(layer, event, fields, ins)
    local b = self.b
    local shared, name = b.shared, b.layer_name
    b.shared, b.layer_name = event.shared, not event.name and layer.name or nil
    local y = self:noted(layer.name, b:full_name(event.name), function()
        return self:inside(event, event.name, function() return layer.apply(b, fields, table.unpack(ins)) end)
    end)
    b.shared, b.layer_name = shared, name
    return y
end

-- Applies a layer that may have been created outside the current region: its parameters belong there.
function Player:apply_where_made(id, ins, applied_at)
    local b, made = self.b, self.layers[id].made_in
    if made.scope == b.scope then
        local y = self:apply(id, ins, applied_at)
        return y
    end
    local path, owner = b.path, b.owner
    b.path, b.owner = made.path, made
    local y = self:apply(id, ins, applied_at)
    b.path, b.owner = path, owner
    return y
end

--- The tensor with this number; refuses a table of tensors, at line `line`.
function Player:tensor(id, line)
    local value = self.values[id]
    if value.named then
        diag.fail(self.path .. ":" .. line, ("%s: the model gives the tensors %s: expected out.NAME")
            :format(self.function_of, table.concat(value.named.keys, ", ")), {})
    end
    return value
end

function Player:operand(value, line)
    if type(value) == "number" then return value end
    return self:tensor(value.tensor, line)
end

local PLAY = {}

function PLAY.layer(self, event)
    event.made_in = { scope = self.b.scope, path = self.b.path }
    self.layers[event.id] = event
end

-- out.NAME in a loss or metric, where the model gives a table of tensors.
local function output_field(self, event)
    local at, output = self.path .. ":" .. event.line, self.values[event.of]
    if not output.named then
        diag.fail(at, ("%s: the model gives one tensor, found out.%s, expected out alone"):format(
            self.function_of, event.name), {})
    end
    local tensor = output.named:get(event.name)
    if not tensor then
        diag.fail(at, ("%s: the model gives no '%s', expected one of %s"):format(self.function_of, event.name,
            table.concat(output.named.keys, ", ")), { found = event.name,
            hint = diag.suggest(event.name, output.named.keys) })
    end
    return tensor
end

local function field_of_batch(self, name, line, more)
    if self.inputs[name] then return self.inputs[name] end
    local at, known = self.path .. (line and ":" .. line or ""), {}
    for i, t in ipairs(self.b.graph.inputs) do
        if t.file_name == name then
            diag.fail(at, ("batch.%s is the target of the data: expected batch.%s"):format(name, t.name),
                { found = name })
        end
        known[i] = t.name
    end
    diag.fail(at, ("batch has no field '%s', expected %s%s"):format(name,
        table.concat(known, " or "), more or ""), { found = name })
end

function PLAY.field(self, event)
    if event.of then
        self.values[event.out] = output_field(self, event)
        return
    end
    self.values[event.out] = field_of_batch(self, event.name, event.line)
end

function PLAY.apply(self, event)
    self.b.at = self.path .. ":" .. event.line
    local ins = ordered.collect(event.ins, function(id) return self:tensor(id, event.line) end)
    self.values[event.out] = self:apply_where_made(event.layer, ins, self.b.at)
end

function PLAY.op(self, event)
    local at = self.path .. ":" .. event.line
    local list = ordered.collect(event.ins, function(v) return self:operand(v, event.line) end)
    local layer = self.catalog.layers:get(event.op)
    if layer and (layer.word or #list == 1) then
        self.b.at = at
        check_tensors(at, event.op, layer, list)
        check_count(at, event.op, layer.takes or ONE, #list)
        local fields = check.fields(layer.fields, {}, context(self, event, event.op))
        self.values[event.out] = self:make_layer(layer, {}, fields, list)
        return
    end
    local rule = self.catalog.losses:get(event.op)
    if rule then
        for i, operand in ipairs(list) do
            if type(operand) == "number" then
                diag.fail(at, ("%s: operand %d is a number, expected a tensor"):format(event.op, i), {})
            end
        end
        self.values[event.out] = self:loss(rule, {}, list, at)
        return
    end
    local entry = self.catalog.pointwise:get(event.op)
    if not entry then
        diag.fail(at, ("'%s' of tensors is not available"):format(event.op), {})
    end
    local fields = check.fields(entry.fields, {}, context(self, event, event.op))
    self.values[event.out] = self:pointwise(entry, fields, list, at)
end

function PLAY.enter(self, event)
    local layer = self.layers[event.layer]
    local ins = ordered.collect(event.ins, function(id) return self:tensor(id, event.line) end)
    local frame = { layer = layer, path = self.b.path }
    if layer.kind == "times" then
        check_count(self.path .. ":" .. event.line, what_of(layer), ONE, #ins)
        frame.region, frame.carry = self:open_times(layer, ins[1])
        self.values[event.arg] = frame.carry.arg
    else
        check_name(self, layer)
        self.b.path = table.move(frame.path, 1, #frame.path, 1, {})
        table.insert(self.b.path, layer.name)
        for i, x in ipairs(ins) do self.values[event.arg + i - 1] = x end
    end
    table.insert(self.frames, frame)
end

function PLAY.leave(self, event)
    local frame = table.remove(self.frames)
    local result = self:tensor(event.result, frame.layer.line)
    if frame.region then result = self:close_times(frame.region, frame.carry, result) end
    self.b.path = frame.path
    self.values[event.out] = result
end

function PLAY.model(self, event)
    local input = field_of_batch(self, "input", event.line,
        ": a list of layers begins with input, model (function(batch) ... end) with any")
    self.output = self:chain(event.args, input, { kind = "model", line = event.line })
end

function PLAY.model_begin(self, event) self.model_line = event.line end

-- The output is a tensor, or { named = ordered map } if the model gives a table of tensors.
function PLAY.model_end(self, event)
    local result = event.result
    local named, at = ordered.map(), self.path .. ":" .. self.model_line
    if math.type(result.tensor) then
        self.output = self:operand(result)
        if graph.rowless(self.output) then
            diag.fail(at, ("model: the function gives parameters alone, of shape %s, expected values for each row")
                :format(graph.shape_text(self.output.shape)), {})
        end
        return
    end
    for name, value in ordered.each(result) do
        if type(name) ~= "string" or not name:match("^[%a_][%w_]*$") then
            diag.fail(at, ("model: the table it gives has the key '%s', expected names of letters, "
                .. "digits and _"):format(name), {})
        end
        if type(value) ~= "table" or not math.type(value.tensor) then
            diag.fail(at, ("model: '%s' of the table it gives is no tensor"):format(name), {})
        end
        named:set(name, self:operand(value))
    end
    if named:size() == 0 then
        diag.fail(at, "model: the function gives an empty table, expected tensors by name", {})
    end
    self.output = { named = named }
end

function PLAY.loss_begin(self, event)
    self.loss_line, self.values[event.out] = event.line, self.output
end

function PLAY.loss_end(self, event) self.loss_rows = self:operand(event.result, self.loss_line) end

function PLAY.metric_begin(self, event)
    self.metric = { name = event.name, line = event.line, params = #self.b.graph.params }
    self.function_of, self.values[event.out] = "eval: " .. event.name, self.output
end

function PLAY.metric_end(self, event)
    local metric = self.metric
    if #self.b.graph.params > metric.params then
        diag.fail(self.path .. ":" .. metric.line, self.function_of .. ": the function makes parameters, which nothing "
            .. "trains: expected layers without any", {})
    end
    self.metrics[metric.name] = self:operand(event.result, metric.line)
end

--- Replays `events` into builder b. inputs: the fields of the batch by name, such as { input = tensor, target =
--- tensor }. called: gets what calls of losses in a function fix (spec/losses.lua). measured: the set of the metrics
--- whose functions are replayed, into the graph's evaluation. Returns the model's output, a tensor or { named = map
--- from name to tensor }; the result of the loss, or nil if that is no function; the results of metrics by name.
function model.play(b, catalog, path, events, inputs, called, measured)
    local player = setmetatable({ b = b, catalog = catalog, path = path, inputs = inputs,
        layers = {}, values = {}, frames = {}, metrics = {}, function_of = "loss" }, Player)
    local function play(list)
        for _, event in ipairs(list) do
            if PLAY[event.event] then PLAY[event.event](player, event) end
        end
    end
    local part = parts(events, measured)
    play(part.model)
    b.keep_full, player.called = true, called       -- losses and metrics are never rounded to 16 bits
    play(part.loss)
    b.body = b.graph.evaluation
    play(part.metrics)
    b.body, b.keep_full = b.graph.forward, nil
    return player.output, player.loss_rows, player.metrics
end

--- Gives the layers of a model with checked sizes their parameters and flops, in the place of nodes and params.
function model.measure(g, ops)
    for _, layer in ipairs(g.layers) do
        layer.parameters, layer.flops = 0, 0
        for _, node in ipairs(layer.nodes) do layer.flops = layer.flops + cost(node, ops).flops end
        for _, p in ipairs(layer.params) do
            layer.parameters = layer.parameters + (p.buffer and 0 or graph.elements(p.shape) * p.count)
        end
        layer.nodes, layer.params = nil, nil
    end
end

return model
