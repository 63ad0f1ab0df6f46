-- predicted: trains programs, predicts with them in both ways, and reads what was written.
return function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local predicted = { programs = programs }

    --- The spec of most tests: batches of 7, which do not divide the 90 rows.
    predicted.MLP = [[
name       "looped"
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = false }
batch      (7)
accumulate { 2, tail = "flush" }
model      { linear "fc1" { 9 }, tanh {}, dropout(0.2), linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.5 }
train      { updates = 12, seed = 3 }
eval       { every = 12, metrics = { "loss", "accuracy" } }
]]

    --- The content of a .npy file: the shape as text, and the numbers.
    function predicted.read_npy(path)
        local text = assert(host.read(path))
        t.equal(text:sub(1, 8), "\x93NUMPY\1\0")
        local size = string.unpack("<I2", text, 9)
        t.equal((10 + size) % 64, 0)
        local shape = text:sub(11, 10 + size):match(
            "^{'descr': '<f4', 'fortran_order': False, 'shape': %(([%d, ]+)%), } *\n$")
        local values, at = {}, 11 + size
        while at <= #text do values[#values + 1], at = string.unpack("<f", text, at) end
        return shape, values
    end

    --- The header and the rows of a .csv, as numbers.
    function predicted.read_csv(path)
        local lines = {}
        for line in assert(host.read(path)):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
        local rows = {}
        for i = 2, #lines do
            rows[i - 1] = {}
            for cell in lines[i]:gmatch("[^,]+") do table.insert(rows[i - 1], tonumber(cell)) end
        end
        return lines[1], rows
    end

    --- Bytes of the values in .npy.
    function predicted.bytes_of(path)
        local text = assert(host.read(path))
        return text:sub(11 + string.unpack("<I2", text, 9))
    end

    --- Where the data of specs lie.
    function predicted.data() return programs.folder() .. "/data/" end

    --- Trains a program with `make predict` for some cycles; returns it with its checkpoints.
    function predicted.trained(name, text, how)
        local p = programs.build(name, text, how or { predict = true })
        p.own = t.root .. "/" .. p.folder .. "/" .. (text:match 'name%s*"(%w+)"' or name) .. "_predict"
        p.checkpoint = programs.train(p, { "--cycles", 12 }).checkpoint
        return p
    end

    --- The folder of the newest checkpoint of a program, and the event of its evaluation.
    function predicted.newest(p)
        local names = host.list(p.checkpoint)
        return p.checkpoint .. "/" .. names[#names]
    end

    function predicted.evaluated(p)
        local words = { "--eval", "--resume", "latest", "--checkpoint", p.checkpoint }
        for _, event in ipairs(programs.events(p, words)) do
            if event.event == "eval" then return event end
        end
    end

    --- Runs train --predict; o: further words, status.
    function predicted.predict(p, file, out, o)
        o = o or {}
        local words = { "--predict", file, "--out", out, "--checkpoint", p.checkpoint, status = o.status, env = o.env }
        return programs.train(p, table.move(o, 1, #o, #words + 1, words))
    end

    --- Runs the program that only predicts, with weights of the checkpoint.
    function predicted.alone(p, file, out, o)
        local weights = t.temp() .. "/weights.bin"
        programs.train(p, { "--save-weights", weights, "--checkpoint", p.checkpoint })
        local result = t.run(table.move(o or {}, 1, #(o or {}), 6, { p.own, file, out, "--weights", weights }))
        return result, weights
    end

    --- Both ways of predicting must write the same bytes; returns them.
    function predicted.both(p, file)
        local folder = t.temp()
        predicted.predict(p, file, folder .. "/a.npy")
        local result = predicted.alone(p, file, folder .. "/b.npy")
        t.equal(result.status, 0, result.err)
        local a, b = predicted.bytes_of(folder .. "/a.npy"), predicted.bytes_of(folder .. "/b.npy")
        t.equal(host.sha256(a), host.sha256(b))
        return folder .. "/a.npy"
    end

    return predicted
end
