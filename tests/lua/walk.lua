-- Walks a page of Markdown as its reader would: every command of its blocks runs in a fresh clone, every printed
-- result is compared, every spec is written under its name or compared with its file.
--   ```console    `$ command`, `> ` its further lines, then what it prints, unless that is of no interest; status 0
--   ```sh         a command on each line, and after two spaces or # what it is for
--   ```lua        a spec whose first line is a comment with its file's name
--   ```python     a program of another system, quoted
-- In results `...` stands for any text of a line, on a line of its own for any lines.
-- A comment <!-- walk: ... --> says about the next block, or from there on (*):
--   profile NAME              * numbers with a point are those of this profile, elsewhere within TOLERANCE
--   with NAME=text ...        words of commands stand for these texts
--   in FILE                   its lines lie in FILE, in this order
--   output of COMMAND         what COMMAND prints
--   options of COMMAND        the first words of its lines are options that COMMAND prints
--   data FOLDER               its commands read FOLDER of GAGEN_DATA
--   skip TEXT: REASON         its lines with TEXT are not run; without TEXT none is
--   run COMMAND               no block: a command of the text around it
--   omit COMMAND: REASON      no block: a command of the text around it that is not run
-- Invariant: a block or line that is none of these is an error, and so is a command in the text, `make ...`,
-- `tools/...`, `bench/...` or `out/gagen ...`, that no command contains: nothing is passed over in silence.
local walk = {}

local TOLERANCE = 0.02

-- -- reading: a list of steps { line, kind, ... }
--   kind "run": command, expected (lines) or nil; "file": name, text; "excerpt": file, lines; "options": command, lines;
--   "quote": command, its first line
--   any of them with `reason`: not run; with `data`: a folder that it needs

local function fail(page, line, message) error(("%s:%d: %s"):format(page, line, message), 0) end

local function lines_of(text)
    local list = {}
    for line in (text:gsub("\n?$", "\n")):gmatch("(.-)\n") do list[#list + 1] = line end
    return list
end

local DIRECTIVES = {
    profile = function(state, rest) state.profile = rest end,
    with = function(state, rest)
        for name, value in rest:gmatch "(%u+)=(%S+)" do state.with[#state.with + 1] = { name, value } end
    end,
    ["in"] = function(state, rest) state.file = rest end,
    output = function(state, rest) state.output = rest:match "^of (.+)$" end,
    options = function(state, rest) state.options = rest:match "^of (.+)$" end,
    data = function(state, rest) state.data = rest end,
    skip = function(state, rest)
        local text, reason = rest:match "^(.-):%s*(.+)$"
        state.skips[#state.skips + 1] = { text, reason }
    end,
    run = function(state, rest, add)
        add { kind = "run", command = rest, data = state.data }
        state.data = nil
    end,
    omit = function(_, rest, add)
        local command, reason = rest:match "^(.-):%s+(.+)$"
        add { kind = "run", command = command, reason = reason }
    end,
}

local function fresh(state)
    state.with, state.skips, state.file, state.output, state.options, state.data = {}, {}, nil, nil, nil, nil
end

-- The command with the texts that its words in capitals stand for.
local function filled(state, command)
    for _, pair in ipairs(state.with) do
        local value, count = pair[2]:gsub("%%", "%%%%")
        command, count = command:gsub("%f[%w]" .. pair[1] .. "%.%.%.", value, 1)
        if count == 0 then command = command:gsub("%f[%w]" .. pair[1] .. "%f[%W]", value, 1) end
    end
    return command
end

local function reason_for(state, line)
    for _, skip in ipairs(state.skips) do
        if line:find(skip[1], 1, true) then return skip[2] end
    end
end

local function command_step(state, line, command, expected)
    return { kind = "run", line = line, command = filled(state, command), expected = expected, data = state.data,
        reason = reason_for(state, command) }
end

local BLOCKS = {}

function BLOCKS.console(state, block, add)
    local step
    for i, text in ipairs(block.lines) do
        if text:find "^%$ " then
            step = command_step(state, block.line + i, text:sub(3), {})
            add(step)
        elseif step and #step.expected == 0 and text:find "^> " then
            step.command = step.command .. "\n" .. text:sub(3)
        elseif step then
            step.expected[#step.expected + 1] = text
        else
            fail(state.page, block.line + i, "a result before any command: expected '$ command'")
        end
    end
end

function BLOCKS.sh(state, block, add)
    for i, text in ipairs(block.lines) do
        local command = text:gsub("%s+#%s.*$", ""):gsub("(%S)  +.*$", "%1")
        if command:find "^%S" then add(command_step(state, block.line + i, command)) end
    end
end

function BLOCKS.lua(state, block, add)
    local name = block.lines[1]:match "^%-%- ([%w_/]+%.lua)%f[%W]"
    if not name then fail(state.page, block.line, "a spec without a name: expected '-- NAME.lua: ...' at its top") end
    add { kind = "file", line = block.line, name = name, text = table.concat(block.lines, "\n") .. "\n" }
end

function BLOCKS.python(state, block, add)
    add { kind = "quote", line = block.line, command = block.lines[1], reason = "a program of another system" }
end

-- The step of a block of which a comment says what it is, or nil.
local function described(state, block)
    local step = { line = block.line, lines = block.lines, data = state.data }
    if state.file then
        step.kind, step.file = "excerpt", state.file
    elseif state.output then
        step.kind, step.command, step.expected = "run", filled(state, state.output), block.lines
    elseif state.options then
        step.kind, step.command = "options", state.options
    else
        return nil
    end
    step.reason = reason_for(state, step.command or step.file)
    return step
end

local function read_block(state, block, add)
    local step = described(state, block)
    if step then
        add(step)
    elseif BLOCKS[block.language] then
        BLOCKS[block.language](state, block, add)
    else
        fail(state.page, block.line, "a block of which nothing says how to walk it: expected ```console, ```sh, "
            .. "```lua, ```python or a comment <!-- walk: ... --> before it")
    end
    fresh(state)
end

local function read_directive(state, n, text, add)
    local word, rest = text:match "^(%l+)%s+(.+)$"
    if not DIRECTIVES[word] then fail(state.page, n, ("unknown '<!-- walk: %s -->'"):format(text)) end
    DIRECTIVES[word](state, rest, function(step)
        step.line = n
        add(step)
    end)
end

-- Refuses a command in the text that no step contains.
local function check_mentions(page, mentions, steps)
    local commands = {}
    for i, step in ipairs(steps) do commands[i] = step.command or "" end
    commands = table.concat(commands, "\n")
    for _, mention in ipairs(mentions) do
        local text = mention.text
        for _, start in ipairs { "make ", "tools/", "bench/", "out/gagen " } do
            if text:sub(1, #start) == start and not commands:find(text, 1, true) then
                fail(page, mention.line, ("no step runs or omits `%s`"):format(text))
            end
        end
    end
end

--- The steps of the page's text, in order, and the profile that it names.
function walk.read(page, text)
    local state, steps, mentions, block = { page = page }, {}, {}, nil
    fresh(state)
    local function add(step) steps[#steps + 1] = step end
    for n, line in ipairs(lines_of(text)) do
        local fence = line:match "^```(.*)$"
        if block and fence then
            read_block(state, block, add)
            block = nil
        elseif block then
            block.lines[#block.lines + 1] = line
        elseif fence then
            block = { line = n, language = fence, lines = {} }
        else
            for code in line:gmatch "`([^`]+)`" do mentions[#mentions + 1] = { line = n, text = code } end
            for directive in line:gmatch "<!%-%- walk: (.-) %-%->" do read_directive(state, n, directive, add) end
        end
    end
    if block then fail(page, block.line, "a block without an end") end
    check_mentions(page, mentions, steps)
    return steps, state.profile
end

-- -- comparing

local NUMBER = "(-?%%d[%%d.]*e?[-+]?%%d*)"

-- The pattern of a line of results, and its numbers with a point, which the pattern captures.
local function pattern_of(expected)
    local numbers = {}
    local text = expected:gsub("%s+$", ""):gsub("%.%.%.", "\1"):gsub("%d+%.%d+e?[-+]?%d*", function(number)
        numbers[#numbers + 1] = number
        return "\2"
    end)
    text = text:gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0"):gsub(" +", " +"):gsub("\1", ".-"):gsub("\2", NUMBER)
    return "^" .. text .. "$", numbers
end

local function is_near(a, b, tolerance)
    if a == b then return true end
    local x, y = tonumber(a), tonumber(b)
    return x and y and math.abs(x - y) <= tolerance * math.max(math.abs(x), math.abs(y))
end

--- Whether a printed line is the expected one; its numbers with a point may differ by this share.
function walk.same_line(expected, found, tolerance)
    local pattern, numbers = pattern_of(expected)
    local captures = table.pack((found:gsub("%s+$", "")):match(pattern))
    if not captures[1] then return false end
    for i, number in ipairs(numbers) do
        if not is_near(number, captures[i], tolerance) then return false end
    end
    return true
end

-- The first index from `from` at which all lines of the segment are found, or nil.
local function place_of(segment, found, from, to, tolerance)
    for start = from, to do
        local i = 1
        while segment[i] and found[start + i - 1] and walk.same_line(segment[i], found[start + i - 1], tolerance) do
            i = i + 1
        end
        if not segment[i] then return start end
    end
end

-- The expected lines between lines of `...`, each with its place on the page.
local function segments_of(expected)
    local segments = { {} }
    for _, line in ipairs(expected) do
        if line:find "^%.%.%.$" then
            segments[#segments + 1] = {}
        else
            table.insert(segments[#segments], line)
        end
    end
    return segments
end

--- nil if the text is what is expected, else the lines that are not found in it, and the text.
function walk.differs(expected, text, tolerance)
    local found, segments, from = lines_of(text), segments_of(expected), 1
    if text == "" then found = {} end
    for i, segment in ipairs(segments) do
        local first, last = from, i == 1 and 1 or #found - #segment + 1
        if i == #segments and #segment > 0 then first = math.max(from, #found - #segment + 1) end
        local at = place_of(segment, found, first, last, tolerance)
        if not at then
            return ("expected\n%s\nfound\n%s"):format(table.concat(segment, "\n"), table.concat(found, "\n"))
        end
        from = at + #segment
    end
end

-- -- walking

local STEPS = {}

function STEPS.run(w, step)
    local result = w.sh(step.command)
    if result.status ~= 0 then return ("status %d\n%s"):format(result.status, result.out) end
    if step.expected and #step.expected > 0 then return walk.differs(step.expected, result.out, w.tolerance) end
end

-- A file of the tree is as the page has it but for comments; another one is written.
function STEPS.file(w, step)
    local path = w.folder .. "/" .. step.name
    if w.sh("git ls-files --error-unmatch " .. step.name).status ~= 0 then
        w.t.write(path, step.text)
        return
    end
    local function words(text) return (text:gsub("%-%-[^\n]*", ""):gsub("%s+", " ")) end
    if words(step.text) ~= words(host.read(path)) then return step.name .. " has another text" end
end

function STEPS.excerpt(w, step)
    local found, from = lines_of(host.read(w.folder .. "/" .. step.file) or ""), 1
    local function trimmed(line) return (line:gsub("^%s+", ""):gsub("%s+$", ""):gsub("%s+", " ")) end
    for _, line in ipairs(step.lines) do
        local text = trimmed(line)
        if text ~= "" and text ~= "..." then
            while found[from] and not trimmed(found[from]):find(text, 1, true) do from = from + 1 end
            if not found[from] then return ("%s has no line '%s' there"):format(step.file, text) end
        end
    end
end

function STEPS.options(w, step)
    local help = w.sh(step.command).out
    for _, line in ipairs(step.lines) do
        local option = line:match "^(%-%-[%w-]+)"
        if option and not help:find(option:gsub("%-", "%%-") .. "%f[^%w-]") then
            return ("%s has no %s"):format(step.command, option)
        end
    end
end

local function not_run_reason(w, step)
    if step.reason then return step.reason end
    if step.data and not w.has_data(step.data) then return "GAGEN_DATA has no " .. step.data end
end

--- Walks the page in the folder of a clone; sh(command) gives { status, out }. Prints what was not run, and returns
--- { ran, not_run, exact }: the numbers of steps, and whether the page's profile is this machine's. An error names the
--- line of the page.
function walk.go(t, page, folder, sh)
    local steps, profile = walk.read(page, assert(host.read(folder .. "/" .. page)))
    local w = { t = t, folder = folder, sh = sh }
    local root = t.environment "GAGEN_DATA"
    function w.has_data(name) return root and host.exists(root .. "/" .. name) == "folder" end
    local own = t.run { t.gagen, "doctor" }.out:match "profile (%S+)"
    w.tolerance = own == profile and 0 or TOLERANCE
    local count = { ran = 0, not_run = 0, exact = own == profile }
    for _, step in ipairs(steps) do
        local name, reason = step.command or step.name or step.file, not_run_reason(w, step)
        if reason then
            count.not_run = count.not_run + 1
            print(("NOT RUN: %s:%d: %s: %s"):format(page, step.line, name, reason))
        else
            local wrong = STEPS[step.kind](w, step)
            if wrong then fail(page, step.line, name .. "\n" .. wrong) end
            count.ran = count.ran + 1
        end
    end
    print(("%s: %d steps ran, %d NOT RUN"):format(page, count.ran, count.not_run))
    return count
end

return walk
