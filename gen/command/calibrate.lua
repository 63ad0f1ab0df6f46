-- calibrate: measures the rates of this machine for a profile: the greatest ones by templates/calibrate/rates.c, and
-- their share that the kernels of two small programs reach, in f32 and bf16, with one thread and with all.
local calibration = require "emit.program.calibration"
local compile = require "command.compile"
local diag = require "base.diag"
local in_temporary = require "command.temporary"
local kept_runtime = require "command.kept_runtime"
local make = require "command.make"
local measured = require "command.profile"
local ordered = require "base.ordered"
local profile = require "emit.program.profile"
local program = require "emit.program.program"
local program_folder = require "emit.program.folder"

local SPECS, PRECISIONS = { "tokens", "images" }, { "f32", "bf16" }

-- Each program is run so often; of a kernel the shortest time counts, as other processes only make it longer.
local RUNS, CYCLES = 3, 4

-- Writes a file into a folder that is there then.
local function write(folder, name, content)
    local made, message = host.folder(folder)
    if made then made, message = host.write(folder, name, content) end
    if not made then diag.fail(folder .. "/" .. name, message, { kind = "environment" }) end
end

-- Writes ids and pictures of any values: 2,049 tokens of 16 bits below 512, and 32 records of CIFAR-10.
local function write_rows(folder)
    local ids, state = {}, 1
    for i = 1, 2049 do
        state = (state * 1664525 + 1013904223) & 0xffffffff
        ids[i] = string.pack("<I2", state >> 23)
    end
    local record = "\3" .. table.concat(ids):rep(2):sub(1, 3072)
    write(folder, "tokens.bin", table.concat(ids))
    write(folder, "images.bin", record:rep(32))
end

local function quietly(...) return make.quietly("doctor --calibrate", ...) end

-- Writes the program of a spec into `folder`; returns what is measured: { precision, folder, facts, make }.
local function program_of(path, folder, march, precision)
    local set = ('precision="%s"'):format(precision)
    local g, c = compile(path, { march = march, target = "c" },
        { { word = "precision", value = { precision }, text = set, at = "--calibrate" } })
    local files, facts = program.render(g, c)
    program_folder.write(folder, files, { spec = path })
    local runtime = kept_runtime.make(kept_runtime.path(files, c.compiler_flags), folder, {})
    return { precision = precision, folder = folder, facts = facts, make = ("@$(MAKE) -s -C %s %s train-probe"):format(
        folder, runtime and "SOURCES=" .. runtime or "") }
end

-- Compiles all programs with one make, unaffected by a make that runs this one.
local function build(programs, temporary)
    local names = ordered.collect(programs, function(p) return p.folder .. "/train-probe" end)
    local lines = { "all: " .. table.concat(names, " ") }
    for i, p in ipairs(programs) do lines[#lines + 1] = ("%s: ; %s"):format(names[i], p.make) end
    write(temporary, "Makefile", table.concat(lines, "\n") .. "\n")
    quietly("make", make.command("-f", temporary .. "/Makefile"))
end

-- { f32, bf16, memory, cache } with so many threads.
local function rates_of(binary, threads)
    local rates = {}
    for name, rate in quietly("rates", { binary, tostring(threads) }):gmatch("(%w+) (%S+)") do
        rates[name] = tonumber(rate)
    end
    return rates
end

-- The shortest microseconds of each kernel that runs, over some runs: of a call; of a function of the boundary, of all
-- its calls in an update, as the plan has them.
local function shortest(p, threads)
    local us, at_boundary = ordered.map(), {}
    for _, kernel in ipairs(p.facts.kernels) do at_boundary[kernel.name] = kernel.role == "boundary" end
    for _ = 1, RUNS do
        for _, row in ipairs(measured.measure(p.folder, threads, { "--cycles", tostring(CYCLES), "--overfit", "2" })) do
            local now = at_boundary[row.name] and row.ms * 1e3 / CYCLES or row.least
            us:set(row.name, math.min(us:get(row.name) or now, now))
        end
    end
    return us
end

-- Points of one kind as a list by rising floor: those of floors within a factor of two are one, their means.
local function joined(points)
    table.sort(points, function(a, b) return a[1] < b[1] end)
    local list, first, count = {}, nil, 0
    for _, point in ipairs(points) do
        local last = list[#list]
        if last and point[1] < 2 * first then
            count = count + 1
            for k = 1, 2 do last[k] = last[k] + (point[k] - last[k]) / count end
        else
            list[#list + 1], first, count = { point[1], point[2] }, point[1], 1
        end
    end
    return list
end

-- Adds to `points`, by kind, { floor, efficiency } of the kernels of a program; returns the microseconds of the one
-- that does least, or nil.
local function add_points(points, facts, us, rates)
    local least
    for _, kernel in ipairs(facts.kernels) do
        local floor = calibration.floor(rates, facts.precision, kernel.flops, kernel.bytes)
        local took = us:get(kernel.name)
        if took and took > 0 and floor > 0 then
            local list = points:get(kernel.kind) or points:set(kernel.kind, {})
            list[#list + 1] = { floor, floor / took }
            if kernel.kind == "tally" then least = took end
        end
    end
    return least
end

-- The set of one number of threads. programs: { precision, folder, facts }.
local function set_of(programs, binary, threads)
    local set = { threads = threads, rates = rates_of(binary, threads), call_us = math.huge, efficiencies = {} }
    for _, precision in ipairs(PRECISIONS) do
        local points, kinds = ordered.map(), {}
        for _, p in ipairs(programs) do
            if p.precision == precision then
                local least = add_points(points, p.facts, shortest(p, threads), set.rates)
                set.call_us = math.min(set.call_us, least or math.huge)
            end
        end
        for kind, list in points:each() do kinds[kind] = joined(list) end
        set.efficiencies[precision] = kinds
    end
    return set
end

-- Compiles rates.c for a profile; returns the binary.
local function build_rates(folder, march)
    write(folder, "rates.c", host.embedded "templates/calibrate/rates.c")
    local command = { host.environment "CC" or "cc", "-O3", "-pthread", "-o", folder .. "/rates", folder .. "/rates.c" }
    local flags = profile.get(march).flags
    quietly("compiling rates.c", table.move(flags, 1, #flags, #command + 1, command))
    return folder .. "/rates"
end

-- The sets of this machine: with one thread, and with all cores.
local function sets_of(temporary, march)
    write_rows(temporary .. "/data")
    local binary, programs = build_rates(temporary, march), {}
    for _, name in ipairs(SPECS) do
        local file = name .. ".lua"
        write(temporary, file, host.embedded("templates/calibrate/" .. file))
        for _, precision in ipairs(PRECISIONS) do
            local folder = ("%s/%s_%s"):format(temporary, name, precision)
            programs[#programs + 1] = program_of(temporary .. "/" .. file, folder, march, precision)
        end
    end
    io.stderr:write(("calibrate: compiling %d programs\n"):format(#programs))
    build(programs, temporary)
    local sets, cores = {}, calibration.cores()
    for _, threads in ipairs { 1, cores > 1 and cores or nil } do
        io.stderr:write(("calibrate: measuring with %d thread%s\n"):format(threads, threads > 1 and "s" or ""))
        sets[#sets + 1] = set_of(programs, binary, threads)
    end
    return sets
end

--- Measures for a profile, "native" or nil for that of this machine, and keeps the rates.
return function(march)
    if not march or march == "native" then march = profile.native(host.cpu()) end
    if not profile.get(march) then diag.fail("--march", ("no profile '%s'"):format(march), {}) end
    local sets = in_temporary("doctor --calibrate", function(temporary) return sets_of(temporary, march) end)
    io.stderr:write(("calibrate: wrote %s\n"):format(calibration.write(march, sets)))
end
