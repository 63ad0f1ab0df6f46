-- samples: the sample of a catalog entry as part of a model. Each sample is between two linear layers of its
-- own, so that its output gradients differ by element and its input gradient matters. A program sums all
-- its samples; block names say the entry.
--
--   "relu {}"                      ->  block "op_relu" (function(x)
--   "function(x) return ... end"           x = linear "before" { 5 } (x)
--                                          x = (SAMPLE) (x)
--                                          return linear "after" { 3 } (x) end) (batch.input)
local samples = {}

-- Samples are layers, functions of x, or losses: 'loss(function ...)'; "loss" is the usual one.
local function kind_of(text)
    if text == "loss" or text:match("^loss[%s(\"{]") then return "loss" end
    return "model"
end

--- Every entry of the catalog that needs a gradient check: { name, kind, text } for each sample.
-- `missing` lists entries without a sample.
function samples.collect(catalog)
    local list, missing = {}, {}
    local function take(name, entry)
        if type(entry.sample) ~= "string" then missing[#missing + 1] = name end
        for i, text in ipairs { entry.sample, table.unpack(entry.samples or {}) } do
            list[#list + 1] = { name = i == 1 and name or name .. "_" .. i, entry = name,
                text = text, kind = kind_of(text) }
        end
    end
    for name, entry in catalog.pointwise:each() do take(name, entry) end
    for name, entry in catalog.ops:each() do
        if not entry.internal then take(name, entry) end
    end
    for name, entry in catalog.losses:each() do
        for i, text in ipairs(entry.samples or {}) do
            list[#list + 1] = { name = i == 1 and name or name .. "_" .. i, entry = name,
                text = text, kind = "loss", width = entry.target == "real" and 1 or nil }
        end
    end
    return list, missing
end

local function branch(sample)
    return ([[
    block "op_%s" (function(x)
        x = linear "before" { 5 } (x)
        x = (%s) (x)
        return linear "after" { 3 } (x)
    end) (batch.input)]]):format(sample.name, sample.text)
end

--- A case of numeric.lua with the given samples: any number of kind "model", at most one "loss".
function samples.case(list)
    local branches, case = {}, { accumulate = "(2)", batch = 6, width = 4, rows = 12 }
    for _, sample in ipairs(list) do
        if sample.kind == "model" then
            branches[#branches + 1], case.ids = branch(sample), true
        elseif sample.text ~= "loss" then
            case.loss = sample.text:gsub("^loss%s*", "")
        end
    end
    branches[1] = branches[1] or ('    linear "plain" { %d } (batch.input)'):format(list[1].width or 3)
    case.model = "(function(batch)\n    return\n" .. table.concat(branches, "\n    +\n") .. "\nend)"
    return case
end

--- The samples in part `part` of `parts`: a single program of all samples takes too long to compile.
function samples.models(part, parts)
    local list, taken = {}, 0
    for _, sample in ipairs(samples.collect(require("catalog.catalog").load())) do
        if sample.kind == "model" then
            taken = taken + 1
            if taken % parts == part - 1 then list[#list + 1] = sample end
        end
    end
    assert(taken >= 20 and #list > 0)
    return list
end

return samples
