-- --set: gives the same program as a spec with that value, for every kind of word; its refusals; its record in the
-- provenance.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = "specs/digits_mlp.lua"

local function gagen(t, ...)
    local result = t.load("tests/lua/programs.lua")(t).gagen { ... }
    t.equal(result.status, 0, result.err)
    return result.out, result.err
end

-- The C of the program without the lines about its origin.
local function files_of(t, spec, ...)
    local folder, parts = t.temp() .. "/p", {}
    gagen(t, spec, "-o", folder, ...)
    for _, file in ipairs(host.list(folder)) do
        if file:find("%.[ch]$") and file ~= "probes.c" then      -- it names places in strings
            local text = host.read(folder .. "/" .. file)
            parts[#parts + 1] = text:gsub("[^\n]*From [^\n]*\n", ""):gsub("#define SPEC_[^\n]*\n", "")
                :gsub("[%w_./]*%.lua", "SPEC")
        end
    end
    return table.concat(parts)
end

-- Messages may differ only in the place of a word: its line, or the --set.
local function same_lines(a, b)
    local function plain(line)
        return (line:gsub("SPEC:%d+", "SPEC"):gsub("%-%-set .*, templates", "SPEC, templates")
            :gsub("%-%-set .* %*/", "SPEC */"))
    end
    local next_b = (b .. "\n"):gmatch("(.-)\n")
    for line in (a .. "\n"):gmatch("(.-)\n") do
        local other = next_b() or "the end"
        if plain(line) ~= plain(other) then error(("%s\nis not\n%s"):format(line, other), 2) end
    end
end

-- --set X is the spec with the text FROM replaced by TO.
for _, case in ipairs {
    { "accumulate=8", "accumulate %(4%)", "accumulate (8)" },
    { "accumulate.count=8", "accumulate %(4%)", "accumulate (8)" },
    { "accumulate={ 2, unroll = 1 }", "accumulate %(4%)", "accumulate { 2, unroll = 1 }" },
    { "optimizer.lr=1e-3", "lr = 1e%-2", "lr = 1e-3" },
    { "optimizer={ 'sgd', lr = 0.5 }", "{ \"adamw\"[^}]*}", "{ 'sgd', lr = 0.5 }" },
    { 'precision="f64"', "accumulate", 'precision "f64"\naccumulate' },
    { "data.shuffle=false", "scale = 1/16", "scale = 1/16, shuffle = false" },
    { "schedule.warmup=7", 'schedule   "cosine"', 'schedule { "cosine", warmup = 7 }' },
    { 'schedule="constant"', '"cosine"', '"constant"' },
    { "init={ { '*', value = 0 }, }", "accumulate", "init { { '*', value = 0 } }\naccumulate" },
    { "train={ epochs = 2, seed = 0x10 }", "{ epochs = 30, seed = 1 }", "{ epochs = 2, seed = 16 }" },
} do
    add(case[1] .. " is what the spec would say", function(t)
        local text, replaced = host.read(SPEC):gsub(case[2], case[3])
        t.equal(replaced, 1)
        -- of the same name, as lines are broken where a comment with it does not fit
        local path = t.load("tests/lua/programs.lua")(t).folder() .. "/digits_mlp.lua"
        t.write(path, 'name "digits_mlp" ' .. text)
        local with, usual = files_of(t, SPEC, "--set", case[1]), files_of(t, SPEC)
        assert(with ~= usual, "nothing changed")
        same_lines(with, files_of(t, path))
    end)
end

add("set twice in one word: both hold, in any order", function(t)
    local a = files_of(t, SPEC, "--set", "optimizer={ 'sgd', lr = 0.5 }", "--set", "optimizer.momentum=0.9")
    local b = files_of(t, SPEC, "--set", "optimizer.momentum=0.9", "--set", "optimizer={ 'sgd', lr = 0.5 }")
    t.equal(a, b)
    t.contains(a, "state_buf")
end)

add("--set refuses wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for _, case in ipairs {
        { "optimizer.lr=-1", "optimizer 'adamw': lr is -1, expected a number >= 0" },
        { "optimzer.lr=1", "unknown word 'optimzer'\ndid you mean 'optimizer'?" },
        { "optimizer.lrr=1", "optimizer 'adamw': unknown field 'lrr'\ndid you mean 'lr'?" },
        { "accumulate.tial=1", "accumulate: unknown field 'tial'\ndid you mean 'tail'?" },
        { "precision=f64", "f64 is no Lua literal" },
        { "precision=f64", "a string is quoted, twice in a shell: --set 'precision=\"f64\"'" },
        { "optimizer={ adamw }", "adamw is no Lua literal" },
        { "batch=1/16", "'/16' stands behind the value" },
        { "batch=2^4", "'^4' stands behind the value" },
        { "batch=nil", "nil is no Lua literal" },
        { "batch=os.exit()", "os.exit is no Lua literal" },
        { "batch=1e999", "batch: rows is not finite" },
        { 'batch="16"', "batch: rows is '16', expected an integer" },
        { "batch=", "a value is missing" },
        { "batch={ 16", "',' or '}' expected at ''" },
        { "batch", "expected word.field=VALUE or word=VALUE" },
        { "batch.=1", "expected word.field=VALUE or word=VALUE" },
        { "init.normal=1", "init: unknown field 'normal'\ninit has no fields" },
        { "model=1", "model: only the spec builds it" },
        { 'schedule="cosin"', "schedule: 'cosin' is unknown, expected one of constant, " },
        { 'schedule="cosin"', "did you mean 'cosine'?" },
        { 'data.train="\x1b[2J"', "data: a path with control bytes" },
    } do
        local result = programs.gagen { "check", SPEC, "--set", case[1] }
        t.equal(result.status, 1, case[1])
        t.contains(result.err, case[2])
        t.match(result.err, "^%-%-set " .. case[1]:match("^%w+"))
        assert(not result.err:find("\x1b", 1, true))
    end
    for _, second in ipairs { "batch=2", "batch.rows=2" } do
        local twice = programs.gagen { "check", SPEC, "--set", "batch=1", "--set", second }
        t.equal(twice.status, 1)
        t.contains(twice.err, "batch.rows: set twice, expected once")
    end
end)

add("a function of the spec is not replaced by a value", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/traced_loss.lua"
    t.write(path, (host.read(SPEC):gsub('loss       "cross_entropy"',
        "loss(function(out, batch) return mean(out * out) end)"):gsub(", \"accuracy\"", "")))
    gagen(t, "check", path)
    local result = programs.gagen { "check", path, "--set", 'loss="cross_entropy"' }
    t.equal(result.status, 1)
    t.contains(result.err, "loss: a function in the spec, which no value can replace")
end)

add("provenance shows the sets, and the hash covers them", function(t)
    local function hash(...)
        return gagen(t, "show", SPEC, "model.c", ...):match('SPEC_SHA256 "(%x+)"')
    end
    local function origin(...) return gagen(t, "show", SPEC, ...):match("by gagen [%d.]+: ([^\n]*)\n") end
    t.equal(hash(), host.sha256(host.read(SPEC)))
    assert(hash("--set", "accumulate=8") ~= hash())
    t.equal(hash("--set", "accumulate=8", "--set", "batch=8"), hash("--set", "batch=8", "--set", "accumulate=8"))
    t.equal(hash("--set", "optimizer.lr=1e-3"), hash("--set", "optimizer.lr=0.0010"))
    t.equal(origin(), "gagen " .. SPEC)
    t.equal(origin("--set", 'precision="f64"', "--set", "accumulate=8", "--threads", "2"),
        "gagen " .. SPEC .. " --set accumulate=8 --set 'precision=\"f64\"' --threads 2")
end)

-- the emitted header is a C comment whatever the value is
add("a value cannot end the comment that contains it", function(t)
    local text = gagen(t, "show", SPEC, "--set", 'schedule={ "constant" }', "--set",
        'data={ "csv", train = "digits/digits.csv.gz", split = { eval = 9 } }')
    t.contains(text, "data={ \"csv\"")
    local programs = t.load("tests/lua/programs.lua")(t)
    local result = programs.gagen { "check", SPEC, "--set", 'name="a*/b"' }
    t.equal(result.status, 1)
end)

return tests
