-- docs/FEATURES.md, docs/LESSONS.md and README.md: the tests that they name exist.
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

-- The rows of a table in a page of docs: { number, names of tests }.
local function rows_of(path)
    local rows = {}
    for line in host.read(path):gmatch("[^\n]+") do
        local number, proofs = line:match("^| (%d+) |.*|([^|]*)|$")
        if number then
            local tests = {}
            for start in proofs:gmatch("`(test_[^`]*)`") do tests[#tests + 1] = start end
            rows[#rows + 1] = { number, tests }
        end
    end
    return rows
end

local function all_there(t, path)
    local names, rows = names_of(t), rows_of(path)
    for _, row in ipairs(rows) do
        for _, start in ipairs(row[2]) do
            assert(is_named(names, start), ("%s, row %s: no test '%s'"):format(path, row[1], start))
        end
    end
    return rows
end

return {
    { "every test named in a row exists", function(t)
        assert(#all_there(t, "docs/FEATURES.md") >= 50)
        assert(#all_there(t, "README.md") >= 4)
    end },

    { "lessons: every row names a test", function(t)
        local rows = all_there(t, "docs/LESSONS.md")
        for i, row in ipairs(rows) do
            t.equal(row[1], tostring(i))
            assert(#row[2] > 0, "row " .. i)
        end
        t.equal(#rows, 35)
    end },
}
