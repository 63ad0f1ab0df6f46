-- The shipped specs are short and valid, and keep their promises about memory and program text. Specs without their
-- data set are reported as NOT RUN.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- More than 100 million parameters, whose initial values and copies take seconds.
local LARGE = { gpt2_124m = true, bert_sst2 = true }

local WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say,--wrap=ga_init_normal"

local shipped = dofile "tests/lua/shipped.lua"

local function count_lines(text)
    local _, n = text:gsub("\n", "\n")
    return n
end

add("all specs are tested, each of at most 60 lines", function(t)
    local known = {}
    for _, spec in ipairs(shipped.list) do known[spec[1] .. ".lua"] = true end
    for _, file in ipairs(host.list(t.root .. "/specs")) do
        if file:match("%.lua$") then
            assert(known[file], "specs/" .. file .. " is in no test")
            local lines = count_lines(shipped.text(t, (file:gsub("%.lua$", ""))))
            assert(lines <= 60, ("specs/%s has %d lines"):format(file, lines))
        end
    end
end)

for _, spec in ipairs(shipped.list) do
    local name, folder = spec[1], spec[2]
    add(name .. ": the planned bytes are mapped, with 1 and 4 threads", function(t)
        local programs = shipped.open(t, folder)
        local p = programs.build("spec_" .. name, shipped.text(t, name),
            { level = LARGE[name] and "-O1", ldflags = WRAP, sources = { "tests/e2e/count_memory.c" } })
        for _, threads in ipairs(LARGE[name] and not t.all and { 4 } or { 1, 4 }) do
            local result = programs.train(p, { "--threads", threads,
                env = { "STOP_AT_READY=1", "GAGEN_TIMEOUT=300" } })
            local bytes, calls = t.match(result.err, "counted: (%d+) bytes in %d+ mappings, (%d+) calls")
            local plan = programs.plan(p, "--threads", tostring(threads))
            t.equal(tonumber(bytes), plan.totals.bytes, "bytes mapped against the plan")
            t.equal(tonumber(calls), 0, "calls of allocators")
        end
    end)
end

-- Files of the library, the probes, --sample, --predict and make predict only.
local function beside(file, name)
    return file:match("^probes") or file:match("^library") or file == "example.c" or file == name .. ".h"
        or file == "one_row.c" or file == "sample.c" or file == "predictions.c" or file == "predict.c"
        or file:match "^train_watch" or file == "compared.c" or file == name .. "_predict.h"
end

-- Lines of the files that `train` is made of, and of step.c alone; the runtime is not written for a spec.
local function written(programs, text, name, march)
    local spec = programs.folder() .. "/" .. name .. ".lua"
    local folder = programs.folder() .. "/" .. name
    host.write(programs.folder(), name .. ".lua", text)
    local result = programs.gagen { spec, "-o", folder, "--force", "--march", march }
    if result.status ~= 0 then error(result.err, 0) end
    local sum = 0
    for _, file in ipairs(host.list(folder)) do
        if file:match("%.[ch]$") and not beside(file, name) then sum = sum + count_lines(host.read(folder .. "/" .. file)) end
    end
    return sum, count_lines(host.read(folder .. "/step.c"))
end

-- Products on matrix registers need 230 lines more in math.c than those on vectors, attention 130 more, and each of the
-- nine products of slices 30, as vectors work beside the registers.
for _, bound in ipairs { { "x86-64-v3", 3000 }, { "sapphirerapids", 3500 } } do
    local march, most = bound[1], bound[2]
    add(("gpt2_124m: 48 layers give as many lines as 12, %s: less than %d, step.c at most 250"):format(march, most),
        function(t)
            local programs = shipped.open(t, "gpt2tokens")
            local text = shipped.text(t, "gpt2_124m")
            local all, step = written(programs, text, "lines_of_12", march)
            assert(step <= 250, ("step.c has %d lines"):format(step))
            assert(all < most, ("%d lines"):format(all))
            local deep, count = text:gsub("times%(12%)", "times(48)")
            t.equal(count, 1)
            local deep_all, deep_step = written(programs, deep, "lines_of_48", march)
            t.equal({ deep_all, deep_step }, { all, step })
        end)
end

return tests
