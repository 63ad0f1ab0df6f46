-- gpu_kernels: the kernels of a program for a device: measured, predicted, their floor, and for products cuBLASLt's
-- time.
local profile = require "command.profile"

local gpu_kernels = {}

-- Kinds of products with what they read: whether A is (terms, rows) and B (columns, terms) in memory, and whether the
-- result is f32 whatever the precision.
local PRODUCTS = {
    linear = { a = 0, b = 1 }, linear_in_out = { a = 0, b = 0 },
    linear_dx = { a = 0, b = 0 }, linear_in_out_dx = { a = 0, b = 1 },
    linear_dw = { a = 1, b = 0, full = true }, linear_in_out_dw = { a = 1, b = 0, full = true },
}

-- The words of bench/cublaslt.c about a product behind its name; nil for other kernels.
local function product_of(kernel, precision)
    local how, m, n, k = PRODUCTS[kernel.kind], kernel.fn:match "_(%d+)x(%d+)x(%d+)"
    if not how or not k then return nil end
    return ("%s %s %s %d %d %s %s"):format(m, n, k, how.a, how.b, precision, how.full and "f32" or precision)
end

-- cuBLASLt's microseconds of each product by its words, and why there are none. Products of the same words are measured
-- once.
local function yardstick(o, folder, kernels, precision)
    local lines, words, known = {}, {}, {}
    for _, kernel in ipairs(kernels) do
        local product = product_of(kernel, precision)
        if product and not known[product] then
            known[product], words[#words + 1] = true, product
            lines[#lines + 1] = ("%d %s\n"):format(#words, product)
        end
    end
    assert(host.write(folder, "products.txt", table.concat(lines)))
    local result = assert(measured { "sh", "-c", 'exec "$0" < "$1"', o.cublaslt, folder .. "/products.txt" })
    if result.status ~= 0 then return {}, result.err:match "[^\n]*" end
    local found = {}
    for number, us in result.out:gmatch "(%d+) ([%d.]+)\n" do found[words[tonumber(number)]] = tonumber(us) end
    return found, nil
end

-- Milliseconds of each kernel in an update, and of its shortest call, by train-probe.
local function measure(folder, data, cycles)
    local found = {}
    local words = { "--data", data, "--overfit", "8", "--cycles", tostring(cycles) }
    for _, row in ipairs(profile.measure(folder, 1, words)) do
        found[row.name] = { ms = row.ms / cycles, calls = row.calls / cycles, least_us = row.least }
    end
    return found
end

--- The kernels of a case that ran, those with the most time first: { name, calls, ms, least_us, predicted_ms, floor_ms,
--- yardstick_ms }, milliseconds and calls of an update; and why there is no yardstick. peaks: of rates.lua, or nil.
function gpu_kernels.rows(o, case, peaks)
    local plan = host.parse_json(host.read(case.folder .. "/plan.json"))
    local times, rows = measure(case.folder, o.data, o.cycles), {}
    local others, why = yardstick(o, case.folder, plan.kernels, case.precision)
    for _, kernel in ipairs(plan.kernels) do
        local time, other = times[kernel.name], others[product_of(kernel, case.precision)]
        if time then
            rows[#rows + 1] = { name = kernel.name, calls = time.calls, ms = time.ms, least_us = time.least_us,
                predicted_ms = kernel.calls * (kernel.predicted_us + plan.device.call_us) / 1e3,
                floor_ms = peaks and kernel.calls * 1e3 * math.max(kernel.flops
                    / (case.precision == "f32" and peaks.f32 or peaks.half), kernel.bytes / peaks.bytes) or nil,
                yardstick_ms = other and kernel.calls * other / 1e3 or nil }
        end
    end
    table.sort(rows, function(a, b)
        if a.ms == b.ms then return a.name < b.name end
        return a.ms > b.ms
    end)
    return rows, why
end

--- The sums of rows: { ms, predicted_ms, floor_ms }, and of those with a yardstick { products_ms, yardstick_ms }.
function gpu_kernels.sums(rows)
    local sums = { ms = 0, predicted_ms = 0, floor_ms = 0, products_ms = 0, yardstick_ms = 0 }
    for _, row in ipairs(rows) do
        sums.ms, sums.predicted_ms = sums.ms + row.ms, sums.predicted_ms + row.predicted_ms
        sums.floor_ms = sums.floor_ms + (row.floor_ms or 0)
        if row.yardstick_ms then
            sums.products_ms = sums.products_ms + row.ms
            sums.yardstick_ms = sums.yardstick_ms + row.yardstick_ms
        end
    end
    return sums
end

return gpu_kernels
