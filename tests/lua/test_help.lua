-- `gagen list` and `gagen help` show everything that a spec may use, with its fields; every example is a valid line of
-- a spec.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local commands = require "command.commands"
local reference = require "command.reference"

local function gagen(t, ...)
    return t.load("tests/lua/programs.lua")(t).gagen { ... }
end

local function each_entry(f)
    for _, kind in ipairs(reference.kinds()) do
        for _, entry in ipairs(reference.entries(kind)) do f(kind, entry) end
    end
end

-- The words of a small spec; an example takes the place of its word.
local BASE = {
    { "data", 'data { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { eval = 300 } }' }, { "batch", "batch (16)" },
    { "accumulate", "accumulate (4)" },
    { "model", 'model { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }' },
    { "loss", 'loss "cross_entropy"' }, { "optimizer", 'optimizer { "sgd", lr = 0.1, momentum = 0.9 }' },
    { "train", "train { epochs = 9 }" },
}

local function spec_of(entry)
    local line = entry.example
    if line:match("^local y = ") then
        line = ('model(function(batch) local x = linear "before" { 8 } (batch.input)\n%s\n'
            .. 'return linear "after" { 10 } (y) end)'):format(line)
    elseif entry.kind == "layer" or entry.kind == "op" and not line:match("^loss") then
        line = ('model { linear "before" { 8 }, %s, linear "after" { 10 } }'):format(line)
    end
    local word, lines, placed = line:match("^%w+"), {}, false
    for i, base in ipairs(BASE) do
        lines[i] = base[1] == word and line or base[2]
        placed = placed or base[1] == word
    end
    if not placed then lines[#lines + 1] = line end
    return table.concat(lines, "\n") .. "\n"
end

-- Data that is not in the tree, models for real targets and for rows that are no vectors, and evaluations.
local function fits(t, entry, text)
    local losses = require("catalog.catalog").load().losses
    if entry.kind == "loss" and losses:get(entry.name).target == "real" then
        text = text:gsub('linear "fc2" { 10 } }', 'linear "fc2" { 1 }, pick { axis = 2, index = 1 } }')
    elseif entry.name == "plateau" then
        text = text .. "eval { every = 5 }\n"
    elseif entry.kind == "data" then
        local root = t.environment "GAGEN_DATA"
        for path in text:gmatch('"([^"]+/[^"]+)"') do
            if t.shell(("ls %s/%s"):format(root or t.root .. "/specs/data", path)).status ~= 0 then return nil end
        end
        if not text:find "/" then return nil end
        if entry.name == "text" or entry.name == "tokens" then return nil end
        text = text:gsub("model {", "model { flatten {},")
    end
    return text
end

add("each example is a valid spec", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, n, wrong = programs.folder() .. "/example.lua", 0, {}
    each_entry(function(_, entry)
        local text = fits(t, entry, spec_of(entry))
        if not text then return end
        t.write(path, text)
        local result = programs.gagen { "check", path, env = { "GAGEN_DATA=" .. (t.environment "GAGEN_DATA" or "") } }
        n = n + 1
        if result.status ~= 0 then wrong[#wrong + 1] = entry.name .. ": " .. result.err .. text end
    end)
    assert(n > 40, n .. " examples")
    if #wrong > 0 then error(table.concat(wrong, "\n"), 0) end
end)

add("help of each entry", function(t)
    local lists = {}
    for _, kind in ipairs(reference.kinds()) do lists[kind] = gagen(t, "list", kind).out end
    each_entry(function(kind, entry)
        local text = gagen(t, "help", entry.name).out
        t.contains(text, entry.kind .. ": " .. entry.usage .. "\n")
        t.contains(text, entry.doc)
        t.contains(text, "example: " .. entry.example .. "\n")
        for _, f in ipairs(entry.fields) do
            t.contains(text, "\n  " .. f.name)
            t.contains(text, f.doc)
        end
        t.contains(lists[kind], "\n  " .. entry.name)
    end)
end)

-- Some are written by hand, so that list and entry cannot be wrong in the same way.
add("the full help of some entries", function(t)
    local adamw = gagen(t, "help", "adamw").out
    t.contains(adamw, 'optimizer: optimizer { "adamw", lr = 0.001, betas = { 0.9, 0.999 }, eps = 1e-8, '
        .. "weight_decay = 0.01, amsgrad = false, maximize = false }\n")
    t.contains(adamw, "\n  keeps m, v: 8 bytes per parameter in f32, 16 in f64; with amsgrad m, v, v_max: 12, 24\n")
    t.match(adamw, "\n  eps +a number > 0, default 1e%-8\n")
    t.match(gagen(t, "help", "batch").out, "^word: batch { rows%*, global }\n")
    t.match(gagen(t, "help", "linear").out, "\n  out%* +an integer 1%.%.2%^31%-1\n")
    t.match(gagen(t, "help", "add").out, "^op: add%(a, b%) | a %+ b\n")
    t.match(gagen(t, "help", "mse").out, '^loss: loss "mse"\n')
    t.contains(gagen(t, "help", "parallel").out, '"ddp": each process has the whole model and rows of its own')
    t.contains(gagen(t, "help", "parallel").out, '"zero2": as zero1, with the summed gradient divided too')
    -- a name of two kinds: both are shown
    local log = gagen(t, "help", "log").out
    t.contains(log, "word: log {")
    t.contains(log, "op: log {}")
end)

add("help of each command", function(t)
    for _, command in ipairs(commands.list) do
        local text = gagen(t, "help", command.name).out
        t.contains(text, "command: gagen " .. commands.usage(command) .. "\n")
        for _, name in ipairs(command.options) do
            assert(commands.option(name), command.name .. ": " .. name .. " is no option")
            t.contains(text, "\n  " .. name)
        end
        t.equal(gagen(t, command.name, "--help").out, text)
        t.equal(gagen(t, "--help", command.name).out, text)
        t.contains(gagen(t, "help").out, "  gagen " .. commands.usage(command))
    end
end)

add("every option belongs to a command, and is understood", function(t)
    local taken = {}
    for _, command in ipairs(commands.list) do
        for _, name in ipairs(command.options) do taken[name] = true end
    end
    for _, option in ipairs(commands.options) do
        if option.name ~= "--dev" then assert(taken[option.name], option.name) end
        t.contains(gagen(t, "help").out, "\n  " .. option.name)
    end
end)

add("the examples of the commands run", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local long = { run = true, check = true, generate = true, doctor = true, new = true,
        tokenize = true, fit = true, plot = true, compare = true, report = true,
        export = true }    -- those of runs: test_plot.lua, test_export.lua
    for _, command in ipairs(commands.list) do
        if not long[command.name] then
            local words = {}
            for word in command.example:gsub("^gagen ", ""):gmatch("%S+") do words[#words + 1] = word end
            local result = programs.gagen(words)
            t.equal(result.status, 0, command.example .. "\n" .. result.err)
        end
    end
end)

add("a name that is nearly right", function(t)
    local result = gagen(t, "help", "lnear")
    t.equal(result.status, 1)
    t.contains(result.err, "nothing is called 'lnear'\ndid you mean 'linear'?")
    t.contains(gagen(t, "help", "chek").err, "did you mean 'check'?")
end)

return tests
