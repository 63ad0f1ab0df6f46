-- Ranks start alike: other options or files of one rank are refused by name, other values of one rank are replaced.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 100, seed = 3 }
parallel   "ddp"
]]

-- parallel: nil, or another mode of a program of another name.
local function open(t, parallel)
    local programs = t.load("tests/lua/programs.lua")(t)
    local name, text = "start", 'name "start"\n' .. SPEC
    if parallel then name, text = "start_lists", text:gsub("parallel [^\n]*", parallel) end
    return programs, programs.build(name, text, { comm = "mpi",
        sources = { "tests/e2e/other_values.c" }, ldflags = "-Wl,--wrap=ga_init_uniform" })
end

-- Two ranks with options of their own; env: of both.
local function apart(t, p, first, second, env)
    local command = t.mpirun()
    for rank, own in ipairs { first, second } do
        if rank == 2 then command[#command + 1] = ":" end
        table.move({ "-n", "1", p.train, "--quiet", "--threads", "1" }, 1, 6, #command + 1, command)
        table.move(own, 1, #own, #command + 1, command)
    end
    command.env, command.timeout = table.move(env or {}, 1, #(env or {}), 2, { "GAGEN_TIMEOUT=20" }), 60
    return t.run(command)
end

local function refused(t, result, line)
    t.equal(result.status, 1, result.err)
    t.contains(result.err, "start: rank 1: " .. line .. "\n")
end

-- The data beside a copy of tiny.csv in which one digit of one value is another.
local function other_data(t, programs)
    local folder, text = t.temp(), host.read(programs.folder() .. "/data/tiny.csv")
    local changed = text:gsub("%.(%d)", function(digit) return "." .. (digit + 1) % 10 end, 1)
    assert(#changed == #text and changed ~= text)
    t.write(folder .. "/tiny.csv", changed)
    return folder, text
end

add("another option of one rank is refused: rank, name and both values", function(t)
    local _, p = open(t)
    local folder = t.temp()
    local function both(...) return { "--checkpoint", folder, "--cycles", "2", ... } end
    refused(t, apart(t, p, both(), both("--seed", "9")), "--seed is 9, rank 0 has 3")
    refused(t, apart(t, p, both(), { "--checkpoint", folder, "--cycles", "4" }), "--cycles is 4, rank 0 has 2")
    refused(t, apart(t, p, both(), both("--resume", "latest")), "--resume is latest, rank 0 has none")
    for _, word in ipairs { "--dump", "--save-init", "--save-weights", "--predict" } do
        local own = { "--checkpoint", folder, word, folder .. "/own" }
        if word == "--predict" then table.move({ "--out", folder .. "/own.csv" }, 1, 2, #own + 1, own) end
        refused(t, apart(t, p, { "--checkpoint", folder }, own), word .. " is given, rank 0 has none")
    end
    t.equal(apart(t, p, both("--log", folder .. "/log"), both()).status, 0)
end)

add("another data file of equal length is refused by its path", function(t)
    local programs, p = open(t)
    local folder, text = other_data(t, programs)
    local result = apart(t, p, { "--cycles", "2" }, { "--cycles", "2", "--data", folder })
    t.equal(result.status, 1, result.err)
    local first, second = t.match(result.err, ("start: rank 1: tiny.csv is %d bytes with crc32 (%%x+), rank 0 has %d "
        .. "bytes with crc32 (%%x+)\n"):format(#text, #text))
    assert(first ~= second)
end)

add("another --init file is refused", function(t)
    local programs, p = open(t)
    local file = t.temp() .. "/init.safetensors"
    programs.train(p, { "--save-init", file, "--cycles", 1 })
    local text = host.read(file)
    t.write(file .. "2", text:sub(1, -5) .. string.pack("<f", 1))
    local result = apart(t, p, { "--init", file }, { "--init", file .. "2" })
    refused(t, result, t.match(result.err, ("(%%-%%-init is %d bytes with crc32 %%x+, rank 0 has %d bytes with crc32 "
        .. "%%x+)\n"):format(#text, #text)))
end)

add("another number of ranks than that of the spec is refused, with the ways to start", function(t)
    local programs, p = open(t, 'parallel { "ddp", ranks = 4, groups = { ep = { { 0, 1 }, { 2, 3 } } }, handlers = { '
        .. '{ "moe", group = "ep" } } }')
    local result = programs.train(p, { ranks = 2, status = 1 })
    t.contains(result.err, "start: started with the number of ranks 2, the spec says 4: start as many, by gagen run "
        .. "-n 4 or run.sh, or make a program with --ranks 2\n")
end)

-- tests/e2e/other_values.c: the last rank begins with another first parameter.
add("other values of one rank are replaced by those of rank 0", function(t)
    local programs, p = open(t)
    local straight = programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 3 })
    local folder = t.temp()
    local result = programs.train(p, { ranks = 2, "--threads", 1, "--cycles", 3, "--dump", folder,
        env = { "OTHER_VALUES=1" } })
    programs.identical(folder, straight)
    local line = "start: rank 1 has other parameters or state than rank 0, although all inputs agree: it takes those of "
        .. "rank 0\n"
    t.contains(result.err, line)
    t.equal(select(2, result.err:gsub("although", "")), 1)
end)

-- Rank 3 shares its parameters with rank 2 alone.
add("other values of one rank are replaced by those of the first one of its list", function(t)
    local programs, p = open(t, 'parallel { "ddp", ranks = 4, groups = { ep = { { 0, 1 }, { 2, 3 } } }, handlers = { '
        .. '{ "moe", group = "ep" } } }')
    local straight, folder, files = programs.dump(p, { ranks = 4, "--threads", 1, "--cycles", 2 }), t.temp(), {}
    local result = programs.train(p, { ranks = 4, "--threads", 1, "--cycles", 2, "--dump", folder,
        env = { "OTHER_VALUES=3" } })
    for rank = 1, 4 do files[rank] = ("parameters-%dof4"):format(rank) end
    programs.identical(folder, straight, files)
    t.contains(result.err, "start: rank 3 has other parameters or state than rank 2, although all inputs agree: it takes "
        .. "those of rank 2\n")
end)

-- Eight rows: a rank of two has two micro-batches in its epoch, a cycle takes three.
add("epochs that are no update with these ranks are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/eight.csv", ("1,2,0\n3,4,1\n"):rep(4))
    local p = programs.build("start_short", [[
data       { "csv", train = "eight.csv", target = "last", shuffle = false }
batch      (2)
accumulate { 3, tail = "carry" }
model      { linear "fc" { 2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.5 }
train      { epochs = 1 }
parallel   "ddp"
]], { comm = "mpi" })
    local command = t.mpirun(2)
    table.move({ p.train, "--quiet" }, 1, 2, #command + 1, command)
    command.env, command.timeout = { "GAGEN_TIMEOUT=20", "GAGEN_DATA=" .. programs.folder() .. "/data" }, 60
    local result = t.run(command)
    t.equal(result.status, 1, result.out .. result.err)
    t.contains(result.err, "train: the epochs are 0 updates, expected at least 1: use more epochs, a smaller batch or "
        .. "accumulate, or fewer ranks")
end)

return tests
