-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the CUDA target computes it.
local behind = require "emit.targets.behind"
local c_text = require "emit.targets.c_text"
local cuda = require "emit.targets.cuda.cuda"
local few = require "emit.targets.cuda.few"
local text = require "base.text"

local cuda_behind = {}

local EIGHT = 8         -- neighbours that a thread of a product on tensor cores has

--- The statement that stores element `at` of a product's result c, whose sum is `value`, with what stands behind it.
function cuda_behind.store(kernel, dtype) return behind.store(kernel, dtype, cuda, "(int)at") end

-- The member of a struct for what a line reads: "ga_few<bf16, FEW> of_with_1", and the value of it.
local function held(line, t)
    local name, value = line:match "^const auto ([%w_]+) = (.*);$"
    local element = t.dtype == "i32" and "int" or c_text.type_of(t).text
    return { name = name, value = value,
        type = value:find("ga_read", 1, true) and ("ga_few<%s, %d>"):format(element, EIGHT) or element }
end

-- How neighbours of a result are computed, or false if nothing stands behind it.
--   reads            lines that read neighbours of further inputs at once
--   held             the same for those who read earlier than they compute: { type, name, value } of each
--   lines            those for element k, over `value`
--   both, to         whether the kernel's own result is stored too; the parameter of the last one
-- count: of neighbours, nil: each element is read alone; rounded: the function that rounds to 16 bits; put: the
-- statement that keeps a result; keep(reads, text): changes the last line of those and the text of its element.
local function neighbours(kernel, count, dtype, rounded, put, keep)
    local node = kernel.node
    if not node.behind then return false end
    local reads, list = {}, {}
    local function element(key, t, v)
        if not count then return few.alone(key, v) end
        local own = few.element(count, reads, "", key, key, t, v)
        if #reads > #list then list[#reads] = held(reads[#reads], t) end
        return keep and keep(reads, own) or own
    end
    local lines, value = behind.lines(node, cuda.spelling(dtype, nil, node.at, kernel.half), element, rounded)
    lines[#lines + 1] = put:format(value)
    if table.concat(lines):find "%f[%w_]i%f[^%w_]" then
        table.insert(lines, 1, ("const %s i = first + k;"):format(cuda.int64))
    end
    local _, name = behind.result(node)
    return { reads = behind.block(reads), held = list, lines = behind.block(lines), both = node.behind.both,
        to = text.ident(name) }
end

--- How eight neighbours sums[k] of a product on tensor cores are computed. all: whether rows are whole eights; others
--- read each element alone. read: how eight are read, nil: "ga_read<FEW>(".
function cuda_behind.eights(kernel, all, read)
    local function keep(reads, own)
        if #reads > 0 then reads[#reads] = reads[#reads]:gsub("ga_read<FEW>%(", read) end
        return own
    end
    return neighbours(kernel, all and EIGHT, "f32", "ga_rounded", "sums[k] = %s;", read and keep)
end

--- How `count` neighbours to.at[k] of another result are computed. Neighbours of inputs are read before:
---   kept, early      lines that declare places for them and read them; early is false if there are none
--- form.kept: declares a place by array and name; form.early: reads to it, by name and what is read; form.element: the
--- text of element k, by name.
function cuda_behind.early(kernel, count, dtype, form)
    local kept, early = {}, {}
    local list = neighbours(kernel, count, dtype, kernel.half and kernel.half .. "_rounded", "ga_put(to.at[k], %s);",
        function(reads, spelled)
            local name, read, array = (reads[#reads] or ""):match "^const auto ([%w_]+) = (ga_read<FEW>%(([%w_]+) .*);$"
            if not name then return spelled end
            reads[#reads] = nil
            kept[#kept + 1] = form.kept:format(array, name)
            early[#early + 1] = form.early:format(name, read)
            return form.element:format(name)
        end)
    if list then list.kept, list.early = behind.block(kept), #early > 0 and behind.block(early) end
    return list
end

return cuda_behind
