-- set: `--set word.field=LUA` replaces a value of the spec before any check. `--set word=VALUE` replaces the word's
-- first position, `--set word={ ... }` its whole argument.
-- Invariant: the new value is checked like one of the spec; messages about it point at the option.
local diag = require "base.diag"
local literal = require "base.literal"
local ordered = require "base.ordered"
local words = require "spec.words"

local set = {}

local function known_word(name, at)
    local word = words.find(name)
    if word then return word end
    if name == "model" then
        diag.fail(at, "model: only the spec builds it, expected a word that configures", {})
    end
    local names = ordered.collect(words.list, function(w) return w.name end)
    diag.fail(at, ("unknown word '%s'"):format(name), { hint = diag.suggest(name, names),
        notes = { "gagen list words" } })
end

-- The field of a word by its name, or, without a name, the field at the first position; nil if there is none.
local function find_field(word, name)
    for _, field in ipairs(word.fields or {}) do
        if field.name == name or not name and field.position == 1 then return field end
    end
end

local function check_field(word, name, at)
    if word.select or find_field(word, name) then return end     -- fields of the chosen rule are checked with it
    if (word.foreign or {})[name] then return end                -- refused with the word
    local names = ordered.collect(word.fields or {}, function(field) return field.name end)
    local notes = #names > 0 and word.name .. " takes: " .. table.concat(names, ", ")
        or ("%s has no fields, expected --set '%s={ ... }'"):format(word.name, word.name)
    diag.fail(at, ("%s: unknown field '%s'"):format(word.name, name),
        { hint = diag.suggest(name, names), notes = { notes } })
end

--- Reads one argument of --set. Returns { word, field = name or nil, value, typed, text, at }; typed: the value
--- as it was given; text is the same for all spellings of it.
function set.read(argument)
    local at = "--set " .. argument
    local target, text = argument:match("^%s*([^=]-)%s*=(.*)$")
    local name, field = (target or ""):match("^([%w_]+)%.?([%w_]*)$")
    if not name or target:sub(-1) == "." then
        diag.fail(at, "expected word.field=VALUE or word=VALUE, for example accumulate=8", {})
    end
    field = field ~= "" and field or nil
    local word = known_word(name, at)
    if field then check_field(word, field, at) end
    local read, value, bare = literal.read(text)
    if not read then
        diag.fail(at, value .. ", expected a number, a string, true, false or a table of those",
            { notes = { bare and ("a string is quoted, twice in a shell: --set '%s=\"%s\"'"):format(
                target, bare) } })
    end
    local canonical = target .. "=" .. literal.write(value)
    return { word = name, field = field, value = value, typed = text, text = canonical, at = "--set " .. canonical }
end

--- Reads all arguments of --set, sorted by word and field; refuses two for the same field.
function set.read_all(arguments)
    local seen, list = ordered.map(), {}
    for i, argument in ipairs(arguments) do
        local s = set.read(argument)
        local first = not s.field and type(s.value) ~= "table" and find_field(words.find(s.word))
        local field = s.field or first and first.name
        local target = s.word .. (field and "." .. field or "")
        if seen:has(target) then
            diag.fail("--set " .. argument, target .. ": set twice, expected once", {})
        end
        list[i] = seen:set(target, s)
    end
    table.sort(list, function(a, b)          -- a whole word before its fields
        if a.word ~= b.word then return a.word < b.word end
        return (a.field or "") < (b.field or "")
    end)
    return list
end

-- The recorded event of the word; a new one if the spec does not have the word.
local function event_of(events, s)
    for _, event in ipairs(events) do
        local name = event.event == "word" and event.name
            or (event.event or ""):match("^(%w+)_begin$")
        if name == s.word then return event end
    end
    local event = { event = "word", name = s.word, at = s.at, args = {} }
    events[#events + 1] = event
    return event
end

-- Changes the arguments of one recorded word.
local function replace(event, s, field)
    event.args = event.args or {}
    if s.field then
        event.args[field and field.position or s.field] = s.value
    elseif event.event ~= "word" then
        diag.fail(s.at, s.word .. ": a function in the spec, which no value can replace", {})
    elseif type(s.value) == "table" then
        event.args, event.at = ordered.copy(s.value), s.at
    else
        event.args[1] = s.value
    end
    if field and field.position then event.args[field.name] = nil end
end

--- Changes the recorded words of the spec at `path`, and tells diag which fields come from options.
function set.apply(path, events, list)
    local places = {}
    for _, s in ipairs(list) do
        local event = event_of(events, s)
        local field = find_field(words.find(s.word), s.field)
        replace(event, s, field)
        local at = event.at or path .. ":" .. event.line
        local names = ordered.copy(places[at] or {})
        names[field and field.name or s.field or 1] = s.at
        if not s.field or field and field.position == 1 then names[1] = s.at end
        places[at] = names
    end
    diag.fields_elsewhere(places)
end

return set
