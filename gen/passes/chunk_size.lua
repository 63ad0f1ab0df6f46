-- chunk_size: how many elements a chunk of parameters has, by the two rules of Colossal-AI. Tensors are filled into
-- chunks in their order: one that does not fit begins the next chunk, one that is larger than a chunk has its own.
--
--   utilization   of sizes 4, 4, 4: 0.6 with chunks of 10, 1.0 with chunks of 12; the first of the largest
--   search        the first chunk with the fewest elements that are left unused at the ends of chunks
--
-- A tensor that is larger than the mean of all by more than three deviations is left out of both.
local graph = require "graph.graph"

local chunk_size = {}

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

--- The first chunk with the largest utilization, and that: least, least + range // grids, ... up to least + range. least:
--- nil for the largest tensor.
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
--- the first one that is no less than `least` and the largest tensor; then rounded up to a multiple of the ranks. nil: all
--- tensors together are smaller than `least`.
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

return chunk_size
