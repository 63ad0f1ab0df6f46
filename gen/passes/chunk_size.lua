-- chunk_size: how many elements a chunk of parameters has, by the two rules of Colossal-AI. Tensors are filled into
-- chunks in their order: one that does not fit begins the next chunk, one that is larger than a chunk has its own.
--
--   utilization   of sizes 4, 4, 4: 0.6 with chunks of 10, 1.0 with chunks of 12; the first of the largest
--   search        the first chunk with the fewest elements that are left unused at the ends of chunks
--
-- A tensor that is larger than the mean of all by more than three deviations is left out of both.
local diag = require "base.diag"
local graph = require "graph.graph"
local text = require "base.text"

local chunk_size = {}

-- The elements that all tensors together must have at least, if a size is searched.
local function least_of(config) return config.chunks.least or 1 << 25 end

--- The sizes of the trained tensors in the order of the model, those of a loop layer by layer.
function chunk_size.sizes(g)
    local sizes, done = {}, {}
    for _, param in ipairs(g.params) do
        for l = 0, param.used and not done[param] and param.count - 1 or -1 do
            for _, other in ipairs(param.region and g.params or { param }) do
                if other.used and other.region == param.region then
                    sizes[#sizes + 1], done[other] = graph.elements(other.shape), l == param.count - 1 or nil
                end
            end
        end
    end
    return sizes
end

local function sum_of(sizes)
    local sum = 0
    for _, n in ipairs(sizes) do sum = sum + n end
    return sum
end

-- The sizes without those that are much larger than the others.
local function kept(sizes)
    local mean, squares, list = sum_of(sizes) / #sizes, 0, {}
    for _, n in ipairs(sizes) do squares = squares + (n - mean) ^ 2 end
    local most = mean + 3 * math.sqrt(squares / #sizes)
    for _, n in ipairs(sizes) do
        if n <= most then list[#list + 1] = n end
    end
    return list
end

-- The chunks that these sizes fill, and the elements left unused at the ends of all of them.
local function filled(sizes, chunk)
    local count, left, unused = 0, 0, 0
    for _, n in ipairs(sizes) do
        if n > left then count, unused, left = count + 1, unused + left, chunk end
        left = left - n
    end
    return count, unused + left
end

--- The first chunk with the largest utilization, and that: least, least + range // grids, ... up to least + range.
--- least: nil for the largest tensor.
function chunk_size.utilization(sizes, range, grids, least)
    local list = kept(sizes)
    local best, most, sum = nil, -1, sum_of(list)
    local first = least or math.max(table.unpack(list))
    for chunk = first, first + range, range // grids do
        local used = sum / (chunk * filled(list, chunk))
        if used > most then best, most = chunk, used end
    end
    return best, most
end

--- The first chunk with the fewest unused elements, and these: multiples of interval = range / grids, rounded up, from
--- the first one that is no less than `least` and the largest tensor; then rounded up to a multiple of the ranks. nil:
--- all tensors together are smaller than `least`.
function chunk_size.search(sizes, range, grids, least, ranks)
    if sum_of(sizes) < least then return nil end
    local list, interval = kept(sizes), (range + grids - 1) // grids
    local best, fewest
    local first = (math.max(least, table.unpack(list)) + interval - 1) // interval * interval
    for chunk = first, first + range, interval do
        local _, unused = filled(list, chunk)
        if not fewest or unused < fewest then best, fewest = chunk, unused end
    end
    return best + -best % ranks, fewest
end

-- Parameters of so few elements stay whole in each process, and their gradient is summed at once.
local function undivided(g, config, sizes, aligned)
    local elements, with_gaps = sum_of(sizes), 0
    for _, n in ipairs(sizes) do with_gaps = with_gaps + aligned(n) end
    graph.decide(g, "chunks", "one that is gathered", ("too small to shard: %s elements are fewer than min_chunk_size, "
        .. "%s: each process has all of them, as with %q"):format(text.commas(elements), text.commas(least_of(config)),
        config.mode.undivided or config.mode.name))
    config.mode = config.catalog.modes:get(config.mode.undivided or config.mode.name)
    g.sharded, config.bucket_elements, config.chunks = config.mode.sharded, with_gaps, nil
end

local function chosen(g, chunk, why)
    local bytes = chunk * (g.real == "f64" and 8 or 4)
    graph.decide(g, "chunks", ("%s elements, %s bytes"):format(text.commas(chunk), text.commas(bytes)), why)
    return chunk
end

--- The elements of a chunk by the words of the spec, and notes them; nil: a chunk is a layer, or nothing is divided.
--- aligned(n): the elements of the flat space that a tensor of n takes.
function chunk_size.choose(g, config, aligned)
    local c = config.chunks
    if c.size then return chosen(g, c.size, "chunk_size") end
    if c.rule == "layer" then return nil end
    local sizes = chunk_size.sizes(g)
    if c.rule == "utilization" then
        local largest = math.max(table.unpack(kept(sizes)))
        if c.least and c.least < largest then
            diag.fail(diag.field(config.parallel_at, "min_chunk_size"), ("parallel: min_chunk_size is %d elements, "
                .. "expected at least those of the largest tensor that counts, %d"):format(c.least, largest), {})
        end
        local chunk, used = chunk_size.utilization(sizes, c.range, c.grids, c.least)
        return chosen(g, chunk, ("their utilization is %.5f"):format(used))
    end
    local chunk, unused = chunk_size.search(sizes, c.range, c.grids, least_of(config), config.ranks)
    if not chunk then return undivided(g, config, sizes, aligned) end
    return chosen(g, chunk, ("%s of all chunks are unused"):format(text.commas(unused)))
end

return chunk_size
