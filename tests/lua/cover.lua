-- Cases that cover the combinations of values of dimensions, each { name, value, value, ... }. fits(case): whether a case
-- is possible.
local cover = {}

-- Numbers of the combinations of `size` values of different dimensions in a case; choice: the numbers of its values.
local function combinations(dimensions, choice, size)
    local list = {}
    local function add_from(first, number, left)
        if left == 0 then
            list[#list + 1] = number
            return
        end
        for i = first, #dimensions - left + 1 do add_from(i + 1, number * 256 + i * 16 + choice[i], left - 1) end
    end
    add_from(1, 0, size)
    return list
end

--- Cases that meet each possible combination of `size` values once: the next case is the one of some candidates, drawn by
-- a fixed rule, that meets the most new combinations.
function cover.cases(dimensions, fits, size, candidates)
    local list, met, state = {}, {}, 1
    local function draw(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
    local dry = 0
    while dry < 20 do
        local best, gain, its = nil, 0, nil
        for _ = 1, candidates do
            local case, choice, new = {}, {}, 0
            for i, d in ipairs(dimensions) do
                choice[i] = draw(#d - 1)
                case[d[1]] = d[1 + choice[i]]
            end
            if fits(case) then
                local all = combinations(dimensions, choice, size)
                for _, number in ipairs(all) do new = new + (met[number] and 0 or 1) end
                if new > gain then best, gain, its = case, new, all end
            end
        end
        if best then
            for _, number in ipairs(its) do met[number] = true end
            list[#list + 1] = best
        else
            dry = dry + 1
        end
    end
    return list
end

--- A case in words.
function cover.name(dimensions, case)
    local words = {}
    for i, d in ipairs(dimensions) do
        words[i] = case[d[1]] ~= "" and d[1] .. " " .. tostring(case[d[1]]) or "no " .. d[1]
    end
    return table.concat(words, ", ")
end

return cover
