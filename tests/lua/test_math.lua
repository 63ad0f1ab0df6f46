-- The elementary functions of f32 programs: their error over all floats, and that compilers vectorize loops over them
-- with strict floating-point rules.
local math_file = require "emit.targets.c.math"
local profile = require "emit.program.profile"
local template = require "base.template"

local FLAGS = { "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math" }

local function read_template(name)
    return template.load(assert(host.read("templates/" .. name)), "templates/" .. name)
end

-- A folder with math.c of a profile, and the compiler's command for `source` in it. kernels: names that they use;
-- compiler: words of another kind of processor's.
local function prepare(t, name, more, source, kernels, real, compiler)
    local machine, folder = profile.get(name), t.root .. "/" .. t.temp()
    t.write(folder .. "/math.c", math_file.render(kernels or "ga_expf ga_logf ga_tanhf ga_erff",
        { profile = machine, real = real or "f32", template = read_template },
        function(file) return "/* " .. file .. " */\n" end))
    local command = {}
    source = ("%s/tests/numeric/%s.c"):format(t.root, source or "functions")
    for _, list in ipairs { compiler or { "cc" }, { "-I" .. folder }, FLAGS, machine.flags, more, { source, "-lm" } } do
        table.move(list, 1, #list, #command + 1, command)
    end
    return folder, command
end

local function errors(t, name, level, step)
    local marches = t.load("tests/lua/marches.lua")(t)
    local cross, more = marches.cross(name), { level }
    if cross and step == "1" then t.not_run "all floats would take an hour in an emulator: one in 251" end
    if cross then t.long() end
    for word in (cross and "" or marches.options(name)):gmatch "%S+" do more[#more + 1] = word end
    more[#more + 1] = "-o"
    local folder, command = prepare(t, name, more, nil, nil, nil, cross and cross.compiler)
    table.insert(command, #command - 1, folder .. "/functions")
    local built = t.run(command)
    t.equal(built.status, 0, built.err)
    local run = { folder .. "/functions", step, timeout = 2400 }
    if cross then table.insert(run, 1, cross.run[1]) end
    local result = t.run(run)
    t.equal(result.status, 0, result.out)
    t.match(result.out, "^exp: .*\nlog: .*\ntanh: .*\nerf: .*\n$")
end

local tests = {}

for _, name in ipairs { "generic", "x86-64-v3", "x86-64-v4", "aarch64" } do
    tests[#tests + 1] = { name .. ": errors over the floats, one in 251", function(t)
        errors(t, name, "-O3", "251")
    end }
    tests[#tests + 1] = { name .. ": errors over all floats", function(t)
        t.long()
        errors(t, name, "-O3", "1")
    end }
    tests[#tests + 1] = { name .. ": loops become vector code", function(t)
        local cross = t.load("tests/lua/marches.lua")(t).cross(name)
        local folder, command = prepare(t, name, { "-O3", "-fopt-info-vec-optimized", "-c", "-o" }, nil, nil, nil,
            cross and cross.compiler)
        table.insert(command, #command - 1, folder .. "/functions.o")
        local built = t.run(command)
        t.equal(built.status, 0, built.err)
        if not built.err:find("vectorized") then t.not_run("this compiler does not say what it makes vectors of") end
        local line, loops = 0, 0
        for text in host.read("tests/numeric/functions.c"):gmatch("([^\n]*)\n") do
            line = line + 1
            if text:match("^FUNCTION%(") then
                loops = loops + 1
                t.contains(built.err, ("functions.c:%d:1: optimized: loop vectorized using %d byte vectors"):format(
                    line, profile.get(name).vector))
            end
        end
        t.equal(loops, 4)
    end }
end

for _, real in ipairs { "f32", "f64" } do
    tests[#tests + 1] = { real .. ": the greatest element of a row, with infinities and NaN", function(t)
        local native = profile.native(host.cpu())
        local type = "-DREAL=" .. (real == "f32" and "float" or "double")
        local folder, command = prepare(t, native, { "-O3", type, "-o" }, "greatest", "row_greatest", real)
        table.insert(command, #command - 1, folder .. "/greatest")
        local built = t.run(command)
        t.equal(built.status, 0, built.err)
        local result = t.run { folder .. "/greatest" }
        t.equal(result.status, 0, result.out)
        t.match(result.out, "^%d+ rows with NaN, 0 wrong\n$")
    end }
end

return tests
