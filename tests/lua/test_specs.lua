-- The shipped specs are short and valid, and keep their promises about memory and program text. Specs without their
-- data set are reported as NOT RUN.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Each spec and the folder of its data; the digits are shipped with the project.
local SPECS = {
    { "digits_mlp", "digits" }, { "mnist_mlp", "mnist" }, { "char_gpt", "tinyshakespeare" },
    { "llama_tiny", "tinyshakespeare" }, { "vit_tiny_cifar10", "cifar-10-batches-bin" },
    { "gpt2_124m", "gpt2tokens" }, { "bert_sst2", "sst2" },
    { "bert_mini_sst2", "sst2" },
    { "resnet18_tutorial", "cifar-10-batches-bin" }, { "resnet18_cifar10", "cifar-10-batches-bin" },
}

-- More than 100 million parameters, whose initial values and copies take seconds.
local LARGE = { gpt2_124m = true, bert_sst2 = true }

local WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say,--wrap=ga_init_normal"

local function text_of(t, name) return assert(host.read(t.root .. "/specs/" .. name .. ".lua")) end

-- The test programs, with the data folder of a spec beside their specs.
local function open(t, folder)
    local programs = t.load("tests/lua/programs.lua")(t)
    local link = programs.folder() .. "/data/" .. folder
    if folder ~= "digits" and not host.exists(link) then
        local root = t.environment "GAGEN_DATA"
        if not root or host.exists(root .. "/" .. folder) ~= "folder" then
            t.not_run(("GAGEN_DATA has no %s"):format(folder))
        end
        if root:sub(1, 1) ~= "/" then root = t.root .. "/" .. root end
        assert(host.link(root .. "/" .. folder, link))
    end
    return programs
end

-- The first rows of SST-2 as the two BERTs have them: `gagen tokenize` makes the files.
local function tokenize(t, programs)
    local root = t.environment "GAGEN_DATA"
    for _, file in ipairs { "train", "16000", "dev" } do
        local result = programs.gagen { "tokenize", "bert", ("%s/sst2/%s.tsv"):format(root,
            file == "dev" and "dev" or "train"), ("%s/data/sst2_%s.safetensors"):format(programs.folder(), file), "--vocab",
            root .. "/bert/bert-base-uncased-vocab.txt", "--length", "64", "--types", "--first", "96" }
        t.equal(result.status, 0, result.err)
    end
end

local function count_lines(text)
    local _, n = text:gsub("\n", "\n")
    return n
end

add("all specs are tested, each of at most 60 lines", function(t)
    local known = {}
    for _, spec in ipairs(SPECS) do known[spec[1] .. ".lua"] = true end
    for _, file in ipairs(host.list(t.root .. "/specs")) do
        if file:match("%.lua$") then
            assert(known[file], "specs/" .. file .. " is in no test")
            local lines = count_lines(text_of(t, file:gsub("%.lua$", "")))
            assert(lines <= 60, ("specs/%s has %d lines"):format(file, lines))
        end
    end
end)

for _, spec in ipairs(SPECS) do
    local name, folder = spec[1], spec[2]
    add(name .. ": the planned bytes are mapped, with 1 and 4 threads", function(t)
        local programs = open(t, folder)
        if folder == "sst2" then tokenize(t, programs) end
        local p = programs.build("spec_" .. name, text_of(t, name),
            { level = LARGE[name] and "-O1", ldflags = WRAP, sources = { "tests/e2e/count_memory.c" } })
        for _, threads in ipairs { 1, 4 } do
            local result = programs.train(p, { "--threads", threads,
                env = { "STOP_AT_READY=1", "GAGEN_TIMEOUT=300" } })
            local bytes, calls = t.match(result.err, "counted: (%d+) bytes in %d+ mappings, (%d+) calls")
            local plan = programs.plan(p, "--threads", tostring(threads))
            t.equal(tonumber(bytes), plan.totals.bytes, "bytes mapped against the plan")
            t.equal(tonumber(calls), 0, "calls of allocators")
        end
    end)
end

-- Files of the library and the probes only.
local function beside(file, name)
    return file:match("^probes") or file:match("^library") or file == "example.c" or file == name .. ".h"
end

-- Lines of the files that `train` is made of, and of step.c alone; the runtime is not written for a spec.
local function written(programs, text, name)
    local spec = programs.folder() .. "/" .. name .. ".lua"
    local folder = programs.folder() .. "/" .. name
    host.write(programs.folder(), name .. ".lua", text)
    local result = programs.gagen { spec, "-o", folder, "--force" }
    if result.status ~= 0 then error(result.err, 0) end
    local sum = 0
    for _, file in ipairs(host.list(folder)) do
        if file:match("%.[ch]$") and not beside(file, name) then sum = sum + count_lines(host.read(folder .. "/" .. file)) end
    end
    return sum, count_lines(host.read(folder .. "/step.c"))
end

add("gpt2_124m: 48 layers give as many lines as 12, less than 3,000, step.c at most 250", function(t)
    local programs = open(t, "gpt2tokens")
    local text = text_of(t, "gpt2_124m")
    local all, step = written(programs, text, "lines_of_12")
    assert(step <= 250, ("step.c has %d lines"):format(step))
    assert(all < 3000, ("%d lines"):format(all))
    local deep, count = text:gsub("times%(12%)", "times(48)")
    t.equal(count, 1)
    local deep_all, deep_step = written(programs, deep, "lines_of_48")
    t.equal({ deep_all, deep_step }, { all, step })
end)

return tests
