-- equiv: `gagen check SPEC --equiv A=1,2,4`: the proof that accumulation is exact. The spec becomes one
-- program for each A, in double precision, with the rows of a micro-step times A held constant; all
-- start from the same values, run the same cycles on the same data, and are compared with the first.
--
-- A gradient below NOISE times the largest of all is the rounding error of a sum that is zero (the bias of
-- keys in attention, say), and one that two sums of the same terms cancel to has fewer digits than LIMIT asks
-- for. Adam's division by sqrt(v) makes a whole step of either, so such an element's parameter is not
-- compared, and counted. A gradient is compared unless it is noise.
local batchnorm = require "spec.batchnorm"
local compile = require "command.compile"
local diag = require "base.diag"
local literal = require "base.literal"
local ordered = require "base.ordered"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"
local safetensors = require "command.safetensors"
local words = require "spec.words"

local equiv = {}

local LIMIT, CYCLES, NOISE = 1e-12, 3, 1e-13

-- Operations of all programs up to which they run the spec's cycles: some minutes on a small machine. Beyond,
-- they run one cycle of as few rows as the numbers of micro-steps allow.
local WORK = 2e12

-- Elements that are compared at once: in a part that has one too far apart they are looked at one by one.
local PART = 4096

--- "A=1,2,4" -> { 1, 2, 4 }.
function equiv.parse(argument)
    local list = {}
    for word in (argument:match("^A=([%d,]+)$") or ""):gmatch("[^,]+") do
        local a = math.tointeger(tonumber(word))
        if not a or a < 1 or a > 65536 then
            diag.fail("--equiv " .. argument, ("A is %s, expected 1..65536"):format(word), {})
        end
        if ordered.find(list, a) then
            diag.fail("--equiv " .. argument, ("%d is given twice"):format(a), {})
        end
        list[#list + 1] = a
    end
    if #list < 2 then
        diag.fail("--equiv " .. argument, "expected two numbers of micro-steps or more: A=1,2,4", {})
    end
    return list
end

-- What the programs have in the place of the spec's words.
local function changes(c, rows, a)
    local train = ordered.copy(c.train)
    train.epochs, train.updates = nil, c.cycles
    local list = {
        { "batch", { rows } }, { "accumulate", { a } }, { "precision", { "f64" } },
        { "parallel", { c.catalog.modes.default } }, { "target", { words.default("target", "kind") } },
        { "train", train }, { "eval", { batches = 1 } },
    }
    return ordered.collect(list, function(change)
        local text = change[1] .. "=" .. literal.write(change[2])
        return { word = change[1], value = change[2], text = text, at = "--equiv: " .. text }
    end)
end

-- One program: its folder below `temporary`, with micro-batches of `rows` rows.
local function write(path, o, c, temporary, rows, a)
    local g, config = compile(path, { set = o.set, march = o.march, threads = o.threads,
        without = o.without }, changes(c, rows, a))
    local folder = temporary .. "/a" .. a
    program_folder.write(folder, (program.render(g, config)))
    program_folder.link_data(path, folder)
    return { a = a, rows = rows, folder = folder }
end

local function quiet(argv, what)
    argv.quiet = true
    local status, output = host.run(argv)
    if status ~= 0 then
        diag.fail("--equiv", ("%s failed: %s"):format(what, output or ""), { kind = "environment" })
    end
end

-- Builds all programs with one make, whatever make this runs under.
local function build(programs, temporary, flags)
    local names = ordered.collect(programs, function(p) return p.folder .. "/train" end)
    host.write(temporary, "Makefile", "all: " .. table.concat(names, " ") .. "\n"
        .. "%/train: ; @$(MAKE) -s -C $* CFLAGS=" .. flags .. " train\n")
    quiet({ "env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "-s", "-j4", "-f",
        temporary .. "/Makefile" }, "make")
end

local function train(p, cycles)
    io.stderr:write(("A = %d: %d cycle%s of %d x %d rows\n"):format(p.a, cycles, cycles > 1 and "s" or "", p.a, p.rows))
    quiet({ p.folder .. "/train", "--cycles", tostring(cycles), "--quiet", "--checkpoint",
        p.folder .. "/checkpoints", "--dump", p.folder .. "/dump" }, p.folder .. "/train")
    p.gradients = safetensors.open(p.folder .. "/dump/gradients.safetensors")
    p.parameters = safetensors.open(p.folder .. "/dump/parameters.safetensors")
end

-- The largest |a - b| of a part of two tensors, without the elements further apart than `bound` that are not
-- to be compared, and how many these are.
local function gap_of(a, b, first, bound, is_compared)
    local gap, left_out = 0, 0
    for i = first, math.min(first + PART, b.n) - 1 do
        local d = math.abs(a:element(i) - b:element(i))
        if d > bound and not is_compared(i) then
            left_out = left_out + 1
        elseif d > gap or d ~= d then
            gap = d
        end
    end
    return gap, left_out
end

-- The worst max|a - b| / max|b| over the tensors of both: { difference, tensor, left_out }. Elements further
-- apart than LIMIT where is_compared(name, i) is false are left out and counted.
local function compare(a, b, is_compared)
    local worst = { difference = 0, tensor = "", left_out = 0 }
    for name, tensor in b:each() do
        local other, gap = a:get(name), 0
        local _, size = other:distance(tensor)
        for first = 0, tensor.n - 1, PART do
            local here, left_out = other:distance(tensor, first, PART), 0
            if not (here <= LIMIT * size) then
                here, left_out = gap_of(other, tensor, first, LIMIT * size, function(i) return is_compared(name, i) end)
            end
            gap = (here > gap or here ~= here) and here or gap
            worst.left_out = worst.left_out + left_out
        end
        local relative = gap == 0 and 0 or gap / size
        if relative > worst.difference or relative ~= relative then
            worst.difference, worst.tensor = relative, name
        end
    end
    return worst
end

local function compare_all(programs)
    local first, all = programs[1], 0
    for _, tensor in first.gradients:each() do all = math.max(all, (select(2, tensor:distance(tensor)))) end
    for i = 2, #programs do
        local p = programs[i]
        local function pair(name, k)
            return first.gradients:has(name) and first.gradients:get(name):element(k) or 0,
                p.gradients:has(name) and p.gradients:get(name):element(k) or 0
        end
        local function is_noise(g, h) return math.abs(g) <= NOISE * all and math.abs(h) <= NOISE * all end
        p.gradient = compare(p.gradients, first.gradients, function(name, k) return not is_noise(pair(name, k)) end)
        p.parameter = compare(p.parameters, first.parameters, function(name, k)
            local g, h = pair(name, k)
            local has_digits = not (math.abs(g - h) > LIMIT * math.max(math.abs(g), math.abs(h)))
            return g == 0 and h == 0 or not is_noise(g, h) and has_digits
        end)
        p.equal = p.gradient.difference <= LIMIT and p.parameter.difference <= LIMIT
    end
end

-- Removes a file or folder; a link is removed and never followed.
local function remove(path)
    if host.remove(path) ~= nil then return end
    for _, name in ipairs(host.list(path) or {}) do remove(path .. "/" .. name) end
    host.remove(path)
end

-- What in the spec makes the result depend on A, by its definition.
local function reasons(g, c)
    local list = setmetatable({}, { array = true })
    if c.loss.weight == "micro" then
        list[1] = 'loss: weight = "micro" gives each micro-step the same weight, whatever it counts'
    end
    local open = batchnorm.open(g)
    if open then list[#list + 1] = ("batchnorm %s: statistics are those of the rows of a micro-step"):format(open) end
    return list
end

local function common_multiple(x, y)
    local a, b = x, y
    while b > 0 do a, b = b, a % b end
    return x // a * y
end

-- Rows of a cycle and cycles: the spec's, or, where that is too much, as few as do: a micro-step has a row, or
-- whole groups of each batchnorm.
local function extent(list, g, c, work)
    local rows, cycles = c.batch * c.accumulate, math.min(CYCLES, c.cycles)
    if work * cycles * #list <= WORK then return rows, cycles end
    local least, group = 1, 1
    for _, a in ipairs(list) do least = common_multiple(least, a) end
    for _, node in ipairs(batchnorm.nodes(g)) do group = common_multiple(group, node.attrs.given_rows or 1) end
    least = least * group
    return rows % least == 0 and least or rows, 1
end

local function facts(programs, path, c, cycles, rows)
    local runs, equal = {}, true
    for i, p in ipairs(programs) do
        runs[i] = { accumulate = p.a, rows = p.rows, gradients = p.gradient, parameters = p.parameter }
        equal = equal and (i == 1 or p.equal)
    end
    return { format = 1, spec = path, precision = "f64", cycles = cycles, limit = LIMIT, runs = runs,
        global_rows = rows, spec_rows = c.batch * c.accumulate, seed = c.train.seed, equal = equal }
end

local function report(f)
    local out = {}
    local function line(...) out[#out + 1] = string.format(...):gsub(" +$", "") .. "\n" end
    line("%s: f64, %d cycle%s of %d rows%s, seed %d; all compared with A = %d", f.spec, f.cycles,
        f.cycles > 1 and "s" or "", f.global_rows, f.global_rows < f.spec_rows and (" (the spec's have %d)")
        :format(f.spec_rows) or "", f.seed, f.runs[1].accumulate)
    line("%7s%7s   %-11s%-27s %-11s%s", "A", "rows", "gradients", "worst in", "parameters", "worst in")
    for i, run in ipairs(f.runs) do
        if i == 1 then
            line("%7d%7d   %s", run.accumulate, run.rows, "-")
        else
            line("%7d%7d   %-11.2g%-27s %-11.2g%s%s", run.accumulate, run.rows, run.gradients.difference,
                run.gradients.tensor, run.parameters.difference, run.parameters.tensor,
                run.parameters.left_out > 0 and (", without %d elements whose gradient is rounding error")
                :format(run.parameters.left_out) or "")
        end
    end
    line(f.equal and "equal: no difference above %g" or "different: more than %g", f.limit)
    for _, reason in ipairs(f.equal and {} or f.notes) do line("%s", reason) end
    return table.concat(out)
end

--- Checks and prints; `list` is that of equiv.parse, g and c the graph and configuration of the spec, `work` the
--- operations of a cycle. Returns whether all agree.
function equiv.run(o, list, g, c, work)
    local cycle = c.batch * c.accumulate
    for _, a in ipairs(list) do
        if cycle % a ~= 0 then
            diag.fail("--equiv", ("a cycle of the spec has %d rows (%d micro-steps of %d), which A = %d does "
                .. "not divide"):format(cycle, c.accumulate, c.batch, a), {})
        end
    end
    local temporary, message = host.temporary()
    if not temporary then diag.fail("--equiv", message, { kind = "environment" }) end
    local rows, cycles = extent(list, g, c, work)
    local done, result = xpcall(function()
        local programs = ordered.collect(list, function(a)
            return write(o.spec, o, c, temporary, rows // a, a)
        end)
        build(programs, temporary, rows < cycle and "-O2" or "-O1")
        for _, p in ipairs(programs) do train(p, cycles) end
        compare_all(programs)
        return facts(programs, o.spec, c, cycles, rows)
    end, function(problem) return diag.is(problem) and problem or debug.traceback(problem) end)
    remove(temporary)
    if not done then error(result, 0) end
    result.notes = reasons(g, c)
    io.write(o.json and host.json(result) .. "\n" or report(result))
    return result.equal
end

return equiv
