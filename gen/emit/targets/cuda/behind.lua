-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the CUDA target computes it.
local behind = require "emit.targets.behind"
local cuda = require "emit.targets.cuda.cuda"
local few = require "emit.targets.cuda.few"
local text = require "base.text"

local cuda_behind = {}

local EIGHT = 8         -- neighbours that a thread of a product on tensor cores has

--- The statement that stores element `at` of a product's result c, whose sum is `value`, with what stands behind it.
function cuda_behind.store(kernel, dtype) return behind.store(kernel, dtype, cuda, "(int)at") end

--- How eight neighbours of a product on tensor cores are computed, or false if nothing stands behind it.
---   reads            lines that read eight neighbours of further inputs at once
---   lines, value     lines for element k, whose sum is `value`; the text of its result
---   both, to         whether the sums are stored too; the parameter of the result
--- all: whether rows are whole eights; others read each element alone.
function cuda_behind.eights(kernel, all)
    local node = kernel.node
    if not node.behind then return false end
    local reads = {}
    local function element(key, t, v)
        if not all then return few.alone(key, v) end
        return few.element(EIGHT, reads, "", key, key, t, v)
    end
    local lines, value = behind.lines(node, cuda.spelling("f32", nil, node.at), element, "ga_rounded")
    lines[#lines + 1] = ("sums[k] = %s;"):format(value)
    if table.concat(lines):find "%f[%w_]i%f[^%w_]" then
        table.insert(lines, 1, ("const %s i = first + k;"):format(cuda.int64))
    end
    local _, name = behind.result(node)
    return { reads = behind.block(reads), lines = behind.block(lines), both = node.behind.both,
        to = text.ident(name) }
end

return cuda_behind
