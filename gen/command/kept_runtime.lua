-- kept_runtime: the runtime of programs as one object. A compiler takes longer for the runtime than for a program, and
-- many programs have the same: the object is kept in the user's cache folder, by the content of all that it is made
-- from. A program's own `make` knows nothing of it.
local cache = require "base.cache"
local make = require "command.make"

local kept_runtime = {}

-- The name of the object: a hash of the runtime's files, of the compiler and of all that it is told.
local function object_name(files, flags, cflags)
    local cc = host.environment "CC" or "cc"
    local status, version = host.run { "sh", "-c", cc .. " --version", quiet = true }
    if status ~= 0 then return nil end
    local parts = { cc, version, cflags, table.concat(flags, " "),
        host.embedded "templates/program/Makefile" }
    for _, file in ipairs(files.keys) do
        if file:match("^runtime/") then table.move({ file, files:get(file) }, 1, 2, #parts + 1, parts) end
    end
    return ("runtime-%s.o"):format(host.sha256(table.concat(parts, "\0")):sub(1, 32))
end

-- Copies the file $1 to $3 in the folder $2. The copy gets its name when it is whole: two runs at once never see a
-- part of it.
local KEEP = 'new=$(mktemp "$2/.new-XXXXXX") && cp "$1" "$new" && mv -f "$new" "$2/$3" || { rm -f "$new"; exit 1; }'

--- Where the runtime of a program is kept, or nil where none can be. files: those of the program; flags: the
--- compiler's, of the spec; cflags: CFLAGS of make, those of the environment if nil.
function kept_runtime.path(files, flags, cflags)
    local folder, name = cache.folder(), object_name(files, flags, cflags or host.environment "CFLAGS" or "")
    return folder and name and host.folder(folder) and folder .. "/" .. name or nil
end

-- The program's own objects in a link, for each target of its Makefile.
local PARTS = { "step", "model", "main" }
local PLACES = { train = "built/%s.o", ["train-probe"] = "built/probe/%s.o" }

--- Makes the runtime at `path`, which kept_runtime.path gave for the program in `folder`, if it is not there. Returns
--- the path, or nil where it cannot be made. how: { target, cflags }. target: "train" or "train-probe", whose own
--- objects are compiled side by side with the runtime; cflags: as for kept_runtime.path.
function kept_runtime.make(path, folder, how)
    if not path or host.exists(path) == "file" then return path end
    local command = make.command("-C", folder)
    for _, part in ipairs(how.target and PARTS or {}) do      -- step.c takes longest: it begins first
        command[#command + 1] = PLACES[how.target]:format(part)
    end
    command[#command + 1] = "runtime.o"
    if how.cflags then command[#command + 1] = "CFLAGS=" .. how.cflags end
    command.quiet = true
    local kept, name = path:match("^(.*)/([^/]*)$")
    local made = host.run(command) == 0
        and host.run { "sh", "-c", KEEP, "keep", folder .. "/runtime.o", kept, name, quiet = true } == 0
    host.remove(folder .. "/runtime.o")
    return made and path or nil
end

return kept_runtime
