-- numeric: specs of small f64 programs, built together with the harness of this folder (main.c
-- lists its commands). Loaded by tests as t.load("tests/numeric/numeric.lua")(t). Invariant: a
-- program is built from one spec text and a list of gagen's options, in its own folder.

-- Small whole numbers; the last column is the class 0.
local function csv(rows, width)
    local lines = {}
    for i = 1, rows do
        local row = {}
        for j = 1, width do row[j] = (i * j) % 5 - 2 end
        row[width + 1] = 0
        lines[i] = table.concat(row, ",")
    end
    return table.concat(lines, "\n") .. "\n"
end

return function(t)
    local numeric, store, made = {}, t.load("tests/lua/store.lua")(t), {}
    local marches = t.load("tests/lua/marches.lua")(t)

    --- The text of a spec. case: model, and loss, batch, accumulate, optimizer, schedule, more
    -- (texts; with the word eval in it the rows of train are measured); ids = true: batch.ids are three whole numbers
    -- 0..3 per row.
    function numeric.spec(case)
        local eval = (case.more or ""):find "^eval " and 'eval = "rows.csv", ' or ""
        return table.concat({
            'name "probe"', case.ids and 'data { "tensors", train = "rows.safetensors" }'
                or 'data { "csv", train = "rows.csv", ' .. eval .. 'target = "last" }',
            "batch (" .. (case.batch or 12) .. ")", "accumulate " .. (case.accumulate or "(1)"),
            "model" .. case.model, "loss " .. (case.loss or '"cross_entropy"'),
            "optimizer " .. (case.optimizer or '{ "sgd", lr = 0.1 }'),
            "schedule " .. (case.schedule or '"constant"'),
            'precision "f64"', "train { updates = " .. (case.updates or 20) .. " }",
            case.more or "", "",
        }, "\n")
    end

    -- The objects that every check is linked with, and all texts that `check` is made of.
    local build = t.root .. "/" .. t.build
    local objects = ("%s/tests/numeric/main.o %s/tests/numeric/differences.o %s/libruntime.a"):format(build, build, build)
    local texts
    local function inputs_of(folder, flags)
        if not texts then
            texts = { host.read("tests/numeric/build.mk"), host.read("tests/numeric/drive.c"),
                host.read("tests/numeric/drive.h"), host.read("tests/include/immintrin.h"),
                host.read("tests/matrix/immintrin.h"), host.read("tests/matrix/plain.h"), objects }
            for path in objects:gmatch("%S+") do texts[#texts + 1] = host.sha256(assert(host.read(path), path)) end
        end
        return table.move(texts, 1, #texts, 3, { flags, store.sources(folder) })
    end

    -- nil, or the outcome of a make that failed
    local function compile(folder, flags)
        local built
        local done, message = pcall(store.fetch, folder, inputs_of(folder, flags), function()
            built = t.run { "make", "-s", "-C", folder, "-f", t.root .. "/tests/numeric/build.mk",
                "SOURCE=" .. t.root .. "/tests/numeric", "OBJECTS=" .. objects, "OPTIONS=" .. flags }
            return built.status == 0 and { "check" } or error("make", 0)
        end)
        if done then return nil end
        return built and built.status ~= 0 and built or error(message, 0)
    end

    local Program = {}
    Program.__index = Program

    --- Runs the harness: check "gradients" and so on; environment is a list of "NAME=value".
    function Program:check(command, argument, environment)
        return t.run { self.folder .. "/check", command, argument,
            env = environment }
    end

    --- The gradient, tensors in the order of their names: an array of { name, doubles }.
    function Program:gradient(environment)
        local file = self.folder .. "/gradient"
        local result = self:check("save", file, environment)
        if result.status ~= 0 then error("save: " .. result.err, 2) end
        local text, at, list = assert(host.read(file)), 1, {}
        for name, n in result.out:gmatch("(%S+) (%d+)\n") do
            local values = { string.unpack(("d"):rep(n), text, at) }
            at = table.remove(values)
            list[#list + 1] = { name = name, values = values }
        end
        table.sort(list, function(a, b) return a.name < b.name end)
        return list
    end

    --- Generates and builds; case.options: gagen's options; case.flags: the compiler's, t.quick.
    -- Returns the program, or nil, the stage that failed ("gagen" or "cc"), its outcome.
    function numeric.try(case)
        local temporary = t.root .. "/" .. t.temp()
        t.write(temporary .. "/probe.lua", numeric.spec(case))
        local rows, width = case.rows or 64, case.width or 4
        t.write(temporary .. "/data/rows.csv", csv(rows, width))
        t.write(temporary .. "/data/rows.safetensors", t.load("tests/numeric/rows.lua").sample(rows, width))
        -- from its own folder: a spec's text has no other part in the program's
        local command = { t.root .. "/" .. t.gagen, "probe.lua", "-o", "out", cwd = temporary }
        for _, word in ipairs(marches.words(case.options, numeric.spec(case))) do command[#command + 1] = word end
        local outcome = t.run(command)
        if outcome.status ~= 0 then return nil, "gagen", outcome end
        local failed = compile(temporary .. "/out", marches.level(case.flags))
        if failed then return nil, "cc", failed end
        return setmetatable({ folder = temporary .. "/out", warnings = outcome.err }, Program)
    end

    --- The same; a failure fails the test. One test gets one program for the same case.
    function numeric.build(case)
        local key = table.concat({ numeric.spec(case), case.rows or 64, case.width or 4, case.flags or "",
            table.unpack(case.options or {}) }, "\0")
        if made[key] then return made[key] end
        local program, stage, outcome = numeric.try(case)
        if not program then
            error(("%s: status %d\n%s\n%s"):format(stage, outcome.status, outcome.err,
                numeric.spec(case)), 2)
        end
        made[key] = program
        return program
    end

    --- Builds, compares the gradient with differences, and returns the program and its report.
    function numeric.differences(case, environment)
        local program = numeric.build(case)
        local result = program:check("gradients", program.folder .. "/gradient", environment)
        if result.status ~= 0 then
            error(("gradients: status %d\n%s%s\n%s"):format(result.status, result.out, result.err,
                numeric.spec(case)), 2)
        end
        return program, result.out
    end

    --- The largest difference of two gradients, relative to the largest element of the tensor.
    function numeric.distance(a, b)
        t.equal(#a, #b, "tensors of the gradient")
        local largest = 0
        for i, tensor in ipairs(a) do
            local other, scale, worst = b[i], 0, 0
            t.equal(tensor.name, other.name)
            for k, x in ipairs(tensor.values) do
                local y = other.values[k]
                scale = math.max(scale, math.abs(x), math.abs(y))
                worst = x == y and worst or math.max(worst, math.abs(x - y))
                if x ~= x or y ~= y then return math.huge end
            end
            if worst > 0 then largest = math.max(largest, worst / scale) end
        end
        return largest
    end

    return numeric
end
