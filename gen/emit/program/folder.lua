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

-- The hashes of what gagen wrote under each name: several, if it was killed between an older program and this one.
local function read_manifest(folder)
    local manifest = ordered.map()
    local listing = host.exists(folder .. "/MANIFEST") and host.read(folder .. "/MANIFEST")
    for hash, name in (listing or ""):gmatch("(%x+)  ([%w_./]+)\n") do
        if #hash == 64 and is_own_name(name) then
            local hashes = manifest:get(name) or manifest:set(name, {})
            hashes[hash] = true
        end
    end
    return manifest
end

-- The listing of files that are about to be written; with `manifest`, also of what it has beside them.
local function listing_of(files, manifest)
    local lines = {}
    local function add(hash, name) lines[#lines + 1] = hash .. "  " .. name .. "\n" end
    for name, content in files:each() do add(host.sha256(content), name) end
    for name, hashes in (manifest or ordered.map()):each() do
        local now = files:has(name) and host.sha256(files:get(name))
        for _, hash in ipairs(ordered.keys(hashes)) do
            if hash ~= now then add(hash, name) end
        end
    end
    return table.concat(lines)
end

--- The names of the files that gagen wrote into a folder and that are still there.
function program_folder.own_files(folder)
    return ordered.collect(read_manifest(folder).keys, function(name)
        return host.exists(folder .. "/" .. name) == "file" and name or nil
    end)
end

-- Made by a program or its user, in a folder that is a program's: data, what make builds, and what training leaves.
local BESIDE = { data = true, train = true, runs = true, checkpoints = true, ["profile.json"] = true,
    ["tuning.json"] = true,
    [".lock"] = true, [".MANIFEST.new"] = true }

-- The names in `path` that neither a generation of these files, cut short, nor a program left there. below: of a folder
-- of the program, "runtime/".
local function foreign_names(path, files, below)
    local list, why = host.list(path .. "/" .. below)
    if not list then diag.fail(path, why, { kind = "environment" }) end
    local found = {}
    for _, name in ipairs(list) do
        local full = below .. name
        local kind = host.exists(path .. "/" .. full)
        if kind == "folder" and (full == "runtime" or full:find "^runtime/%l+$") then
            local inner = foreign_names(path, files, full .. "/")
            table.move(inner, 1, #inner, #found + 1, found)
        elseif not BESIDE[full] and not (files:has(full) and host.read(path .. "/" .. full) == files:get(full)) then
            found[#found + 1] = full
        end
    end
    return found
end

-- Refuses a folder that holds files and is not a program's.
local function refuse_foreign(folder, files)
    if host.exists(folder) ~= "folder" then return end
    local found = foreign_names(folder, files, "")
    if #found == 0 then return end
    local shown = table.concat(found, ", ", 1, math.min(#found, 5)) .. (#found > 5 and ", ..." or "")
    diag.fail(folder, ("%d name%s found and no MANIFEST of gagen's, an empty folder or a program of gagen expected: %s")
        :format(#found, #found > 1 and "s" or "", shown), { notes = { "-o another folder, or --force to write into "
        .. "this one (a copy of each overwritten file goes to " .. folder .. "/edited)" } })
end

-- Files that differ from what gagen wrote there: somebody edited them, or they were never gagen's.
local function edited_files(folder, manifest, files)
    local list = ordered.collect(files.keys, function(name)
        local now = host.exists(folder .. "/" .. name) and host.read(folder .. "/" .. name)
        if now and now ~= files:get(name) and not (manifest:get(name) or {})[host.sha256(now)] then
            return name
        end
    end)
    if manifest:size() == 0 and host.read(folder .. "/MANIFEST") then list[#list + 1] = "MANIFEST" end
    return list
end

-- The rest of a message behind the path that it begins with.
local function without(message, path)
    local prefix = path .. ": "
    return message:sub(1, #prefix) == prefix and message:sub(#prefix + 1) or message
end

-- The name of a copy of an edited file: kernels.c, kernels.c.2, ...: the first that is not taken.
local function copy_name(folder, name, content)
    local base, n = name:gsub("/", "_"), 1
    local copy = base
    while host.exists(folder .. "/" .. copy) and host.read(folder .. "/" .. copy) ~= content do
        n = n + 1
        copy = base .. "." .. n
    end
    return copy
end

local function refuse_edited(folder, edited)
    local many = #edited > 1
    diag.fail(folder, ("%d file%s edited after gagen wrote %s: %s"):format(#edited, many and "s were" or " was",
        many and "them" or "it", table.concat(edited, ", ")),
        { notes = { "use --force to overwrite (a copy goes to " .. folder .. "/edited), or -o another folder" } })
end

local function write_file(folder, name, content)
    local result, why = host.write(folder, name, content)
    if not result then
        local file = folder .. "/" .. name
        diag.fail(file, without(why, file), { kind = "environment" })
    end
end

-- Whether the folder has these files and no others of gagen.
local function has(folder, files, listing)
    if host.read(folder .. "/MANIFEST") ~= listing then return false end
    for name, content in files:each() do
        if host.read(folder .. "/" .. name) ~= content then return false end
    end
    return true
end

-- MANIFEST comes first, with old and new hashes, and alone at the end: a folder whose generation was cut short is still
-- gagen's.
local function write_files(folder, files, listing, force)
    local manifest = read_manifest(folder)
    local edited = edited_files(folder, manifest, files)
    if #edited > 0 then
        if not force then refuse_edited(folder, edited) end
        host.folder(folder .. "/edited")
    end
    for _, name in ipairs(edited) do
        local content = host.read(folder .. "/" .. name)
        write_file(folder .. "/edited", copy_name(folder .. "/edited", name, content), content)
    end
    write_file(folder, "MANIFEST", listing_of(files, manifest))
    for name, content in files:each() do write_file(folder, name, content) end
    for name, hashes in manifest:each() do       -- what an earlier version wrote and nobody edited
        local file = folder .. "/" .. name
        if not files:has(name) and host.exists(file) == "file" and hashes[host.sha256(host.read(file))] then
            host.remove(file)
        end
    end
    write_file(folder, "MANIFEST", listing)
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
--- spec: its path; the folder `data` beside it is linked, where the program looks for it. Edited files and a folder
--- that is not a program's stop it, unless `force`: then a copy of each overwritten file is kept. build: what is made
--- of the files, if anything: build.make() makes it under the same lock, unless build.is_made().
function program_folder.write(folder, files, how)
    local listing, data, build = listing_of(files), data_of(how.spec), how.build
    if not how.force and read_manifest(folder):size() == 0 then refuse_foreign(folder, files) end
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
