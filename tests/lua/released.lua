-- Programs of zero3 whose gathers end late and in any order (tests/e2e/late_gathers.c), and whose windows hold no
-- numbers from the last read of each gather on (tests/e2e/released.c). They are train-probe, which calls a function
-- behind each kernel; where the last reads are follows from the graph.
local compile = require "command.compile"
local program = require "emit.program.program"
local verify_chunks = require "graph.verify_chunks"

local WRAPPED = { "ga_comm_start", "ga_probe_begin", "ga_probe_end", "ga_probe_micro" }

-- The last reads of each gather on both paths: { training, kernel, calls in a pass, call of the last read, chunk }.
local function last_reads(g)
    local list, open = {}, { evaluation = {}, backward = {} }
    local function close(path, chunk)
        local read = open[path][chunk]
        if read then list[#list + 1] = read end
        open[path][chunk] = nil
    end
    verify_chunks(g, error, function(path, chunk, node, l)
        if not node then return close(path, chunk) end
        local loop = node.scope
        open[path][chunk] = { path == "backward" and 1 or 0, assert(node.kernel, node.op).name,
            loop and loop.count or 1, loop and loop.step < 0 and loop.count - 1 - l or l, chunk }
    end)
    for path, chunks in next, open do
        for chunk in next, chunks do close(path, chunk) end
    end
    return list
end

-- The numbers of kernels as probes.c has them.
local function kernel_numbers(files)
    local numbers, count = {}, 0
    for name in files:get "probes.c":match "KERNEL_PROBES%b[] = (%b{})":gmatch '\n    {"([^"]+)"' do
        numbers[name], count = count, count + 1
    end
    return numbers
end

-- The lines of released.c's table for a spec.
local function table_of(path, words)
    local options = {}
    for i, word in ipairs(words) do
        if word == "--march" then options.march = words[i + 1] end
    end
    local g, c = compile(path, options)
    local numbers, lines = kernel_numbers((program.render(g, c))), {}
    for i, read in ipairs(last_reads(g)) do
        lines[i] = ("%d %d %d %d %d\n"):format(read[1], numbers[read[2]], read[3], read[4],
            #g.collectives + read[5] - 1)
    end
    assert(#lines > 0, path .. ": no chunk is read")
    return table.concat(lines)
end

return function(t, programs)
    local released, marches = {}, t.load("tests/lua/marches.lua")(t)

    local options = {}
    for i, name in ipairs(WRAPPED) do options[i] = ",--wrap=" .. name end

    --- How such a program is built: for programs.build and programs.edit.
    released.how = { comm = "mpi", only = "probe", sources = { "tests/e2e/late_gathers.c", "tests/e2e/released.c" },
        ldflags = "-Wl" .. table.concat(options) }

    --- Builds the program of the spec `text`. Returns it as programs.build does, with `env` for its runs.
    function released.build(name, text)
        local p = programs.build(name, text, released.how)
        local file = t.temp() .. "/releases"
        t.write(file, table_of(p.spec, marches.words({}, text)))
        p.train, p.env = p.probe, { "GAGEN_TIMEOUT=300", "RELEASES=" .. file }
        return p
    end

    return released
end
