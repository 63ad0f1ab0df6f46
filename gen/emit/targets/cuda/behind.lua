-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the CUDA target computes it.
local behind = require "emit.targets.behind"
local cuda = require "emit.targets.cuda.cuda"
local few = require "emit.targets.cuda.few"
local text = require "base.text"

local cuda_behind = {}

local EIGHT = 8         -- neighbours that a thread of a product on tensor cores has

--- The statement that stores element `at` of a product's result c, whose sum is `value`, with what stands behind it.
function cuda_behind.store(kernel, dtype) return behind.store(kernel, dtype, cuda, "(int)at") end

-- How neighbours of a result are computed, or false if nothing stands behind it.
--   reads            lines that read neighbours of further inputs at once
--   lines            those for element k, over `value`
--   both, to         whether the kernel's own result is stored too; the parameter of the last one
-- count: of neighbours, nil: each element is read alone; rounded: the function that rounds to 16 bits; put: the
-- statement that keeps a result; read: how neighbours are read, nil: "ga_read<FEW>(".
local function neighbours(kernel, count, dtype, rounded, put, read)
    local node = kernel.node
    if not node.behind then return false end
    local reads = {}
    local function element(key, t, v)
        if not count then return few.alone(key, v) end
        return few.element(count, reads, "", key, key, t, v)
    end
    local lines, value = behind.lines(node, cuda.spelling(dtype, nil, node.at), element, rounded)
    lines[#lines + 1] = put:format(value)
    if table.concat(lines):find "%f[%w_]i%f[^%w_]" then
        table.insert(lines, 1, ("const %s i = first + k;"):format(cuda.int64))
    end
    local _, name = behind.result(node)
    for n, line in ipairs(reads) do reads[n] = read and line:gsub("ga_read<FEW>%(", read) or line end
    return { reads = behind.block(reads), lines = behind.block(lines), both = node.behind.both,
        to = text.ident(name) }
end

--- How eight neighbours sums[k] of a product on tensor cores are computed. all: whether rows are whole eights; others
--- read each element alone. read: how eight are read, nil: "ga_read<FEW>(".
function cuda_behind.eights(kernel, all, read)
    return neighbours(kernel, all and EIGHT, "f32", "ga_rounded", "sums[k] = %s;", read)
end

--- How `count` neighbours to.at[k] of another result are computed.
function cuda_behind.few(kernel, count, dtype)
    return neighbours(kernel, count, dtype, kernel.half and kernel.half .. "_rounded", "ga_put(to.at[k], %s);")
end

return cuda_behind
