-- Rules of the project that a test can check: the order of rooms, no unordered iteration on the way to a file, small
-- files, and texts that mention only the project itself.
local ORDER = { "host", "base", "graph", "catalog", "spec", "passes", "emit", "report", "command" }
local RUNTIME_ORDER = { "base", "loop", "ranks", "files", "data", "log", "device" }
local LIMIT = { lua = 500, c = 500, h = 150, tmpl = 500 }

local function files(t, command)
    local list = {}
    for name in t.shell(command).out:gmatch("[^\n]+") do list[#list + 1] = name end
    return list
end

local function read(name)
    local f = assert(io.open(name))
    local text = f:read("a")
    f:close()
    return text
end

local function lines(text)
    local n = 0
    return function()
        local line
        line, text = text:match("^([^\n]*)\n?(.*)$")
        n = n + 1
        if text == "" and line == "" then return nil end
        return n, line
    end
end

local function rank(room, order)
    for i, name in ipairs(order) do
        if name == room then return i end
    end
end

return {
    { "a room uses only rooms to its left", function(t)
        for _, file in ipairs(files(t, "find gen -mindepth 2 -name '*.lua' | sort")) do
            local room = file:match("^gen/(%w+)/")
            for n, line in lines(read(file)) do
                local to = line:match('require%s*%(?%s*"(%w+)%.')
                if to and rank(to, ORDER) and rank(to, ORDER) > rank(room, ORDER) then
                    error(("%s:%d: %s may not use %s"):format(file, n, room, to))
                end
            end
        end
    end },
    { "a folder of the runtime includes only folders to its left, and each include names its folder", function(t)
        for _, file in ipairs(files(t, "find runtime -name '*.[ch]' | sort")) do
            local own = rank(file:match("^runtime/(%w+)/[%w_]+%.[ch]$"), RUNTIME_ORDER)
            if not own then error(file .. ": lies in none of the folders of the runtime") end
            for n, line in lines(read(file)) do
                local name = line:match('^#include "(.*)"')
                local to = name and rank(name:match("^(%w+)/[%w_]+%.h$"), RUNTIME_ORDER)
                if name and not to then error(("%s:%d: expected \"folder/file.h\""):format(file, n)) end
                if to and to > own then error(("%s:%d: may not use %s"):format(file, n, name)) end
            end
        end
    end },
    { "no unordered iteration outside gen/base", function(t)
        for _, file in ipairs(files(t, "find gen -name '*.lua' | sort")) do
            for n, line in lines(read(file)) do
                if not file:match("^gen/base/") and line:gsub("%-%-.*", ""):find("[^%w_]pairs%(")
                    or line:find("[^%w_]next%(") then
                    error(("%s:%d: pairs or next: use base.ordered"):format(file, n))
                end
            end
        end
    end },
    { "no tabs, no long lines, no long files", function(t)
        for _, file in ipairs(files(t, "find gen runtime -name '*.lua' -o -name '*.c' -o -name '*.h' "
            .. "| grep -v host/embedded_files | sort")) do
            local limit, count = LIMIT[file:match("%.(%w+)$")], 0
            for n, line in lines(read(file)) do
                count = n
                if line:find("\t") then error(("%s:%d: a tab"):format(file, n)) end
                if #line > 120 then error(("%s:%d: %d columns"):format(file, n, #line)) end
            end
            if count > limit then
                error(("%s: %d lines, expected at most %d"):format(file, count, limit))
            end
        end
    end },
    { "unfinished words and paths of one machine", function(t)
        local words = { "TO" .. "DO", "FIX" .. "ME", "/wo" .. "rk/", "/ro" .. "ot/" }
        for _, file in ipairs(files(t, "git ls-files | grep -v -E '\\.(gz|safetensors)$'")) do
            local f = io.open(file)
            if f then
                local text = f:read("a")
                f:close()
                for _, word in ipairs(words) do
                    if text:find(word, 1, true) then error(file .. " contains " .. word) end
                end
            end
        end
    end },
    { "no file outside targets names a target, none outside catalog/parallel a mode", function(t)
        local folders, modes = require "base.folders", require "catalog.catalog".load().modes
        -- the words `target` and `parallel` have usage examples; doctor checks the machine's tools
        local excepted = { ["gen/spec/words.lua"] = true, ["gen/emit/program/doctor.lua"] = true }
        local patterns = { 'require%s*%(?"emit%.targets%.%w+%.', "target%.folder%s*[=~]=", "config%.target%s*[=~]=" }
        for _, name in ipairs(folders.inside "gen/emit/targets/") do
            patterns[#patterns + 1] = #name > 1 and "%f[%w]" .. name .. "%f[%W]" or 'target%s*[=~]=%s*"' .. name .. '"'
        end
        for name in modes:each() do
            patterns[#patterns + 1] = name ~= "none" and '"' .. name .. '"' or 'parallel%s*[=~]=%s*"none"'
        end
        for _, file in ipairs(files(t, "find gen -name '*.lua' -not -path 'gen/emit/targets/*' "
            .. "-not -path 'gen/catalog/parallel/*' | sort")) do
            for n, line in lines(excepted[file] and "" or read(file)) do
                for _, pattern in ipairs(patterns) do
                    if line:gsub("%-%-.*", ""):find(pattern) then error(("%s:%d: %s"):format(file, n, line)) end
                end
            end
        end
    end },
    { "templates ask for what a program has, not for a target or a mode", function(t)
        for _, file in ipairs(files(t, "find templates -type f | sort")) do
            for n, line in lines(read(file)) do
                local asked = line:match("^%s*[/#]/?[%%@](.*)$")
                if asked and (asked:find("%f[%w]cuda%f[%W]") or asked:find("%f[%w]ddp%f[%W]")) then
                    error(("%s:%d: %s"):format(file, n, line))
                end
            end
        end
    end },
    { "every entry of the catalog is documented", function(t)
        local known = require("catalog.catalog").load()
        for _, kind in ipairs { "ops", "pointwise", "layers", "losses", "optimizers", "schedules", "modes" } do
            for name, entry in known[kind]:each() do
                t.match(entry.doc, "%w")
                for _, field in ipairs(entry.fields or {}) do
                    if not field.doc then error(kind .. " " .. name .. ": field " .. field.name) end
                end
            end
        end
        for _, word in ipairs(require("spec.words").list) do
            for _, field in ipairs(word.fields or {}) do
                if not field.doc then error("word " .. word.name .. ": field " .. field.name) end
            end
        end
    end },
}
