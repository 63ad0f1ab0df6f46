-- Limits of size for template blocks, files and Lua functions. Parts over a limit are listed here with their size; the
-- lists may only shrink.
local BLOCK_LINES, BLOCK_PARAMETERS, FILE_LINES, FUNCTION_LINES = 80, 12, 500, 60

-- { lines, parameters } of blocks over a limit.
local BLOCKS = {
    ["templates/c/attention.c: attend"] = { 68, 26 },
    ["templates/c/attention.c: attend_dx"] = { 86, 24 },
    ["templates/c/attention.c: rotary"] = { 27, 14 },
    ["templates/c/conv.c: conv2d"] = { 62, 30 },
    ["templates/c/conv.c: conv2d_dw"] = { 46, 25 },
    ["templates/c/conv.c: conv2d_turned"] = { 22, 13 },
    ["templates/c/loss.c: cross_entropy"] = { 42, 14 },
    ["templates/c/loss.c: cross_entropy_dx"] = { 44, 15 },
    ["templates/c/matmul.c: linear"] = { 27, 20 },
    ["templates/c/matmul.c: linear_half"] = { 30, 23 },
    ["templates/c/planes.c: planes"] = { 90, 2 },
    ["templates/c/pool.c: avgpool2d"] = { 18, 17 },
    ["templates/c/pool.c: avgpool2d_dx"] = { 30, 18 },
    ["templates/c/pool.c: maxpool2d"] = { 25, 17 },
    ["templates/c/pool.c: maxpool2d_dx"] = { 27, 13 },
    ["templates/cuda/attention.cu: attend"] = { 64, 23 },
    ["templates/cuda/attention.cu: attend_dx"] = { 86, 23 },
    ["templates/cuda/attention.cu: rotary"] = { 18, 14 },
    ["templates/cuda/attention_tiles.cu: attention_tiles"] = { 103, 2 },
    ["templates/cuda/conv.cu: conv2d"] = { 46, 29 },
    ["templates/cuda/conv.cu: conv2d_dw"] = { 43, 25 },
    ["templates/cuda/conv.cu: conv2d_turned"] = { 17, 13 },
    ["templates/cuda/loss.cu: cross_entropy"] = { 48, 16 },
    ["templates/cuda/loss.cu: cross_entropy_dx"] = { 43, 15 },
    ["templates/cuda/matmul.cu: linear"] = { 33, 20 },
    ["templates/cuda/norm.cu: layernorm"] = { 34, 13 },
    ["templates/cuda/pool.cu: avgpool2d"] = { 15, 17 },
    ["templates/cuda/pool.cu: avgpool2d_dx"] = { 20, 22 },
    ["templates/cuda/pool.cu: maxpool2d"] = { 22, 17 },
    ["templates/cuda/pool.cu: maxpool2d_dx"] = { 15, 15 },
}

local function files(t, pattern)
    local list = {}
    for name in t.shell("git ls-files gen templates runtime tests tools bench specs | grep -E '" .. pattern .. "'")
        .out:gmatch("[^\n]+") do
        if host.exists(name) == "file" then list[#list + 1] = name end
    end
    return list
end

local function lines_of(name)
    local list = {}
    for line in host.read(name):gmatch("([^\n]*)\n") do list[#list + 1] = line end
    return list
end

local function count_parameters(list)
    local n = 0
    for _ in list:gmatch("[%w_]+") do n = n + 1 end
    return n
end

-- Calls see(key, { lines, parameters }) for each block of a template.
local function each_block(name, see)
    local key, found
    for _, line in ipairs(lines_of(name)) do
        local block, parameters = line:match("^[/#]/?@%s*([%a_][%w_]*)%s*%((.-)%)")
        if block then
            if key then see(key, found) end
            key, found = name .. ": " .. block, { 0, count_parameters(parameters) }
        elseif key then
            found[1] = found[1] + 1
        end
    end
    if key then see(key, found) end
end

-- Calls see(line, lines) for each function of a Lua file that opens at the end of a line; the lines of functions
-- inside it are not its own. It ends at the next line with the same indentation that begins with `end`.
local function each_function(name, see)
    local open = {}
    for n, line in ipairs(lines_of(name)) do
        local indent, top = #line:match("^ *"), open[#open]
        if top and indent == top.indent and line:match("^%s*end") then
            open[#open] = nil
            local all = n - top.first + 1
            see(top.first, all - top.inner)
            if open[#open] then open[#open].inner = open[#open].inner + all end
        end
        if line:match("function%s*[%w_.:]*%b()%s*$") then
            open[#open + 1] = { indent = indent, first = n, inner = 0 }
        end
    end
end

return {
    { "a template's block has at most 80 lines and 12 parameters", function(t)
        local seen, wrong = {}, {}
        for _, name in ipairs(files(t, "^templates/")) do
            each_block(name, function(key, found)
                seen[key] = found
                local known = BLOCKS[key] or { BLOCK_LINES, BLOCK_PARAMETERS }
                if found[1] > math.max(known[1], BLOCK_LINES) or found[2] > math.max(known[2], BLOCK_PARAMETERS) then
                    wrong[#wrong + 1] = ("%s has %d lines and %d parameters"):format(key, found[1], found[2])
                end
            end)
        end
        for key in pairs(BLOCKS) do
            local found = seen[key]
            if not found or found[1] <= BLOCK_LINES and found[2] <= BLOCK_PARAMETERS then
                wrong[#wrong + 1] = key .. " keeps to the limits: take it off the list"
            end
        end
        table.sort(wrong)
        t.equal(table.concat(wrong, "\n"), "")
    end },
    { "a source file has at most 500 lines", function(t)
        local wrong = {}
        for _, name in ipairs(files(t, "\\.(lua|c|h|cu|cpp|mk|py|sh)$")) do
            local n = #lines_of(name)
            if n > FILE_LINES then wrong[#wrong + 1] = ("%s has %d lines"):format(name, n) end
        end
        t.equal(table.concat(wrong, "\n"), "")
    end },
    { "a Lua function has at most 60 lines", function(t)
        local wrong = {}
        for _, name in ipairs(files(t, "\\.lua$")) do
            each_function(name, function(line, n)
                if n > FUNCTION_LINES then
                    wrong[#wrong + 1] = ("%s:%d: a function of %d lines"):format(name, line, n)
                end
            end)
        end
        t.equal(table.concat(wrong, "\n"), "")
    end },
    { "the counters of sizes are right", function(t)
        local name, seen = t.temp() .. "/sizes", {}
        t.write(name, "//@ one(a, b)\n1\n2\n//@ two()\n//% if x then\n//% end\n\n")
        each_block(name, function(key, found) seen[key:match("%w+$")] = found end)
        t.equal(seen, { one = { 2, 2 }, two = { 3, 0 } })
        t.write(name, "local function f()\n    each(x, function(y)\n        y()\n    end)\nend\n")
        local own = {}
        each_function(name, function(line, n) own[line] = n end)
        t.equal(own, { 2, 3 })
    end },
}
