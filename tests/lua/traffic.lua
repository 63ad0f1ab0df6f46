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

--- Bytes that the twin of a product moves beside operands and results, and those that its boxes bring. The rates of the
--- plan (targets/cuda/rates.lua) follow from the second: for each slice of a tile its rows of A, and its columns of B
--- divided by the blocks of a cluster. text: of the kernels.
function traffic.of_product(text, name)
    local body = text:match(("\nGA_KERNEL[^\n]* %s_boxes%%(.-\n}\n"):format(name))
    local M, N, K, blocks, cluster = body:match "ga_run<(%d+), (%d+), (%d+), (%d+), (%d+)>"
    M, N, K, cluster = tonumber(M), tonumber(N), tonumber(K), tonumber(cluster)
    local beside = bytes_of_parts(M, N, K, blocks // cluster, cluster)
    local count, terms, parts = text:match(name .. "_sums%(.-ga_terms_sum<(%d+), (%d+), (%d+)>")
    if count then           -- the sums of an operand read it once more, and have parts, too
        beside = beside + 2 * count * terms + 2 * parts * 4 * ceil(count, 4) * 4
    end
    local tiles = ceil(M, cluster * TALL) * cluster * ceil(N, WIDE)
    return beside, tiles * ceil(K, DEEP) * (TALL + WIDE // cluster) * DEEP * 2
end

return traffic
