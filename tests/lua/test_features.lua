-- docs/FEATURES.md: the tests that it names are there.
local function names_of(t)
    local names = {}
    for _, file in ipairs(host.list "tests/lua") do
        if file:match("^test_.*%.lua$") and file ~= "test_features.lua" then
            for _, test in ipairs(t.load("tests/lua/" .. file)) do
                names[#names + 1] = file:gsub("%.lua$", "") .. ": " .. test[1]
            end
        end
    end
    return names
end

local function is_named(names, start)
    for _, name in ipairs(names) do
        if name:sub(1, #start) == start then return true end
    end
    return false
end

return {
    { "every test that a row names is there", function(t)
        local names, rows = names_of(t), 0
        for line in host.read("docs/FEATURES.md"):gmatch("[^\n]+") do
            local number, proofs = line:match("^| (%d+) |.*|([^|]*)|$")
            rows = rows + (number and 1 or 0)
            for start in (proofs or ""):gmatch("`(test_[^`]*)`") do
                assert(is_named(names, start), ("row %s: no test '%s'"):format(number, start))
            end
        end
        assert(rows >= 50, rows)
    end },
}
