-- doctor: what this machine has for building and running programs.
local calibration = require "emit.program.calibration"
local columns = require "base.columns"
local profile = require "emit.program.profile"

local doctor = {}

local function first_line(text) return (text or ""):match("^[^\n]*") end

local function tool(argv)
    local status, output = host.run(argv)
    return status == 0 and first_line(output) or nil
end

local function quiet(...)
    local argv = { ... }
    argv.quiet = true
    return tool(argv)
end

-- A shared library that the dynamic linker knows, or that lies where the CUDA toolkit puts it.
local function library(pattern)
    local _, listing = host.run { "/sbin/ldconfig", "-p", quiet = true }
    local found = (listing or ""):match("(" .. pattern .. "[%d.]*)")
    if found then return found end
    for _, name in ipairs(host.list("/usr/local/cuda/lib64") or {}) do
        if name:match("^" .. pattern .. "[%d.]*$") then return "/usr/local/cuda/lib64/" .. name end
    end
end

-- The rates that were measured for a profile, in a line for each number of threads, and their date; nil: none were.
local function rates_of(name)
    local found = calibration.read(name)
    if not found then return nil end
    local list = {}
    for i, set in ipairs(found.sets) do
        local r = set.rates
        list[i] = ("%d thread%s: %.4g GFLOP/s f32%s, memory %.3g GB/s, cache %.3g GB/s, a call %.2g us"):format(
            set.threads, set.threads > 1 and "s" or "", r.f32 / 1e9,
            r.bf16 and (", %.4g bf16"):format(r.bf16 / 1e9) or "", r.memory / 1e9, r.cache / 1e9, set.call_us)
    end
    return list, found.date
end

--- Prints one line per thing; returns 0, or 3 if programs cannot be built here.
function doctor.run()
    local failures, warnings, width = 0, 0, columns.of(1)
    local function line(name, ok, found, missing, needed)
        local word = ok and "ok" or needed and "fail" or "warn"
        if not ok and needed then failures = failures + 1 end
        if not ok and not needed then warnings = warnings + 1 end
        io.write(columns.wrapped(("  %-12s%-6s%s\n"):format(name, word, ok and found or missing), width))
    end
    local cc = quiet(host.environment("CC") or "cc", "--version")
    line("compiler", cc, cc, "cc not found: apt install gcc", true)
    local make = quiet("make", "--version")
    line("make", make, make, "make not found: apt install make", true)
    local native = profile.native(host.cpu())
    line("cpu", true, "profile " .. native)
    local rates, date = rates_of(native)
    line("rates", rates, date and "measured on " .. date,
        "not measured: gagen doctor --calibrate does, for the times in plan and profile")
    for _, row in ipairs(rates or {}) do io.write(columns.wrapped((" "):rep(20) .. row .. "\n", width)) end
    line("lua", true, host.lua_release .. ", static")
    for _, library in ipairs { { "jansson", "libjansson-dev" }, { "zlib", "zlib1g-dev" } } do
        local version = quiet("pkg-config", "--modversion", library[1])
        line(library[1], version, version, "not found: apt install " .. library[2], true)
    end
    local mpi = quiet("mpirun", "--version")
    line("mpi", mpi, mpi, "not found, one process only: apt install libopenmpi-dev openmpi-bin")
    local driver, nvrtc = library("libcuda%.so%.1"), library("libnvrtc%.so%.")
    line("cuda", driver, driver, "no driver (libcuda.so.1): CUDA programs can be written and built, not run")
    line("nvrtc", nvrtc, nvrtc, "no libnvrtc: CUDA programs need it where they run (CUDA toolkit 12 or 13)")
    io.write(columns.wrapped(("  %d warnings, %d failures%s\n"):format(warnings, failures,
        failures == 0 and ": ready for CPU training" or ""), width))
    return failures == 0 and 0 or 3
end

return doctor
