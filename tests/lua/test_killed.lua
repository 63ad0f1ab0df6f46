-- kill -9 of all processes of `gagen run`, from the first file that gagen opens to the end of the training. After each,
-- `gagen ls` says how the runs ended, --resume goes on from a whole checkpoint or says that there is none, and the next
-- `gagen run` makes a whole program that trains to the same bits. A moment is a call of the system (tests/faults) in one
-- of the programs that take part.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
model      { linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.05 }
checkpoint { every = 2, keep = 2 }
train      { updates = 9, seed = 1 }
]]

local FAULTS = "%s/%s/tests/faults/faults.so"

local LAST = "checkpoints/cycle-000000009/"

-- Moments: program, class of calls, their number with make test-all and without; spread evenly over the calls.
local MOMENTS = {
    { "gagen", "open", 12, 1 }, { "gagen", "rename", 10, 1 }, { "gagen", "mkdir", 4, 0 }, { "gagen", "close", 4, 0 },
    { "make", "alloc", 6, 1 }, { "cc1", "alloc", 8, 1 }, { "as", "alloc", 2, 0 }, { "collect2", "close", 2, 0 },
    { "ld", "read", 8, 1 }, { "train", "open", 8, 1 }, { "train", "write", 14, 2 }, { "train", "fsync", 6, 1 },
    { "train", "rename", 6, 1 }, { "train", "mkdir", 4, 1 }, { "train", "close", 8, 1 }, { "train", "alloc", 4, 0 },
}

-- A folder with the spec, and what is done there: run(words, more), ls(), resume(), bits(run) = the last checkpoint's
-- files as one text.
local function open(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local folder = t.root .. "/" .. t.temp()
    local o = { folder = folder, out = folder .. "/out/killed" }
    assert(host.link(t.root .. "/" .. programs.folder() .. "/data", folder .. "/data"))
    t.write(folder .. "/killed.lua", SPEC)
    function o.run(env)
        return programs.gagen { "run", "killed.lua", "--", "--quiet", "--threads", "1", cwd = folder, timeout = 60,
            env = table.move(env or {}, 1, #(env or {}), 3, { "CFLAGS=-O0", "TMPDIR=" .. folder }) }
    end
    function o.ls()
        local result = programs.gagen { "ls", "killed.lua", "--json", cwd = folder }
        t.equal(result.status, 0, result.err)
        return json.read(result.out)
    end
    function o.resume()
        return t.run { o.out .. "/train", "--resume", "latest", "--quiet", "--threads", "1", env = { "GAGEN_DATA" },
            timeout = 60 }
    end
    function o.ended(run)
        local path = ("%s/runs/%s/run.json"):format(o.out, run)
        local facts = host.exists(path) == "file" and json.read(host.read(path)) or {}
        return facts["end"] and facts["end"].reason
    end
    function o.bits(run)
        local path = ("%s/runs/%s/%s"):format(o.out, run, LAST)
        if host.exists(path) ~= "folder" then return nil end
        return host.read(path .. "model.safetensors") .. host.read(path .. "optimizer.safetensors")
    end
    function o.runs()
        local list = {}
        for _, name in ipairs(host.exists(o.out .. "/runs") and host.list(o.out .. "/runs") or {}) do
            if name:find "^%d+$" then list[#list + 1] = name end
        end
        return list
    end
    return o
end

-- The calls of the undisturbed run: by "PROGRAM CLASS" the most that one process makes.
local function count(t, o)
    local counts, file = {}, o.folder .. "/counts"
    local result = o.run { "LD_PRELOAD=" .. FAULTS:format(t.root, t.build), "GA_FAIL_PROGRAM=*", "GA_FAIL_COUNTS="
        .. file }
    t.equal(result.status, 0, result.err)
    for key, n in host.read(file):gmatch "(%S+ %l+) (%d+)\n" do
        counts[key] = math.max(counts[key] or 0, tonumber(n))
    end
    return counts
end

-- The list of moments: { program, class, number of the call }.
local function moments_of(counts, whole)
    local list = {}
    for _, moment in ipairs(MOMENTS) do
        local program, class, many, few = table.unpack(moment)
        local wanted, calls = whole and many or few, counts[program .. " " .. class] or 0
        for i = 1, math.min(wanted, calls) do
            list[#list + 1] = { program, class, 1 + (2 * i - 1) * calls // (2 * wanted) }
        end
    end
    return list
end

-- Runs are listed as what they are: none goes on, and one is done exactly if its record says so.
local function check_runs(o, say)
    local listed, names = o.ls(), o.runs()
    if #listed ~= #names then say(("%d runs, ls shows %d"):format(#names, #listed)) end
    for _, run in ipairs(listed) do
        local expected = o.ended(run.run) == "done" and "done" or "failed"
        if run.state ~= expected then say(("run %s is %s, ls says %s"):format(run.run, expected, run.state)) end
        if expected == "done" and not o.bits(run.run) then say("run " .. run.run
            .. " is done without its checkpoint") end
    end
end

-- The newest run goes on to the bits of the undisturbed one, or has no checkpoint and says so.
local function check_resume(o, bits, say)
    local names = o.runs()
    local log = names[1] and ("%s/runs/%s/log.jsonl"):format(o.out, names[#names])
    local reported = log and host.exists(log) == "file" and host.read(log):find('"event":"checkpoint"', 1, true)
    local result = o.resume()
    if result.status == 0 then
        if o.bits(names[#names]) ~= bits then say "the resumed run ends with other bits" end
    elseif result.status ~= 1 or not result.err:find "has no run yet"
        and not result.err:find "has a whole checkpoint" then
        say(("--resume: status %d: %s"):format(result.status, result.err))
    elseif reported then
        say "a reported checkpoint is lost"
    end
end

-- The next `gagen run` ends with the bits of the undisturbed one, and each file of its program is as gagen wrote it.
local function check_next(t, o, bits, say)
    local result = o.run()
    local names = o.runs()
    if result.status ~= 0 then return say(("the next gagen run: status %d: %s"):format(result.status, result.err)) end
    if o.bits(names[#names]) ~= bits then say "the next gagen run ends with other bits" end
    local check = t.run { "sha256sum", "-c", "--quiet", "MANIFEST", cwd = o.out }
    if check.status ~= 0 then say("the program's files: " .. check.out .. check.err) end
end

-- One moment. Programs before the training start without a folder.
local function kill_at(t, o, bits, moment, say)
    local program, class, n = table.unpack(moment)
    t.run { "rm", "-rf", program == "train" and o.out .. "/runs" or o.out }
    local killed = o.run { "LD_PRELOAD=" .. FAULTS:format(t.root, t.build), "GA_FAIL_PROGRAM=" .. program,
        ("GA_FAIL_AT=%s:%d=group"):format(class, n) }
    if killed.status ~= 128 + 9 then say("status " .. killed.status .. ", not killed: " .. killed.err) end
    check_runs(o, say)
    if program == "train" then check_resume(o, bits, say) end
    check_next(t, o, bits, say)
end

add("at any moment of gagen run", function(t)
    local o, whole, problems = open(t), t.all, {}
    t.equal(o.run().status, 0)                       -- the kept runtime is there
    t.run { "rm", "-rf", o.out }
    local moments = moments_of(count(t, o), whole)
    local bits = assert(o.bits "001")
    assert(#moments >= (whole and 80 or 9), #moments .. " moments")     -- compilers other than gcc have other parts
    for _, moment in ipairs(moments) do
        kill_at(t, o, bits, moment, function(text)
            problems[#problems + 1] = ("%s %s:%d: %s"):format(moment[1], moment[2], moment[3], text)
        end)
    end
    if #problems > 0 then
        error(#problems .. " problems:\n" .. table.concat(problems, "\n", 1, math.min(#problems, 20)), 0)
    end
end)

add("a part of a runtime is not kept for other programs", function(t)
    t.long()
    local o = open(t)
    local cache = "XDG_CACHE_HOME=" .. o.folder .. "/cache"
    local killed = o.run { cache, "LD_PRELOAD=" .. FAULTS:format(t.root, t.build), "GA_FAIL_PROGRAM=ld",
        "GA_FAIL_AT=read:100=group" }
    t.equal(killed.status, 128 + 9, killed.err)
    local result = o.run { cache }
    t.equal(result.status, 0, result.err)
end)

return tests
