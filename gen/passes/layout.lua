-- layout: the flat space of all parameters, its segments and buckets, and packed views of weights.
--
--   fc1.weight (64, 64) at 0, fc1.bias (64) at 4096, fc2.weight ...
--
-- Members of a joint parameter (passes/joints.lua) lie next to each other.
-- Parameters are an array of this layout, gradients and each optimizer state one of its trained part. A region's
-- parameters lie layer by layer.
-- State of only some parameters, or smaller than its parameter, has its own array, in the same order.
-- A segment is a run with one update rule. A bucket is a run that one collective reduces (passes/buckets.lua).
-- A view is a copy of a weight, made once per update. A weight that a forward product reads by columns gets a
-- transposed view, so that the inner loop of every micro-step reads contiguous memory; not where the target's products
-- turn columns as they pack them and have rows enough (config.turned_rows): there the copy would only take memory. If
-- products read 16 bits, views have 16 bits, and all other weights of products get views too; an update may write these
-- in the same sweep (config.narrows). Where products copy
-- panels of a weight (config.panels), views are these panels: one for the products that read the weight's rows, one
-- for those that read its columns. A convolution that the target gathers by octets (config.octets) has views of its
-- weight in the order in which it and the gradient of its input read it. Where copies cost much beside products
-- (config.turns_once), a weight that is turned for the gradient of an input is a view, too, if an update has several
-- micro-steps.
local buckets = require "passes.buckets"
local chunk_size = require "passes.chunk_size"
local gathered = require "passes.gathered"
local graph = require "graph.graph"
local handlers = require "spec.handlers"
local ordered = require "base.ordered"

local layout = { name = "layout", optional = true, always = true,
    doc = "the flat space, buckets, packed views" }

layout.ALIGN = 16      -- elements: 64 bytes of f32

local function aligned(n) return (n + layout.ALIGN - 1) // layout.ALIGN * layout.ALIGN end

-- The part of the flat space of a parameter. Trained parameters ("used") come first, then buffers with statistics
-- collected over a cycle, then those that micro-steps move, then the rest.
local function part_of(param)
    return param.used and "used" or param.collected and "collected" or param.buffer and "moved" or "rest"
end

-- Whether the groups of a parameter's layers, { { index, from, count }, ... }, come before those of another in a layer
-- of both; nil: they are the same.
local function groups_before(a, b)
    for i = 1, math.min(#a, #b) do
        if a[i].index ~= b[i].index then return a[i].index < b[i].index end
        if a[i].count ~= b[i].count then return a[i].count < b[i].count end
    end
end

-- The parameters of a part of the flat space: members of a joint one behind each other.
local function params_of(g, part)
    local list = {}
    for _, unit in ipairs(graph.units(g)) do
        for _, param in ipairs(graph.members(unit)) do
            if part_of(param) == part then list[#list + 1] = param end
        end
    end
    return list
end

-- Runs of a part of the flat space in order: one per parameter, or joint parameter, outside regions, one per region.
-- Only parameters of the part "used" are in segments and buckets. by_group: neighbours in a layer have one group; else
-- they are in the order of the model, as chunks of a given size are filled.
local function items_of(g, part, by_group)
    local items, of_region, of_joint = {}, {}, {}
    for _, param in ipairs(params_of(g, part)) do
        local joint, region = param.joint or param, param.region
        local item = region and of_region[region] or of_joint[joint]
        if not item then
            item = { params = {}, region = region, count = region and param.count or 1 }
            of_joint[joint], items[#items + 1] = item, item
            if region then of_region[region] = item end
        end
        table.insert(item.params, param)
    end
    for _, item in ipairs(items) do     -- inside a layer: by handler, then by group, then in forward order
        for i, param in ipairs(item.params) do param.forward_index = i end
        table.sort(item.params, function(a, b)
            local before
            if a.handler ~= b.handler then return a.handler < b.handler end
            if by_group then before = groups_before(a.groups, b.groups) end
            if before == nil then return a.forward_index < b.forward_index end
            return before
        end)
    end
    return items
end

-- Places the runs one after another from `offset` on; returns the end.
local function place_parameters(items, offset)
    for _, item in ipairs(items) do
        local size = 0
        for _, param in ipairs(item.params) do size = size + aligned(graph.elements(param.shape)) end
        item.offset, item.size = offset, size
        local at = offset
        for _, param in ipairs(item.params) do
            local n = graph.elements(param.shape)
            param.flat = { offset = at, stride = size, n = n }
            at = at + aligned(n)
        end
        offset = offset + size * item.count
    end
    return offset
end

-- A joint parameter lies where its members lie.
local function place_joints(g)
    for _, joint in ipairs(g.joints) do
        local first = joint.members[1].flat
        joint.flat = { offset = first.offset, stride = first.stride, n = graph.elements(joint.shape) }
    end
end

-- Places each state: in an array over the flat space (dense), or in an array of the parameters that have it.
local function place_states(g, items)
    g.states = ordered.map()
    for _, name in ipairs(g.state_names) do
        local dense, at = true, 0
        for _, param in ipairs(g.params) do
            local t = param.state[name]
            dense = dense and (not param.used or t ~= nil and t.shape == param.shape)
        end
        for _, item in ipairs(items) do
            local size, holders = 0, {}
            for _, param in ipairs(item.params) do
                local t = param.state[name]
                if t and dense then
                    param.kept[name] = param.flat
                elseif t then
                    local n = graph.elements(t.shape)
                    param.kept[name] = { offset = at + size, n = n }
                    holders[#holders + 1], size = param, size + aligned(n)
                end
            end
            for _, param in ipairs(holders) do param.kept[name].stride = size end
            at = at + size * item.count
        end
        g.states:set(name, { dense = dense, elements = dense and g.trained_elements or at })
    end
end

-- Divides the flat space into segments. Outside regions, neighbouring parameters of one group are one segment. In a
-- region, neighbours within a layer are one segment, repeated `layers` times, as far as the same layers have one group.
local function segments(g, items)
    g.segments = {}
    local ends = {}         -- segments by what they have of each layer, and the element behind that
    for _, item in ipairs(items) do
        for _, param in ipairs(item.params) do
            for _, run in ipairs(param.groups) do
                local offset, n = param.flat.offset + run.from * item.size, aligned(param.flat.n)
                local function key(at)
                    return ("%s %d %d %d %s %d %s"):format(item.region, run.index, run.from, run.count, param.layer, at,
                        param.handler)
                end
                local s = ends[key(offset)]
                if s then
                    s.n = s.n + n
                    table.insert(s.covers, param)
                else
                    s = { group = run.index, param = param, covers = { param }, from = run.from, layers = run.count,
                        offset = offset, n = n, count = run.count, stride = item.size,
                        layer = param.layer and param.layer + run.from }
                    table.insert(g.segments, s)
                end
                ends[key(offset + n)] = s
            end
        end
    end
    for _, s in ipairs(g.segments) do   -- one rule for whole layers: one contiguous run
        if s.n == s.stride and not s.layer then s.n, s.count, s.stride = s.n * s.count, 1, 0 end
    end
end

-- The view of a parameter of this kind; make(name) builds it, if there is none yet.
local function view_of(g, builder, param, kind, make)
    local view = param.views[kind]
    if not view then
        builder.at, builder.path = param.at, {}
        builder.body, builder.scope = g.views, nil
        local region = param.region and
            builder:open_region(param.region.name, param.region.count, 0, 1)
        view = make(param.value.name .. "_" .. (kind == "narrow" and g.half or kind))
        view.kind, view.param, view.scope, view.dtype = "view", param, param.region, g.half or g.real
        if region then
            view.def.scope = region
            builder:close_region(region)
        end
        param.views[kind] = view
    end
    return view
end

local function transposed(g, builder, param)
    return view_of(g, builder, param, "in_out", function(name)
        return builder:value("pack_in_out", { x = param.value }, nil, name)
    end)
end

local function narrowed(g, builder, param)
    return view_of(g, builder, param, "narrow", function(name) return builder:cast(param.value, g.half, name) end)
end

-- kind: "panels" or "turned_panels"; block: the rows and columns of a block.
local function panelled(g, builder, param, kind, block)
    return view_of(g, builder, param, kind, function(name)
        local view, room = builder:value("pack_" .. kind, { x = param.value }, nil, name), 1
        for _, n in ipairs(view.shape) do room = room * ((n + block - 1) // block * block) end
        view.panels = { room = room }
        return view
    end)
end

-- The weight of a convolution with these attributes by octets of the planes "x" or "dy". That of the input's gradient
-- depends on the extents of the planes.
local function by_octets(g, builder, param, attrs, planes)
    local kind = planes == "x" and "octets" or ("turned_%dx%d"):format(attrs.height, attrs.width)
    return view_of(g, builder, param, kind, function(name)
        return builder:value("conv2d_turned", { weight = param.value }, ordered.copy(attrs, { octets = planes }), name)
    end)
end

local BODIES = { "forward", "backward", "evaluation" }

-- Calls fn(node, param) for each forward product with a trained weight.
local function each_product(g, bodies, fn)
    for _, name in ipairs(bodies) do
        graph.walk(g[name], function(node)
            local param = node.op == "linear" and node.ins.weight.param
            if param and param.used then fn(node, param) end
        end)
    end
end

-- The kind of the view whose panels a product reads; nil: it has none.
local function panels_of(config, node)
    local gemm = config.ops[node.op].gemm
    local product = config.panels and not config.without:has "layout" and gemm and gemm(node)
    if not product or product.N < config.panels or product.K < config.panels then return nil end
    return product.b_col == 1 and "panels" or "turned_panels"
end

-- Gives the weights of forward products of fewer than config.turned_rows rows in a micro-step a transposed view.
local function pack_views(g, config)
    local packed = {}
    each_product(g, { "forward", "backward" }, function(node, param)
        local rows = node.run and node.run.whole or graph.elements(node.size.lead)
        if rows < config.turned_rows and not panels_of(config, node) then packed[param] = true end
    end)
    each_product(g, BODIES, function(node, param)
        if not packed[param] then return end
        node.ins = ordered.copy(node.ins, { weight = transposed(g, config.builder, param) })
        node.op, node.signature = "linear_in_out", config.ops.linear_in_out.signature
        node.why = "weight packed once per update"
    end)
end

-- The view in whose order a node on a convolution's weight is to read or make it; nil: none.
local function octets_for(g, config, node)
    local weight, planes = node.ins.weight, node.op == "conv2d" and "x" or node.op == "conv2d_turned" and "dy"
    if planes and weight.kind == "param" and config.octets(node.attrs, planes) then
        return by_octets(g, config.builder, weight.param, node.attrs, planes)
    end
end

-- The view of the turned weight that a node makes of a view of the weight in 16 bits; nil: none.
local function turned_for(g, config, node)
    local weight, a = node.ins.weight, node.attrs
    if node.op == "conv2d_turned" and weight.kind == "view" then
        return view_of(g, config.builder, weight.param, ("turned_%dx%d"):format(a.height, a.width), function(name)
            return config.builder:value("conv2d_turned", { weight = weight }, a, name)
        end)
    end
end

-- Gives the weights of convolutions the views that view_for(g, config, node) finds: for the convolution, and in the
-- place of the turned weight for the gradient of its input.
local function conv_views(g, config, view_for)
    local instead = {}          -- turned weight -> the view in its place
    local function rewrite(body)
        local list = table.move(body, 1, #body, 1, {})
        for i = 1, #body do body[i] = nil end
        for _, node in ipairs(list) do
            if node.op == "times" then rewrite(node.body) end
            local view = node.ins and (view_for(g, config, node) or instead[node.ins.weight])
            if view and node.op == "conv2d_turned" then
                instead[node.outs.y.tensor] = view
            else
                if view then node.ins = ordered.copy(node.ins, { weight = view }) end
                body[#body + 1] = node
            end
        end
    end
    for _, name in ipairs(BODIES) do rewrite(g[name]) end
    g.tensors = ordered.collect(g.tensors, function(t) return not instead[t] and t or nil end)
end

-- Records the decision about a view for each parameter of two axes or more.
local function note_views(g, config)
    for _, param in ipairs(graph.units(g)) do
        if param.used and #param.shape > 1 then
            if param.views.in_out then
                graph.decide(g, param.name, "transposed view", "a product of each micro-step reads it by columns")
            elseif param.views.panels or param.views.turned_panels then
                graph.decide(g, param.name, "views", "products of each micro-step read panels")
            elseif param.views.octets then
                graph.decide(g, param.name, "view by octets", "products gather 8 channels at a tap")
            elseif param.views.narrow then
                graph.decide(g, param.name, "view", ("products read %s"):format(g.half))
            else
                graph.decide(g, param.name, "home", config.without:has "layout" and "pass layout is left out"
                    or "its readers read rows, or turn columns as they pack them")
            end
        end
    end
end

--- Makes 16-bit views of all other weights that products read: panels, or copies.
function layout.narrow_views(g, config)
    for _, name in ipairs(BODIES) do
        graph.walk(g[name], function(node)
            local op = config.ops[node.op]
            for _, key in ipairs(op and op.rounds and node.signature.ins or {}) do
                local t = node.ins[key]
                if t and t.kind == "param" and op.half[key] and not graph.is_half(t) then
                    local kind = panels_of(config, node)
                    local view = kind and panelled(g, config.builder, t.param, kind, config.panels)
                        or narrowed(g, config.builder, t.param)
                    node.ins = ordered.copy(node.ins, { [key] = view })
                    if kind then node.why = "panels packed once per update" end
                end
            end
        end)
    end
end

-- The node of a view: that of its layers in one body.
local function node_of(node) return node.body and node.body[1] or node end

-- Makes both panels of a weight in one node, that of the first of them, which reads the weight once.
local function join_panels(g, config)
    local left_out = {}
    for _, param in ipairs(graph.units(g)) do
        local panels, turned = param.views.panels, param.views.turned_panels
        if panels and turned then
            local node = panels.def
            left_out[turned.def], turned.def = true, node
            node.op, node.signature = "pack_both_panels", config.ops.pack_both_panels.signature
            node.size = { N = panels.shape[1], K = panels.shape[2] }
            node.outs = { y = { tensor = panels }, turned = { tensor = turned } }
        end
    end
    g.views = ordered.collect(g.views, function(node) return not left_out[node_of(node)] and node or nil end)
end

-- Whether an update writes copies of all trained parameters in 16 bits beside them, where products read these views:
-- each rank updates all parameters, element by element, and products read most of them.
local function narrows(g, config, views)
    local elements = 0
    for _, view in ipairs(views) do elements = elements + graph.elements(view.shape) * view.param.count end
    for _, group in g.groups:each() do
        if group.rule.scope ~= "element" then return false end
    end
    return not g.sharded.state and not config.nvme and 2 * elements > g.trained_elements
end

-- Leaves out the nodes that make copies which an update writes.
local function leave_copies(g, config)
    local views = ordered.collect(graph.units(g), function(param) return param.used and param.views.narrow or nil end)
    g.narrows = config.narrows and narrows(g, config, views)
    if not g.narrows then return end
    for _, view in ipairs(views) do view.def = nil end
    g.views = ordered.collect(g.views, function(node)
        return node_of(node).outs.y.tensor.def and node or nil
    end)
end

-- Notes the handler of each trained parameter where handlers reduce over groups.
local function set_handlers(g, config)
    g.handlers = config.handled and config.handlers or nil
    for _, param in ipairs(g.handlers and g.params or {}) do
        local entry = param.used and handlers.of(config, param)
        param.handler = entry and entry.number
    end
end

-- Numbers the parameters in the order in which files have them, whatever a mode does to the flat space.
local function number(g)
    local k = 0
    for _, part in ipairs { "used", "collected", "moved", "rest" } do
        for _, item in ipairs(items_of(g, part, part == "used")) do
            for _, param in ipairs(item.params) do k, param.number = k + 1, k + 1 end
        end
    end
end

function layout.run(g, config)
    set_handlers(g, config)
    number(g)
    local chunk = config.chunks and chunk_size.choose(g, config, aligned) or nil
    local items = items_of(g, "used", not chunk)
    g.trained_elements = place_parameters(items, 0)
    g.summed_elements = place_parameters(items_of(g, "collected"), g.trained_elements)
    g.moved_elements = place_parameters(items_of(g, "moved"), g.summed_elements)
    g.flat_elements = place_parameters(items_of(g, "rest"), g.moved_elements)
    place_joints(g)
    place_states(g, items)
    segments(g, items)
    buckets(g, config, items, chunk, aligned)
    if g.sharded.parameters then
        gathered.set(g, config)
    elseif not config.without:has("layout") then
        pack_views(g, config)
        if config.octets then conv_views(g, config, octets_for) end
    end
    if g.half then
        layout.narrow_views(g, config)
        local several = config.turns_once and config.accumulate > 1 and not config.without:has "layout"
        if several and not g.sharded.parameters then conv_views(g, config, turned_for) end
        join_panels(g, config)
        leave_copies(g, config)
    end
    if not g.sharded.parameters then note_views(g, config) end
    return #g.views == 0 and not g.half
end

return layout
