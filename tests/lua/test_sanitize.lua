-- Emitted programs under the sanitizers (long: make test-all), and the proof that they would notice:
-- a barrier taken out of the emitted step is reported as a race.
local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (6)
accumulate (3)
local shared = linear "shared" { 8 }
model(function(batch)
    local x = linear "first" { 8 } (batch.input)
    local y = shared(x)
    local z = times(3) "h" (function(h)
        return h + gelu {} (linear "fc" { 8 } (shared(h) * y))
    end) (x)
    return linear "head" { 3 } (z)
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
clip       (1.0)
memory     { recompute = { "h_*" } }
train      { epochs = 2, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
]]

local function only_in_test_all(t)
    if not t.environment("GAGEN_TEST_ALL") then t.not_run("long: make test-all") end
end

-- The program in a folder of its own, step.c changed by `edit`, built with `flags`: a function that
-- runs it.
local function build(t, flags, edit)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp()
    t.write(folder .. "/sanitized.lua", SPEC)
    assert(host.link(t.root .. "/" .. programs.folder() .. "/data", folder .. "/data"))
    local written = programs.gagen { "-o", folder .. "/out", folder .. "/sanitized.lua" }
    t.equal(written.status, 0)
    if edit then
        local path = folder .. "/out/step.c"
        t.write(path, edit(host.read(path)))
    end
    local made = t.run { "make", "-s", "-C", folder .. "/out", "CFLAGS=-O1 -g " .. flags,
        env = { "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL" }, timeout = 180 }
    t.equal(made.err, "")
    return function()
        return t.run { folder .. "/out/train", "--threads", "3", "--checkpoint",
            folder .. "/checkpoints", env = { "TSAN_OPTIONS=exitcode=66" }, timeout = 120 }
    end
end

return {
    { "address and undefined behaviour", function(t)
        only_in_test_all(t)
        local result = build(t, "-fsanitize=address,undefined -fno-sanitize-recover=all")()
        t.equal(result.status, 0)
    end },
    { "threads", function(t)
        only_in_test_all(t)
        t.equal(build(t, "-fsanitize=thread")().status, 0)
    end },
    { "a barrier taken away is a race", function(t)
        only_in_test_all(t)
        local result = build(t, "-fsanitize=thread", function(text)
            local changed, n = text:gsub("(static void forward.-)\n    ga_barrier%(w%);", "%1", 1)
            t.equal(n, 1)
            return changed
        end)()
        t.match(result.err, "data race")
    end },
}
