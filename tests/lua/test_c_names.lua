-- Names of programs and of fields beside those of C, of the runtime and of the emitted code: gagen refuses those that
-- would not compile, and warns of those with which only the library would not.
local field_name = require "spec.field_name"
local library = require "emit.program.library"
local ordered = require "base.ordered"
local program_name = require "spec.program_name"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local NAME = "digits_mlp"

-- The folder of the program of a shipped spec, and the options of its compiler.
local function program(t)
    local folder = t.temp()
    local result = t.run { t.gagen, "specs/digits_mlp.lua", "-o", folder }
    t.equal(result.status, 0, result.err)
    local flags = host.read(folder .. "/Makefile"):match "\nFLAGS = (.-[^\\])\n":gsub("\\\n", "")
    return folder, flags
end

-- Adds the small identifiers of a text, each once.
local function add_words(list, text)
    for word in text:gmatch "%f[%w_][%l][%l%d_]*%f[^%w_]" do list:set(word, true) end
end

-- The text of step.c with the library and all headers, without comments.
local function whole_text(t, folder, flags)
    return t.shell(("cd %s && cc %s -DGA_LIBRARY -E -P step.c"):format(folder, flags)).out
end

-- Identifiers that no type can have behind step.c, as the compiler says.
local function colliding(t, folder, flags, words)
    local lines = { '#include "step.c"' }
    for i, word in ipairs(words) do
        lines[i + 1] = ("struct %s { int x; }; typedef struct %s %s;"):format(word, word, word)
    end
    t.write(folder .. "/all_names.c", table.concat(lines, "\n") .. "\n")
    local command = "cd %s && cc %s -DGA_LIBRARY -w -fsyntax-only -fmax-errors=0 all_names.c"
    local result = t.shell(command:format(folder, flags))
    local list = ordered.map()
    for line in result.err:gmatch "all_names%.c:(%d+):%d+: error" do list:set(words[tonumber(line) - 1], true) end
    return list.keys
end

-- The files of the program as they would be with another name, and whether gagen refuses that name or warns of it.
local function files_of(folder)
    local files = ordered.map()
    for _, path in ipairs(host.list(folder)) do
        if path:find "%.[ch]$" then files:set(path, host.read(folder .. "/" .. path)) end
    end
    for _, path in ipairs(host.list(folder .. "/runtime/base")) do
        files:set("runtime/base/" .. path, host.read(folder .. "/runtime/base/" .. path))
    end
    return files
end

local function noticed(name, files)
    if program_name.obstacle(name) or program_name.obstacle_of_library(name) then return true end
    local renamed = ordered.map()
    for path, text in files:each() do renamed:set((path:gsub(NAME, name)), (text:gsub(NAME, name))) end
    return library.clash(name, renamed) ~= nil
end

add("a name that no type can have beside the library of C and the program is refused or warned of", function(t)
    local folder, flags = program(t)
    local words, files = ordered.map(), files_of(folder)
    add_words(words, whole_text(t, folder, flags))
    for line in t.shell(("cd %s && cc %s -DGA_LIBRARY -E -dM step.c"):format(folder, flags)).out:gmatch "[^\n]+" do
        add_words(words, line:match "^#define ([%w_]+)")
    end
    local wrong = colliding(t, folder, flags, words.keys)
    assert(#wrong > 600, #wrong)
    local face = files:get(NAME .. ".h") .. files:get "model.h"
    for _, word in ipairs(wrong) do
        local own = word:sub(1, #NAME) == NAME
        if not own then assert(noticed(word, files), word .. ": is not noticed") end
        for at in (own and "" or word):gmatch "()_" do
            local name, suffix = word:sub(1, at - 1), word:sub(at)
            local same = face:find(NAME .. suffix .. "%f[^%w_]")
            if same then assert(noticed(name, files), ("%s: is not noticed beside %s"):format(name, word)) end
        end
    end
    for _, word in ipairs { "net", "hello", "conv", "conv_rows", "time_series", "gpt" } do
        assert(not noticed(word, files), word .. ": is noticed")
    end
    for _, word in ipairs { "take", "measure", "flush" } do assert(noticed(word, files), word .. ": is not noticed") end
end)

add("no function of the library hides its type behind a name that a program may have", function(t)
    local files = files_of((program(t)))
    for path, text in files:each() do
        if path:find "^library.*%.c$" or path == "example.c" then
            text = text:gsub("/%*.-%*/", ""):gsub('"[^"\n]*"', ""):gsub("%f[%w_]" .. NAME .. "%f[^%w_]", "@")
            for body in ("\n" .. text):gmatch "\n(%l[^\n]*%b().-\n)%f[\n}]" do
                for word in (body:match "^(.*)@" or ""):gmatch "%f[%w_.>](%l[%l%d_]*)%f[^%w_]" do
                    local type = word:find "^digits_mlp" or word:find "^ga_"
                    assert(type or noticed(word, files), ("%s: %s\n%s"):format(path, word, body))
                end
            end
        end
    end
end)

add("a program with a name of C trains, with a warning about its library", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/round.lua"
    t.write(path, assert(host.read "specs/digits_mlp.lua"))
    local folder = t.temp()
    local made = programs.gagen { path, "-o", folder }
    t.equal(made.status, 0, made.err)
    t.contains(made.err, "round.lua: warning: name: 'round' is a name of C: the library of the program (make lib) needs "
        .. "another, by the word name or the name of the file\n")
    local flags = host.read(folder .. "/Makefile"):match "\nFLAGS = (.-[^\\])\n":gsub("\\\n", "")
    for _, file in ipairs { "step.c", "model.c", "main.c", "predict.c" } do
        local compiled = t.shell(("cd %s && cc %s -Werror -fsyntax-only %s"):format(folder, flags, file))
        t.equal(compiled.status, 0, file .. "\n" .. compiled.err)
    end
end)

-- A spec whose fields are these categories of a table, with a folder of its own.
local function fields_spec(t, fields)
    local folder, rows = t.temp(), { table.concat(fields, ",") .. ",x,y" }
    for i = 1, 8 do rows[i + 1] = ("a%d,"):format(i % 2):rep(#fields) .. i .. "," .. i % 2 end
    t.write(folder .. "/t.csv", table.concat(rows, "\n") .. "\n")
    local list = '{ "' .. table.concat(fields, '", "') .. '" }'
    local sum = {}
    for i, field in ipairs(fields) do sum[i] = ('embedding "e%d" { 4, 2 } (batch["%s"])'):format(i, field) end
    t.write(folder .. "/fields.lua", table.concat({
        ('data { "csv", train = "%s/%s/t.csv", target = "y", category = %s, ids = %s }'):format(t.root, folder, list,
            list),
        "batch (4)", "model(function(batch)",
        ('return linear "fc" { 2 } (%s)'):format(table.concat(sum, " + ")), "end)",
        'loss "cross_entropy"', 'optimizer { "sgd", lr = 0.1 }', "train { updates = 2 }", "" }, "\n"))
    return folder
end

add("fields with the names of functions and types compile, in the library and its example", function(t)
    local folder = fields_spec(t, { "main", "printf", "fill", "exp", "size_t", "i" })
    local result = t.run { t.gagen, folder .. "/fields.lua", "-o", folder .. "/out" }
    t.equal(result.status, 0, result.err)
    local flags = host.read(folder .. "/out/Makefile"):match "\nFLAGS = (.-[^\\])\n":gsub("\\\n", "")
    for _, file in ipairs { "-DGA_LIBRARY step.c", "example.c", "predict.c", "main.c", "probes.c" } do
        local compiled = t.shell(("cd %s/out && cc %s -Werror -fsyntax-only %s"):format(folder, flags, file))
        t.equal(compiled.status, 0, file .. "\n" .. compiled.err)
    end
end)

add("a field with the name of a macro, of another member or but for capitals of another field is refused", function(t)
    for _, case in ipairs { { "rows", "has a meaning in C or in each program" }, { "errno", "has a meaning in C" },
        { "Micro", "has a meaning in C" }, { "Target", "'target' has the same name but for capitals" } } do
        local folder = fields_spec(t, { case[1] })
        local result = t.run { t.gagen, "check", folder .. "/fields.lua" }
        t.equal(result.status, 1, case[1])
        t.contains(result.err, case[2])
        t.contains(result.err, "expected its column in the input")
    end
    t.contains(field_name.obstacle("city", { "City" }), "'City' has the same name but for capitals")
    t.equal(field_name.obstacle("city", { "target", "input" }), nil)
end)

-- Layers of torch's Sequential have numbers for names.
add("a group of parameters whose names are numbers compiles", function(t)
    local folder = t.temp()
    local text, count = host.read("specs/digits_mlp.lua"):gsub('"fc(%d)"', '"%1"')
    assert(count > 1)
    text, count = text:gsub("\noptimizer [^\n]*", '\noptimizer { "adamw", lr = 0.01, groups = { { "1.*", weight_decay = 0.1 }, '
        .. '{ "*2.bias", lr_scale = 2 } } }')
    assert(count == 1)
    t.write(folder .. "/numbers.lua", text)
    local result = t.run { t.gagen, folder .. "/numbers.lua", "-o", folder .. "/out", env = { "GAGEN_DATA=specs/data" } }
    t.equal(result.status, 0, result.err)
    t.match(host.read(folder .. "/out/model.h"), "\n    range [^;]*group_1,")
    local flags = host.read(folder .. "/out/Makefile"):match "\nFLAGS = (.-[^\\])\n":gsub("\\\n", "")
    local compiled = t.shell(("cd %s/out && cc %s -Werror -fsyntax-only step.c"):format(folder, flags))
    t.equal(compiled.status, 0, compiled.err)
end)

return tests
