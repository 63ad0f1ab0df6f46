-- The instructions of kernels as PTX (tests/nvrtc/nvrtc_check --ptx): which a kernel has, how it accesses memory.
local ptx = {}

local BYTES = { ["8"] = 1, ["16"] = 2, ["32"] = 4, ["64"] = 8, ["128"] = 16 }

-- The bytes that an access such as "ld.global.nc.v4.b32" or "st.global.u16" moves.
local function bytes_of(instruction)
    local count = instruction:match "%.v(%d)" or 1
    return math.tointeger(count * BYTES[instruction:match "%.[busf](%d+)$"])
end

-- An access of global memory: "ld", "st" or "cp", and its bytes; nil: the instruction is none. An address without a
-- space may be one of global memory.
local function access_of(instruction)
    local kind, rest = instruction:match "^(%l+)(%..*)$"
    if instruction:find "^cp%.async%.c" then return "cp", 16 end
    if kind ~= "ld" and kind ~= "st" then return nil end
    for _, other in ipairs { ".param", ".shared", ".local", ".const" } do
        if rest:find(other, 1, true) then return nil end
    end
    return kind, bytes_of(instruction)
end

-- The lines of a body that lie in loops, as a set: from a label to a later jump to it.
local function in_loops(lines)
    local at, inside = {}, {}
    for i, line in ipairs(lines) do
        local label = line:match "^(%$[%w_]+):"
        if label then at[label] = i end
        local first = at[line:match "bra[%.%l]*%s+(%$[%w_]+);" or ""]
        for k = first or 1, first and i or 0 do inside[k] = true end
    end
    return inside
end

-- Facts of a kernel.
--   has            instructions without their types, as a set: "mma.sync", "cp.async"
--   wide, narrow   accesses of global memory of 16 bytes, and of fewer
--   looped         loads of fewer bytes in loops
local function kernel_of(body)
    local lines = {}
    for line in body:gmatch "[^\n]+" do lines[#lines + 1] = line:match "^%s*(.-)%s*$" end
    local inside, k = in_loops(lines), { has = {}, wide = 0, narrow = 0, looped = 0 }
    for i, line in ipairs(lines) do
        local instruction = line:gsub("^@!?%%p%d+%s+", ""):match "^(%l[%w%.]*)"
        local kind, bytes = access_of(instruction or "")
        if instruction then k.has[instruction:match "^%l+%.?%l*"] = true end
        if kind and bytes >= 16 then k.wide = k.wide + 1 elseif kind then k.narrow = k.narrow + 1 end
        if kind == "ld" and bytes < 16 and inside[i] then k.looped = k.looped + 1 end
    end
    return k
end

--- The kernels of a text of PTX by name.
function ptx.kernels(text)
    local found = {}
    for name, body in text:gmatch "%.entry ([%w_]+)%(.-%)[^{]*(%b{})" do found[name] = kernel_of(body) end
    return found
end

return ptx
