-- data_files: the files of a data path, as gagen finds them and as the program will.
local diag = require "base.diag"
local glob = require "base.glob"

local data_files = {}

--- Files of one program at most; runtime/data/scan.h and ckpt.h have the same number.
data_files.MOST = 64

-- Bytes of a name: a checkpoint records it.
local LONGEST = 255

-- Names below `folder` that fit the components from `i` on, in the order of bytes; `prefix` is what
-- stands before them.
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

-- Where a path that does not begin at the root is looked up.
local function roots(folder)
    local list, root = {}, host.environment("GAGEN_DATA")
    if root and root ~= "" then list[1] = root end
    list[#list + 1] = folder .. "data"
    return list
end

--- The files of `pattern`, a path or one with `*`: GAGEN_DATA, then `data` in `folder` (of the spec,
--- with its slash or empty); the first that has any counts. Returns { name =, path = }: names are what
--- the program looks up again, paths are where they are now.
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
                if #name > LONGEST then
                    diag.fail(at, ("data: '%s...': a name of %d bytes, expected at most %d"):format(
                        name:sub(1, 40), #name, LONGEST), {})
                end
                files[i] = { name = name, path = absolute and name or root .. "/" .. name }
            end
            return files
        end
    end
    diag.fail(at, ("data: '%s' is not there"):format(pattern),
        { notes = { "looked for " .. table.concat(places, " and ") ..
            "; set GAGEN_DATA or put it there" } })
end

return data_files
