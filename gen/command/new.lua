-- new: `gagen new NAME`: writes a first spec: a small commented one, or a copy of a shipped one.
local diag = require "base.diag"
local ordered = require "base.ordered"
local program_name = require "spec.program_name"

local STARTER = "templates/starter.lua"

-- The names of the shipped specs: digits_mlp, ...
local function shipped()
    return ordered.collect(host.embedded_names("specs/"), function(path)
        return path:match("^specs/([%w_]+)%.lua$")
    end)
end

-- The text and the name of the spec that --like names.
local function like(name)
    local plain = name:match("([^/]*)$"):gsub("%.lua$", "")
    if host.exists(name) == "file" then
        local text, message = host.read(name, 262144)
        if not text then diag.fail(name, message, {}) end
        return text, name
    end
    if not ordered.find(shipped(), plain) or name:find("/") and name:match("^(.*)/") ~= "specs" then
        diag.fail("--like " .. name, "there is no such spec", { hint = diag.suggest(plain, shipped()),
            notes = { "shipped are: " .. table.concat(shipped(), ", ") } })
    end
    return host.embedded("specs/" .. plain .. ".lua"), "specs/" .. plain .. ".lua"
end

local function split(argument)
    local folder, name = argument:match("^(.*)/([^/]*)$")
    name = (name or argument):gsub("%.lua$", "")
    local obstacle = program_name.obstacle(name)
    if obstacle then diag.fail("new", obstacle, {}) end
    folder = folder == "" and "/" or folder or "."
    if host.exists(folder) ~= "folder" then diag.fail(folder, "there is no such folder", {}) end
    return folder, name
end

--- Writes the spec; `source` is the value of --like, or nil.
return function(argument, source)
    local folder, name = split(argument)
    local path = (folder == "." and "" or folder .. "/") .. name .. ".lua"
    if host.exists(path) then diag.fail(path, "is there already: choose another name", {}) end
    local text, from
    if source then
        text, from = like(source)
        text = text:gsub("^%-%- [%w_/]+[%w_.]*:", "-- " .. name .. ".lua, from " .. from .. ":")
    else
        text = host.embedded(STARTER):gsub("NAME", name, 1)
    end
    local written, message = host.write(folder, name .. ".lua", text)
    if not written then diag.fail(path, message, { kind = "environment" }) end
    io.stderr:write(("wrote %s%s; next: gagen check %s\n"):format(path, from and ", like " .. from or "",
        path))
end
