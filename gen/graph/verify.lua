-- verify: what must hold after every pass. A violation is a bug of gagen, never of a spec.
local fields = require "graph.fields"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local verify_chunks = require "graph.verify_chunks"
local verify_windows = require "graph.verify_windows"

local function broken(pass, node, message)
    error(("after pass %s: %s (%s): %s"):format(pass, node.name or node.op or "graph",
        node.at or "?", message))
end

-- Kinds of tensors that are there before any node runs.
local GIVEN = { input = true, param = true, scalar = true, view = true, range = true }

-- Kinds of tensors that several nodes may write.
local WRITTEN_AGAIN = { scalar = true, param = true, range = true }

-- `t`, that a node reads, was written before or is given.
local function check_read(pass, node, t, known)
    if not known[t] and not GIVEN[t.kind] then broken(pass, node, "reads " .. t.name .. " before it is written") end
end

local function check_write(pass, node, out, known, firsts)
    local t, acc = out.tensor, out.acc
    if acc and acc.first then
        firsts[t] = (firsts[t] or 0) + 1
    elseif acc then
        if not known[t] then broken(pass, node, "adds to " .. t.name .. ", which nobody wrote") end
    elseif known[t] and not (out.run or out.columns or WRITTEN_AGAIN[t.kind] or graph.reads_tensor(node, t)) then
        broken(pass, node, "writes " .. t.name .. " twice")
    end
    known[t] = true
end

-- Every tensor read was written before, in the same or an enclosing body, or comes from outside. The check runs after
-- most passes, so it looks into nodes without making the lists of graph.reads and graph.writes. `firsts` counts the
-- first writers of what several nodes add to.
local function check_order(pass, body, known, firsts)
    for _, node in ipairs(body) do
        if not node.at then broken(pass, node, "no place in the spec") end
        if node.op == "times" then
            for _, c in ipairs(node.carries) do
                check_read(pass, node, c.init, known)
                known[c.arg] = true
            end
            check_order(pass, node.body, known, firsts)
            for _, c in ipairs(node.carries) do
                if not known[c.result] then broken(pass, node, "a carry has no result") end
                known[c.out] = true
            end
        else
            local signature, ins, outs = node.signature, node.ins, node.outs
            for _, name in ipairs(signature.ins) do
                local t = ins[name]
                if t and not known[t] then check_read(pass, node, t, known) end
            end
            for _, name in ipairs(signature.outs) do
                local out = outs[name]
                if out then check_write(pass, node, out, known, firsts) end
            end
        end
    end
end

-- The bodies of the graph; each gradient has exactly one first writer.
local function check_bodies(pass, g)
    local known, firsts = {}, {}
    check_order(pass, g.forward, known, {})
    check_order(pass, g.evaluation, setmetatable({}, { __index = known }), {})
    check_order(pass, g.backward, known, firsts)
    check_order(pass, g.boundary, known, {})
    for _, param in ipairs(graph.units(g)) do
        if param.gradient and firsts[param.gradient] ~= 1 then
            broken(pass, param, "its gradient has " .. (firsts[param.gradient] or 0) ..
                " first writers, expected 1")
        end
    end
end

-- The values that have a place in time and memory, by address, then by time.
local function placed_values(g)
    local list = {}
    for _, t in ipairs(g.tensors) do
        if t.place and t.place.from then list[#list + 1] = t end
    end
    table.sort(list, function(a, b)
        local p, q = a.place, b.place
        if p.offset ~= q.offset then return p.offset < q.offset end
        return p.from < q.from
    end)
    return list
end

-- The index in a list, sorted by when its values begin, of the first that begins after `time`.
local function first_after(list, time)
    local low, high = 1, #list + 1
    while low < high do
        local middle = (low + high) // 2
        if list[middle].place.from > time then high = middle else low = middle + 1 end
    end
    return low
end

-- No two values that live at the same time share memory. The values are met by rising address; `open` has
-- those met before, by time, so that a value can only collide with its neighbours there that reach its address.
local function check_places(pass, g)
    local open = {}
    for _, t in ipairs(placed_values(g)) do
        local place = t.place
        local function below(other)
            return other and other.place.offset + other.place.stride * other.place.slots <= place.offset
        end
        local i = first_after(open, place.from)
        while below(open[i]) do table.remove(open, i) end
        while below(open[i - 1]) do
            i = i - 1
            table.remove(open, i)
        end
        local before, after = open[i - 1], open[i]
        local hit = before and before.place.to >= place.from and before
            or after and after.place.from <= place.to and after
        if hit then broken(pass, t, "shares memory with " .. hit.name) end
        table.insert(open, i, t)
    end
end

-- Every field of these records is declared in graph/fields.lua.
local function check_fields(pass, g)
    local function check(kind, record)
        local unknown = ordered.first_missing(record, fields[kind])
        if unknown ~= nil then
            broken(pass, record, ("field '%s' of a %s is not declared in graph/fields.lua"):format(
                tostring(unknown), kind))
        end
    end
    check("graph", g)
    for _, t in ipairs(g.tensors) do check("tensor", t) end
    for _, param in ipairs(g.params) do check("param", param) end
    for _, joint in ipairs(g.joints) do check("param", joint) end
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary, g.views } do
        graph.walk(body, function(node)
            check(node.op == "times" and "region" or "node", node)
            for _, carry in ipairs(node.carries or {}) do check("carry", carry) end
            for _, out in ipairs(graph.writes(node)) do check("out", out) end
        end)
    end
end

--- Raises an error that names the pass and the node if an invariant does not hold. `bodies`: look at the bodies, as
--- after a pass that changes them; `with_fields`: look also for fields that are not declared, about a fifth of a
--- generator's work if done after every pass.
return function(g, pass, bodies, with_fields)
    if bodies then check_bodies(pass, g) end
    if g.arenas then check_places(pass, g) end
    if g.windows then verify_windows(g, function(node, message) broken(pass, node, message) end) end
    if g.chunks then verify_chunks(g, function(node, message) broken(pass, node, message) end) end
    if with_fields then check_fields(pass, g) end
end
