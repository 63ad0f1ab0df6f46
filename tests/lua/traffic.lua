-- The bytes that kernels move on the device library (GAGEN_DEVICE_TRAFFIC): of each launch, global memory that it reads
-- and writes, each byte once, and what copies of boxes (TMA) bring, one for several blocks of a cluster counted once.
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

-- As in hopper_product.cu: of a tile, the terms of a slice; elements have 2 bytes, those of parts 4.
local TALL, WIDE, DEEP = 128, 256, 64

-- Bytes of the parts of tiles, written whole and read where they are inside of the result: one for each run of slices
-- that ends or begins within a pile of tiles.
local function bytes_of_parts(M, N, K, clusters, cluster)
    local down, slices, bytes = ceil(M, cluster * TALL), ceil(K, DEEP), 0
    local piles = down * ceil(N, WIDE)
    local function first(run) return piles * slices * run // clusters end
    for run = 0, clusters - 1 do
        for pile = first(run) // slices, ceil(first(run + 1), slices) - 1 do
            if first(run) > pile * slices or first(run + 1) < (pile + 1) * slices then
                local rows = math.min(cluster * TALL, M - pile % down * cluster * TALL)
                local columns = math.min(WIDE, N - pile // down * WIDE)
                bytes = bytes + 4 * (cluster * TALL * WIDE + rows * columns)
            end
        end
    end
    return bytes
end

--- The twins of products of a program by the function that launches them: the name of the kernels (`twin`), bytes that
--- they move beside operands and results, and, where they add to the result, of that; how often each of the kernels is
--- launched; bytes that boxes bring. The rates of the plan
--- (targets/cuda/rates.lua) follow from the second: for each slice of a tile its rows of A, and its columns of B divided
--- by the blocks of a cluster. folder: of the program.
function traffic.of_products(folder)
    local launch, kernels, list = host.read(folder .. "/launch.c"), host.read(folder .. "/kernels.cu"), {}
    for name, twin, rest in launch:gmatch '{%.name = "([%w_]+)",%s+%.twin = "(product[%w_]*)",(.-)%.made' do
        local sizes = {}
        for key, n in launch:match("product_sizes " .. name .. "_size = {(.-)};"):gmatch "%.([%w_]+) = (%d+)" do
            sizes[key] = tonumber(n)
        end
        local M, N, K, parts = sizes.M, sizes.N, sizes.K, sizes.term_parts
        local cluster = tonumber(kernels:match("__cluster_dims__%((%d)%) " .. twin .. "_boxes%("))
        local beside = bytes_of_parts(M, N, K, sizes.clusters, cluster)
        local sums = tonumber(rest:match "%.sums = (%d+)")      -- blocks, of 64 columns and a part each
        local count = ceil(M, 64) * parts == sums and M or N
        local has_parts, has_sums = not rest:find "%.tiles = 0,", sums > 0
        if has_sums then        -- the sums of an operand read it once more, and have parts, too
            beside = beside + 2 * count * K + 2 * parts * 4 * ceil(count, 4) * 4
        end
        local tiles = ceil(M, cluster * TALL) * cluster * ceil(N, WIDE)
        list[name] = { twin = twin, beside = beside, added = twin:find "_adds" and 4 * M * N or 0,
            launches = { boxes = 1, parts = has_parts and 1 or 0, sums = has_sums and 1 or 0,
                totals = has_sums and 1 or 0 },
            brought = tiles * ceil(K, DEEP) * (TALL + WIDE // cluster) * DEEP * 2 }
    end
    return list
end

return traffic
