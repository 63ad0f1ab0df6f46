-- equiv: `gagen check SPEC --equiv A=1,2,4`: proves that accumulation is exact. The spec becomes one program for each
-- number A of micro-steps, in double precision, with A times the rows of a micro-step constant. All programs start
-- from the same values, run the same cycles on the same data, and are compared with the first.
--
-- A gradient below NOISE times the largest one is only the rounding error of a sum that is 0 (the bias of keys in
-- attention, for example) and is not compared. A gradient in which large terms cancel has fewer digits than LIMIT
-- requires. Adam's division by sqrt(v) turns both into full steps, so the parameters of such elements are counted
-- but not compared.
local batchnorm = require "spec.batchnorm"
local columns = require "base.columns"
local compile = require "command.compile"
local diag = require "base.diag"
local in_temporary = require "command.temporary"
local kept_runtime = require "command.kept_runtime"
local literal = require "base.literal"
local make = require "command.make"
local ordered = require "base.ordered"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"
local safetensors = require "command.safetensors"
local words = require "spec.words"

local equiv = {}

local LIMIT, CYCLES, NOISE = 1e-12, 3, 1e-13

-- Most operations of all programs together, some minutes on a small machine. If the spec's cycles need more, the
-- programs run one cycle of as few rows as possible.
local MOST_WORK = 2e12

-- Elements that are compared at once. If the difference of a part is too large, its elements are compared singly.
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

-- The words of the spec that the programs replace, as sets (set.read).
local function changes(c, rows, a)
    local train = ordered.copy(c.train)
    train.epochs, train.updates = nil, c.cycles
    local list = {
        { "batch", { rows } }, { "accumulate", { a } }, { "precision", { "f64" } },
        { "parallel", { c.catalog.modes.default } }, { "target", { words.default("target", "kind") } },
        { "train", train },
    }
    local set = ordered.collect(list, function(change)
        local text = change[1] .. "=" .. literal.write(change[2])
        return { word = change[1], value = change[2], text = text, at = "--equiv: " .. text }
    end)
    if c.eval then
        set[#set + 1] = { word = "eval", field = "batches", value = 1, text = "eval.batches=1",
            at = "--equiv: eval.batches=1" }
    end
    return set
end

-- Writes one program, with `a` micro-steps of `rows` rows, into a folder below `temporary`.
local function write(path, o, c, temporary, rows, a)
    local g, config = compile(path, { set = o.set, march = o.march, threads = o.threads,
        without = o.without }, changes(c, rows, a))
    local folder = temporary .. "/a" .. a
    local files = program.render(g, config)
    program_folder.write(folder, files, { spec = path })
    return { a = a, rows = rows, folder = folder, files = files, flags = config.compiler_flags }
end

-- Builds all programs with one make, unaffected by a make that runs this one.
local function build(programs, temporary, cflags)
    local names = ordered.collect(programs, function(p) return p.folder .. "/train" end)
    local lines = { "all: " .. table.concat(names, " ") }
    for _, p in ipairs(programs) do
        local runtime = kept_runtime.make(kept_runtime.path(p.files, p.flags, cflags), p.folder, { cflags = cflags })
        lines[#lines + 1] = ("%s/train: ; @$(MAKE) -s -C %s CFLAGS=%s %s train"):format(p.folder, p.folder, cflags,
            runtime and "SOURCES=" .. runtime or "")
    end
    host.write(temporary, "Makefile", table.concat(lines, "\n") .. "\n")
    make.quietly("--equiv", "make", make.command("-f", temporary .. "/Makefile"))
end

local function train(p, cycles)
    io.stderr:write(("A = %d: %d cycle%s of %d x %d rows\n"):format(p.a, cycles, cycles > 1 and "s" or "", p.a, p.rows))
    make.quietly("--equiv", p.folder .. "/train", { p.folder .. "/train", "--cycles", tostring(cycles), "--quiet",
        "--checkpoint", p.folder .. "/checkpoints", "--dump", p.folder .. "/dump" })
    p.gradients = safetensors.open(p.folder .. "/dump/gradients.safetensors")
    p.parameters = safetensors.open(p.folder .. "/dump/parameters.safetensors")
end

-- The largest |a - b| of a part of two tensors, without the elements that differ by more than `bound` and are exempt
-- from comparison; and the number of these.
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

-- The largest max|a - b| / max|b| over all tensors: { difference, tensor, left_out }. Elements that differ by more
-- than LIMIT and for which is_compared(name, i) is false are left out and counted.
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

-- The parts of the spec that make the result depend on A by definition.
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

-- The rows of a cycle and the number of cycles: the spec's, or, beyond MOST_WORK, one cycle of the fewest rows, where a
-- micro-step has one row or whole groups of each batchnorm.
local function extent(list, g, c, work)
    local rows, cycles = c.batch * c.accumulate, math.min(CYCLES, c.cycles)
    if work * cycles * #list <= MOST_WORK then return rows, cycles end
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
                run.parameters.left_out > 0 and (", without %d elements whose gradient%s"):format(
                    run.parameters.left_out, run.gradients.difference > f.limit and "s differ" or " is rounding error")
                or "")
        end
    end
    line(f.equal and "equal: no difference above %g" or "different: more than %g", f.limit)
    for _, reason in ipairs(f.equal and {} or f.notes) do line("%s", reason) end
    return table.concat(out)
end

--- Compares the programs and prints a report. list: the result of equiv.parse; g, c: graph and configuration of the
--- spec; work: operations of a cycle. Returns whether all programs agree.
function equiv.run(o, list, g, c, work)
    local cycle = c.batch * c.accumulate
    for _, a in ipairs(list) do
        if cycle % a ~= 0 then
            diag.fail("--equiv", ("a cycle of the spec has %d rows (%d micro-steps of %d), which A = %d does "
                .. "not divide"):format(cycle, c.accumulate, c.batch, a), {})
        end
    end
    local rows, cycles = extent(list, g, c, work)
    local result = in_temporary("--equiv", function(temporary)
        local programs = ordered.collect(list, function(a)
            return write(o.spec, o, c, temporary, rows // a, a)
        end)
        build(programs, temporary, rows < cycle and "-O2" or "-O1")
        for _, p in ipairs(programs) do train(p, cycles) end
        compare_all(programs)
        return facts(programs, o.spec, c, cycles, rows)
    end)
    result.notes = reasons(g, c)
    io.write(o.json and host.json(result) .. "\n" or columns.wrapped(report(result), columns.of(1)))
    return result.equal
end

return equiv
