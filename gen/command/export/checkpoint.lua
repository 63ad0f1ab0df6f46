-- checkpoint: finds a checkpoint of a run. One whose manifest or a file is missing or of another size does not count:
-- a save may have been cut off.
local diag = require "base.diag"
local ordered = require "base.ordered"

local checkpoint = {}

local MOST_BYTES = 1 << 20      -- of a manifest
local BLOCK = 4 << 20           -- bytes of a checksum

-- { name, folder, manifest } of a checkpoint that is whole, else nil.
local function read(parent, name)
    local folder = parent .. "/" .. name
    local path = folder .. "/manifest.json"
    local text = host.exists(path) == "file" and host.read(path, MOST_BYTES)
    local manifest = text and host.parse_json(text)
    if type(manifest) ~= "table" or type(manifest.files) ~= "table" or not manifest.micro then return nil end
    for _, entry in ipairs(manifest.files) do
        local file = io.open(folder .. "/" .. entry.name, "rb")
        local size = file and file:seek "end"
        if file then file:close() end
        if size ~= entry.bytes then return nil end
    end
    return { name = name, folder = folder, manifest = manifest }
end

-- The newest of an array, by micro-steps.
local function newest_of(list)
    local newest
    for _, one in ipairs(list) do
        if not newest or one.manifest.micro > newest.manifest.micro then newest = one end
    end
    return newest
end

-- The checkpoint of the best evaluation, which the newest one knows.
local function best_of(list, at)
    local best = newest_of(list).manifest.best
    for _, one in ipairs(list) do
        if best and one.manifest.cycle == best.cycle and one.manifest.r == 0 then return one end
    end
    diag.fail(at, 'no checkpoint of a best evaluation: expected checkpoint { best = "loss" } in the spec', {})
end

--- The path of a file of a checkpoint; refuses one whose bytes are not those that were written.
function checkpoint.file(one, name)
    local path, entry = one.folder .. "/" .. name, nil
    for _, listed in ipairs(one.manifest.files) do
        if listed.name == name then entry = listed end
    end
    local wanted = entry and entry.checksums or {}
    local found, message = host.checksums(path, math.max(#wanted, 1))
    if not found then diag.fail(path, (message:gsub("^.-: ", "", 1)), {}) end
    for i, sum in ipairs(found) do
        if sum ~= wanted[i] then
            diag.fail(path, ("is damaged: bytes from %d on have the checksum %s, manifest.json says %s"):format(
                (i - 1) * BLOCK, sum, tostring(wanted[i])), { notes = { "--checkpoint NAME takes another" } })
        end
    end
    return path
end

--- The checkpoint of the run in `folder`: the newest, or with wanted = "best" that of the best evaluation, or the one
--- that wanted names. Returns { name, folder, manifest }.
function checkpoint.find(folder, wanted)
    local parent = folder .. "/checkpoints"
    local list = ordered.collect(host.list(parent) or {}, function(name)
        return name:find "^cycle%-" and read(parent, name) or nil
    end)
    if #list == 0 then
        diag.fail(parent, "no whole checkpoint there, expected one: Ctrl-C saves one while a run goes on", {})
    end
    if not wanted or wanted == "newest" then return newest_of(list) end
    if wanted == "best" then return best_of(list, parent) end
    local names = ordered.collect(list, function(one) return one.name end)
    local at = ordered.find(names, wanted)
    if at then return list[at] end
    diag.fail(parent, ("no whole checkpoint '%s', expected newest, best or one of %s"):format(wanted,
        table.concat(names, ", ")), { hint = diag.suggest(wanted, names) })
end

return checkpoint
