-- annotations: makes gagen.d.lua: annotations of everything that a spec may use, with which the Lua language server
-- completes and checks a spec while it is written. `---@class (exact)` refuses fields that are not listed.
local ordered = require "base.ordered"
local reference = require "command.reference"

local TYPE = { int = "integer", num = "number", bool = "boolean", str = "string", glob = "string",
    size = "integer|string", name = "string", list = "table", table = "table", any = "any" }

-- The type of a field in annotations; possible strings are listed one by one.
local function type_of(field)
    local parts = {}
    if field.values then
        for _, value in ipairs(field.values) do
            parts[#parts + 1] = type(value) == "string" and '"' .. value .. '"' or tostring(value)
        end
    else
        parts[1] = TYPE[field.type] or "any"
    end
    for _, alternative in ipairs(field.alternatives or {}) do
        parts[#parts + 1] = ({ table = "table", string = "string" })[alternative] or '"' .. alternative .. '"'
    end
    return table.concat(parts, "|")
end

local function doc_of(field)
    local default = reference.default(field)
    return field.doc .. "; " .. reference.expected(field) .. (default and ", default " .. default or "")
end

-- The class of a table of fields; `first`: the type of its first position if that is a name.
local function class(line, name, fields, first)
    line("---@class (exact) %s", name)
    if first then line("---@field [1] %s", first) end
    for _, f in ipairs(fields) do
        if f.position then line("---@field [%d]? %s %s", f.position, type_of(f), doc_of(f)) end
    end
    for _, f in ipairs(fields) do
        local needed, name = f.rest or f.required and not f.position, f.rest and "[integer]" or f.name
        line("---@field %s%s %s %s", name, needed and "" or "?", type_of(f), doc_of(f))
    end
    line("")
end

-- The alternatives to a table of fields: "|" and the type of the value at the first position, or "".
local function plain_of(fields)
    for _, f in ipairs(fields) do
        if f.position == 1 then return "|" .. type_of(f) end
    end
    return ""
end

local HEAD = [[
---@meta
-- The words, layers and options of a spec of gagen. Made by: gagen help --annotations > gagen.d.lua
-- In .luarc.json beside the specs: { "workspace.library": ["gagen.d.lua"], "runtime.version": "Lua 5.4" }

---@class gagen.tensor
---@operator add(gagen.tensor|number): gagen.tensor
---@operator sub(gagen.tensor|number): gagen.tensor
---@operator mul(gagen.tensor|number): gagen.tensor
---@operator div(gagen.tensor|number): gagen.tensor
---@operator pow(gagen.tensor|number): gagen.tensor
---@operator unm: gagen.tensor

---@alias gagen.layer fun(...: gagen.tensor): gagen.tensor
---@alias gagen.layers (gagen.layer|gagen.layer[])[]
---@alias gagen.batch_fields table<string, gagen.tensor>
]]

-- Words whose argument is not a table of fields, annotated by hand.
local BY_HAND = {
    model = [[
---@param layers gagen.layers|fun(batch: gagen.batch_fields): gagen.tensor|table<string, gagen.tensor>
function model(layers) end]],
    init = [[
---@param rules table<integer, { [1]: string, [2]?: "torch", normal?: number, uniform?: number, value?: number }>
function init(rules) end]],
    times = [[
---@param n integer
---@return fun(name: string): fun(layers: gagen.layers|fun(x: gagen.tensor): gagen.tensor): gagen.layer
function times(n) end]],
    block = [[
---@param name string
---@return fun(layers: gagen.layers|fun(x: gagen.tensor): gagen.tensor): gagen.layer
function block(name) end]],
    residual = [[
---@param layers gagen.layers|{ shortcut?: gagen.layers }
---@return gagen.layer
function residual(layers) end]],
}

-- A word whose first position names an entry of a registry: one class for each entry.
local function selected(line, entry)
    local classes, names = {}, {}
    for _, choice in ipairs(reference.entries(entry.select)) do
        local name = ("gagen.%s.%s"):format(entry.name, choice.name)
        local fields = table.move(choice.fields, 1, #choice.fields, 1, {})
        class(line, name, table.move(entry.fields, 1, #entry.fields, #fields + 1, fields),
            '"' .. choice.name .. '"')
        classes[#classes + 1], names[#names + 1] = name, '"' .. choice.name .. '"'
    end
    local traced = entry.name == "loss" and "|fun(out: gagen.tensor, batch: gagen.batch_fields): gagen.tensor"
        or ""
    line("---%s", entry.doc)
    line("---@param value %s|%s%s", table.concat(classes, "|"), table.concat(names, "|"), traced)
    line("function %s(value) end\n", entry.name)
end

local function word(line, entry)
    if BY_HAND[entry.name] then
        line("---%s\n%s\n", entry.doc, BY_HAND[entry.name])
    elseif entry.select then
        selected(line, entry)
    else
        class(line, "gagen." .. entry.name, entry.fields)
        line("---%s", entry.doc)
        line("---@param value gagen.%s%s", entry.name, plain_of(entry.fields))
        line("function %s(value) end\n", entry.name)
    end
end

local function layer(line, entry)
    if BY_HAND[entry.name] then
        line("---%s\n%s\n", entry.doc, BY_HAND[entry.name])
        return
    end
    class(line, "gagen.layer." .. entry.name, entry.fields)
    line("---%s", entry.doc)
    local value = ("gagen.layer.%s%s"):format(entry.name, plain_of(entry.fields))
    if entry.usage:find('^[%w_]+ "name"') then
        line("---@param name string")
        line("---@return fun(value: %s): gagen.%s", value, entry.alone and "tensor" or "layer")
        line("function %s(name) end\n", entry.name)
    else
        line("---@param value %s", value)
        line("---@return gagen.layer")
        line("function %s(value) end\n", entry.name)
    end
end

-- An op, or a loss in a function: a function of tensors and numbers, or with its fields a layer.
local function op(line, entry)
    class(line, "gagen.op." .. entry.name, entry.fields)
    line("---%s", entry.doc)
    line("---@overload fun(value: gagen.op.%s%s): gagen.layer", entry.name, plain_of(entry.fields))
    line("---@param ... gagen.tensor|number")
    line("---@return gagen.tensor")
    line("function %s(...) end\n", entry.name)
end

-- The text of gagen.d.lua.
return function()
    local out, seen = { HEAD }, ordered.map()
    local function line(...) out[#out + 1] = string.format(...) .. "\n" end
    for _, kind in ipairs { { "words", word }, { "layers", layer }, { "ops", op },
        { "losses", op } } do
        for _, entry in ipairs(reference.entries(kind[1])) do
            if not seen:has(entry.name) then kind[2](line, entry) end      -- log configures
            seen:set(entry.name, true)
        end
    end
    return table.concat(out)
end
