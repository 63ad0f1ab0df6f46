-- show: `gagen show SPEC NAME`: prints a file of the program, or a single kernel.
local diag = require "base.diag"
local lines = require "base.lines"
local ordered = require "base.ordered"

-- The function `name` in the text of a file, with the comment above it, or nil.
local function function_in(text, name)
    local list, from = lines.split(text), 1
    for i, line in ipairs(list) do
        if line == "" then from = i + 1 end
        if line:find("^[%a_][^;=]*%f[%w_]" .. name .. "%(") then
            local last = i
            while list[last] and list[last] ~= "}" do last = last + 1 end
            return table.concat(list, "\n", from, math.min(last, #list)) .. "\n"
        end
    end
end

--- The text of the file or kernel `name`; files and facts are the results of program.render.
return function(files, facts, name)
    if files:has(name) then return files:get(name) end
    local kernels = ordered.collect(facts.kernels, function(k) return k.name end)
    local file = files:has("kernels.cu") and "kernels.cu" or "kernels.c"
    local text
    for _, k in ipairs(facts.kernels) do
        if not text and (k.name == name or k.fn == name) then text = function_in(files:get(file), k.kernel or k.fn) end
    end
    if text then return text end
    local names = table.move(kernels, 1, #kernels, #files.keys + 1, ordered.copy(files.keys))
    diag.fail("show", ("there is no file or kernel '%s' in the program"):format(name), {
        hint = diag.suggest(name, names),
        notes = { "files: " .. table.concat(files.keys, " "), "kernels: " .. table.concat(kernels, " ") } })
end
