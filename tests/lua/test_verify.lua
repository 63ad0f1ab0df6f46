-- verify refuses a graph that a pass has broken, and names the pass.
local graph = require "graph.graph"
local verify = require "graph.verify"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A value in use from `from` to `to`, at an address.
local function value(g, name, offset, from, to)
    local t = graph.tensor(g, { name = name, shape = { 16 }, kind = "value" })
    g.arenas = {}
    t.place = { arena = "activations", offset = offset, stride = 16, slots = 1, from = from, to = to }
    return t
end

add("two values may share memory at different times, or a time at different addresses", function()
    local g = graph.new("g")
    value(g, "a", 0, 1, 9)
    for i = 1, 3 do value(g, "b", 16, 3 * i - 2, 3 * i) end
    value(g, "c", 32, 1, 9)
    value(g, "d", 0, 10, 12)
    verify(g, "memory")
end)

add("two values that share memory at the same time are refused", function(t)
    for _, other in ipairs { { 0, 4, 4 }, { 15, 5, 7 }, { 15, 1, 2 }, { 8, 1, 9 } } do
        local g = graph.new("g")
        value(g, "a", 0, 2, 5)
        value(g, "behind", 16, 8, 9)
        value(g, "b", table.unpack(other))
        t.fails(function() verify(g, "memory") end, "after pass memory: .* shares memory with ")
    end
end)

add("a field that is not declared is refused", function(t)
    local function refused(change, kind)
        local g = graph.new("g")
        change(g, value(g, "a", 0, 1, 2))
        t.fails(function() verify(g, "mine", true, true) end,
            "after pass mine: .*field 'colour' of a " .. kind .. " is not declared in graph/fields.lua")
    end
    refused(function(g) g.colour = 1 end, "graph")
    refused(function(_, tensor) tensor.colour = 1 end, "tensor")
    refused(function(g) g.params[1] = { name = "p", colour = 1 } end, "param")
    local function node(more)
        local n = { op = "copy", ins = {}, outs = {}, at = "spec.lua:1", signature = { ins = {}, outs = { "y" } } }
        for key, x in next, more do n[key] = x end
        return n
    end
    refused(function(g) g.forward[1] = node { colour = 1 } end, "node")
    refused(function(g, tensor) g.forward[1] = node { outs = { y = { tensor = tensor, colour = 1 } } } end, "out")
    refused(function(g)
        g.forward[1] = { op = "times", body = {}, carries = {}, at = "spec.lua:1", colour = 1 }
    end, "region")
end)

return tests
