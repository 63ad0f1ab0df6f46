-- calibration: rates of this machine that `gagen doctor --calibrate` has measured, and the times of kernels that follow
-- from them. They change what gagen prints, never a program: those are the same from every machine.
--
-- A file of each machine, by its name, and profile: { format, profile, date, sets }. A set is of one number of threads,
-- the first of one thread:
--
--   threads
--   rates          FLOP and bytes per second (templates/calibrate/rates.c): f32, bf16 where the profile has it, memory,
--                  cache
--   call_us        a kernel that does next to nothing, with its barrier
--   efficiencies   by precision, then by kind of kernel (kind.lua): a list of { floor_us, efficiency } by rising floor
--
-- The floor of a kernel is the longer of FLOP / rate and bytes / memory; its time is floor / efficiency. The efficiency
-- depends on the floor: a short kernel costs its call, values of a small one stay in a cache.
local cache = require "base.cache"
local diag = require "base.diag"
local ordered = require "base.ordered"

local calibration = {}

local FORMAT = 1

--- The path of the file of this machine, or nil where nothing can be kept.
function calibration.path(profile)
    local file, folder = io.open "/proc/sys/kernel/hostname", cache.folder()
    local name = file and file:read "l" or "machine"
    if file then file:close() end
    return folder and ("%s/calibration-%s-%s.json"):format(folder, name:gsub("[^%w.-]", "_"), profile)
end

--- The rates measured for a profile on this machine, or nil.
function calibration.read(profile)
    local path = calibration.path(profile)
    if not path or host.exists(path) ~= "file" then return nil end
    local whole, found = pcall(function() return host.parse_json(host.read(path)) end)
    if whole and type(found) == "table" and found.format == FORMAT and found.profile == profile then return found end
    diag.fail(path, "no calibration of this gagen: gagen doctor --calibrate measures again",
        { kind = "environment" })
end

--- Keeps sets for a profile; returns the path.
function calibration.write(profile, sets)
    local path = calibration.path(profile)
    if not path then
        diag.fail("gagen", "doctor: rates can be kept nowhere: set XDG_CACHE_HOME or HOME", { kind = "environment" })
    end
    local folder, name = path:match("^(.*)/([^/]*)$")
    local made, message = host.folder(folder)
    if made then
        made, message = host.write(folder, name, host.json { format = FORMAT, profile = profile,
            date = os.date "!%Y-%m-%d", sets = sets } .. "\n")
    end
    if not made then diag.fail(path, message, { kind = "environment" }) end
    return path
end

--- Microseconds that a kernel takes at least by the rates of a set.
function calibration.floor(rates, precision, flops, bytes)
    return math.max(flops / (rates[precision] or rates.f32), bytes / rates.memory) * 1e6
end

-- The efficiency at a floor: between two measured ones in proportion to the logarithm, beyond them that of the last.
local function efficiency_at(list, floor)
    for i, point in ipairs(list) do
        if floor <= point[1] then
            local before = list[i - 1]
            if not before then return point[2] end
            local part = math.log(floor / before[1]) / math.log(point[1] / before[1])
            return before[2] + part * (point[2] - before[2])
        end
    end
    return list[#list][2]
end

-- Microseconds of one call with the threads of a set. A kind that was not measured takes its floor and a call.
local function time_of(set, precision, kernel)
    local floor = calibration.floor(set.rates, precision, kernel.flops, kernel.bytes)
    local list = (set.efficiencies[precision] or {})[kernel.kind]
    return math.max(set.call_us, list and floor / efficiency_at(list, floor) or set.call_us + floor)
end

--- Microseconds of one call of a kernel of the plan, { kind, flops, bytes }. Between two measured numbers of threads
--- the speed grows evenly; beyond the last it is that of the last.
function calibration.predict(found, precision, kernel, threads)
    local before
    for _, set in ipairs(found.sets) do
        local us = time_of(set, precision, kernel)
        if threads <= set.threads then
            if not before then return us end
            local part = (threads - before.threads) / (set.threads - before.threads)
            return 1 / (1 / before.us + part * (1 / us - 1 / before.us))
        end
        before = { threads = set.threads, us = us }
    end
    return before.us
end

--- The number of cores that this process may use.
function calibration.cores()
    local status, cores = host.run { "nproc", quiet = true }
    return status == 0 and math.tointeger(tonumber(cores)) or 1
end

--- The times of the kernels of a plan: { us = of a call of each, threads, source = in words where they come from }.
--- Without `threads` it is the number that the program has on this machine: as the spec says, else as many as its work
--- keeps busy. Coarse rates of a profile are those of one core. A target whose kernels are not the processor's has
--- rates of its own, and no threads.
function calibration.times(facts, threads)
    if facts.device then
        local function time(kernel) return kernel.predicted_us + facts.device.call_us end
        return { us = ordered.collect(facts.kernels, time), source = "coarse rates of " .. facts.device.like }
    end
    if not threads then
        threads = facts.threads ~= "auto" and facts.threads or math.min(facts.busy and facts.busy.threads or 1,
            calibration.cores())
    end
    local found, us = calibration.read(facts.profile), {}
    for i, kernel in ipairs(facts.kernels) do
        us[i] = found and calibration.predict(found, facts.precision, kernel, threads) or kernel.predicted_us / threads
    end
    return { us = us, threads = threads, source = found and "rates measured here on " .. found.date
        or "coarse rates of the profile; gagen doctor --calibrate measures those of this machine" }
end

return calibration
