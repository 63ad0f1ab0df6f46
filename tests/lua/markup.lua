-- A reader of XML, and of HTML that is written as strictly as XML but for its empty elements. Text that is not
-- well-formed is an error with its line.
--
-- An element: { name, attributes = values by name, children = elements and texts in order }. element:all(f) is the list
-- of elements below it, in order, of which f is true; element:text() all texts below it.
local markup = {}

-- Elements of HTML that have no end tag.
local EMPTY = { meta = true, link = true, br = true, hr = true, img = true, input = true, col = true }

-- Elements of HTML whose content is no markup.
local RAW = { style = true, script = true }

local NAMED = { amp = "&", lt = "<", gt = ">", quot = '"' }

local element = {}
element.__index = element

function element:all(f)
    local list = {}
    local function visit(one)
        for _, child in ipairs(one.children) do
            if type(child) == "table" then
                if f(child) then list[#list + 1] = child end
                visit(child)
            end
        end
    end
    visit(self)
    return list
end

function element:text()
    local parts = {}
    local function visit(one)
        for _, child in ipairs(one.children) do
            if type(child) == "table" then visit(child) else parts[#parts + 1] = child end
        end
    end
    visit(self)
    return table.concat(parts)
end

local function fail(text, at, message)
    local _, line = text:sub(1, at):gsub("\n", "")
    error(("line %d: %s: %q"):format(line + 1, message, text:sub(at, at + 60)), 0)
end

-- A text with its references resolved.
local function resolved(text, at, part)
    if part:find "<" then fail(text, at, "a sign < in a text") end
    for reference in part:gmatch "&([^;]?[^;&<]*;?)" do
        local name = reference:match "^(%w+);$"
        local number = reference:match "^#(%d+);$"
        if not (name and NAMED[name] or number) then fail(text, at, "an & that is no reference") end
    end
    return (part:gsub("&#(%d+);", function(n) return utf8.char(math.tointeger(tonumber(n))) end):gsub("&(%w+);", NAMED))
end

-- The attributes from `at` on, and where they end.
local function read_attributes(text, at)
    local list = {}
    while true do
        local from, to, name = text:find("^%s+([%w:_-]+)", at)
        if not from then return list, text:find("[^%s]", at) or #text + 1 end
        if list[name] then fail(text, at, "an attribute given twice") end
        at = to + 1
        local _, last, value = text:find('^="([^"]*)"', at)
        list[name] = last and resolved(text, at, value) or ""
        at = (last or to) + 1
        if not last and not text:find("^[%s/>]", at) then fail(text, at, 'expected ="..."') end
    end
end

-- Reads one tag at `at`, which is a <; open: the elements that are open.
local function read_tag(text, at, open)
    local _, last, ended = text:find("^</([%w:_-]+)>", at)
    if ended then
        local top = table.remove(open)
        if not top or top.name ~= ended or #open == 0 then fail(text, at, "an end tag that nothing has opened") end
        return last + 1
    end
    local _, to, name = text:find("^<(%a[%w:_-]*)", at)
    if not name then fail(text, at, "no tag") end
    local attributes, next_at = read_attributes(text, to + 1)
    local one = setmetatable({ name = name, attributes = attributes, children = {} }, element)
    table.insert(open[#open].children, one)
    local _, close, slash = text:find("^(/?)>", next_at)
    if not close then fail(text, next_at, "a tag without its end") end
    if slash == "/" or EMPTY[name] then return close + 1 end
    if RAW[name] then
        local from, to_end = text:find("</" .. name .. ">", close + 1, true)
        if not from then fail(text, at, "no end of " .. name) end
        one.children[1] = text:sub(close + 1, from - 1)
        return to_end + 1
    end
    open[#open + 1] = one
    return close + 1
end

--- The document: an element without a name, whose children are those of the text.
function markup.read(text)
    assert(utf8.len(text), "no UTF-8")
    local root = setmetatable({ name = "", attributes = {}, children = {} }, element)
    local open, at = { root }, 1
    local _, declaration = text:find "^<!doctype html>"
    at = (declaration or 0) + 1
    while at <= #text do
        local tag = text:find("<", at, true) or #text + 1
        if tag > at then table.insert(open[#open].children, resolved(text, at, text:sub(at, tag - 1))) end
        at = tag <= #text and read_tag(text, tag, open) or tag
    end
    if #open > 1 then fail(text, #text, "the end of " .. open[#open].name .. " is missing") end
    return root
end

return markup
