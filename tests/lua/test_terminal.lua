-- Tables and prose in the columns of a terminal; for a pipe they stay whole.
local columns = require "base.columns"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local KINDS = { { name = true, least = 6 }, { right = true, least = 4 }, { prose = true } }

local ROWS = {
    { "name", "n", "meaning" },
    { "a_name_of_twenty_fou", "12", "a short one" },
    { "\u{e4}", "123456", "one of several words that goes on and on" },
}

local function aligned(width, rows, kinds, indent)
    return columns.aligned(rows or ROWS, { columns = kinds or KINDS, indent = indent, width = width })
end

add("without a width a table is whole", function(t)
    t.equal(aligned(nil), {
        "name                       n  meaning",
        "a_name_of_twenty_fou      12  a short one",
        "\u{e4}                     123456  one of several words that goes on and on",
    })
    t.equal(aligned(nil, { { "x", "1", "y" } }, nil, 2), { "  x          1  y" })
    t.equal(aligned(70), aligned(nil))
end)

add("prose gives way, then names, at their middle", function(t)
    t.equal(aligned(60), {
        "name                       n  meaning",
        "a_name_of_twenty_fou      12  a short one",
        "\u{e4}                     123456  one of several words that goes",
        "                              on and on",
    })
    t.equal(aligned(48), {
        "name                 n  meaning",
        "a_name...y_fou      12  a short one",
        "\u{e4}               123456  one of several words",
        "                        that goes on and on",
    })
end)

add("the last columns of a row stand below where a line is too short", function(t)
    t.equal(aligned(40), {
        "name                       n",
        "    meaning",
        "a_name_of_twenty_fou      12",
        "    a short one",
        "\u{e4}                     123456",
        "    one of several words that goes on",
        "    and on",
    })
end)

add("no line is longer than the terminal", function(t)
    for width = 1, 80 do
        for _, line in ipairs(aligned(width, nil, nil, 2)) do assert(utf8.len(line) <= width, width .. ": " .. line) end
    end
end)

add("the middle of a long name", function(t)
    local function short(text, width) return columns.shortened(text, width) end
    t.equal({ short("abcdefghij", 10), short("abcdefghij", 9), short("abcdefghij", 8), short("abcdefghij", 4),
        short("abcdefghij", 3), short("abcdefghij", 1) }, { "abcdefghij", "abc...hij", "abc...ij", "a...", "abc", "a" })
    t.equal(short("\u{e4}\u{f6}\u{fc}\u{e4}\u{f6}\u{fc}", 5), "\u{e4}...\u{fc}")
end)

add("lines are broken at spaces, under their last part", function(t)
    local function wrapped(text, width) return columns.wrapped(text, width) end
    t.equal(wrapped("  --set X      replace a value of the spec\nshort\n\n", 30),
        "  --set X      replace a value\n               of the spec\nshort\n\n")
    t.equal(wrapped("plain words that go on", 12), "plain words\n  that go on")
    t.equal(wrapped("      deep fields, of many", 16), "      deep\n      fields, of\n      many")
    t.equal(wrapped("    a_word_longer_than_the_line and", 16), "    a_word_longer_than_the_line\n    and")
    t.equal(wrapped("  very_long_left_side_of_all  right side", 32), "  very_long_left_side_of_all\n    right side")
    t.equal(wrapped("unchanged  \n  as it  is", nil), "unchanged  \n  as it  is")
end)

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
model      { linear "a_rather_long_name_of_a_layer" { 8 }, tanh {}, linear "another_long_name_of_a_layer" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.01 }
train      { updates = 3 }
]]

add("commands keep to the terminal, and give a pipe the same words", function(t)
    local programs, terminal = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/terminal.lua")
    local path, folder = programs.folder() .. "/narrow.lua", t.temp()
    t.write(path, SPEC)
    t.write(folder .. "/out/a_program_with_a_long_name--optimizer.lr=1e-3--batch=64/runs/001/run.json",
        '{"started": "2026-11-22T22:30:00Z", "differs": ["seed: 1 -> 9", "threads: default -> 2"]}\n')
    local gagen = t.root .. "/" .. t.gagen
    for _, command in ipairs { "plan --why " .. path, "help", "help run", "list", "ls",
        "diff " .. path .. " --set batch=8" } do
        local words, longest = (command == "ls" and "cd " .. folder .. "; " or "") .. gagen .. " " .. command, 0
        local shown, piped = terminal(t, words, 60, { "TERM=dumb" }), t.shell(words).out
        for line in shown:sub(1, shown:find("\n--- a/", 1, true)):gmatch "[^\n]+" do
            assert(utf8.len(line) <= 60, command .. ": " .. line)
        end
        for line in piped:gmatch "[^\n]+" do longest = math.max(longest, utf8.len(line)) end
        assert(longest > 60, command)
        if command:find "^help" or command == "list" then
            t.equal(shown:gsub("%s+", " "), (piped:gsub("%s+", " ")), command)
        end
    end
end)

return tests
