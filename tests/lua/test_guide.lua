-- README.md and docs/GUIDE.md are what a reader gets: their commands run, and what they print is what stands there.
-- make test reads the pages and checks their commands; make test-all walks them, in a fresh clone each.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local PAGES = { "README.md", "docs/GUIDE.md" }

-- Pictures that commands of the pages make, and what each shows.
local PICTURES = { ["docs/digits_loss.svg"] = "Loss by update", ["docs/sums.svg"] = "Evaluation: loss by update" }

-- The words of a gagen command, before those of the program, are a command and options that gagen has.
local function check_words(where, command)
    local commands = require "command.commands"
    for words in command:gmatch "out/gagen ([^;|&\n]*)" do
        local own = words:match "^(.-) %-%- " or words
        local first = own:match "^(%l+)%f[%s\0]"
        assert(not first or commands.find(first), where .. ": no command " .. tostring(first))
        for option in (" " .. own):gmatch "%s(%-%-?%l[%w-]*)" do
            assert(commands.option(option), ("%s: no option %s"):format(where, option))
        end
    end
end

for _, page in ipairs(PAGES) do
    add(page .. ": each block is one that the walk knows, its commands are those of a shell and of gagen", function(t)
        local count, folder = 0, t.temp()
        for _, step in ipairs((t.load("tests/lua/walk.lua").read(page, assert(host.read(page))))) do
            if step.kind == "run" then
                local where = ("%s:%d"):format(page, step.line)
                check_words(where, step.command)
                t.write(folder .. "/command.sh", step.command .. "\n")
                local result = t.run { "sh", "-n", folder .. "/command.sh" }
                t.equal(result.status, 0, where .. ": " .. result.err)
                count = count + 1
            end
        end
        assert(count >= 30, count)
    end)
end

add("pictures are those of the pages", function(t)
    for _, page in ipairs(PAGES) do
        for path in host.read(page):gmatch "%]%(([%w_/]+%.svg)%)" do
            path = path:find "^docs/" and path or "docs/" .. path
            assert(PICTURES[path], page .. " shows " .. path .. ", which no test makes anew")
            t.contains(host.read(path), ("<title>%s"):format(PICTURES[path]))
        end
        local screenshot = host.read(page):match "%]%((%S+%.png)%)"
        screenshot = host.read(screenshot:find "^docs/" and screenshot or "docs/" .. screenshot)
        t.equal({ screenshot:sub(2, 4), #screenshot < 100000 }, { "PNG", true })
    end
end)

add("results that differ are noticed", function(t)
    local walk = t.load "tests/lua/walk.lua"
    local function differs(expected, found, tolerance) return walk.differs(expected, found, tolerance or 0) ~= nil end
    t.equal(differs({ "loss 0.25" }, "loss 0.25\n"), false)
    t.equal(differs({ "loss 0.25" }, "loss 0.26\n"), true)
    t.equal(differs({ "loss 0.25" }, "loss 0.26\n", 0.05), false)
    t.equal(differs({ "loss 0.25" }, "loss 0.28\n", 0.05), true)
    t.equal(differs({ "rows 250" }, "rows 251\n", 0.05), true)
    t.equal(differs({ "a", "b" }, "a\nb\nc\n"), true)
    t.equal(differs({ "a", "..." }, "a\nb\nc\n"), false)
    t.equal(differs({ "...", "c" }, "a\nb\nc\n"), false)
    t.equal(differs({ "...", "b" }, "a\nb\nc\n"), true)
    t.equal(differs({ "...", "b", "..." }, "a\nb\nc\n"), false)
    t.equal(differs({ "...", "c", "...", "a", "..." }, "a\nb\nc\n"), true)
    t.equal(differs({ "...", "a", "c", "..." }, "a\nb\nc\n"), true)
    t.equal(differs({ "end ... mem 3" }, "end done 1.5 s mem 3\n"), false)
    t.equal(differs({ "a" }, ""), true)
end)

add("a block or command that nothing explains is refused", function(t)
    local walk = t.load "tests/lua/walk.lua"
    local function refused(text, pattern)
        t.fails(function() walk.read("page.md", text) end, "^page.md:%d+: " .. pattern)
    end
    refused("```\nout/gagen list\n```\n", "a block of which nothing says")
    refused("```lua\nbatch (4)\n```\n", "a spec without a name")
    refused("```console\nresult\n```\n", "a result before any command")
    refused("```sh\nls\n", "a block without an end")
    refused("<!-- walk: skp x: y -->\n", "unknown")
    refused("text with `make everything` in it\n", "no step runs or omits `make everything`")
    local steps = walk.read("page.md", "<!-- walk: skip b: needs a GPU -->\n```sh\na 1  first\nb 2  second\n```\n")
    t.equal({ steps[1].command, steps[1].reason }, { "a 1" })
    t.equal({ steps[2].command, steps[2].reason }, { "b 2", "needs a GPU" })
end)

-- A clone of HEAD, in which commands run as a reader's would, and the profile of this machine.
local function clone_of(t)
    if t.shell("git rev-parse HEAD").status ~= 0 then t.not_run "not in a git checkout" end
    local folder = t.root .. "/" .. t.temp() .. "/gagen"
    local cloned = t.run { "git", "clone", "-q", t.root, folder }
    t.equal(cloned.status, 0, cloned.err)
    local env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GAGEN_TEST_ALL", "XDG_CACHE_HOME=" .. folder .. "/out/cache" }
    local data = t.environment "GAGEN_DATA"
    if data and data:sub(1, 1) ~= "/" then env[#env + 1] = "GAGEN_DATA=" .. t.root .. "/" .. data end
    return folder, function(command)
        return t.run { "sh", "-c", "exec 2>&1\n" .. command, cwd = folder, env = env, timeout = 1800 }
    end
end

for _, page in ipairs(PAGES) do
    add(page .. ": walked in a fresh clone", function(t)
        t.long()
        local folder, sh = clone_of(t)
        local walked = t.load("tests/lua/walk.lua").go(t, page, folder, sh)
        assert(walked.ran >= 30, walked.ran)
        if walked.exact then
            t.equal(sh("git diff --stat -- docs").out, "", "pictures made anew")
        else
            print(("NOT RUN: %s: pictures, which are those of another profile"):format(page))
        end
    end)
end

return tests
