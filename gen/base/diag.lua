-- diag: diagnostics, the only way in which gagen refuses its user's input.
-- diag.fail raises a table that the host prints (gen/host/host.c); a plain string error is a defect
-- of gagen and is printed with a traceback. Invariant: text of the user is escaped before it is printed.
--
--   hello.lua:9: optimizer: unknown field 'wieght_decay'
--      9 | optimizer { "adamw", lr = 3e-4, wieght_decay = 0.1 }
--        |                                 ^^^^^^^^^^^^ did you mean 'weight_decay'?
--   adamw takes: lr, betas, eps, weight_decay

local colour = require "base.colour"

local diag = {}

local diagnostic = { __name = "diagnostic" }
diagnostic.__tostring = function(d) return diag.render(d) end

--- Splits "path:line" into path and line number; the number is nil if `at` is a path alone.
function diag.place(at)
    local path, line = at:match("^(.*):(%d+)$")
    if path then return path, math.tointeger(tonumber(line)) end
    return at, nil
end

--- `text` with control bytes and invalid UTF-8 written as \xNN.
function diag.escape(text)
    local function hex(byte) return ("\\x%02x"):format(byte:byte()) end
    local function all_hex(bytes) return (bytes:gsub(".", hex)) end
    local parts, from = {}, 1
    while from <= #text do
        local _, bad = utf8.len(text, from)
        parts[#parts + 1] = text:sub(from, (bad or #text + 1) - 1)
        if bad then parts[#parts + 1] = hex(text:sub(bad, bad)) end
        from = (bad or #text) + 1
    end
    -- U+0080..U+009F control terminals; U+2028..U+202E and U+2066..U+2069 break or reorder the line
    local safe = table.concat(parts):gsub("%c", hex):gsub("\xc2[\x80-\x9f]", all_hex)
    safe = safe:gsub("\xe2\x80[\xa8-\xae]", all_hex):gsub("\xe2\x81[\xa6-\xa9]", all_hex)
    return safe
end

-- The edit distance of `a` and `b`: insertions, deletions, replacements and swaps of neighbours.
local function distance(a, b)
    local before, last, row = {}, {}, {}
    for j = 0, #b do last[j] = j end
    for i = 1, #a do
        row = { [0] = i }
        for j = 1, #b do
            local cost = a:byte(i) == b:byte(j) and 0 or 1
            row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost)
            if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
                row[j] = math.min(row[j], before[j - 2] + 1)
            end
        end
        before, last = last, row
    end
    return last[#b]
end

--- The entry of `array` closest to the misspelt `word` (the first of equals), or nil if none is close.
function diag.suggest(word, array)
    if #word > 64 then return nil end
    local best, least = nil, math.max(1, #word // 3) + 1
    for _, candidate in ipairs(array) do
        local d = distance(word:lower(), candidate:lower())
        if d < least and d < #candidate then best, least = candidate, d end
    end
    return best
end

--- Makes a diagnostic without raising it. `more` may hold notes, at its positions or in `notes`, and
---   found = the token that the caret points at
---   hint  = the word that was probably meant (printed as: did you mean 'hint'?), or
---   among = an array of words, from which diag.suggest takes the hint
---   kind  = "environment" (exit 3: disk, tool, device) or "bug" (exit 2); default: the user's input (exit 1)
--- A note is a text, or { at = "path:line", message = text }, which shows that source line too.
function diag.new(at, message, more)
    more = more or {}
    local d = { at = at, message = message, notes = {}, found = more.found, hint = more.hint,
                kind = more.kind }
    for _, note in ipairs(more.notes or {}) do d.notes[#d.notes + 1] = note end
    for _, note in ipairs(more) do d.notes[#d.notes + 1] = note end
    if d.found and more.among and not d.hint then d.hint = diag.suggest(d.found, more.among) end
    return setmetatable(d, diagnostic)
end

--- Raises a diagnostic; `at` is "path:line", a path or the name of an option.
function diag.fail(at, message, more)
    error(diag.new(at, message, more), 0)
end

--- Raises a diagnostic given as data { at, message, ... }, the second result of host.evaluate.
function diag.raise(d)
    error(diag.new(d.at, d.message, d), 0)
end

--- Whether a caught error value is a diagnostic rather than a defect of gagen.
function diag.is(value)
    return type(value) == "table" and getmetatable(value) == diagnostic
end

local quiet = false

--- Calls f(...) without printing its warnings, for a second evaluation of the same spec.
function diag.without_warnings(f, ...)
    local before = quiet
    quiet = true
    local results = table.pack(pcall(f, ...))
    quiet = before
    if not results[1] then error(results[2], 0) end
    return table.unpack(results, 2, results.n)
end

--- Prints a diagnostic to standard error as a warning and returns.
function diag.warn(at, message, more)
    if quiet then return end
    local d = diag.new(at, "warning: " .. message, more)
    d.style = "warning"
    io.stderr:write(diag.render(d, 2))
end

--- Prints what was made of the spec at `at` to standard error, where warnings are printed too.
function diag.say(at, message)
    if not quiet then io.stderr:write(("%s: %s\n"):format(diag.escape(at), diag.escape(message))) end
end

local function source_line(path, number)
    local text = number and host.exists(path) == "file" and host.read(path, 1048576)
    if not text then return nil end
    local k = 0
    for line in (text .. "\n"):gmatch("(.-)\r?\n") do
        k = k + 1
        if k == number then return line:find("%S") and line or nil end
    end
end

-- The column of `token` in `line` if it occurs there exactly once as a whole word, else nil.
local function column(line, token)
    local edge = "[^%w_]"
    local place
    local from = 1
    while #token > 0 do
        local first, last = line:find(token, from, true)
        if not first then break end
        local before, after = line:sub(first - 1, first - 1), line:sub(last + 1, last + 1)
        local whole = not (token:find("^[%w_]") and first > 1 and not before:find(edge))
            and not (token:find("[%w_]$") and after ~= "" and not after:find(edge))
        if whole and place then return nil end
        if whole then place = first end
        from = last + 1
    end
    return place
end

-- The source line at `at` with a caret under `token` and `hint` beside it, or nil; and whether the hint
-- is shown. paint: as from colour.of.
local function excerpt(paint, at, token, hint)
    local path, number = diag.place(at)
    local line = source_line(path, number)
    if not line or #line > 200 then return nil, false end
    line = line:gsub("\t", "    ")
    local shown = ("%4d | %s\n"):format(number, diag.escape(line))
    local first = token and column(line, token)
    if not first then return shown, false end
    local indent = (" "):rep(utf8.len(diag.escape(line:sub(1, first - 1))))
    local caret = ("^"):rep(utf8.len(diag.escape(token)))
    return ("%s     | %s%s\n"):format(shown, indent, paint("hint", caret .. (hint and " " .. hint or ""))), true
end

--- The whole diagnostic as text that ends in a newline; fd: the descriptor that shows it, nil: no colours.
function diag.render(d, fd)
    local paint = colour.of(fd)
    local hint = d.hint and ("did you mean '%s'?"):format(diag.escape(d.hint))
    local shown, hinted = excerpt(paint, d.at, d.found, hint)
    local lines = { ("%s %s\n"):format(paint("place", diag.escape(d.at) .. ":"),
        paint(d.style or "error", diag.escape(d.message))), shown }
    if hint and not hinted then lines[#lines + 1] = paint("hint", hint) .. "\n" end
    for _, note in ipairs(d.notes or {}) do
        if type(note) == "string" then note = { message = note } end
        local place = note.at and paint("place", diag.escape(note.at) .. ":") .. " " or ""
        lines[#lines + 1] = place .. diag.escape(note.message) .. "\n"
        lines[#lines + 1] = note.at and excerpt(paint, note.at) or nil
    end
    return table.concat(lines)
end

local elsewhere = {}

--- Tells diag.field where fields are given outside the spec: places[at][name] = the option that gives the
--- field; name 1 is the word's first position. Replaces the places of the previous call.
function diag.fields_elsewhere(places) elsewhere = places end

--- "path:line" of the field `name` of the word at `at`: the first `name =` in the word's argument, or `at`
--- itself if the field is not written there.
function diag.field(at, name)
    local place = elsewhere[at] and elsewhere[at][name]
    if place or name == 1 then return place or at end
    local path, number = diag.place(at)
    local text = number and host.exists(path) == "file" and host.read(path, 1048576)
    if not text then return at end
    local k, depth, opened = 0, 0, false
    for line in (text .. "\n"):gmatch("(.-)\r?\n") do
        k = k + 1
        if k >= number then
            local code = line:gsub("%-%-.*$", "")
            if (" " .. code):find("[^%w_.]" .. name .. "%s*=%f[^=]") then
                return path .. ":" .. k
            end
            for bracket in code:gmatch("[{}()]") do
                depth = depth + (bracket:find("[{(]") and 1 or -1)
                opened = true
            end
            if opened and depth <= 0 then break end
        end
    end
    return at
end

return diag
