-- verify_windows: in a backward pass, gradients are written into the window of their bucket before its exchange starts,
-- and never where the exchange of another bucket may still read. Each bucket starts once. The pass is walked as
-- the program runs it, iteration by iteration.
local bucket_spans = require "graph.bucket_spans"

-- started: buckets whose exchange has started; sent: those that nobody has waited for since.
local Pass = {}
Pass.__index = Pass

-- The buckets that a list of entries { loop, at } names in iteration l.
local function each_at(entries, l, f)
    for _, entry in ipairs(entries or {}) do
        local i = bucket_spans.number(entry, l)
        if i then f(i) end
    end
end

function Pass:wait(node, l)
    for _, i in ipairs(node.needs or {}) do self.sent[i] = nil end
    each_at(node.needs_at, l, function(i) self.sent[i] = nil end)
    for _, layered in ipairs(node.needs_layers or {}) do
        local done = layered.loop.count - 1 - l
        if done % layered.layers == 0 and done >= 2 * layered.layers then
            self.sent[layered.first + done // layered.layers - 2] = nil
        end
    end
end

function Pass:start(node, l)
    local function start(i)
        if self.started[i] then self.broken(node, ("starts bucket %d again"):format(i)) end
        self.started[i], self.sent[i] = true, true
    end
    for _, i in ipairs(node.completes or {}) do start(i) end
    each_at(node.completes_at, l, start)
    for _, layered in ipairs(node.completes_layers or {}) do
        local done = layered.loop.count - 1 - l
        if (done + 1) % layered.layers == 0 or l == 0 then start(layered.first + done // layered.layers) end
    end
end

-- Layers that take turns in a ring are found by arithmetic, all others by their places.
function Pass:check_place(node, param, i, l)
    local x = self.g.collectives[i]
    local at, lies = bucket_spans.layer_at(param.window, param, l) - x.window,
        param.flat.offset + l * param.flat.stride - x.offset
    if not param.window.ring and at ~= lies then
        self.broken(node, ("writes the gradient of layer %d of %s at element %d of bucket %d, expected %d"):format(l,
            param.name, at, i, lies))
    end
end

function Pass:check_write(node, param, l)
    local list = self.g.collectives
    local i = bucket_spans.bucket_of(self.g, param, l)
    local own = list[i]
    if self.started[i] then
        self.broken(node, ("writes the gradient of %s behind the start of bucket %d"):format(param.name, i))
    end
    self:check_place(node, param, i, l)
    for k, other in ipairs(list) do
        local meets = self.sent[k] and not other.beside and other.window < own.window + own.n
            and own.window < other.window + other.n
        if meets then
            self.broken(node, ("writes the window of bucket %d while bucket %d is on its way from there"):format(i, k))
        end
    end
end

function Pass:walk(body, l)
    for _, node in ipairs(body) do
        self:wait(node, l)
        bucket_spans.each_gradient(node, function(param) self:check_write(node, param, param.region and l or 0) end)
        if node.op == "times" then
            for i = 0, node.count - 1 do
                self:walk(node.body, node.step > 0 and i or node.count - 1 - i)
            end
        end
        self:start(node, l)
    end
end

--- Calls broken(node, message) where the pass goes wrong.
return function(g, broken)
    local pass = setmetatable({ g = g, broken = broken, started = {}, sent = {} }, Pass)
    pass:walk(g.backward, 0)
    for i in ipairs(g.collectives) do
        if not pass.started[i] then broken(g.backward[#g.backward], ("does not start bucket %d"):format(i)) end
    end
end
