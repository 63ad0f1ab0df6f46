-- Texts made from the lists of commands and words: the manual page, docs/COMMANDS.md, annotations for editors,
-- completions of shells. Each is read by its program if that is installed.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local commands = require "command.commands"
local reference = require "command.reference"

local function gagen(t, ...)
    local result = t.load("tests/lua/programs.lua")(t).gagen { ... }
    t.equal(result.status, 0, result.err)
    return result.out
end

local function needs(t, program)
    if t.run { "sh", "-c", "command -v " .. program }.status ~= 0 then t.not_run(program .. " is not installed") end
end

add("the manual page has every command and option", function(t)
    local page = gagen(t, "help", "--man")
    local function roff(text) return (text:gsub("%-", "\\-")) end
    for _, command in ipairs(commands.list) do
        t.contains(page, "\n.B gagen\n" .. roff(commands.usage(command)) .. "\n")
        t.contains(page, roff(command.doc))
    end
    for _, option in ipairs(commands.options) do
        t.contains(page, "\\fB" .. roff(commands.option_usage(option)) .. "\\fR\n")
    end
    for _, section in ipairs { "NAME", "SYNOPSIS", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT" } do
        t.contains(page, "\n.SH " .. section .. "\n")
    end
end)

add("groff accepts the manual page", function(t)
    needs(t, "groff")
    local path = t.temp() .. "/gagen.1"
    t.write(path, gagen(t, "help", "--man"))
    local result = t.run { "groff", "-man", "-ww", "-Tascii", "-P-c", path }
    t.equal(result.status, 0)
    t.equal(result.err, "")
    local text = result.out:gsub(".\b", "")
    t.match(text, "gagen %- writes the training program for a spec")
    t.match(text, "%-%-set WORD%.FIELD=LUA\n")
    t.match(text, "A=1,2,4")
end)

add("docs/COMMANDS.md is up to date", function(t)
    if host.read("docs/COMMANDS.md") ~= gagen(t, "help", "--markdown") then
        error("docs/COMMANDS.md is not what gagen help --markdown prints: make docs writes it", 0)
    end
end)

add("the annotations are Lua and have every word with its fields", function(t)
    local text = gagen(t, "help", "--annotations")
    assert(load(text, "gagen.d.lua", "t", {}))
    for _, kind in ipairs { "words", "layers", "ops" } do
        for _, entry in ipairs(reference.entries(kind)) do
            local _, count = text:gsub("\nfunction " .. entry.name .. "%(", "")
            t.equal(count, 1, entry.name)
        end
    end
    for _, kind in ipairs(reference.kinds()) do
        for _, entry in ipairs(reference.entries(kind)) do
            if entry.name ~= "log" then
                for _, f in ipairs(entry.fields) do
                    t.contains(text, "\n---@field " .. (f.rest and "[integer]" or f.name))
                end
            end
        end
    end
    -- numbers that stand side by side, reshape { 8, -1 }, have no name
    t.contains(text, "---@class (exact) gagen.layer.reshape\n---@field [integer] integer the extents")
    t.contains(text, "---@return fun(value: gagen.layer.parameter): gagen.tensor\nfunction parameter(name) end")
    t.contains(text, '---@class (exact) gagen.optimizer.adamw\n---@field [1] "adamw"\n---@field lr? number ')
    t.contains(text, "---@field tail? \"drop\"|")
    t.contains(text, "\n---@field [1] \"sgd\"\n---@field lr number ")
    -- every line is a comment, a function or empty
    for line in text:gmatch("([^\n]*)\n") do
        assert(line == "" or line:find("^%-%-") or line:find("^function [%w_]+%([%w_.]*%) end$"), line)
    end
end)

add("bash completes commands, options, values and words", function(t)
    needs(t, "bash")
    -- completions for the words of a line, the last of them incomplete
    local function offers(expected, ...)
        local words = { ... }
        local folder = t.temp()
        t.write(folder .. "/gagen.bash", gagen(t, "help", "--completion", "bash"))
        t.write(folder .. "/spec.lua", "")
        t.write(folder .. "/other.txt", "")
        local result = t.run { cwd = folder, "bash", "-c", 'source ./gagen.bash; COMP_WORDS=("$@"); '
            .. 'COMP_CWORD=$(($# - 1)); _gagen; printf "%s " "${COMPREPLY[@]}"', "bash", "gagen", table.unpack(words) }
        t.equal(result.err, "")
        t.equal((result.out:gsub(" +$", "")), expected, table.concat(words, " "))
    end
    offers("plan", "pla")
    offers("--json", "plan", "--js")
    offers("", "lr", "--js")
    offers("spec.lua", "plan", "")
    offers("spec.lua", "check", "--target", "c", "sp")
    offers("c cuda", "plan", "spec.lua", "--target", "")
    offers("optimizers", "list", "opt")
    offers("adamw", "help", "adamw")
    offers("clip= clip.norm= clip.p= clip.value= clip.per_group=", "plan", "--set", "clip")
    offers("bert", "tokenize", "be")
    offers("other.txt", "tokenize", "bert", "oth")
    offers("other.txt", "tokenize", "--vocab", "oth")
    offers("", "run", "spec.lua", "--", "--cy")
end)

for _, shell in ipairs { "bash", "zsh", "fish" } do
    add(shell .. " reads its completion", function(t)
        needs(t, shell)
        local path = t.temp() .. "/gagen"
        t.write(path, gagen(t, "help", "--completion", shell))
        local result = t.run { shell, "-n", path }
        t.equal({ result.status, result.err }, { 0, "" })
        for _, command in ipairs(commands.list) do
            if command.name ~= "generate" then t.contains(host.read(path), command.name) end
        end
        for _, option in ipairs(commands.options) do
            if option.name ~= "--dev" then t.contains(host.read(path), (option.name:gsub("^%-+", ""))) end
        end
    end)
end

add("fish completes options and values", function(t)
    needs(t, "fish")
    local path = t.temp() .. "/gagen.fish"
    t.write(path, gagen(t, "help", "--completion", "fish"))
    local function offers(line)
        local result = t.run { "fish", "-c", ("source %s; complete -C '%s'"):format(path, line) }
        return (result.out:gsub("\t[^\n]*", ""))
    end
    t.equal(offers("gagen plan --js"), "--json\n")
    t.equal(offers("gagen pla"), "plan\n")
    t.equal(offers("gagen list opt"), "optimizers\n")
    t.equal(offers("gagen plan --target cu"), "cuda\n")
end)

add("an unknown shell", function(t)
    local result = t.load("tests/lua/programs.lua")(t).gagen { "help", "--completion", "fih" }
    t.equal(result.status, 1)
    t.contains(result.err, "expected one of bash, zsh, fish\ndid you mean 'fish'?")
end)

return tests
