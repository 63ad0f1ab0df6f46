-- tools/data without a network: a replacement for curl delivers files, wrong files, partial files or none.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local TEXT_SUM = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

-- A folder whose curl is this shell text; $out is the file that is asked for, $url where from.
local function stand_in(t, text)
    local bin = t.temp()
    t.write(bin .. "/curl", '#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done\nurl=$1\n'
        .. text .. "\n")
    t.equal(t.run { "chmod", "+x", bin .. "/curl" }.status, 0)
    return bin
end

local function fetch(t, bin, folder, ...)
    return t.run { "tools/data", "-o", folder, ..., env = { "PATH=" .. t.root .. "/" .. bin .. ":"
        .. t.environment "PATH" } }
end

-- Names in the folder, hidden files too.
local function content(t, folder)
    return t.shell("cd " .. folder .. " && find . -mindepth 1 | sort").out
end

add("a failed download leaves no file", function(t)
    local cases = {
        { "exit 22", "could not be fetched from https://" },
        { 'printf half > "$out"; exit 18', "could not be fetched from" },
        { 'printf "<html>moved</html>" > "$out"', "has the sha256 sum %x+, expected " .. TEXT_SUM .. ": not kept" },
    }
    for _, case in ipairs(cases) do
        local folder = t.temp()
        local result = fetch(t, stand_in(t, case[1]), folder, "shakespeare")
        t.equal(result.status, 3, result.err)
        t.match(result.out, "^data: tinyshakespeare/input.txt: fetching https://raw.githubusercontent.com/")
        t.match(result.err, case[2])
        t.equal(content(t, folder), "")
    end
    local folder = t.temp()
    local result = fetch(t, stand_in(t, "exit 6"), folder)       -- all sets: the digits come all the same
    t.equal(result.status, 3)
    t.equal(select(2, result.err:gsub("could not be fetched", "")), 6, result.err)
    t.equal(content(t, folder), "./digits\n./digits/digits.csv.gz\n")
end)

add("an interrupted download leaves no file", function(t)
    local folder = t.temp()
    local bin = stand_in(t, 'printf half > "$out"; kill -TERM "$PPID"; exit 0')
    t.equal(fetch(t, bin, folder, "shakespeare").status, 143)
    t.equal(content(t, folder), "")
end)

add("digits need no network, and a whole file stays as it is", function(t)
    local folder, bin = t.temp(), stand_in(t, "exit 6")
    t.match(fetch(t, bin, folder, "digits").out, "digits/digits.csv.gz: whole\ndata: all is in ")
    local made = t.run { "stat", "-c", "%i %y", folder .. "/digits/digits.csv.gz" }.out
    t.match(fetch(t, bin, folder, "digits").out, "^data: digits/digits.csv.gz: there\n")
    t.equal(t.run { "stat", "-c", "%i %y", folder .. "/digits/digits.csv.gz" }.out, made)
end)

add("an existing file of another content is named and not changed", function(t)
    local folder, bin = t.temp(), stand_in(t, 'printf x > "$out"')
    t.write(folder .. "/tinyshakespeare/input.txt", "mine")
    local result = fetch(t, bin, folder, "shakespeare", "digits")
    t.equal(result.status, 1)
    t.match(result.err, "/tinyshakespeare/input.txt: there, but its sha256 sum is %x+, expected " .. TEXT_SUM
        .. ": move it away first\n$")
    t.equal(host.read(folder .. "/tinyshakespeare/input.txt"), "mine")
    t.write(folder .. "/cifar-10-batches-bin/data_batch_1.bin", "mine")
    result = fetch(t, bin, folder, "cifar10")
    t.equal(result.status, 1)
    t.match(result.err, "data_batch_1.bin: 4 bytes, expected 30730000: move the folder away first\n$")
    t.equal(host.read(folder .. "/cifar-10-batches-bin/data_batch_1.bin"), "mine")
end)

add("wrong arguments", function(t)
    local bin = stand_in(t, "exit 1")
    t.match(fetch(t, bin, t.temp(), "mnits").err, "^data: 'mnits': expected %-o FOLDER, mnist, cifar10, ")
    t.equal(fetch(t, bin, t.temp(), "mnits").status, 1)
    t.equal(t.run({ "tools/data", "-o" }).status, 1)
end)

add("the published files have the expected checksums", function(t)
    local real = t.environment "GAGEN_DATA"
    if not real or host.exists(real .. "/mnist/train-images-idx3-ubyte.gz") ~= "file"
        or host.exists(real .. "/tinyshakespeare/input.txt") ~= "file" then
        t.not_run("GAGEN_DATA has no mnist and no tinyshakespeare")
    end
    local folder = t.temp()
    local bin = stand_in(t, ('case $url in */mnist/*) cp "%s/mnist/${url##*/}" "$out" ;; '
        .. '*) cp "%s/tinyshakespeare/input.txt" "$out" ;; esac'):format(real, real))
    local result = fetch(t, bin, folder, "mnist", "shakespeare")
    t.equal(result.status, 0, result.err)
    t.equal(select(2, content(t, folder):gsub("%.gz\n", "")), 4)
    t.match(fetch(t, stand_in(t, "exit 6"), folder, "mnist", "shakespeare").out, "^data: mnist/[^\n]*: there\n")
end)

return tests
