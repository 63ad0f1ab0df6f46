-- graphs: what a program captures once and launches as a whole. A cycle is one graph, with its micro-steps and its
-- boundary, unless that has more nodes than a driver instantiates and keeps well; then its micro-steps are graphs, one
-- for each role, launched one behind the other.
local ordered = require "base.ordered"
local text = require "base.text"

local graphs = {}

local MOST = 20000    -- nodes of the graph of a cycle; a node takes some hundred bytes on the host and on the device

local NOTHING = { handler = true, state_finish = true }    -- only libraries have handlers; the host ends a sweep

-- Nodes of a graph that a body becomes, without those that NCCL adds.
local function launches(body)
    local n = 0
    for _, node in ipairs(body) do
        n = n + (node.op == "times" and node.count * launches(node.body) or NOTHING[node.op] and 0 or 1)
    end
    return n
end

local function micro_nodes(g) return launches(g.forward) + launches(g.backward) end

--- The boundary of a program whose state lies in a file, as three bodies: before the sweep, the sweep, which the host
--- goes on with where the graph of a cycle ends, and after it.
function graphs.parts(g)
    local parts = { before = {}, swept = {}, after = {} }
    local at = parts.before
    for _, node in ipairs(g.boundary) do
        if node.op == "state_finish" then
            at = parts.after
        else
            table.insert(node.part == "swept" and parts.swept or at, node)
        end
    end
    return parts
end

--- Whether something waits for the sweep over the file: copies of weights, a gather.
function graphs.has_after(g) return g.state_file ~= nil and (#graphs.parts(g).after > 0 or #g.views > 0) end

-- Nodes of the graph behind the sweep over the file; 0: there is none.
local function after_nodes(g) return g.state_file and launches(graphs.parts(g).after) + launches(g.views) or 0 end

-- Nodes of the graph of a cycle of `a` micro-steps. With a state in a file that ends before the sweep.
local function cycle_nodes(g, a)
    local ends = g.state_file and launches(graphs.parts(g).before) or launches(g.boundary) + launches(g.views)
    return a * micro_nodes(g) + ends
end

--- The numbers of micro-steps whose cycles are one graph.
function graphs.sizes(g)
    return ordered.collect(g.sizes, function(a) return cycle_nodes(g, a) <= MOST and a or nil end)
end

--- The facts of the plan: the nodes of the first cycle, those of its largest graph, those of the one behind a sweep.
function graphs.facts(g)
    local nodes = cycle_nodes(g, g.accumulate)
    local whole = nodes <= MOST
    return { of = whole and "cycle" or "micro-step", nodes_per_cycle = nodes,
        nodes = whole and nodes or cycle_nodes(g, 1), after_sweep = graphs.has_after(g) and after_nodes(g) or nil }
end

--- The graphs by name: two per size of a cycle, one for each slot of the ring, one per role, and what is behind a sweep
--- over a file.
function graphs.names(g)
    local names = {}
    for _, a in ipairs(graphs.sizes(g)) do
        for slot = 0, 1 do names[#names + 1] = ("CYCLE_%d_%d"):format(a, slot) end
    end
    for _, role in ipairs(g.roles) do names[#names + 1] = "MICRO_" .. role.name:upper() end
    names[#names + 1] = graphs.has_after(g) and "AFTER_SWEEP" or nil
    return names
end

local function block_of(lines) return text.block(table.concat(lines, "\n")) end

--- The functions that run the cycles of each size, and the first of their two graphs.
function graphs.cycle_cases(g)
    local play, first = {}, {}
    for _, a in ipairs(graphs.sizes(g)) do
        for slot = 0, 1 do
            play[#play + 1] = ("case CYCLE_%d_%d: cycle_%d(q, m, %d); break;"):format(a, slot, a, slot)
        end
        first[#first + 1] = ("case %d: return CYCLE_%d_0;"):format(a, a)
    end
    return block_of(play), block_of(first)
end

--- The calls that run a micro-step of each role, or what is behind a sweep, and the rows that name a role's graph.
function graphs.micro_cases(g)
    local cases, rows = {}, {}
    for _, role in ipairs(g.roles) do
        local ends = role.name == "last" or role.name == "only"
        local name = "MICRO_" .. role.name:upper()
        cases[#cases + 1] = ("case %s: micro(q, m, SINGLE, 0, GA_%s);%s break;"):format(name, role.name:upper(),
            ends and " boundary(q, m);" or "")
        rows[#rows + 1] = ("[GA_%s] = %s,"):format(role.name:upper(), name)
    end
    cases[#cases + 1] = graphs.has_after(g) and "case AFTER_SWEEP: after_sweep(q, m); break;" or nil
    return block_of(cases), block_of(rows)
end

return graphs
