-- Limits of size for template blocks, files and Lua functions; how sentences begin.
local BLOCK_LINES, BLOCK_PARAMETERS, FILE_LINES, FUNCTION_LINES = 80, 12, 500, 60

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

-- The lines of files of text in git, or of a file, with a sentence that begins without its subject: at the beginning of
-- a line or of a comment, or behind another sentence. Headings may.
local function without_subject(t, options, file)
    return t.shell("git grep -I -nE " .. options .. [[ "(^|(^|[^-])--+ |//+ |/\\* |^ *\\* |(^|[^#])# |[.:;!?]['\`)]* )]]
        .. [[(What|Which|Such|Those that)\\b" ]] .. (file or "")).out
end

return {
    { "sentences of comments and documents begin with their subject", function(t)
        t.equal(without_subject(t, ""), "")
        local planted = t.temp() .. "/planted"
        t.write(planted, ("-- W it is.\nx = 1 -- One. W a one.\n## W\na W\n * W do\n"):gsub("W", "What"))
        t.equal(select(2, without_subject(t, "--no-index", planted):gsub("\n", "")), 3)
    end },
    { "a template's block has at most 80 lines and 12 parameters", function(t)
        local wrong = {}
        for _, name in ipairs(files(t, "^templates/")) do
            each_block(name, function(key, found)
                if found[1] > BLOCK_LINES or found[2] > BLOCK_PARAMETERS then
                    wrong[#wrong + 1] = ("%s has %d lines and %d parameters"):format(key, found[1], found[2])
                end
            end)
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
