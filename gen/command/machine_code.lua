-- machine_code: `gagen kernels SPEC --arch sm_90a`: what NVRTC makes of the kernels of a device, beside what they
-- compute: registers, shared memory, spills, the mix of instructions where a disassembler is found, FLOP and bytes of a
-- call, and the least and the predicted time of a call (targets/cuda/rates.lua).
local diag = require "base.diag"
local ordered = require "base.ordered"
local temporary = require "command.temporary"

local machine_code = {}

-- As a program compiles its kernels (templates/program_cuda/step.c), with what ptxas says of each.
local OPTIONS = { "--std=c++17", "--fmad=false", "--ptxas-options=-v" }

-- The needs of each kernel by name, as ptxas says them: { registers, shared, stack, spilled }, in bytes but for the
-- first.
local function needs_of(log)
    local list, name, now = {}, nil, {}
    for line in log:gmatch "[^\n]+" do
        name = line:match "entry function '([^']+)'" or name
        local stack, stores, loads = line:match "(%d+) bytes stack frame, (%d+) bytes spill stores, (%d+) bytes spill"
        if stack then now = { stack = tonumber(stack), spilled = tonumber(stores) + tonumber(loads) } end
        local registers = line:match "Used (%d+) registers"
        if registers and name then
            list[name] = { registers = tonumber(registers), shared = tonumber(line:match "(%d+) bytes smem" or "0"),
                stack = now.stack or 0, spilled = now.spilled or 0 }
        end
    end
    return list
end

-- === instructions ================================================================================

-- Kinds of instructions, by the beginning of their names; the first that fits counts.
local KINDS = { { "tensor", "^[HIBDQ]G?MMA" }, { "multiply_add", "^[FDH]FMA" }, { "global", "^LDG" },
    { "global", "^STG" }, { "global", "^UTMA" }, { "global", "^RED" }, { "global", "^ATOMG" }, { "shared", "^LDS" },
    { "shared", "^STS" } }

local function count(mix, opcode)
    mix.total = mix.total + 1
    for _, kind in ipairs(KINDS) do
        if opcode:find(kind[2]) then
            mix[kind[1]] = mix[kind[1]] + 1
            if kind[1] == "global" and (opcode:find "%.128" or opcode:find "^UTMA") then
                mix.global_16_bytes = mix.global_16_bytes + 1
            end
            return
        end
    end
end

-- The mix of each kernel in the text of a disassembler, by name.
local function mixes_in(listing)
    local list, now = {}, nil
    for line in listing:gmatch "[^\n]+" do
        local name = line:match "^%s*Function : ([%w_]+)" or line:match "^%s*%.text%.([%w_]+):"
        if name then
            now = { total = 0, tensor = 0, multiply_add = 0, global = 0, global_16_bytes = 0, shared = 0 }
            list[name] = now
        end
        local rest = now and line:match "^%s*/%*%x+%*/%s+(.*)$"
        local opcode = rest and rest:gsub("^@!?U?P[%dT]+%s+", ""):match "^[%u%d_.]+"
        if opcode then count(now, opcode) end
    end
    return list
end

-- The mixes of a module; nil where no disassembler is found.
local function disassembled(module, at)
    local home = host.environment "CUDA_HOME" or ""
    return temporary(at, function(folder)
        assert(host.write(folder, "kernels.cubin", module))
        for _, tool in ipairs { { "cuobjdump", "-sass" }, { home .. "/bin/cuobjdump", "-sass" }, { "nvdisasm", "-c" },
            { home .. "/bin/nvdisasm", "-c" } } do
            local status, listing = host.run { tool[1], tool[2], folder .. "/kernels.cubin", quiet = true }
            if status == 0 then return mixes_in(listing) end
        end
    end)
end

-- === the table ===================================================================================

-- Functions that launch kernels in the order of their time in an update: { fn, kernel, calls, flops, bytes of a call,
-- floor_us, predicted_us, ring = shared memory of a block beside that in the text }. A call adds the time between two
-- nodes of a graph to its floor.
local function rows_of(facts)
    local list, by_name = {}, {}
    for _, k in ipairs(facts.kernels) do
        local row = by_name[k.fn]
        if not row then
            row = { fn = k.fn, kernel = k.kernel or k.fn, calls = 0, flops = k.flops, bytes = k.bytes,
                floor_us = k.predicted_us, predicted_us = k.predicted_us + facts.device.call_us,
                ring = k.shared_bytes or 0 }
            by_name[k.fn], list[#list + 1] = row, row
        end
        row.calls = row.calls + k.calls
    end
    table.sort(list, function(a, b)
        local x, y = a.calls * a.predicted_us, b.calls * b.predicted_us
        if x ~= y then return x > y end
        return a.fn < b.fn
    end)
    return list
end

local HEADING = "%-36s %5s %5s %7s %7s %9s %9s %9s %10s %7s %7s %9s\n"

local function line_of(row)
    local mix = row.instructions
    return (HEADING):format(row.fn, row.calls, row.registers, row.shared, row.spilled, ("%.4g"):format(row.flops / 1e6),
        ("%.4g"):format(row.bytes / 2 ^ 20), ("%.3g"):format(row.floor_us), ("%.3g"):format(row.predicted_us),
        mix and mix.total or "-", mix and mix.tensor or "-",
        mix and ("%d/%d"):format(mix.global_16_bytes, mix.global) or "-")
end

local function text_of(found)
    local out = { ("kernels for %s, NVRTC %s; times predicted for %s\n"):format(found.arch, found.nvrtc, found.device) }
    if not found.disassembled then
        out[2] = "no cuobjdump and no nvdisasm in PATH or CUDA_HOME/bin: instructions are not counted\n"
    end
    out[#out + 1] = HEADING:format("kernel", "calls", "regs", "shared", "spilled", "MFLOP", "MiB", "floor us",
        "predicted", "instr", "tensor", "16B/glob")
    for _, row in ipairs(found.kernels) do out[#out + 1] = line_of(row) end
    return table.concat(out)
end

--- The table of a program's kernels for an architecture such as "sm_90a", as text or, with `json`, as JSON. text: of
--- kernels.cu; facts: of the plan.
function machine_code.text(arch, text, facts, json)
    if not arch:find "^sm_%d+a?$" then
        diag.fail("gagen", ("--arch: '%s', expected an architecture such as sm_80 or sm_90a"):format(arch), {})
    end
    if not facts.device then
        diag.fail("gagen", "--arch: kernels of the processor are for no device: choose another target, --target", {})
    end
    local options = ordered.copy(OPTIONS)
    options[#options + 1] = "--gpu-architecture=" .. arch
    local module, log, version = host.nvrtc(text, "kernels.cu", options)
    if module == nil then
        diag.fail("gagen", "--arch: " .. log, { kind = "environment" })
    elseif not module then
        diag.fail("kernels.cu", ("NVRTC %s does not compile it for %s\n%s"):format(version, arch, log), {})
    end
    local needs, mixes = needs_of(log), disassembled(module, "gagen")
    local found = { arch = arch, nvrtc = version, device = facts.device.like, disassembled = mixes ~= nil,
        kernels = {} }
    for _, row in ipairs(rows_of(facts)) do
        local own, ring = needs[row.kernel], row.ring
        if own then
            row.ring = nil
            found.kernels[#found.kernels + 1] = ordered.copy(ordered.copy(row, own),
                { shared = own.shared + ring, instructions = mixes and mixes[row.kernel] })
        end
    end
    return json and host.json(found) .. "\n" or text_of(found)
end

return machine_code
