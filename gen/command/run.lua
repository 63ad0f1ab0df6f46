-- run: makes a program and starts it. The runtime takes most of the time of a compiler and is the same for many
-- programs: it is compiled once and kept as an object in the user's cache folder, by the content of all that it is
-- made from. A program's own `make` knows nothing of it.
local diag = require "base.diag"

-- A path that make reads as one word, or nil.
local function cache_folder()
    local base, home = host.environment "XDG_CACHE_HOME", host.environment "HOME"
    base = base and base:match("^/") and base or home and home .. "/.cache"
    return base and base:match("^/[%w/._+-]*$") and base .. "/gagen"
end

-- The name of the object: a hash of the runtime's files, of the compiler and of all that it is told.
local function object_name(files, flags)
    local cc = host.environment "CC" or "cc"
    local status, version = host.run { "sh", "-c", cc .. " --version", quiet = true }
    if status ~= 0 then return nil end
    local parts = { cc, version, host.environment "CFLAGS" or "", table.concat(flags, " "),
        host.embedded "templates/program/Makefile" }
    for _, file in ipairs(files.keys) do
        if file:match("^runtime/") then table.move({ file, files:get(file) }, 1, 2, #parts + 1, parts) end
    end
    return ("runtime-%s.o"):format(host.sha256(table.concat(parts, "\0")):sub(1, 32))
end

-- Copies the file $1 to $3 in the folder $2. The copy gets its name when it is whole: two runs at once never see a
-- part of it.
local KEEP = 'new=$(mktemp "$2/.new-XXXXXX") && cp "$1" "$new" && mv -f "$new" "$2/$3" || { rm -f "$new"; exit 1; }'

-- Path of the runtime of the program in `folder` as one object, or nil where none can be kept.
local function kept_runtime(folder, files, flags)
    local cache, name = cache_folder(), object_name(files, flags)
    if not cache or not name or not host.folder(cache) then return nil end
    local path = cache .. "/" .. name
    if host.exists(path) == "file" then return path end
    local made = host.run { "make", "-s", "-C", folder, "runtime.o", quiet = true } == 0
        and host.run { "sh", "-c", KEEP, "keep", folder .. "/runtime.o", cache, name, quiet = true } == 0
    host.remove(folder .. "/runtime.o")
    return made and path or nil
end

--- Makes and starts the program in `folder`, which has these files; flags: the compiler's, of the spec; words: the
--- program's command line. Returns its exit status.
return function(folder, files, flags, words)
    local make = { "make", "-s", "-C", folder }
    local runtime = kept_runtime(folder, files, flags)
    if runtime then make[#make + 1] = "SOURCES=" .. runtime end
    local status, why = host.run(make)
    if status ~= 0 then
        diag.fail(folder, "make failed" .. (why and ": " .. why or ""), { kind = "environment" })
    end
    local code, message = host.run { host.absolute(folder .. "/train"), table.unpack(words) }
    if not code then diag.fail(folder .. "/train", message, { kind = "environment" }) end
    return code
end
