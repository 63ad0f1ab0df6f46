-- Barriers of the boundary: every order of kernels that a rank can execute is written out, and two kernels that touch
-- the same memory must have a barrier between them. A loop over parts has no iteration on a rank that owns none.
local compile = require "command.compile"
local graph = require "graph.graph"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (6)
accumulate (2)
model {
    linear "first" { 8 }, relu {},
    times(3) "h" { residual { layernorm "ln" {}, linear "fc" { 8 }, gelu {} } },
    linear "head" { 3 },
}
loss       "cross_entropy"
optimizer  %s
%s
train      { updates = 4 }
parallel   { "%s", ranks = 3, bucket = "1KiB" }
]]

-- The memory that a kernel touches: { arena, write, ranges, part }; ranges: of each slot that it may touch. A tensor with
-- a slot for each layer is another slot in each iteration; part: { loop, number, name }, since iterations of a loop over
-- parts touch different parts of a run.
local function accesses(node, iteration)
    local list = {}
    local function touch(t, write)
        local p, n, ranges = t.place, graph.places(t), {}
        local parts = t.kind == "range" and t.scope and t.scope.part
        local own = iteration and not parts and not p.carry and p.slots == iteration.loop.count
        for slot = own and iteration.number or 1, own and iteration.number or p.slots do
            local from = p.offset + (slot - 1) * (p.stride or 0)
            ranges[#ranges + 1] = { from, from + n }
        end
        list[#list + 1] = { arena = p.arena, write = write, ranges = ranges,
            part = parts and iteration and { loop = iteration.loop, number = iteration.number, name = t.name } }
    end
    for _, t in ipairs(graph.reads(node)) do touch(t, false) end
    for _, out in ipairs(graph.writes(node)) do touch(out.tensor, true) end
    return list
end

local function overlap(a, b)
    for _, x in ipairs(a) do
        for _, y in ipairs(b) do
            if x[1] < y[2] and y[1] < x[2] then return true end
        end
    end
    return false
end

local function other_part(a, b)
    return a and b and a.loop == b.loop and a.name == b.name and a.number ~= b.number
end

local function conflict(a, b)
    for _, x in ipairs(a) do
        for _, y in ipairs(b) do
            if (x.write or y.write) and x.arena == y.arena and not other_part(x.part, y.part)
                and overlap(x.ranges, y.ranges) then
                return true
            end
        end
    end
    return false
end

-- Kernels in the order of their execution, in groups that barriers divide. has(loop): iterations of a loop over parts.
local function groups_of(body, has)
    local groups = { {} }
    local function barrier() groups[#groups + 1] = {} end
    local function run(list, iteration)
        for _, node in ipairs(list) do
            if node.barrier then barrier() end
            if node.op == "times" then
                for number = 1, node.part and has(node) or node.count do
                    run(node.body, { loop = node, number = number })
                end
            else
                table.insert(groups[#groups], { node = node, accesses = accesses(node, iteration) })
                if node.fence then barrier() end
            end
        end
    end
    run(body)
    return groups
end

local function result_of(node)
    local first = graph.writes(node)[1]
    return first and first.tensor.name or node.op
end

local function check(body, has, about)
    for _, group in ipairs(groups_of(body, has)) do
        for i, a in ipairs(group) do
            for k = i + 1, #group do
                if conflict(a.accesses, group[k].accesses) then
                    error(("%s: no barrier between %s and %s"):format(about, result_of(a.node),
                        result_of(group[k].node)), 0)
                end
            end
        end
    end
end

local OPTIMIZERS = {
    '{ "adamw", lr = 1e-2, ema = 0.9 }', '{ "lamb", lr = 1e-2 }', '{ "adafactor", lr = 1e-2, ema = 0.9 }',
    '{ "muon", lr = 1e-2, rest = { "adamw", lr = 1e-3 } }', '{ "lars", lr = 1e-2, momentum = 0.9 }',
}

local rng = 1
-- 1 or 2, the same sequence in every run.
local function draw()
    rng = (rng * 48271) % 2147483647
    return rng % 2 + 1
end

for _, mode in ipairs { "ddp", "zero1", "zero2" } do
    add(mode .. ": kernels that share memory have a barrier between them, also on a rank without parts", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local path = t.root .. "/" .. programs.folder() .. "/sync.lua"
        for _, optimizer in ipairs(OPTIMIZERS) do
            for _, clip in ipairs { "clip (0.1)", "clip { value = 0.01 }" } do
                t.write(path, SPEC:format(optimizer, clip, mode))
                local g = compile(path, { target = "c", march = "x86-64-v3" })
                local about = optimizer .. " " .. clip
                check(g.boundary, function() return 0 end, about .. ", no part")
                check(g.boundary, function() return 2 end, about .. ", two parts of each")
                for _ = 1, 20 do
                    check(g.boundary, function() return 2 * (draw() - 1) end, about .. ", some parts")
                end
            end
        end
    end)
end

return tests
