-- products: `make bench-products`: times of the products of linear layers, by emitted kernels and by OpenBLAS and
-- oneDNN, in turns within one process (bench/products.c). Options are variables of the environment, checked here:
--
--   CONFIGS="c d e"           configurations of bench/configurations.lua; the layers of d and e are the same
--   ROWS="64 256 2048"        rows of a product
--   THREADS="1 2"             threads, 1 and all cores if not given
--   SECONDS=1                 seconds of each process
--   MARCH=NAME                default: this machine's profile
--   RESULTS=bench/results     products.json and products.md go there; programs to OUT=out/bench
local configurations = dofile "bench/configurations.lua"
local options = dofile "bench/options.lua"
local profile = require "emit.program.profile"
local report = dofile "bench/report.lua"
local statistics = dofile "bench/statistics.lua"

-- FLOP of the largest product that is measured.
local MOST_WORK = 5e10

-- name, macro of products.c, package, a program that needs it, what the linker is told.
local LIBRARIES = {
    { name = "OpenBLAS", macro = "OPENBLAS", package = "libopenblas-dev", link = { "-lopenblas" },
        test = "#include <cblas.h>\nint main(void) { openblas_set_num_threads(1); return 0; }\n" },
    { name = "oneDNN", macro = "ONEDNN", package = "libdnnl-dev", link = { "-ldnnl", "-lgomp" },
        test = "#include <dnnl.h>\nint main(void) { return dnnl_version() == 0; }\n" },
}

-- Files of the runtime that kernels need.
local RUNTIME = { "base/arena", "base/cores", "base/ga", "base/team", "base/text" }

-- The products of a layer, by the kernels of the plan that compute them.
local KERNELS = { forward = "this_forward", by_input = "backward_before_y", by_weight = "backward_this_weight",
    pack = "pack_this_weight_in_out" }
local PRODUCTS = { "forward", "by_input", "by_weight" }

local SPEC = [[
name       "product"
data       { "csv", train = "rows.csv", target = "last" }
batch      (%d)
model      { linear "before" { %d }, linear "this" { %d, bias = false } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 1 }
]]

local function run(command, what)
    local result, why = measured(command)
    if not result then options.fail("%s: %s", what, why) end
    if result.status ~= 0 then options.fail("%s: exit %d: %s", what, result.status, result.err) end
    return result.out
end

local function append(list, more) return table.move(more, 1, #more, #list + 1, list) end

local function compiler() return host.environment "CC" or "cc" end

-- The libraries that a program can be linked with; sets not_run of the others.
local function installed(o)
    local found = {}
    for _, library in ipairs(LIBRARIES) do
        assert(host.write(o.out, "library.c", library.test))
        local command = append({ compiler(), "-o", o.out .. "/library", o.out .. "/library.c" }, library.link)
        local result = measured(command)
        if result and result.status == 0 then
            found[#found + 1] = library
        else
            library.not_run = library.package .. " is not installed"
        end
    end
    return found
end

local function linear_layers(sizes)
    local _, _, width, vocabulary = table.unpack(sizes)
    return { { "c_attn", width, 3 * width }, { "c_proj", width, width }, { "c_fc", width, 4 * width },
        { "c_proj", 4 * width, width }, { "unembed", width, vocabulary } }
end

-- { config, layer, rows, input, output } of each layer and number of rows; layers of one shape stand once.
local function cases_of(o)
    local list, seen = {}, {}
    for _, config in ipairs(o.configs) do
        for _, layer in ipairs(linear_layers(configurations[config].sizes)) do
            local name, input, output = table.unpack(layer)
            for _, rows in ipairs(o.rows) do
                local id = ("%dx%dx%d"):format(rows, input, output)
                if seen[id] then
                    seen[id].config = seen[id].config .. ", " .. config
                elseif 2 * rows * input * output <= MOST_WORK then
                    seen[id] = { id = id, config = config, layer = name, rows = rows, input = input, output = output }
                    list[#list + 1] = seen[id]
                end
            end
        end
    end
    return list
end

-- The kernels of the case's program: { forward = NAME, ... }; pack only where the forward product reads a packed
-- weight.
local function kernels_of(case, folder)
    local by_name, found = {}, {}
    for _, kernel in ipairs(host.parse_json(host.read(folder .. "/plan.json")).kernels) do
        by_name[kernel.name] = kernel.fn
    end
    for product, name in next, KERNELS do found[product] = by_name[name] end
    for _, product in ipairs(PRODUCTS) do
        if not found[product] then options.fail("%s: the plan has no kernel %s", case.id, KERNELS[product]) end
    end
    return found
end

-- Writes the program of a case and compiles products.c with its kernels; returns the binary.
local function build(o, case)
    local folder = ("%s/product_%s"):format(o.out, case.id)
    assert(host.write(o.out, "product.lua", SPEC:format(case.rows, case.input, case.output)))
    run({ "rm", "-rf", folder }, "rm")
    run({ "env", "GAGEN_DATA=" .. o.out .. "/data", o.gagen, o.out .. "/product.lua", "-o", folder, "--target", "c",
        "--march", o.profile }, case.id)
    local names, facts = kernels_of(case, folder), profile.get(o.profile)
    local command = { compiler(), "-std=gnu11", "-O3", "-w", "-ffp-contract=off", "-fno-math-errno",
        "-fno-trapping-math", "-pthread", "-I" .. folder .. "/runtime", "-I" .. folder, "-DLAYER_ROWS=" .. case.rows,
        "-DLAYER_IN=" .. case.input, "-DLAYER_OUT=" .. case.output, "-DFORWARD=" .. names.forward,
        "-DBY_INPUT=" .. names.by_input, "-DBY_WEIGHT=" .. names.by_weight, "-o",
        folder .. "/products", "bench/products.c", names.pack and "-DPACK=" .. names.pack or nil }
    append(command, facts.flags)
    if table.concat(facts.flags, " "):find "amx" then command[#command + 1] = "-DMATRIX" end
    for _, name in ipairs(RUNTIME) do command[#command + 1] = ("%s/runtime/%s.c"):format(folder, name) end
    for _, library in ipairs(o.libraries) do
        command[#command + 1] = "-D" .. library.macro
        append(command, library.link)
    end
    command[#command + 1] = "-lm"
    run(command, case.id)
    return folder .. "/products"
end

-- Times of a case: { forward = { gagen = { least, median, calls }, ... }, ..., pack = ... }, in seconds.
local function measure(o, case, binary, threads)
    local found = {}
    local said = run({ "env", "OMP_NUM_THREADS=" .. threads, "OPENBLAS_NUM_THREADS=" .. threads, binary,
        tostring(threads), tostring(o.seconds) }, case.id)
    for product, side, least, median, calls in said:gmatch "(%S+) (%S+) (%S+) (%S+) (%d+)\n" do
        found[product] = found[product] or {}
        found[product][side] = { least = tonumber(least), median = tonumber(median), calls = tonumber(calls) }
    end
    return found
end

-- A row of the report: a product of a case with a number of threads.
local function row_of(case, threads, product, times)
    local row = { config = case.config, layer = case.layer, rows = case.rows, input = case.input, output = case.output,
        threads = threads, product = product, flop = 2 * case.rows * case.input * case.output,
        seconds = times[product], pack_seconds = product == "forward" and times.pack and times.pack.gagen or nil }
    local ours, best = row.seconds.gagen, {}
    for _, library in ipairs(LIBRARIES) do
        local other = row.seconds[library.name]
        for key in next, other and { least = 1, median = 1 } or {} do
            best[key] = math.min(best[key] or math.huge, other[key])
        end
    end
    if best.least then row.ratio = { least = best.least / ours.least, median = best.median / ours.median } end
    return row
end

local HEADS = { "configuration", "layer", "rows, in, out", "product", "gagen, GFLOP/s", "of the peak",
    "OpenBLAS, GFLOP/s", "oneDNN, GFLOP/s", "ratio" }

local function rate(row, times)
    return times and ("%.1f (%.1f)"):format(row.flop / times.least / 1e9, row.flop / times.median / 1e9) or "NOT RUN"
end

local function cells(row, peak)
    return { row.config, row.layer, ("%d, %d, %d"):format(row.rows, row.input, row.output),
        (row.product:gsub("_", " ")), rate(row, row.seconds.gagen),
        ("%.0f %%"):format(100 * row.flop / row.seconds.gagen.least / peak), rate(row, row.seconds.OpenBLAS),
        rate(row, row.seconds.oneDNN),
        row.ratio and ("%.2f (%.2f)"):format(row.ratio.least, row.ratio.median) or "NOT RUN" }
end

-- The part of the report for one number of threads.
local function part_of(threads, rows, peak)
    local lines, ratios, packs = {}, { least = {}, median = {} }, {}
    for _, row in ipairs(rows) do
        if row.threads == threads then
            lines[#lines + 1] = cells(row, peak)
            for key, list in next, row.ratio and ratios or {} do list[#list + 1] = row.ratio[key] end
            if row.pack_seconds then packs[#packs + 1] = row.pack_seconds.least / row.seconds.gagen.least end
        end
    end
    local text = ("## %d thread%s\n\nThe peak is %.1f GFLOP/s."):format(threads, threads > 1 and "s" or "", peak / 1e9)
    if #ratios.least > 0 then
        text = text .. (" Medians of the ratios: %.2f (%.2f)."):format(statistics.median(ratios.least),
            statistics.median(ratios.median))
    end
    if #packs > 0 then
        text = text .. (" A packed weight takes %.0f %% of the time of its forward product (median)."):format(
            100 * statistics.median(packs))
    end
    return text .. "\n\n" .. report.table(HEADS, lines)
end

local function text_of(o, all)
    local parts = { "# make bench-products", report.origin(all) .. (", %g s of each process."):format(o.seconds),
        "Rates are those of the shortest call, in brackets of the median call. A ratio is the better library's time "
        .. "over gagen's, likewise. docs/PERFORMANCE.md tells the rest." }
    for _, library in ipairs(LIBRARIES) do
        if library.not_run then parts[#parts + 1] = ("%s: NOT RUN, %s."):format(library.name, library.not_run) end
    end
    for _, threads in ipairs(o.threads) do
        parts[#parts + 1] = part_of(threads, all.rows, all.peaks[tostring(threads)])
    end
    return table.concat(parts, "\n\n") .. "\n"
end

local function read_options()
    local o = options.common()
    local cores = options.output("nproc") or "1"
    o.configs, o.rows = options.words("CONFIGS", "c d e", "c d e"), options.integers("ROWS", "64 256 2048")
    o.threads = options.integers("THREADS", cores == "1" and "1" or "1 " .. cores)
    o.seconds = options.number("SECONDS", "1")
    assert(host.folder(o.out .. "/data"))
    assert(host.write(o.out .. "/data", "rows.csv", ("1,2,3,1\n2,1,0,0\n"):rep(math.max(table.unpack(o.rows)))))
    return o
end

local function main()
    local o = read_options()
    o.libraries = installed(o)
    local rates, peaks, rows = options.rates_program(o), {}, {}
    for _, case in ipairs(cases_of(o)) do
        io.stderr:write(("bench: %s: %d rows, %d to %d values\n"):format(case.layer, case.rows, case.input,
            case.output))
        local binary = build(o, case)
        for _, threads in ipairs(o.threads) do
            local at = { f32 = peaks[tostring(threads)] }
            options.add_rates(rates, threads, at)
            peaks[tostring(threads)] = at.f32
            local times = measure(o, case, binary, threads)
            for _, product in ipairs(PRODUCTS) do rows[#rows + 1] = row_of(case, threads, product, times) end
        end
    end
    local not_run = {}
    for _, library in ipairs(LIBRARIES) do not_run[library.name] = library.not_run end
    local all = { machine = report.machine(), date = os.date "!%Y-%m-%d", commit = report.commit(), profile = o.profile,
        seconds = o.seconds, peaks = peaks, not_run = not_run, rows = rows }
    assert(host.folder(o.results))
    assert(host.write(o.results, "products.json", host.json(all) .. "\n"))
    local text = text_of(o, all)
    assert(host.write(o.results, "products.md", text))
    io.write(text)
    return 0
end

return main()
