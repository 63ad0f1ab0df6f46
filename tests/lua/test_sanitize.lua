-- Emitted programs under the sanitizers (long: make test-all). A forward pass without its barriers must be reported as
-- a race, so the sanitizer does detect races.
local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 20 } }
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
    t.long()
end

-- The program of a spec in a folder of its own, step.c changed by `edit`, built with `flags`: a function that
-- runs it.
local function build(t, flags, spec, edit)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp()
    t.write(folder .. "/sanitized.lua", spec)
    assert(host.link(t.root .. "/" .. programs.folder() .. "/data", folder .. "/data"))
    local written = programs.gagen { "-o", folder .. "/out", folder .. "/sanitized.lua" }
    t.equal(written.status, 0)
    if edit then
        local path = folder .. "/out/step.c"
        t.write(path, edit(host.read(path)))
    end
    local made = t.run { "make", "-s", "-C", folder .. "/out", "CFLAGS=-O1 -g " .. flags,
        env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL" } }
    t.equal(made.err, "")
    return function()
        return t.run { folder .. "/out/train", "--threads", "3", "--checkpoint",
            folder .. "/checkpoints", env = { "TSAN_OPTIONS=exitcode=66" } }
    end
end

return {
    { "address and undefined behaviour", function(t)
        only_in_test_all(t)
        local result = build(t, "-fsanitize=address,undefined -fno-sanitize-recover=all", SPEC)()
        t.equal(result.status, 0)
    end },
    { "threads", function(t)
        only_in_test_all(t)
        t.equal(build(t, "-fsanitize=thread", SPEC)().status, 0)
    end },
    { "a forward pass without barriers is reported as a race", function(t)
        only_in_test_all(t)
        -- wide enough that no thread does all tiles of a kernel before the others have woken up
        local wide = SPEC:gsub("batch      %(6%)", "batch      (30)"):gsub("{ 8 }", "{ 256 }")
            :gsub("accumulate %(3%)", "accumulate (1)")
        local result = build(t, "-fsanitize=thread", wide, function(text)
            local first, last = text:find("static void forward.-\n}\n")
            local body, n = text:sub(first, last):gsub("ga_barrier%(w%);", "")
            assert(n > 3, n)
            return text:sub(1, first - 1) .. body .. text:sub(last + 1)
        end)()
        t.match(result.err, "data race")
    end },
}
