-- Gradient handlers over groups of ranks: a model, specs of it, and the formula of each handler, made from the gradients of
-- single micro-batches.
local json = dofile "tests/lua/json.lua"

local handled = {}

local RANKS, ROWS, RATE = 4, 3, 0.5

-- === specs =======================================================================================

--- Writes the rows of A micro-steps of all ranks, less two, and returns the file's name. The last micro-batch
--- has one row, so ranks have other weights.
function handled.write_rows(t, programs, a)
    local lines, state = {}, 3
    local function digit()
        state = (state * 75 + 74) % 65537
        return state % 10
    end
    for i = 1, RANKS * ROWS * a - 2 do
        lines[i] = ("%d,%d,%d,%d,%d"):format(digit(), digit(), digit(), digit(), digit() % 3)
    end
    local name = ("handlers_%d.csv"):format(a)
    t.write(programs.folder() .. "/data/" .. name, table.concat(lines, "\n") .. "\n")
    return name
end

local MODEL = [[{
    linear "tied" { 6, bias = false }, tanh {},
    times(%d) "h" { residual { linear "experts.up" { 6 }, tanh {}, linear "mix" { 6 } } },
    linear "head" { 3 },
}]]

--- A spec; o: { file, a, parallel, rate, optimizer, layers of "h" (3), more = further words }.
function handled.spec(o)
    return table.concat({ ('data { "csv", train = %q, target = "last", scale = 1/10, shuffle = false, last = "pad" }')
        :format(o.file), ("batch (%d)\naccumulate { %d }"):format(ROWS, o.a), "model " .. MODEL:format(o.layers or 3),
        'loss { "cross_entropy", weight = "sample" }',
        o.optimizer or ('optimizer { "sgd", lr = %g }'):format(o.rate or RATE), 'precision "f64"',
        "train { updates = 50, seed = 7 }", 'checkpoint { every = "end" }', o.parallel or "", o.more or "" }, "\n")
end

--- The word parallel with these groups and handlers, as text; more: further fields.
function handled.parallel(groups, handlers, more)
    return ('parallel { "ddp", ranks = %d, groups = { %s }, handlers = { %s }%s }'):format(RANKS, groups, handlers,
        more or "")
end

-- === the truth ===================================================================================

--- The sums of the rows' gradients in each micro-batch, and how many rows it has, at the values that training starts
--- with: by a program of one rank whose rate is 0. layers: of "h", 3 without.
function handled.micro_batches(t, programs, file, a, layers)
    local p = programs.build(("handlers_truth_%d_%d"):format(a, layers or 3),
        handled.spec { file = file, a = 1, rate = 0, layers = layers })
    local list = {}
    for k = 0, RANKS * a - 1 do
        local dump = programs.dump(p, { "--cycles", k + 1, "--threads", 1 })
        list[k] = { gradients = programs.tensors(dump .. "/gradients.safetensors"),
            rows = k == RANKS * a - 1 and ROWS - 2 or ROWS }
        list.start = list.start or programs.tensors(dump .. "/parameters.safetensors")
    end
    return list
end

-- The mean gradient over the rows of these ranks. A dump is divided by the rows of a full micro-batch.
local function mean_over(truth, name, ranks, a)
    local sum, rows = {}, 0
    for i = 1, truth.start[name].count do sum[i] = 0 end
    for _, rank in ipairs(ranks) do
        for k = 0, a - 1 do
            local micro = truth[k * RANKS + rank]
            rows = rows + micro.rows
            for i, x in ipairs(micro.gradients[name].values) do sum[i] = sum[i] + ROWS * x end
        end
    end
    for i = 1, #sum do sum[i] = sum[i] / rows end
    return sum
end

local function list_of(lists, rank)
    for _, list in ipairs(lists) do
        for _, other in ipairs(list) do
            if other == rank then return list end
        end
    end
    return { rank }
end

local ALL = { { 0, 1, 2, 3 } }

--- The result that rank `rank` must have after an update. reduction(name): { lists, op }; lists that do not name a rank
--- leave it alone.
function handled.expected(truth, name, rank, a, reduction)
    local r = reduction(name)
    local list = list_of(r.lists, rank)
    local mean = mean_over(truth, name, list, a)
    for i = 1, #mean do mean[i] = mean[i] * (r.op == "sum" and #list or 1) end
    return mean
end

--- The sum of squares of each distinct copy.
function handled.squares(truth, a, reduction)
    local sum = 0
    for name in next, truth.start do
        for rank = 0, RANKS - 1 do
            if list_of(reduction(name).lists, rank)[1] == rank then
                for _, g in ipairs(handled.expected(truth, name, rank, a, reduction)) do sum = sum + g * g end
            end
        end
    end
    return sum
end

--- An error unless both numbers are equal up to 1e-12.
function handled.near(found, wanted, what)
    if not (math.abs(found - wanted) <= 1e-12 * math.max(1, math.abs(wanted))) then
        error(("%s: %.17g found, %.17g expected"):format(what, found, wanted), 2)
    end
end

-- === checks ======================================================================================

--- The last update in a log.
function handled.last_update(log)
    local found
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "update" then found = event end
    end
    return found
end

--- Compares the parameters of each rank behind one update with the formula. o: { dump, truth, a, reduction, made(g) =
--- what a function of the spec makes of an element, factor = of a clip }.
function handled.check(programs, o)
    for rank = 0, RANKS - 1 do
        local own = programs.tensors(("%s/parameters-%dof%d.safetensors"):format(o.dump, rank + 1, RANKS))
        for tensor, found in next, own do
            local g = handled.expected(o.truth, tensor, rank, o.a, o.reduction)
            local start = o.truth.start[tensor].values
            for i, w in ipairs(found.values) do
                handled.near(w, start[i] - RATE * (o.factor or 1) * (o.made and o.made(g[i]) or g[i]),
                    ("rank %d: %s[%d]"):format(rank, tensor, i))
            end
        end
    end
end

--- A function that gives a parameter its reduction: the first of { pattern, lists, op } that fits.
function handled.first_of(entries)
    return function(name)
        for _, entry in ipairs(entries) do
            if name:find(entry[1]) then return { lists = entry[2], op = entry[3] or "mean" } end
        end
        return { lists = ALL, op = "mean" }
    end
end

--- The calls of all exchanges of an update in a plan.
function handled.calls_of(plan)
    local calls = 0
    for _, c in ipairs(plan.collectives) do calls = calls + c.calls end
    return calls
end

return handled
