-- The bytes that kernels move on the device library (GAGEN_DEVICE_TRAFFIC): of each launch, global memory that it reads
-- and writes, each byte once, and what copies of boxes (TMA) bring, one for several blocks of a cluster counted once.
local ordered = require "base.ordered"

local traffic = {}

--- The launches of each kernel in a file, in their order: { moved = bytes read and written, boxes }.
function traffic.launches(path)
    local found = {}
    for name, read, written, boxes in host.read(path):gmatch "([%w_]+) (%d+) (%d+) (%d+)\n" do
        found[name] = found[name] or {}
        table.insert(found[name], { moved = read + written, boxes = tonumber(boxes) })
    end
    return found
end

local function ceil(a, b) return (a + b - 1) // b end

-- As in hopper_product.cu: rows of a tile, the terms of a slice; elements have 2 bytes, those of parts 4.
local TALL, DEEP = 128, 64

-- How many parts a shared pile of a product comes in: its shares, and one or two of its tail, which are cut where the runs
-- of the other clusters begin.
local function parts_of(pile, shared, sizes)
    local tail = math.max(ceil(sizes.K, DEEP) - sizes.shares * sizes.share, 0)
    local others, count = sizes.clusters - sizes.shares * shared, sizes.shares
    if tail == 0 then return count end
    for other = 1, others - 1 do
        local begin = shared * tail * other // others
        if begin > pile * tail and begin < (pile + 1) * tail then count = count + 1 end
    end
    return count + 1
end

-- Bytes of the parts of shared piles of tiles, written whole and read where they are inside of the result.
local function bytes_of_parts(sizes, cluster, wide)
    local down, bytes = ceil(sizes.M, cluster * TALL), 0
    local shared = down * ceil(sizes.N, wide) - sizes.whole
    for pile = 0, shared - 1 do
        local place = sizes.whole + pile        -- piles go down eight at most here
        local rows = math.min(cluster * TALL, sizes.M - place % down * cluster * TALL)
        local columns = math.min(wide, sizes.N - place // down * wide)
        bytes = bytes + parts_of(pile, shared, sizes) * 4 * (cluster * TALL * wide + rows * columns)
    end
    return bytes
end

-- Bytes of the sums of A over the terms of each piece of the first piles of all rows of piles, written and read.
local function bytes_of_sums(sizes, cluster, wide)
    local down, bytes = ceil(sizes.M, cluster * TALL), 0
    local shared = down * ceil(sizes.N, wide) - sizes.whole
    for row = 0, down - 1 do                    -- piles go down eight at most here
        local rows = math.min(cluster * TALL, sizes.M - row * cluster * TALL)
        local pieces = row < sizes.whole and 1 or parts_of(row - sizes.whole, shared, sizes)
        bytes = bytes + pieces * 4 * (cluster * TALL + rows)
    end
    return bytes
end

--- The twins of products of a program by the function that launches them: the name of its boxes and parts (`twin`),
--- that of its sums (`summing`, nil: it has none), bytes that they move beside operands and results, and, where they add
--- to the result, of that; how often each of the kernels is launched, by its name; bytes that boxes bring. The rates of
--- the plan (targets/cuda/rates.lua) follow from the last: for each slice of a tile its rows of A, and its columns of B
--- divided by the blocks of a cluster. folder: of the program.
function traffic.of_products(folder)
    local launch, kernels, list = host.read(folder .. "/launch.c"), host.read(folder .. "/kernels.cu"), {}
    for name, twin, rest in launch:gmatch '{%.name = "([%w_]+)",%s+%.twin = "(product[%w_]*)",(.-)%.made' do
        local sizes = {}
        for key, n in launch:match("product_sizes " .. name .. "_size = {(.-)};"):gmatch "%.([%w_]+) = (%d+)" do
            sizes[key] = tonumber(n)
        end
        local M, N, K, parts = sizes.M, sizes.N, sizes.K, sizes.term_parts
        local of_twin = kernels:match("%) (" .. twin .. "_boxes%(.-\n}\n)")
        local cluster, wide = tonumber(of_twin:match "ga_boxes_product<(%d),"), sizes.wide
        -- eight neighbours of a result are stored at once, those behind the end of a row, too
        local beside = bytes_of_parts(sizes, cluster, wide) + 2 * M * (math.min(ceil(N, 8) * 8, sizes.c_row) - N)
        local sums = tonumber(rest:match "%.sums = (%d+)")      -- blocks, of 64 columns and a part each
        local totals = tonumber(rest:match "%.totals = (%d+)" or 0)
        local count = ceil(M, 64) * parts == sums and M or N
        local has_parts, has_sums = not rest:find "%.tiles = 0,", sums > 0
        if has_sums then        -- the sums of an operand read it once more, and have parts, too
            beside = beside + 2 * count * K + 2 * parts * 4 * ceil(count, 4) * 4
        end
        if totals > 0 and not has_sums then     -- sums of the rows of the first piles stand beside their parts
            beside = beside + bytes_of_sums(sizes, cluster, wide)
        end
        local tiles = ceil(M, cluster * TALL) * cluster * ceil(N, wide)
        local summing = rest:match '%.summing = "([%w_]+)"'
        local launches = { [twin .. "_boxes"] = 1, [twin .. "_parts"] = has_parts and 1 or 0 }
        if summing then
            launches[summing .. "_sums"], launches[summing .. "_totals"] = has_sums and 1 or 0, 1
        end
        list[name] = { twin = twin, summing = summing, beside = beside, launches = launches,
            added = twin:find "_adds" and 4 * M * N or 0,
            brought = tiles * ceil(K, DEEP) * (TALL + wide // cluster) * DEEP * 2 }
    end
    return list
end

--- By the name of a twin's boxes, that of the group of twins with which it shares kernels of sums.
function traffic.groups(twins)
    local groups = {}
    for _, own in ordered.each(twins) do
        if own.summing then
            local group = groups[own.summing] or groups[own.twin] or own.twin
            groups[own.summing], groups[own.twin] = group, group
        end
    end
    return groups
end

return traffic
