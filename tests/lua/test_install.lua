-- make install, uninstall and dist, from the gagen that is there.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Variables of the command line come last; without DESTDIR, install would write to the system.
local function make(t, target, ...)
    assert(target ~= "install" or (...):find "^DESTDIR=.", "no DESTDIR")
    local command = { "make", "-s", "GAGEN=" .. t.gagen, "BUILD=" .. t.build, target, ... }
    command.env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "PREFIX" }
    local result = t.run(command)
    t.equal(result.status, 0, result.err)
    return result.out
end

local function files_below(t, folder)
    return t.shell(("cd %s && find . ! -type d | LC_ALL=C sort"):format(folder)).out
end

local FILES = [[
./opt/x/bin/gagen
./opt/x/share/bash-completion/completions/gagen
./opt/x/share/fish/vendor_completions.d/gagen.fish
./opt/x/share/gagen/gagen.d.lua
./opt/x/share/man/man1/gagen.1
./opt/x/share/zsh/site-functions/_gagen
]]

add("install writes six files below DESTDIR and PREFIX; uninstall removes them and nothing else", function(t)
    local folder = t.root .. "/" .. t.temp() .. "/a place"
    local where = { "DESTDIR=" .. folder, "PREFIX=/opt/x" }
    make(t, "install", table.unpack(where))
    local place = folder .. "/opt/x"
    t.equal(files_below(t, "'" .. folder .. "'"), FILES)
    for name, arguments in next, { ["man/man1/gagen.1"] = { "--man" }, ["gagen/gagen.d.lua"] = { "--annotations" },
        ["bash-completion/completions/gagen"] = { "--completion", "bash" },
        ["zsh/site-functions/_gagen"] = { "--completion", "zsh" },
        ["fish/vendor_completions.d/gagen.fish"] = { "--completion", "fish" } } do
        t.equal(host.read(place .. "/share/" .. name), t.run { t.gagen, "help", table.unpack(arguments) }.out, name)
    end
    t.equal(t.run({ "stat", "-c", "%a", place .. "/bin/gagen", place .. "/share/man/man1/gagen.1" }).out, "755\n644\n")
    -- the installed program needs no other file
    local made = t.run { place .. "/bin/gagen", t.root .. "/specs/digits_mlp.lua", "-o", folder .. "/p", cwd = "/" }
    t.equal(made.status, 0, made.err)
    t.equal(host.exists(folder .. "/p/runtime/base/team.c"), "file")
    t.equal(t.run({ "rm", "-r", folder .. "/p" }).status, 0)
    t.write(place .. "/bin/other", "mine")
    make(t, "uninstall", table.unpack(where))
    t.equal(files_below(t, "'" .. folder .. "'"), "./opt/x/bin/other\n")
    t.equal(host.exists(place .. "/share/gagen"), false)
    make(t, "uninstall", table.unpack(where))
end)

add("dist has the files that git tracks, and builds by itself", function(t)
    if t.shell("git ls-files --error-unmatch Makefile").status ~= 0 then t.not_run("not in a git checkout") end
    local archive = make(t, "dist"):match "[^\n]*"
    local name = t.run({ t.gagen, "version" }).out:match "^gagen (%S+),"
    t.equal(archive, ("out/gagen-%s.tar.gz"):format(name))
    local folder = t.temp()
    t.equal(t.run { "tar", "-xzf", archive, "-C", folder }.status, 0)
    local top = folder .. "/gagen-" .. name
    t.equal(host.list(folder), { "gagen-" .. name })
    t.equal(t.shell("git ls-files | sed 's,^,./,' | LC_ALL=C sort").out, files_below(t, top))
    -- the same bytes again
    local bytes = host.sha256(host.read(archive))
    make(t, "dist")
    t.equal(host.sha256(host.read(archive)), bytes)
    -- all that is embedded and compiled here is there
    local env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL" }
    local whole = t.all
    local refused = t.run { "make", "-s", "-C", top, "dist", env = env }
    t.equal(refused.status, 2)
    t.match(refused.err, "^make dist: no git checkout here, ")
    local built = t.run { "make", "-C", top, whole and "-s" or "-n", env = env }
    t.equal(built.status, 0, built.err)
    if whole then
        t.equal(t.run({ top .. "/out/gagen", "version" }).out, t.run({ t.gagen, "version" }).out)
    end
end)

return tests
