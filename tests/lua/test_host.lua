-- The table `host`: files, links, digests, JSON, processes, modules; the exit codes of gagen.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function refused(t, part, value, message)
    t.equal(value, nil)
    t.contains(message, part)
end

add("sha256", function(t)
    local known = {
        [""] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        [("a"):rep(1000000)] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
    }
    for text, digest in next, known do t.equal(host.sha256(text), digest) end
    local folder = t.temp()
    for _, n in ipairs { 55, 56, 63, 64, 65, 119, 120 } do
        t.write(folder .. "/x", ("q"):rep(n))
        local out = t.run { "sha256sum", folder .. "/x" }.out
        t.equal(host.sha256(("q"):rep(n)), out:sub(1, 64))
    end
end)

add("parse_json", function(t)
    t.equal(host.parse_json '{ "a": [1, 2.5, "x\\n", true, null], "b": {}, "c": [] }',
        { a = { 1, 2.5, "x\n", true }, b = {}, c = {} })
    t.equal(host.parse_json "7", 7)
    t.equal(host.parse_json(host.json { a = { 0.1, 1 / 3, "\u{e9}" } }), { a = { 0.1, 1 / 3, "\u{e9}" } })
    refused(t, "line 2: ", host.parse_json '{ "a": 1,\n broken')
    refused(t, "line 1: ", host.parse_json '{ "a": 1, "a": 2 }')
    refused(t, "line 1: ", host.parse_json(("["):rep(100000)))
end)

add("temporary", function(t)
    local a, b = host.temporary(), host.temporary()
    assert(a ~= b)
    t.equal({ host.exists(a), host.exists(b) }, { "folder", "folder" })
    t.match(t.run { "stat", "-c", "%a", a }.out, "^700\n$")
    t.equal({ host.remove(a), host.remove(b) }, { true, true })
end)

add("json", function(t)
    t.equal(host.json { b = 1, a = { 1, 2.5, "x\n" }, c = {} },
        '{\n  "a": [\n    1,\n    2.5,\n    "x\\n"\n  ],\n  "b": 1,\n  "c": {}\n}\n')
    t.equal(host.json(setmetatable({}, { array = true })), "[]\n")
    t.equal(host.json { 0.1, 1 / 3 }, "[\n  0.1,\n  0.3333333333333333\n]\n")
    t.equal(host.json { 0 / 0, 1 / 0, -1 / 0 }, '[\n  "nan",\n  "inf",\n  "-inf"\n]\n')
    t.equal(host.json "\xff", '"\\\\xff"\n')
    t.fails(function() host.json { print } end, "JSON does not have")
    t.fails(function() host.json { 1, x = 2 } end, "JSON does not have")
    local cycle = {}
    cycle[1] = cycle
    t.fails(function() host.json(cycle) end, "JSON does not have")
end)

add("reading", function(t)
    local folder = t.temp()
    t.write(folder .. "/f", "text\0more")
    t.equal(host.read(folder .. "/f"), "text\0more")
    t.equal(host.read(folder .. "/f", 9), "text\0more")
    refused(t, "larger than 8 bytes", host.read(folder .. "/f", 8))
    refused(t, "is a folder", host.read(folder))
    refused(t, "No such file", host.read(folder .. "/none"))
    t.equal(t.run { "mkfifo", folder .. "/fifo" }.status, 0)
    refused(t, "is a FIFO", host.read(folder .. "/fifo"))
    t.equal(host.exists(folder .. "/f"), "file")
    t.equal(host.exists(folder), "folder")
    t.equal(host.exists(folder .. "/fifo"), "other")
    t.equal(host.exists(folder .. "/none"), false)
end)

add("folders", function(t)
    local folder = t.temp()
    t.equal(host.folder(folder .. "/a/b/c"), true)
    t.equal(host.folder(folder .. "/a/b/c"), true)
    for _, name in ipairs { "b", "B", "a", "_" } do t.write(folder .. "/l/" .. name, "") end
    t.equal(host.list(folder .. "/l"), { "B", "_", "a", "b" })
    refused(t, "No such file", host.list(folder .. "/none"))
    t.write(folder .. "/f", "")
    refused(t, "File exists", host.folder(folder .. "/f/x"))
    t.equal(host.remove(folder .. "/f"), true)
    t.equal(host.remove(folder .. "/f"), false)
    refused(t, "not empty", host.remove(folder .. "/a"))
    t.equal(host.absolute(folder .. "/a/../a"), t.root .. "/" .. folder .. "/a")
    t.match(host.absolute("no/such"), "^/.*/no/such$")
end)

add("writing", function(t)
    local folder = t.temp()
    t.equal(host.write(folder, "a.c", "one"), "written")
    t.equal(host.write(folder, "a.c", "one"), "unchanged")
    t.equal(host.write(folder, "a.c", "two"), "written")
    t.equal(host.write(folder, "a.c", ""), "written")
    t.equal(host.write(folder, "runtime/base/ga.h", "h"), "written")
    t.equal(host.read(folder .. "/runtime/base/ga.h"), "h")
    t.equal(host.list(folder), { "a.c", "runtime" })
    for _, name in ipairs { "", ".", "..", "a/b", "../x", "/x", "runtime/", "runtime/..",
                            "runtime/a", "runtime/a/", "runtime//b", "runtime/../b", "runtime/./b", "runtime/a/..",
                            "runtime/a/b/c", "runtime/a\n/b", "a\nb" } do
        refused(t, "is no name of a file", host.write(folder, name, "x"))
    end
    refused(t, "No such file", host.write(folder .. "/none", "a", "x"))
end)

add("writing follows no link", function(t)
    local folder = t.temp()
    t.write(folder .. "/precious", "kept")
    t.equal(host.folder(folder .. "/out"), true)
    t.equal(host.link("../precious", folder .. "/out/a.c"), "written")
    refused(t, "is a link", host.write(folder .. "/out", "a.c", "x"))
    t.equal(host.link("out", folder .. "/alias"), "written")
    refused(t, "not followed", host.write(folder .. "/alias", "b.c", "x"))
    t.equal(host.link("..", folder .. "/out/runtime"), "written")
    refused(t, "not followed", host.write(folder .. "/out", "runtime/out/precious", "x"))
    t.equal(host.folder(folder .. "/inner/runtime"), true)
    t.equal(host.link("../..", folder .. "/inner/runtime/base"), "written")
    refused(t, "not followed", host.write(folder .. "/inner", "runtime/base/precious", "x"))
    t.equal(host.read(folder .. "/precious"), "kept")
    t.equal(host.link("..", folder .. "/out/runtime"), "unchanged")
    t.equal(host.link("elsewhere", folder .. "/out/runtime"), "written")
    refused(t, "is no symbolic link", host.link("x", folder .. "/precious"))
    -- a temporary file of a killed run is no obstacle, and a link in its place is not followed
    t.equal(host.link("../precious", folder .. "/out/.c.c.new"), "written")
    t.equal(host.write(folder .. "/out", "c.c", "x"), "written")
    t.equal(host.read(folder .. "/precious"), "kept")
end)

add("processes", function(t)
    t.equal({ host.run { "sh", "-c", "echo out; echo err >&2; exit 3", quiet = true } },
        { 3, "out\nerr\n" })
    t.equal((host.run { "sh", "-c", "kill -9 $$", quiet = true }), 128 + 9)
    local _, where = host.run { "pwd", cwd = "/", quiet = true }
    t.equal(where, "/\n")
    refused(t, "No such file", host.run { "no-such-program-here" })
    refused(t, "No such file", host.run { "true", cwd = "/none" })
    local began = t.clock()
    local r = t.run { "sh", "-c", "sleep 600 & sleep 600", timeout = 0.2 }
    t.equal(r.timed_out, true)
    assert(t.clock() - began < 300)
    t.equal(#t.run { "head", "-c", "300000", "/dev/zero" }.out, 300000)
end)

add("modules and globals", function(t)
    t.match(host.embedded "templates/cuda/prelude.cu", "^// Plain CUDA")
    t.match(debug.getinfo(require "base.diag".fail, "S").source, "^@gen/base/diag.lua$")
    t.fails(function() host.embedded "gen/none.lua" end, "no file 'gen/none.lua'")
    t.fails(function() host.embedded "gen/../Makefile" end, "no file")
    local names = host.embedded_names "gen/base/"
    for i = 2, #names do assert(names[i - 1] < names[i]) end
    assert(#names > 0 and names[1]:find("^gen/base/"))
    t.equal(#host.embedded_names "no/such", 0)
    t.fails(function() require "none.such" end, "no file 'gen/none/such.lua' in gagen")
    t.fails(function() return no_such_global end, "undeclared global 'no_such_global'")
    t.fails(function() no_such_global = 1 end, "undeclared global 'no_such_global'")
    t.equal(package.path .. package.cpath, "")
    assert(#host.cpu() > 0)
    t.equal(host.environment "GAGEN_NO_SUCH", nil)
end)

add("templates are compiled when gagen is built", function(t)
    local compiled = 0
    for _, name in ipairs(host.embedded_names "templates/") do
        local text, content = assert(host.read(name)), host.embedded(name)
        if ("\n" .. text):find "\n[/#]/?@" then
            t.equal(content, string.dump(assert(load(require "base.template_code"(text), "@" .. name))), name)
            compiled = compiled + 1
        else
            t.equal(content, text, name)
        end
    end
    assert(compiled > 40, compiled)
end)

add("data_scan", function(t)
    local folder = t.temp()
    t.write(folder .. "/x.csv", "1,2.5,0\n-3,4,2\n")
    t.write(folder .. "/y.csv", "1,2\n1,x\n")
    local function scan(name, more)
        local request = { kind = "csv", files = { folder .. "/" .. name }, real = "f32", columns = 3, target = 3 }
        for key, value in next, more or {} do request[key] = value end
        return host.data_scan(request)
    end
    local facts = scan "x.csv"
    t.equal(facts.count, { 2 })
    t.equal(facts.fields[1].shape, { 2 })
    t.equal(facts.fields[2], { name = "target", ids = true, shape = {}, element = 0, low = 0,
        high = 2, low_at = 1, low_file = 1, high_at = 2, high_file = 1, next_high = 0 })
    t.equal(scan("x.csv", { target = 2 }).fields[2].ids, false)
    t.equal(scan("x.csv", { files = { folder .. "/x.csv", folder .. "/x.csv" } }).count, { 2, 2 })
    refused(t, "y.csv:2: column 2", scan("y.csv", { columns = 2, target = 2 }))
    refused(t, "x.csv:1: column 3: found a line of numbers", scan("x.csv", { header = true }))
    refused(t, "y.csv: not an IDX file", scan("y.csv", { kind = "idx", targets = { folder .. "/x.csv" } }))
    t.fails(function() scan("x.csv", { kind = "xml" }) end, "no data of kind 'xml'")
    t.fails(function() scan("x.csv", { files = {} }) end, "files: 0 files")
end)

-- A folder whose gen/gagen.lua is `text`, for gagen --dev.
local function checkout(t, text)
    local folder = t.temp()
    t.write(folder .. "/gen/gagen.lua", text)
    for _, name in ipairs { "diag", "colour" } do
        local path = ("/gen/base/%s.lua"):format(name)
        t.write(folder .. path, assert(host.read(path:sub(2))))
    end
    return folder
end

add("the exit codes of gagen", function(t)
    local program = t.gagen
    local function ends(text, status, pattern)
        local r = t.run { program, "--dev", checkout(t, text), "a", "b" }
        t.equal(r.status, status, r.err)
        t.match(r.err .. r.out, pattern)
        return r
    end
    ends("return function(a) print(#a, a[1], a[2], host.arguments[2]) return 0 end", 0,
        "^2\ta\tb\tb\n$")
    ends("return function() return 5 end", 5, "^$")
    local function fails(arguments)
        return "return function() require 'base.diag'.fail(" .. arguments .. ") end"
    end
    ends(fails "'x.lua:3', 'wrong'", 1, "^x.lua:3: wrong\n$")
    ends(fails "'x', 'full', { kind = 'environment' }", 3, "^x: full\n$")
    ends(fails "'x', 'odd', { kind = 'bug' }", 2, "^x: odd\n$")
    local r = ends("return function()\n error 'oops' end", 2, "internal error")
    t.contains(r.err, "gen/gagen.lua:2: oops")
    t.contains(r.err, "stack traceback")
    ends("x = 1", 2, "undeclared global 'x'")
    ends("return function( return end", 2, "gen/gagen.lua:1:")
end)

add("the environment has no influence", function(t)
    local folder = checkout(t, "return function() return pcall(require, 'evil') and 1 or 0 end")
    t.write(folder .. "/evil.lua", "return {}")
    local path = folder .. "/?.lua"
    local r = t.run { t.gagen, "--dev", folder, env = { "LUA_PATH=" .. path,
        "LUA_PATH_5_4=" .. path, "LUA_INIT=error('init')", "LUA_INIT_5_4=error('init')" } }
    t.equal(r.status, 0, r.err)
end)

return tests
