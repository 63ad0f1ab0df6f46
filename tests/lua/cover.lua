-- Cases that cover the combinations of values of dimensions, each { name, value, value, ... }. fits(case): whether a case
-- is possible.
local cover = {}

local function case_of(dimensions, choice)
    local case = {}
    for i, d in ipairs(dimensions) do case[d[1]] = d[1 + choice[i]] end
    return case
end

--- Cases that meet each possible combination of `size` values once: the next case is the one of some candidates that meets
-- the most new combinations. A candidate is drawn by a fixed rule; then each of its values is the one that meets the most.
function cover.cases(dimensions, fits, size, candidates)
    local list, met, state, count = {}, {}, 1, #dimensions
    local function draw(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
    -- How many combinations of these values and of `left` dimensions from `first` on, without `with`, are new.
    local function gain_of(choice, number, first, left, with)
        if left == 0 then return met[number] and 0 or 1 end
        local new = 0
        for i = first, count - left + 1 do
            if i ~= with then new = new + gain_of(choice, number * 256 + i * 16 + choice[i], i + 1, left - 1, with) end
        end
        return new
    end
    -- A combination is met by a number for each of its dimensions that may come first.
    local function meet(choice, number, first, left, with)
        if left == 0 then met[number] = true end
        for i = first, left > 0 and count - left + 1 or 0 do
            if i ~= with then meet(choice, number * 256 + i * 16 + choice[i], i + 1, left - 1, with) end
        end
    end
    local function improve(choice, i)
        local best, gain = choice[i], gain_of(choice, i * 16 + choice[i], 1, size - 1, i)
        for value = 1, #dimensions[i] - 1 do
            choice[i] = value
            local new = gain_of(choice, i * 16 + value, 1, size - 1, i)
            if new > gain and fits(case_of(dimensions, choice)) then best, gain = value, new end
        end
        choice[i] = best
    end
    local function candidate()
        local choice = {}
        repeat
            for i, d in ipairs(dimensions) do choice[i] = draw(#d - 1) end
        until fits(case_of(dimensions, choice))
        for i in ipairs(dimensions) do improve(choice, i) end
        return choice, gain_of(choice, 0, 1, size)
    end
    local dry = 0
    while dry < 20 do
        local best, gain = nil, 0
        for _ = 1, candidates do
            local choice, new = candidate()
            if new > gain then best, gain = choice, new end
        end
        if best then
            for i = 1, count do meet(best, i * 16 + best[i], 1, size - 1, i) end
            meet(best, 0, 1, size)
            list[#list + 1] = case_of(dimensions, best)
        else
            dry = dry + 1
        end
    end
    return list
end

--- Those cases of the list, in its order, that have a value which fewer than `times` of them before have.
function cover.few(dimensions, list, times)
    local few, met = {}, {}
    for _, case in ipairs(list) do
        local new = false
        for _, d in ipairs(dimensions) do
            local value = d[1] .. " " .. tostring(case[d[1]])
            met[value] = (met[value] or 0) + 1
            new = new or met[value] <= times
        end
        if new then few[#few + 1] = case end
    end
    return few
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
