-- Mutants of gradient rules: each rule of the catalog, one input at a time, is multiplied by 1.01 or removed in a copy
-- of gagen's scripts. gagen, or finite differences of every sample of the entry, must notice. Long: `make test-all`.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local PATCHED = [[
local plain, patched = catalog.load, nil
function catalog.load()
    if not patched then
        patched = plain()
        require "catalog.mutant" (patched)
    end
    return patched
end

return catalog
]]

local POINTWISE = [[
return function(catalog)
    local entry = catalog.pointwise:get "NAME"
    local grad = entry.grad
    entry.grad = function(fields, dy, ...)
        local d = table.pack(grad(fields, dy, ...))
        if d[INPUT] then
            io.stderr:write("changed\n")
            d[INPUT] = FACTOR * (FACTOR == 0 and dy or d[INPUT])
        end
        return table.unpack(d, 1, d.n)
    end
end
]]

local OP = [[
return function(catalog)
    local entry = catalog.ops:get "NAME"
    local grad = entry.grad
    entry.grad = function(b, node, dy)
        local d = grad(b, node, dy)
        if d.INPUT then
            io.stderr:write("changed\n")
            d.INPUT = FACTOR ~= 0 and b:map({ d.INPUT }, function(x) return FACTOR * x end) or nil
        end
        return d
    end
end
]]

-- A copy of the scripts whose catalog is changed by catalog/mutant.lua; returns its folder.
local function copy_of_scripts(t)
    local folder = t.root .. "/" .. t.temp() .. "/dev"
    assert(host.folder(folder))
    local copied = t.run { "cp", "-r", t.root .. "/gen", t.root .. "/templates",
        t.root .. "/runtime", folder }
    t.equal(copied.status, 0, copied.err)
    local path = folder .. "/gen/catalog/catalog.lua"
    local source, count = assert(host.read(path)):gsub("return catalog%s*$",
        function() return PATCHED end)
    t.equal(count, 1, "places for the patch in catalog.lua")
    t.write(path, source)
    return folder
end

local LOSS = [[
return function(catalog)
    local entry = catalog.losses:get "NAME"
    local grad = entry.grad
    entry.grad = function(fields, dy, ...)
        local d, of_target = grad(fields, dy, ...)
        io.stderr:write("changed\n")
        return FACTOR * (FACTOR == 0 and dy or d), of_target
    end
end
]]

local function write_mutant(t, folder, text, mutant)
    local source = (text or "return function() end\n"):gsub("%u%u%u+", function(word)
        return mutant and mutant[word]
    end)
    t.write(folder .. "/gen/catalog/mutant.lua", source)
end

-- One mutant per rule and change: { text, NAME, INPUT, FACTOR }.
local function mutants_of(catalog)
    local list = {}
    local function take(text, name, input)
        for _, factor in ipairs { "1.01", "0" } do
            list[#list + 1] = { text = text, NAME = name, INPUT = input, FACTOR = factor }
        end
    end
    for name, entry in catalog.pointwise:each() do
        for i = 1, entry.arity do take(POINTWISE, name, tostring(i)) end
    end
    for name, entry in catalog.ops:each() do
        for _, input in ipairs(entry.signature.ins) do
            if not entry.internal and entry.signature.dtype[input] ~= "i32" then
                take(OP, name, input)
            end
        end
    end
    for name, entry in catalog.losses:each() do
        if entry.grad then take(LOSS, name, "out") end
    end
    return list
end

-- nil if gradients and differences agree, else the check that noticed. "no rule": the mutant changed nothing, since no
-- gradient flows to that input; the samples without a mutant have shown that to be right.
local function noticed(numeric, case, folder, mutant)
    case.options = { "--dev", folder }
    local program, stage, outcome = numeric.try(case)
    if not program then return stage .. ", status " .. outcome.status end
    if mutant and not program.warnings:find("changed") then return "no rule" end
    local result = program:check("gradients")
    if result.status == 0 then return nil end
    if result.status ~= 1 then
        error(("check: status %d\n%s"):format(result.status, result.err), 0)
    end
    return "differences: " .. (result.out:match("([^\n]*): [%a ,]*\n[^\n]*FAILED") or "?")
end

add("every mutant of a gradient rule is found", function(t)
    t.long()
    local numeric = t.load("tests/numeric/numeric.lua")(t)
    local samples = t.load("tests/numeric/samples.lua")
    local catalog = require "catalog.catalog".load()
    local folder, by_entry, killed, survivors = copy_of_scripts(t), {}, 0, {}
    write_mutant(t, folder)
    for _, sample in ipairs((samples.collect(catalog))) do
        by_entry[sample.entry] = by_entry[sample.entry] or {}
        table.insert(by_entry[sample.entry], sample)
        t.equal(noticed(numeric, samples.case { sample }, folder), nil,
            sample.name .. " without a mutant")
    end
    for _, mutant in ipairs(mutants_of(catalog)) do
        write_mutant(t, folder, mutant.text, mutant)
        for _, sample in ipairs(by_entry[mutant.NAME]) do
            local by = noticed(numeric, samples.case { sample }, folder, mutant)
            local name = ("%s, input %s x %s, sample %s"):format(mutant.NAME, mutant.INPUT,
                mutant.FACTOR, sample.text)
            print(("%s: %s"):format(name, by or "SURVIVED"))
            if not by then survivors[#survivors + 1] = name end
            if by and by ~= "no rule" then killed = killed + 1 end
        end
    end
    print(("%d mutants killed, %d survived"):format(killed, #survivors))
    t.equal(survivors, {}, "mutants that survived")
    assert(killed >= 30, "few mutants: the catalog is nearly empty")
end)

return tests
