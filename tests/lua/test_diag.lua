-- Diagnostics: layout, caret, did-you-mean, and that no byte of a spec acts on the terminal.
local diag = require "base.diag"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data { "csv" }
optimizer { "adamw", lr = 3e-4, wieght_decay = 0.1 }
	loss "a" "a"
]]

add("layout", function(t)
    local path = t.temp() .. "/s.lua"
    t.write(path, SPEC)
    local d = diag.new(path .. ":2", "optimizer: unknown field 'wieght_decay'", {
        found = "wieght_decay", among = { "lr", "weight_decay" }, "adamw takes: lr, weight_decay",
        { at = path .. ":1", message = "data is here" },
    })
    t.equal(diag.render(d), path .. [[
:2: optimizer: unknown field 'wieght_decay'
   2 | optimizer { "adamw", lr = 3e-4, wieght_decay = 0.1 }
     |                                 ^^^^^^^^^^^^ did you mean 'weight_decay'?
adamw takes: lr, weight_decay
]] .. path .. [[
:1: data is here
   1 | data { "csv" }
]])
end)

add("no caret where the token is not unique, none without a file", function(t)
    local path = t.temp() .. "/s.lua"
    t.write(path, SPEC)
    t.equal(diag.render(diag.new(path .. ":3", "twice", { found = "a", hint = "b" })),
        path .. ":3: twice\n   3 |     loss \"a\" \"a\"\ndid you mean 'b'?\n")
    t.equal(diag.render(diag.new(path .. ":99", "far", { found = "a" })), path .. ":99: far\n")
    t.equal(diag.render(diag.new("none.lua:1", "gone", { "note" })), "none.lua:1: gone\nnote\n")
    t.equal(diag.render(diag.new("--ranks", "expected a number")), "--ranks: expected a number\n")
    -- a token inside another word is not the token
    t.write(path, "lr = 1, lr_scale = 2\n")
    t.equal(diag.render(diag.new(path .. ":1", "x", { found = "lr" })),
        path .. ":1: x\n   1 | lr = 1, lr_scale = 2\n     | ^^\n")
end)

add("escapes", function(t)
    t.equal(diag.escape("a\27[2Jb\n\0\127"), "a\\x1b[2Jb\\x0a\\x00\\x7f")
    t.equal(diag.escape("caf\xc3\xa9 \xff\xc3"), "caf\xc3\xa9 \\xff\\xc3")
    t.equal(diag.escape("\xe2\x80\xae\xc2\x9b"), "\\xe2\\x80\\xae\\xc2\\x9b")
    t.equal(diag.escape(""), "")
    local path = t.temp() .. "/s.lua"
    t.write(path, "x = '\27[31m' wrong\n")
    local d = diag.new(path .. ":1", "\27", { found = "wrong", hint = "\27", "\27" })
    local text = diag.render(d)
    assert(not text:find("\27"))
    local before = (" "):rep(#"   1 | x = '\\x1b[31m' " - 6)
    t.contains(text, "     |" .. before .. "^^^^^ did you mean '\\x1b'?\n")
end)

add("suggestions", function(t)
    local words = { "linear", "layernorm", "optimizer", "schedule", "relu", "gelu", "lr" }
    t.equal(diag.suggest("optimiser", words), "optimizer")
    t.equal(diag.suggest("lienar", words), "linear")
    t.equal(diag.suggest("Linear", words), "linear")
    t.equal(diag.suggest("rleu", words), "relu")
    t.equal(diag.suggest("banana", words), nil)
    t.equal(diag.suggest("os", words), nil)
    t.equal(diag.suggest("", words), nil)
    t.equal(diag.suggest(("x"):rep(5000), words), nil)
end)

add("raising", function(t)
    local _, d = pcall(diag.fail, "a:1", "b", { kind = "environment" })
    assert(diag.is(d))
    t.equal(d.kind, "environment")
    t.equal(tostring(d), "a:1: b\n")
    t.equal(diag.is("text"), false)
    t.equal({ diag.place("x:y.lua:12") }, { "x:y.lua", 12 })
    t.equal(select("#", diag.place("x.lua")), 2)
end)

add("the line of a field", function(t)
    local path = t.temp() .. "/s.lua"
    t.write(path, "clip(1)\noptimizer { 'adamw',\n    lr = 1, -- beta = 2\n    groups = {\n"
        .. "        { beta = 3 } } }\ntrain { seed = 1 }\n")
    t.equal(diag.field(path .. ":2", "lr"), path .. ":3")
    t.equal(diag.field(path .. ":2", "beta"), path .. ":5")
    t.equal(diag.field(path .. ":2", "seed"), path .. ":2")
    t.equal(diag.field(path .. ":6", "seed"), path .. ":6")
    t.equal(diag.field("none.lua:6", "seed"), "none.lua:6")
end)

-- A diagnostic in colour: the place bold, the message red, caret and hint green; a warning yellow.
local REFUSED = "\27[1m%s:2:\27[0m \27[31moptimizer 'adamw': unknown field 'wieght_decay'\27[0m\n"
    .. '   2 | optimizer { "adamw", lr = 3e-4, wieght_decay = 0.1 }\n'
    .. "     |                                 \27[32m^^^^^^^^^^^^ did you mean 'weight_decay'?\27[0m\n"

local DIGITS = [[
data { "csv", train = "digits/digits.csv.gz", target = "last" }
optimizer { "adamw", lr = 3e-4, wieght_decay = 0.1 }
batch (4)
model { linear "a" { 10 } }
loss "cross_entropy"
schedule { "cosine", total = 2 }
train { updates = 5 }
]]

add("diagnostics are in colour on a terminal only", function(t)
    local terminal, path = t.load("tests/lua/terminal.lua"), t.temp() .. "/s.lua"
    t.write(path, DIGITS)
    local function shown(more, ...)
        return (terminal(t, t.gagen .. " check " .. path .. (more or ""), 80, { "TERM=xterm", "NO_COLOR",
            "GAGEN_DATA=specs/data", ... }))
    end
    local refused = REFUSED:format(path)
    t.equal(shown():sub(1, #refused), refused)
    t.equal(shown("", "NO_COLOR="):sub(1, #refused), refused)
    local plain = refused:gsub("\27%[%d+m", "")
    for _, text in ipairs { shown("", "NO_COLOR=1"), shown("", "TERM=dumb"), shown("", "TERM"), shown(" 2>&1 | cat") } do
        t.equal(text:sub(1, #plain), plain)
        t.equal(text:find("\27", 1, true), nil)
    end
    t.write(path, (DIGITS:gsub("wieght", "weight")))
    local warning = ":6:\27[0m \27[33mwarning: schedule: total is 2, "
    t.contains(shown(), path .. warning)
end)

add("headings of plan, list and help are bold on a terminal only", function(t)
    local terminal = t.load("tests/lua/terminal.lua")
    for command, heading in next, { plan = "memory", help = "options:", list = "layers:" } do
        local words = t.gagen .. " " .. command .. (command == "plan" and " specs/digits_mlp.lua" or "")
        local text = terminal(t, words, 1000, { "TERM=xterm", "NO_COLOR" })
        t.contains(text, "\n\27[1m" .. heading .. "\27[0m")
        t.equal(text:gsub("\27%[%d+m", ""), terminal(t, words .. " | cat", 1000, { "TERM=xterm", "NO_COLOR" }))
    end
end)

return tests
