-- Makes data files of every format from known numbers, and reads the batches that a program gets from them.
return function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local formats = { programs = programs }

    --- Writes a file below the folder that specs of programs.build find their data in.
    function formats.write(name, text)
        t.write(programs.folder() .. "/data/" .. name, text)
    end

    --- An IDX file of unsigned bytes: extents, and a function of the index from 0.
    function formats.idx(extents, value)
        local n, parts = 1, { string.pack("BBBB", 0, 0, 8, #extents) }
        for _, extent in ipairs(extents) do
            n, parts[#parts + 1] = n * extent, string.pack(">I4", extent)
        end
        for i = 0, n - 1 do parts[#parts + 1] = string.char(value(i)) end
        return table.concat(parts)
    end

    --- Binary CIFAR-10: records of a label and 3072 bytes.
    function formats.cifar(first, records, label, value)
        local parts = {}
        for row = first, first + records - 1 do
            parts[#parts + 1] = string.char(label(row))
            for i = 0, 3071 do parts[#parts + 1] = string.char(value(row, i)) end
        end
        return table.concat(parts)
    end

    --- Value i (from 0) of record `row` of the files that cifar_files writes, and its class.
    function formats.colour(row, i) return (row * 31 + i * 7 + i // 1024) % 256 end
    function formats.class(row) return (row * 3 + 1) % 10 end

    --- formats/cifar_a.bin has records 0..19, cifar_b.bin 20..25, test.bin 100..104.
    function formats.cifar_files()
        for name, range in next, { cifar_a = { 0, 20 }, cifar_b = { 20, 6 }, test = { 100, 5 } } do
            formats.write("formats/" .. name .. ".bin", formats.cifar(range[1], range[2], formats.class,
                formats.colour))
        end
    end

    --- A .npy file of version 1.0: format of string.pack for one element, values in order.
    function formats.npy(descr, format, shape, values)
        local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }"):format(descr,
            table.concat(shape, ", "))
        header = header .. (" "):rep(-(#header + 11) % 64) .. "\n"
        local parts = { "\x93NUMPY\1\0", string.pack("<I2", #header), header }
        for _, value in ipairs(values) do parts[#parts + 1] = string.pack(format, value) end
        return table.concat(parts)
    end

    --- A .safetensors file: a list of { name, dtype, format, shape, values }.
    function formats.tensors(list)
        local entries, data, at = {}, {}, 0
        for i, tensor in ipairs(list) do
            local name, dtype, format, shape, values = table.unpack(tensor)
            local bytes = {}
            for k, value in ipairs(values) do bytes[k] = string.pack(format, value) end
            data[i] = table.concat(bytes)
            entries[i] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(name, dtype,
                table.concat(shape, ","), at, at + #data[i])
            at = at + #data[i]
        end
        local header = "{" .. table.concat(entries, ",") .. "}"
        return string.pack("<I8", #header) .. header .. table.concat(data)
    end

    --- A .safetensors file of 5 rows, `mask` of 3 BOOL and `y`; `byte` is the third one of row 2.
    function formats.bools(byte)
        local mask, y = {}, {}
        for i = 1, 15 do mask[i] = i == 6 and byte or i % 2 end
        for i = 1, 5 do y[i] = i % 3 end
        return formats.tensors { { "mask", "BOOL", "B", { 5, 3 }, mask }, { "y", "I32", "<i4", { 5 }, y } }
    end

    local WRAP = "-Wl,--wrap=ga_loader_open,--wrap=ga_loader_cycle,--wrap=ga_eval_batch"

    --- A program that dumps its batches.
    function formats.build(name, text)
        return programs.build("data_" .. name, text, { ldflags = WRAP, sources = { "tests/e2e/print_batch.c" } })
    end

    --- Trains and returns { train = { [micro from 0] = { FIELD = { rows, width, values } } }, eval = the
    --- same for batches } and the events.
    function formats.run(p, ...)
        local folder = t.temp()
        local file, log = folder .. "/batches", folder .. "/log"
        programs.train(p, { "--log", log, "--threads", 2, env = { "GAGEN_PRINT=" .. file, "GAGEN_TIMEOUT=300" },
            ... })
        local seen = { train = {}, eval = {} }
        for line in host.read(file, 2 ^ 28):gmatch("[^\n]+") do
            local kind, micro, name, rows, width, rest = line:match("^(%a+) (%d+) ([%w_]+) (%d+) (%d+):(.*)")
            local values = {}
            for word in rest:gmatch("%S+") do values[#values + 1] = tonumber(word) end
            local list = seen[kind]
            list[tonumber(micro)] = list[tonumber(micro)] or {}
            list[tonumber(micro)][name] = { rows = tonumber(rows), width = tonumber(width), values = values }
        end
        return seen, t.load("tests/lua/json.lua").lines(host.read(log))
    end

    --- Compares a field of micro-batch k (rows k * rows on, in file order) with expected(row, place),
    --- both from 0; near: the relative tolerance, 0 for equal.
    function formats.check(batch, k, name, near, expected)
        local field = batch[name] or error("no field " .. name)
        t.equal(#field.values, field.rows * field.width, name)
        for i, found in ipairs(field.values) do
            local row, place = k * field.rows + (i - 1) // field.width, (i - 1) % field.width
            local value = expected(row, place)
            if not (math.abs(found - value) <= near * math.max(1, math.abs(value))) then
                error(("%s: row %d, value %d: expected %.17g, found %.17g"):format(name, row, place, value,
                    found), 2)
            end
        end
    end

    return formats
end
