-- `gagen new` and `gagen diff`, and the difference of two texts that it prints.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = "specs/digits_mlp.lua"

local function gagen(t, arguments)
    arguments.env = arguments.env or { "GAGEN_DATA=" .. t.root .. "/specs/data" }
    return t.load("tests/lua/programs.lua")(t).gagen(arguments)
end

-- -- lines ----------------------------------------------------------------------------------------

local function random_of(seed)
    local state = seed
    return function(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
end

-- Applies `edits`: returns the texts of a and b that they describe.
local function sides(edits)
    local a, b, changes = {}, {}, 0
    for _, e in ipairs(edits) do
        if e.sign ~= "+" then a[#a + 1] = e.text end
        if e.sign ~= "-" then b[#b + 1] = e.text end
        changes = changes + (e.sign == " " and 0 or 1)
    end
    return a, b, changes
end

-- The smallest number of deleted and inserted lines, by dynamic programming.
local function least(a, b)
    local row = {}
    for j = 0, #b do row[j] = j end
    for i = 1, #a do
        local corner = row[0]
        row[0] = i
        for j = 1, #b do
            local best = a[i] == b[j] and corner or 1 + math.min(row[j], row[j - 1])
            corner, row[j] = row[j], best
        end
    end
    return row[#b]
end

add("the edits of two random texts turn one into the other", function(t)
    local lines = require "base.lines"
    for seed = 1, 300 do
        local random, a = random_of(seed), {}
        local letters = seed % 2 == 0 and 3 or 1000
        for i = 1, random(40) - 1 do a[i] = tostring(random(letters)) end
        local b, edited = table.move(a, 1, #a, 1, {}), random(12) - 1
        for _ = 1, edited do
            if #b > 0 and random(2) == 1 then table.remove(b, random(#b))
            else table.insert(b, random(#b + 1), tostring(random(letters))) end
        end
        local x, y, changes = sides(lines.edits(a, b))
        t.equal(x, a)
        t.equal(y, b)
        -- with three different lines few are unique, so the diff is only near the minimum
        assert(changes <= (letters == 3 and 2 * least(a, b) + 8 or least(a, b) + 2), ("seed %d: %d changes, least %d")
            :format(seed, changes, least(a, b)))
    end
end)

add("texts with nothing in common, and long ones", function(t)
    local lines = require "base.lines"
    local a, b = {}, {}
    for i = 1, 3000 do a[i], b[i] = "a" .. i % 7, i % 10 == 0 and "x" or "a" .. i % 7 end
    local x, y = sides(lines.edits(a, b))
    t.equal(x, a)
    t.equal(y, b)
    t.equal(lines.hunks(lines.edits({ "p", "q", "r", "s" }, { "p", "q", "R", "s" }), 1),
        "@@ -2 +2 @@\n q\n-r\n+R\n s\n")
    t.equal(lines.hunks(lines.edits({ "p" }, { "p" }), 1), "")
    t.equal(lines.split("a\n\nb\n"), { "a", "", "b" })
    t.equal(lines.split(""), {})
end)

-- -- diff -----------------------------------------------------------------------------------------

add("diff of a spec and the same spec with --set", function(t)
    local result = gagen(t, { "diff", SPEC, "--set", "accumulate=8" })
    t.equal(result.status, 0, result.err)
    t.match(result.out, "^a  specs/digits_mlp%.lua\nb  specs/digits_mlp%.lua %-%-set accumulate=8\n")
    t.match(result.out, "\nmicro%-steps per update +4 +8  %+4\n")
    t.match(result.out, "\n  ~ loader +bytes [%d,]+ %-> [%d,]+\n")
    t.contains(result.out, "\n-    A = 4, /* micro-steps of a cycle */\n+    A = 8, /* micro-steps of a cycle */\n")
    assert(not result.out:find("\n[+-][^\n]*sha256"), "lines of provenance")
end)

add("diff of two specs, two folders and one of each", function(t)
    local json = t.load("tests/lua/json.lua")
    local programs = t.load("tests/lua/programs.lua")(t)
    local other = programs.folder() .. "/wider.lua"
    t.write(other, 'name "digits_mlp"\n' .. host.read(SPEC):gsub("{ 64 }", "{ 32 }"))
    local folder = { t.temp() .. "/a", t.temp() .. "/b" }
    t.equal(gagen(t, { SPEC, "-o", folder[1] }).status, 0)
    t.equal(gagen(t, { other, "-o", folder[2] }).status, 0)
    local first
    for _, pair in ipairs { { SPEC, other }, { folder[1], folder[2] }, { SPEC, folder[2] } } do
        local facts = json.read(gagen(t, { "diff", "--json", pair[1], pair[2] }).out)
        facts.a, facts.b = nil, nil
        first = first or facts
        t.equal(facts, first)
    end
    t.equal(first.figures[1], { name = "parameters", a = 64 * 64 + 64 + 640 + 10,
        b = 64 * 32 + 32 + 320 + 10, change = -(64 * 32 + 32 + 320) })
    t.equal(first.lists.parameters[1], { sign = "~", name = "fc1.weight",
        text = "shape (64, 64) -> (32, 64)" })
    -- an edit is seen, with its file
    t.write(folder[1] .. "/step.c", host.read(folder[1] .. "/step.c") .. "/* mine */\n")
    local edited = json.read(gagen(t, { "diff", "--json", SPEC, folder[1] }).out)
    t.equal(#edited.figures, 0)
    t.equal(#edited.files, 1)
    t.equal({ edited.files[1].name, edited.files[1].added, edited.files[1].removed }, { "step.c", 1, 0 })
end)

add("diff of a program with other files names them", function(t)
    local result = gagen(t, { "diff", SPEC, "--set", "optimizer={ 'sgd', lr = 0.1 }" })
    t.equal(result.status, 0)
    t.match(result.out, "\narenas\n  %- state_m and 1 more +bytes 20,480\n")
    t.match(result.out, "\n  ~ update_all +flops [%d,]+ %-> [%d,]+, bytes ")
end)

add("diff refuses wrong arguments", function(t)
    local folder = t.temp()
    t.write(folder .. "/plan.json", "{ broken")
    for _, case in ipairs {
        { "expected two specs or folders, or one spec and --set", SPEC },
        { "there is no such spec or folder", SPEC, "no-such.lua" },
        { "plan.json is missing or cannot be read", SPEC, t.temp() },
        { "plan.json is missing or cannot be read", SPEC, folder },
        { "unexpected word", SPEC, SPEC, SPEC },
    } do
        local result = gagen(t, { "diff", table.unpack(case, 2) })
        t.equal(result.status, 1)
        t.contains(result.err, case[1])
        t.equal(result.out, "")
    end
end)

-- -- new ------------------------------------------------------------------------------------------

add("a new spec is valid", function(t)
    local folder = t.temp()
    local program = t.root .. "/" .. t.gagen
    local function new(...) return gagen(t, { "new", ... }) end
    local result = new(folder .. "/hello")
    t.equal(result.status, 0, result.err)
    t.contains(result.err, "next: gagen check " .. folder .. "/hello.lua")
    t.match(host.read(folder .. "/hello.lua"), "^%-%- hello%.lua: ")
    t.equal(gagen(t, { "check", folder .. "/hello.lua" }).status, 0)
    local again = new(folder .. "/hello")
    t.equal(again.status, 1)
    t.contains(again.err, "hello.lua: is there already")
    t.equal(t.run { program, "new", "there", cwd = folder }.status, 0)
    t.equal(host.exists(folder .. "/there.lua"), "file")
    for _, bad in ipairs { "Hello", "a-b", "a__b", "1a", "a b", "../a" .. ("b"):rep(50), folder .. "/none/x" } do
        t.equal(new(bad).status, 1, bad)
    end
end)

add("a new spec like a shipped one gives the same program", function(t)
    local n = 0
    for _, name in ipairs(host.list("specs")) do
        local plain = name:match("^([%w_]+)%.lua$")
        if plain then
            local folder = t.temp()
            n = n + 1
            t.equal(gagen(t, { "new", folder .. "/mine", "--like", plain }).status, 0)
            local old, new = host.read("specs/" .. name), host.read(folder .. "/mine.lua")
            t.equal(new:gsub("^[^\n]*\n", ""), (old:gsub("^[^\n]*\n", "")))
            t.contains(new:match("^[^\n]*"), "mine.lua, from specs/" .. name)
        end
    end
    assert(n > 0)
    local wrong = gagen(t, { "new", t.temp() .. "/x", "--like", "digits_mpl" })
    t.equal(wrong.status, 1)
    t.contains(wrong.err, "did you mean 'digits_mlp'?")
    local own = t.temp()
    t.write(own .. "/mine.lua", "-- anything\n")
    t.equal(gagen(t, { "new", own .. "/copy", "--like", own .. "/mine.lua" }).status, 0)
    t.equal(host.read(own .. "/copy.lua"), "-- anything\n")
end)

return tests
