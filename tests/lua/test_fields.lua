-- Each field of each word, layer, op, rule and format with unexpected values: gagen must accept the spec (exit 0) or
-- refuse it with its place (exit 1), quickly and without an internal error. Tries a sample, all with GAGEN_TEST_ALL,
-- or with GAGEN_FIELDS=NAME those of one name.
local reference = require "command.reference"

-- Specs per process; its exit code is TAKEN + the number of accepted specs if all went well.
local SECONDS, BYTES, CHUNK, TAKEN = 60, 2 ^ 32, 100, 100

local VALUES = { "-1", "0", "1", "2", "0.5", "-0.5", "1e-300", "1e300", "2^31", "2^53", "2^63", "math.mininteger",
    "0/0", "1/0", '""', '"x"', '"%d"', '"auto"', '("x"):rep(5000)', "{}", "{ 1 }", "{ -1 }", '{ "x" }',
    "{ zz = 1 }", "{ 1, 2, 3, 4, 5 }", "{ {} }", "{ { zz = 1 } }", "{ [2^40] = 1 }", "{ [0] = 1 }", "{ 1, nil, 2 }",
    "true", "false", "function() end", "relu", "relu {}", 'linear "q" { 3 }' }

-- The words of a small spec; an example takes the place of its word.
local BASE = {
    { "data", 'data { "csv", train = "tiny.csv", split = { fold = 1, of = 3 } }' }, { "batch", "batch (4)" },
    { "accumulate", "accumulate (2)" },
    { "model", 'model { linear "fc1" { 8 }, relu {}, linear "fc2" { 3 } }' },
    { "loss", 'loss "cross_entropy"' }, { "optimizer", 'optimizer { "sgd", lr = 0.1, momentum = 0.9 }' },
    { "train", "train { updates = 200 }" },
}

-- Words that some examples need around them.
local BESIDE = { plateau = 'eval { every = 5, metrics = { "loss", "accuracy" } }', scaler = 'precision "f16"' }

-- Sets `name = value` in the table of arguments `text`, or at its position, replacing a value there.
local function with_field(text, field, value)
    local parts, depth, from = {}, 0, 1
    local inner = text:sub(2, -2)
    for at, c in inner:gmatch("()([{}(),])") do
        if c == "," and depth == 0 then
            parts[#parts + 1], from = inner:sub(from, at - 1), at + 1
        elseif c ~= "," then
            depth = depth + (c:find("[{(]") and 1 or -1)
        end
    end
    parts[#parts + 1] = inner:sub(from)
    local named, placed = {}, {}
    for _, part in ipairs(parts) do
        local name = part:match("^%s*([%w_]+)%s*=%f[^=]")
        if part:find("%S") and name ~= field.name then table.insert(name and named or placed, part) end
    end
    if field.position then
        while #placed < field.position do placed[#placed + 1] = "nil" end
        placed[field.position] = value
    else
        table.insert(named, 1, field.name .. " = " .. value)
    end
    return "{ " .. table.concat(table.move(named, 1, #named, #placed + 1, placed), ", ") .. " }"
end

-- The example of an entry with another value of a field; nil where it has no table of arguments.
local function changed(entry, field, value)
    local line = entry.example
    local head, rest = line:match("^(local y = .-" .. entry.name .. ' ?"?[%w_]*"? ?)(%b{}.*)$')
    if not head then head, rest = line:match('^([%w_]+ ?"?[%w_]*"? ?)([{(].*)$') end
    local args = rest and (rest:match("^%b{}") or rest:match("^%b()"))
    if not args then
        head, args = line:match('^(%w+) (".*")$')
        if not head then return nil end
        rest, args = args, "(" .. args .. ")"
        return head .. " " .. with_field(args, field, value)
    end
    return head .. with_field(args, field, value) .. rest:sub(#args + 1)
end

local function spec_of(entry, line)
    if line:match("^local y = ") then
        line = ('model(function(batch) local x = linear "before" { 8 } (batch.input)\n%s\n'
            .. 'return linear "after" { 3 } (y) end)'):format(line)
    elseif entry.kind == "layer" or entry.kind == "op" then
        line = ('model { linear "before" { 8 }, %s, linear "after" { 3 } }'):format(line)
    end
    local word, lines, placed = line:match("^%w+"), {}, false
    for i, base in ipairs(BASE) do
        lines[i] = base[1] == word and line or base[2]
        placed = placed or base[1] == word
    end
    if not placed then lines[#lines + 1] = line end
    lines[#lines + 1] = BESIDE[entry.name]
    return (table.concat(lines, "\n"):gsub("digits/digits.csv.gz", "tiny.csv")) .. "\n"
end

-- All specs to try, in order: { what, text }.
local function specs(only)
    local list = {}
    for _, kind in ipairs(reference.kinds()) do
        for _, entry in ipairs(reference.entries(kind)) do
            local fields = table.move(entry.fields, 1, #entry.fields, 1, {})
            fields[#fields + 1] = { name = "unheard_of" }
            if not only or only == entry.name or only == kind then
                for _, field in ipairs(fields) do
                    for _, value in ipairs(VALUES) do
                        local line = changed(entry, { name = field.name,
                            position = field.position or field.rest and 1 }, value)
                        if line then
                            list[#list + 1] = { ("%s %s: %s = %s"):format(entry.kind, entry.name, field.name, value),
                                spec_of(entry, line) }
                        end
                    end
                end
            end
        end
    end
    return list
end

-- Tries the specs from number `first` to `last`: returns how many were taken, and what is wrong.
local function try(list, first, last, stride, path, write)
    local compile, program, diag = require "command.compile", require "emit.program.program", require "base.diag"
    local wrong, taken = {}, 0
    for i = first, last, stride do
        local what, text = table.unpack(list[i])
        write(path, text)
        local done, message = pcall(diag.without_warnings, function() program.render(compile(path, {})) end)
        local place = not done and diag.is(message) and diag.place(message.at)
        if done then
            taken = taken + 1
        elseif place ~= path then
            wrong[#wrong + 1] = ("%s: %s\n%s"):format(what, tostring(message), text)
        end
    end
    return taken, wrong
end

return { { "each field with values that it was not made for", function(t)
    local path = t.load("tests/lua/programs.lua")(t).folder() .. "/fields.lua"
    local only = t.environment "GAGEN_FIELDS"
    local list, tried, all_taken = specs(only), 0, 0
    local stride = (only or t.all) and 1 or 41
    for first = 1, #list, CHUNK * stride do
        local last = math.min(first + CHUNK * stride - 1, #list)
        local status, err = t.isolated(function()
            local taken, wrong = try(list, first, last, stride, path, t.write)
            if #wrong > 0 then error(table.concat(wrong, "\n"), 0) end
            return TAKEN + taken
        end, SECONDS, BYTES)
        assert(status >= TAKEN, ("specs %d to %d: status %d\n%s"):format(first, last, status, err))
        tried, all_taken = tried + (last - first) // stride + 1, all_taken + status - TAKEN
    end
    -- both outcomes must occur
    assert(tried > 30 and all_taken > 0 and all_taken < tried, ("%d tried, %d taken"):format(tried, all_taken))
end } }
