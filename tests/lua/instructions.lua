-- The instructions of kernels: which a kernel has, how it accesses global memory. Read from PTX (nvrtc_check --ptx) or
-- from what nvdisasm lists of a module.
local instructions = {}

-- A line as { label = name, to = {} } or { opcode, to = labels that it may jump to, ends = whether the next line does
-- not follow it }; nil: it is neither.
local function line_of_ptx(line)
    local label = line:match "^(%$[%w_]+):"
    if label then return { label = label, to = {} } end
    local rest, guards = line:gsub("^%s*@!?%%p%d+", "")
    local opcode = rest:match "^%s*(%l[%w._:]*)"
    local jumps = opcode and opcode:find "^bra"
    return opcode and { opcode, to = jumps and { rest:match "%$[%w_]+" } or {},
        ends = guards == 0 and (jumps or opcode == "ret") }
end

local function line_of_sass(line)
    local label = line:match "^(%.L_[%w_]+):"
    if label then return { label = label, to = {} } end
    local rest, guards = line:gsub("^(%s+/%*%x+%*/%s+)@!?U?P%d", "%1")
    local opcode = rest:match "^%s+/%*%x+%*/%s+(%u[%w_.]*)"
    if not opcode then return nil end
    local to, jumps = {}, opcode:find "^BR[AX]"
    for name in (jumps and rest or ""):gmatch "%.L_[%w_]+" do to[#to + 1] = name end
    return { opcode, to = to, ends = guards == 0 and (opcode == "EXIT" or opcode:find "^RET"
        or jumps and opcode ~= "BRA.DIV" and not rest:find "%s!?U?P%d") }
end

-- The kind as which an instruction counts, and whether it moves 16 bytes of global memory. A load from an address without a space
-- may be one of global memory.
local function kind_of_ptx(opcode)
    if opcode:find "^wgmma%.mma" then return "wgmma" end
    if opcode:find "^mma%." then return "mma" end
    if opcode:find "^cp%.async%.bulk%.tensor" then return "boxes", true end
    if opcode:find "^cp%.async%.cg" then return "async", true end
    local space = opcode:match "^%l+%.(%l+)"
    if space == "param" or space == "shared" or space == "local" or space == "const" then return nil end
    if opcode:find "^atom" or opcode:find "^red%." then return "atomic", false end
    local kind = opcode:find "^ld%." and "load" or opcode:find "^st%." and "store" or nil
    return kind, kind and (opcode:match "%.v(%d)" or 1) * opcode:match "(%d+)$" >= 128
end

local function kind_of_sass(opcode)
    if opcode:find "^HGMMA" then return "wgmma" end
    if opcode:find "^HMMA" then return "mma" end
    if opcode:find "^UTMALDG" then return "boxes", true end
    local kind = opcode:find "^LDGSTS%." and "async" or opcode:find "^LDG?%." and "load"
        or opcode:find "^STG?%." and "store" or (opcode:find "^REDG?%." or opcode:find "^ATOMG?%.") and "atomic" or nil
    return kind, kind and opcode:find "%.128" ~= nil
end

-- The lines of a body in runs without labels and jumps inside: { first line, last line, to = numbers of runs }.
local function runs_of(lines)
    local runs, at = {}, {}
    for i, line in ipairs(lines) do
        local before = lines[i - 1]
        if i == 1 or line.label or #before.to > 0 or before.ends then runs[#runs + 1] = { i, to = {} } end
        runs[#runs][2] = i
        if line.label then at[line.label] = #runs end
    end
    for n, run in ipairs(runs) do
        local last = lines[run[2]]
        if not last.ends then run.to[1] = runs[n + 1] and n + 1 or nil end
        for _, label in ipairs(last.to) do run.to[#run.to + 1] = at[label] end
    end
    return runs
end

-- Calls found(list) for each set of runs that can reach each other (Tarjan).
local function each_circle(runs, found)
    local time, order, low, open, stack = 0, {}, {}, {}, {}
    local function visit(n)
        time = time + 1
        order[n], low[n], open[n], stack[#stack + 1] = time, time, true, n
        for _, k in ipairs(runs[n].to) do
            if not order[k] then visit(k) end
            if open[k] then low[n] = math.min(low[n], low[k]) end
        end
        if low[n] < order[n] then return end
        local list, k = {}, nil
        repeat
            k = table.remove(stack)
            open[k], list[#list + 1] = false, k
        until k == n
        found(list)
    end
    for n in ipairs(runs) do
        if not order[n] then visit(n) end
    end
end

-- The lines that lie in loops, as a set.
local function in_loops(lines)
    local runs, inside = runs_of(lines), {}
    each_circle(runs, function(list)
        local loops = #list > 1
        for _, k in ipairs(runs[list[1]].to) do loops = loops or k == list[1] end
        for _, n in ipairs(loops and list or {}) do
            for i = runs[n][1], runs[n][2] do inside[i] = true end
        end
    end)
    return inside
end

-- Facts of a kernel.
--   mma, wgmma, async, boxes   how many products on tensor cores, products of warpgroups, copies beside the thread of
--                              16 bytes and of boxes it has
--   wide, narrow               accesses of global memory of 16 bytes or more, and of fewer
--   looped                     loads of fewer bytes in loops
--   early                      accesses of global memory ahead of the wait for the kernel in front, or all without one
local function kernel_of(lines, kind_of)
    local inside = in_loops(lines)
    local k = { mma = 0, wgmma = 0, async = 0, boxes = 0, load = 0, store = 0, atomic = 0, wide = 0, narrow = 0,
        looped = 0, early = 0 }
    local waits = false
    for i, line in ipairs(lines) do
        local kind, wide
        if not line.label then kind, wide = kind_of(line[1]) end
        if kind then k[kind] = k[kind] + 1 end
        if wide then k.wide = k.wide + 1 elseif kind and wide == false then k.narrow = k.narrow + 1 end
        if kind == "load" and not wide and inside[i] then k.looped = k.looped + 1 end
        waits = waits or line[1] == "griddepcontrol.wait" or line[1] == "ACQBULK"
        if not waits and wide ~= nil then k.early = k.early + 1 end
    end
    return k
end

local function lines_of(body, line_of)
    local lines = {}
    for line in body:gmatch "[^\n]+" do lines[#lines + 1] = line_of(line) end
    return lines
end

--- The kernels of a text of PTX by name.
function instructions.of_ptx(text)
    local found = {}
    for name, body in text:gmatch "%.entry ([%w_]+)%(.-%)[^{]*(%b{})" do
        found[name] = kernel_of(lines_of(body, line_of_ptx), kind_of_ptx)
    end
    return found
end

--- The kernels of a listing of nvdisasm by name.
function instructions.of_listing(text)
    local bodies, found, lines = {}, {}, nil
    for line in text:gmatch "[^\n]+" do
        local name = line:match "^%.text%.([%w_]+):"
        if name then
            lines = {}
            bodies[name] = lines
        elseif line:find "^//%-%-" then
            lines = nil
        elseif lines then
            lines[#lines + 1] = line_of_sass(line)
        end
    end
    for name, body in next, bodies do found[name] = kernel_of(body, kind_of_sass) end
    return found
end

-- nvdisasm in PATH, in the toolkit or among the packages of Python; "": it is nowhere.
local FIND = [[command -v nvdisasm || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvdisasm" ||
for package in nvidia triton; do
    find "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/$package" -name nvdisasm -type f
done | grep -m 1 .]]

--- The kernels of a text as NVRTC compiles it for an architecture such as "90a": those of its module where nvdisasm is
--- found and `modules` is true, else those of its PTX.
function instructions.compiled(t, nvrtc_check, path, arch, modules)
    local nvdisasm = modules and t.kept("nvdisasm", function() return t.shell(FIND).out:match "[^\n]*" end) or ""
    if nvdisasm ~= "" then
        local module = host.nvrtc(host.read(path), "kernels.cu", { "--std=c++17", "--fmad=false",
            "--gpu-architecture=sm_" .. arch })
        t.write(path .. "bin", module or t.not_run("no libnvrtc here"))
        local listed = t.run { nvdisasm, "-c", path .. "bin" }
        if listed.status == 0 then return instructions.of_listing(listed.out) end
    end
    local result = t.run { nvrtc_check, "--ptx", path, arch }
    if result.status == 77 then t.not_run("no libnvrtc here") end
    t.equal(result.status, 0, result.err)
    return instructions.of_ptx(result.out)
end

return instructions
