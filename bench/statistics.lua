-- statistics: medians, spreads and ratios of turns; the load of other processes.
local statistics = {}

--- The middle value, or the mean of the two in the middle; nil of an empty list.
function statistics.median(list)
    local sorted = table.move(list, 1, #list, 1, {})
    table.sort(sorted)
    local n = #sorted
    if n == 0 then return nil end
    return n % 2 == 1 and sorted[(n + 1) // 2] or (sorted[n // 2] + sorted[n // 2 + 1]) / 2
end

--- { median, least, most } of a list that is not empty.
function statistics.spread(list)
    return { median = statistics.median(list), least = math.min(table.unpack(list)),
        most = math.max(table.unpack(list)) }
end

--- The spread of a[i] / b[i]: the two values of a ratio are of one turn.
function statistics.ratios(a, b)
    local list = {}
    for i = 1, math.min(#a, #b) do list[i] = a[i] / b[i] end
    return statistics.spread(list)
end

--- The ticks of all processors since the start of the system, from the text of /proc/stat: { all, busy, stolen }.
--- stolen: the hypervisor ran something else.
function statistics.ticks(text)
    local fields = {}
    for n in text:match("^cpu +([%d ]+)"):gmatch("%d+") do fields[#fields + 1] = tonumber(n) end
    local user, nice, system, idle, waiting, irq, soft, stolen = table.unpack(fields, 1, 8)
    local busy = user + nice + system + irq + soft
    return { all = busy + idle + waiting + stolen, busy = busy, stolen = stolen }
end

--- Adds to `sum`, { all, foreign, stolen } in ticks, the ticks between two states; own: those of the measured program.
function statistics.add_load(sum, before, after, own)
    sum.all = sum.all + after.all - before.all
    sum.foreign = sum.foreign + math.max(after.busy - before.busy - own, 0)
    sum.stolen = sum.stolen + after.stolen - before.stolen
end

--- Microseconds that the kernels of a plan take at least for an update: each the longer of FLOP and bytes at these
--- rates per second.
function statistics.floor(kernels, flops, bytes)
    local sum = 0
    for _, k in ipairs(kernels) do sum = sum + k.calls * math.max(k.flops / flops, k.bytes / bytes) end
    return sum * 1e6
end

return statistics
