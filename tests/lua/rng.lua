-- rng: the definition in runtime/base/rng.h of what is drawn for a row (ga_draw_key), once more:
-- draw(seed, name, iteration, cycle, row, element) is a number in [0, 1). Second value: ga_permute of the stream
-- "epoch", order(seed, epoch, n, i): the row, from 0, at place i of n.
local GOLDEN = 0x9e3779b97f4a7c15

local function mix(z)
    z = (z ~ (z >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ~ (z >> 27)) * 0x94d049bb133111eb
    return z ~ (z >> 31)
end

local function key_of(seed, stream) return mix(mix(seed + GOLDEN) ~ stream) end
local function number_at(key, index) return mix(key + GOLDEN * (index + 1)) end

local function stream_of(name)
    local hash = 0xcbf29ce484222325
    for i = 1, #name do hash = (hash ~ name:byte(i)) * 0x100000001b3 end
    return hash
end

local function draw(seed, name, iteration, cycle, row, element)
    local key = key_of(number_at(key_of(seed, stream_of(name)), iteration), cycle)
    return (number_at(number_at(key, row), element) >> 11) * 2.0 ^ -53
end

-- Six rounds over the two halves of the bits that n needs, again until the number is below n.
local function order(seed, epoch, n, i)
    local key, half = key_of(seed, stream_of "epoch" + epoch), 1
    while 1 << 2 * half < n do half = half + 1 end
    local mask = (1 << half) - 1
    repeat
        local left, right = i >> half, i & mask
        for round = 0, 5 do left, right = right, left ~ number_at(key, round << 32 | right) & mask end
        i = left << half | right
    until i < n
    return i
end

return draw, order
