-- program_folder: writes the files of a program so that edits survive, and links its data.
local diag = require "base.diag"
local locked = require "emit.program.locked"
local ordered = require "base.ordered"

local program_folder = {}

-- A name that gagen, or a version of it with a flat runtime, could have written: never a path out of the folder.
local function is_own_name(name)
    return name:match("^[%a][%w_.]*$") or name:match("^runtime/[%w_]+%.[ch]$")
        or name:match("^runtime/%l+/[%w_]+%.[ch]$")
end

local function read_manifest(folder)
    local manifest = ordered.map()
    local listing = host.exists(folder .. "/MANIFEST") and host.read(folder .. "/MANIFEST")
    for hash, name in (listing or ""):gmatch("(%x+)  ([%w_./]+)\n") do
        if is_own_name(name) then manifest:set(name, hash) end
    end
    return manifest
end

--- The names of the files that gagen wrote into a folder and that are still there.
function program_folder.own_files(folder)
    return ordered.collect(read_manifest(folder).keys, function(name)
        return host.exists(folder .. "/" .. name) == "file" and name or nil
    end)
end

-- Files that differ from what gagen wrote there: somebody edited them, or they were never gagen's.
local function edited_files(folder, manifest, files)
    local list = ordered.collect(files.keys, function(name)
        local now = host.exists(folder .. "/" .. name) and host.read(folder .. "/" .. name)
        if now and now ~= files:get(name) and host.sha256(now) ~= manifest:get(name) then
            return name
        end
    end)
    if manifest:size() == 0 and host.read(folder .. "/MANIFEST") then list[#list + 1] = "MANIFEST" end
    return list
end

-- What a message says after the path that it begins with.
local function without(message, path)
    local prefix = path .. ": "
    return message:sub(1, #prefix) == prefix and message:sub(#prefix + 1) or message
end

-- What a copy of an edited file is called: kernels.c, kernels.c.2, ...: the first that is not taken.
local function copy_name(folder, name, content)
    local base, n = name:gsub("/", "_"), 1
    local copy = base
    while host.exists(folder .. "/" .. copy) and host.read(folder .. "/" .. copy) ~= content do
        n = n + 1
        copy = base .. "." .. n
    end
    return copy
end

-- The text of MANIFEST: the hash and name of each file.
local function listing_of(files)
    local list = {}
    for name, content in files:each() do list[#list + 1] = host.sha256(content) .. "  " .. name .. "\n" end
    return table.concat(list)
end

-- Whether the folder has these files and no others of gagen.
local function has(folder, files, listing)
    if host.read(folder .. "/MANIFEST") ~= listing then return false end
    for name, content in files:each() do
        if host.read(folder .. "/" .. name) ~= content then return false end
    end
    return true
end

local function write(folder, name, content)
    local result, why = host.write(folder, name, content)
    if not result then
        local file = folder .. "/" .. name
        diag.fail(file, without(why, file), { kind = "environment" })
    end
end

local function refuse_edited(folder, edited, manifest)
    local many, why = #edited > 1, "edited after gagen wrote"
    if manifest:size() == 0 then why = "there before gagen, which would overwrite" end
    diag.fail(folder, ("%d file%s %s %s: %s"):format(#edited, many and "s were" or " was", why,
        many and "them" or "it", table.concat(edited, ", ")),
        { notes = { "use --force to overwrite (a copy goes to " .. folder .. "/edited), or -o another folder" } })
end

local function write_files(folder, files, listing, force)
    local manifest = read_manifest(folder)
    local edited = edited_files(folder, manifest, files)
    if #edited > 0 then
        if not force then refuse_edited(folder, edited, manifest) end
        host.folder(folder .. "/edited")
    end
    for _, name in ipairs(edited) do
        local content = host.read(folder .. "/" .. name)
        write(folder .. "/edited", copy_name(folder .. "/edited", name, content), content)
    end
    for name, content in files:each() do write(folder, name, content) end
    for name, hash in manifest:each() do       -- what an earlier version wrote and nobody edited
        local file = folder .. "/" .. name
        if not files:has(name) and host.exists(file) == "file"
            and host.sha256(host.read(file)) == hash then
            host.remove(file)
        end
    end
    write(folder, "MANIFEST", listing)
end

-- The folder `data` beside the spec, or nil.
local function data_of(spec)
    local data = (spec:match("^(.*/)[^/]*$") or "") .. "data"
    return host.exists(data) == "folder" and host.absolute(data) or nil
end

-- Whether the program finds `data`; a folder of the user in the place of the link is left as it is.
local function is_linked(folder, data)
    if not data then return true end
    local there = host.exists(folder .. "/data") and host.absolute(folder .. "/data")
    return there == data or there == host.absolute(folder) .. "/data"
end

--- Writes the files below `folder`, with the lock of the folder where one of them changes. how: { spec, force, build }.
--- spec: its path; the folder `data` beside it is linked, where the program looks for it. Edited files stop it, unless
--- `force`: then a copy is kept. build: what is made of the files, if anything: build.make() makes it under the same
--- lock, unless build.is_made().
function program_folder.write(folder, files, how)
    local listing, data, build = listing_of(files), data_of(how.spec), how.build
    local made, message = host.folder(folder)
    if not made then diag.fail(folder, without(message, folder), { kind = "environment" }) end
    locked(folder, function()
        return has(folder, files, listing) and is_linked(folder, data) and (not build or build.is_made())
    end, function()
        write_files(folder, files, listing, how.force)
        if data then host.link(data, folder .. "/data") end
        if build then build.make() end
    end)
end

return program_folder
