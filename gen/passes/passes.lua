-- passes: the list of passes, in order. A pass changes the graph as the configuration says. The runner checks the
-- graph after each pass and, with --trace, writes it to a file. A pass marked `optional` can be left out (--without
-- NAME) without changing results; one marked `always` then still runs in part. A pass in gen/passes that is not in
-- the list names its predecessor in `after`, and its own fields of the graph in `fields`, as in graph/fields.lua.
-- A pass returns true if it left all bodies unchanged: the runner then checks their order only with --trace and after
-- the last pass.
local diag = require "base.diag"
local fields = require "graph.fields"
local ordered = require "base.ordered"
local print_graph = require "graph.print"
local verify = require "graph.verify"

local passes = {}

passes.list = {
    require "passes.split",        -- frozen parameters; runs of layers of one form
    require "passes.merge",        -- linear layers of one input become one product (optional)
    require "passes.forward_only", -- a copy of the forward pass for one row, for programs that only predict
    require "passes.statistics",   -- batchnorm over the rows of all ranks
    require "passes.autodiff",     -- backward nodes and gradient tensors
    require "passes.head_by_rows", -- the last layer and its loss over some rows at a time (optional)
    require "passes.accumulate",   -- sums over micro-steps that kernels do not compute
    require "passes.optimize",     -- parameter groups and optimizer state
    require "passes.precision",    -- a concrete type for every tensor
    require "passes.recompute",    -- values recomputed in the backward pass (optional)
    require "passes.layout",       -- the flat space, buckets, packed views (views: optional)
    require "passes.octets",       -- 8 channels side by side around convolutions on tensor cores
    require "passes.update",       -- the boundary: measure, decide, update
    require "passes.fusion",       -- chains of pointwise nodes become one kernel (optional)
    require "passes.channels",     -- statistics of batchnorm in parts (optional)
    require "passes.sums",         -- sums over rows in kernels that read these rows (optional)
    require "passes.parts",        -- sums over many rows in parts (optional)
    require "passes.together",     -- sums of parts in one kernel (optional)
    require "passes.widened",      -- values of 16 bits widened once for all tiles of a product (optional)
    require "passes.strides",      -- rows of values that begin where 16 bytes can be moved at once (optional)
    require "passes.collectives",  -- which collective follows which node
    require "passes.windows",      -- memory for gradients that are exchanged at once
    require "passes.chunks",       -- memory for parameters that are gathered before use
    require "passes.roles",        -- the roles that A needs
    require "passes.carries",      -- copies of initial values of loop carries
    require "passes.branch",       -- gradients of parameters beside the backward pass (optional)
    require "passes.memory",       -- an arena and an offset for every tensor
    require "passes.placement",    -- which chunks lie in host memory
    (require "passes.sync"),       -- barriers between kernels that share memory
}

local function position(name)
    for i, pass in ipairs(passes.list) do
        if pass.name == name then return i end
    end
end

-- Adds the passes found in the folder to the list.
local function find_others()
    for _, file in ipairs(host.embedded_names("gen/passes/")) do
        local name = file:match("^gen/passes/([%w_]+)%.lua$")
        local pass = name and name ~= "passes" and require("passes." .. name)
        if type(pass) == "table" and pass.after then
            local before = position(pass.after)
            if not (pass.name and pass.doc and pass.run and before) then
                error(("%s: expected the name, doc and run of a pass, and after = the name of one"):format(file), 0)
            end
            table.insert(passes.list, before + 1, pass)
            for record, list in ordered.each(pass.fields or {}) do
                for field, meaning in ordered.each(list) do fields[record][field] = meaning end
            end
        end
    end
end
find_others()

--- Names of all passes, and of the optional ones.
function passes.names(optional)
    local names = {}
    for _, pass in ipairs(passes.list) do
        if not optional or pass.optional then names[#names + 1] = pass.name end
    end
    return names
end

local function check_name(option, name, allowed)
    for _, other in ipairs(allowed) do
        if other == name then return end
    end
    diag.fail("gagen", ("%s: no pass '%s' there, expected one of %s"):format(option, name,
        table.concat(allowed, ", ")), { hint = diag.suggest(name, allowed) })
end

--- Runs the list over g. config.without: set of names; config.stop_after; config.trace(name, text).
function passes.run(g, config)
    for name in config.without:each() do
        check_name("--without", name, passes.names(true))
    end
    if config.stop_after then check_name("--stop-after", config.stop_after, passes.names()) end
    verify(g, "build", true, true)
    local before = config.trace and print_graph(g)
    for i, pass in ipairs(passes.list) do
        local same = true
        if not (pass.optional and not pass.always and config.without:has(pass.name)) then
            same = pass.run(g, config)
        end
        local all = config.trace or i == #passes.list
        verify(g, pass.name, all or not same, all)
        if config.trace then
            local after = print_graph(g)
            config.trace(("%02d-%s.txt"):format(i, pass.name),
                after == before and "(unchanged)\n" or after)
            before = after
        end
        if pass.name == config.stop_after then return g end
    end
    return g
end

return passes
