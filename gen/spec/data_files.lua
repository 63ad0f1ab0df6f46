-- data_files: finds the files of a data path, in the same places as the emitted program does.
local diag = require "base.diag"
local glob = require "base.glob"

local data_files = {}

--- Files of one program at most; runtime/data/scan.h and ckpt.h have the same number.
data_files.MOST = 64

-- Bytes of a file name at most: a checkpoint records it.
local MOST_BYTES = 255

-- Appends the files below `folder` that match the components from number `i` on, each name after `prefix`, in byte
-- order.
local function expand(folder, components, i, prefix, out)
    local component, last = components[i], i == #components
    local function follow(name)
        local path = folder .. "/" .. name
        if last and host.exists(path) == "file" then out[#out + 1] = prefix .. name end
        if not last and host.exists(path) == "folder" then
            expand(path, components, i + 1, prefix .. name .. "/", out)
        end
    end
    if not component:find("*", 1, true) then
        follow(component)
    elseif host.exists(folder) == "folder" then
        for _, name in ipairs(host.list(folder) or {}) do
            local hidden = name:sub(1, 1) == "." and component:sub(1, 1) ~= "."
            if not hidden and glob.matches(component, name) then follow(name) end
        end
    end
end

local function split(path)
    local components = {}
    for component in path:gmatch("[^/]+") do components[#components + 1] = component end
    return components
end

-- The folders in which a relative path is looked up.
local function roots(folder)
    local list, root = {}, host.environment("GAGEN_DATA")
    if root and root ~= "" then list[1] = root end
    list[#list + 1] = folder .. "data"
    return list
end

--- The files of `pattern`, a path that may contain `*`, in the first place that has any: $GAGEN_DATA, or `data` in
--- `folder`, the folder of the spec (with its slash, or empty). Returns a list of { name =, path = }: the program
--- looks up names again, paths are present places.
function data_files.find(pattern, folder, at)
    if pattern:find("[%c]") or pattern == "" then
        diag.fail(at, "data: a path with control bytes or an empty path", {})
    end
    local absolute, places = pattern:sub(1, 1) == "/", {}
    for _, root in ipairs(absolute and { "" } or roots(folder)) do
        local names, prefix = {}, absolute and "/" or ""
        expand(root, split(pattern), 1, prefix, names)
        places[#places + 1] = (absolute and "" or root .. "/") .. pattern
        if #names > data_files.MOST then
            diag.fail(at, ("data: '%s' is %d files, expected at most %d"):format(pattern, #names,
                data_files.MOST), {})
        end
        if #names > 0 then
            local files = {}
            for i, name in ipairs(names) do
                if #name > MOST_BYTES then
                    diag.fail(at, ("data: '%s...': a name of %d bytes, expected at most %d"):format(
                        name:sub(1, 40), #name, MOST_BYTES), {})
                end
                files[i] = { name = name, path = absolute and name or root .. "/" .. name }
            end
            return files
        end
    end
    for _, place in ipairs(places) do
        if host.exists(place) == "folder" then
            diag.fail(at, ("data: '%s' is a folder, expected a file"):format(pattern), { notes = { place } })
        end
    end
    diag.fail(at, ("data: '%s' is not there"):format(pattern),
        { notes = { "looked for " .. table.concat(places, " and ") ..
            "; set GAGEN_DATA or put it there" } })
end

return data_files
