-- Attention, rotary positions and norms against their formulas in Lua, on whole tensors. The results of a program's
-- kernels, forward and backward, are read from its probes (f64).

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local attended = dofile "tests/lua/attended.lua"
local ROWS = attended.ROWS

-- The values of the f64 tensors of a safetensors file, by name, read when asked for.
local function values_in(t, path)
    local text = assert(host.read(path))
    local length = string.unpack("<I8", text)
    local start = 8 + length
    local entries = t.load("tests/lua/json.lua").read(text:sub(9, start))
    return setmetatable({}, { __index = function(list, name)
        local entry, values = assert(entries[name], name), {}
        t.equal(entry.dtype, "F64", name)
        for at = start + entry.data_offsets[1] + 1, start + entry.data_offsets[2], 8 do
            values[#values + 1] = string.unpack("<d", text, at)
        end
        list[name] = values
        return values
    end })
end

-- Builds a model of `outputs`, tensors of the rows of the batch, runs one cycle, and returns the values of every
-- tensor by name, and `parameters`. outputs, masks: as attended has them.
local function values_of(t, name, outputs, masks)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = name .. ".safetensors"
    t.write(programs.folder() .. "/data/" .. file, attended.data(t, "F64", masks or {}))
    local p = programs.build("attend_" .. name,
        attended.spec(file, outputs, 'precision "f64"\ntrain     { updates = 1, seed = 3 }'),
        { probe = true, options = { "--without", "fusion" } })
    p.train = p.probe
    local start = t.temp() .. "/start.safetensors"
    local folder = programs.dump(p, { "--cycles", 1, "--save-init", start })
    local list = values_in(t, folder .. "/micro-0.safetensors")
    list.parameters = values_in(t, start)
    return list
end

local function close(t, found, expected, what)
    t.equal(#found, #expected, what .. ": elements")
    local largest, nonzero = 0, false
    for _, x in ipairs(expected) do largest = math.max(largest, math.abs(x)) end
    for i, x in ipairs(expected) do
        if not (math.abs(found[i] - x) <= 1e-13 * largest) then
            error(("%s[%d]: %.17g found, %.17g expected"):format(what, i, found[i], x), 2)
        end
    end
    assert(largest > 0, what .. ": all zeros")
end

-- o: positions T of the queries, keys S (default: T), heads, kv_heads, d, sees(row, i, j), kept(row, h, i, j) = factor
-- of p. q, k, v: arrays of (row, position, head, element). Returns y, and from dy also dq, dk and dv, by the definition:
-- the whole matrix of p.
local function attention(o, q, k, v, dy)
    local T, S, H, K, d = o.positions, o.keys or o.positions, o.heads, o.kv_heads, o.d
    local y, dq, dk, dv = {}, {}, {}, {}
    local function of_query(row, i, h, c) return (((row - 1) * T + i - 1) * H + h - 1) * d + c end
    local function of_key(row, j, g, c) return (((row - 1) * S + j - 1) * K + g - 1) * d + c end
    for i = 1, ROWS * T * H * d do y[i], dq[i] = 0.0, 0.0 end
    for i = 1, ROWS * S * K * d do dk[i], dv[i] = 0.0, 0.0 end
    for row = 1, ROWS do
        for h = 1, H do
            local g = (h - 1) // (H // K) + 1
            for i = 1, T do
                local s, largest, total, p = {}, -math.huge, 0, {}
                for j = 1, S do
                    local dot = 0
                    for c = 1, d do dot = dot + q[of_query(row, i, h, c)] * k[of_key(row, j, g, c)] end
                    s[j] = o.sees(row, i, j) and dot / math.sqrt(d) or -math.huge
                    largest = math.max(largest, s[j])
                end
                for j = 1, S do
                    p[j] = s[j] == -math.huge and 0 or math.exp(s[j] - largest)
                    total = total + p[j]
                end
                local dp, mean = {}, 0
                for j = 1, S do
                    if total > 0 then p[j] = p[j] / total end
                    dp[j] = 0
                    local z = o.kept and o.kept(row, h, i, j) or 1
                    for c = 1, d do
                        local query, key = of_query(row, i, h, c), of_key(row, j, g, c)
                        y[query] = y[query] + p[j] * z * v[key]
                        dp[j] = dp[j] + z * dy[query] * v[key]
                    end
                    mean = mean + p[j] * dp[j]
                end
                for j = 1, S do
                    local ds, z = p[j] * (dp[j] - mean) / math.sqrt(d), o.kept and o.kept(row, h, i, j) or 1
                    for c = 1, d do
                        local query, key = of_query(row, i, h, c), of_key(row, j, g, c)
                        dq[query] = dq[query] + ds * k[key]
                        dk[key] = dk[key] + ds * q[query]
                        dv[key] = dv[key] + p[j] * z * dy[query]
                    end
                end
            end
        end
    end
    return y, dq, dk, dv
end

local CASES = {
    { "all keys", positions = 5, heads = 3, kv_heads = 3, d = 5 },
    { "causal", positions = 7, heads = 2, kv_heads = 2, d = 4, causal = true },
    { "grouped keys", positions = 6, heads = 6, kv_heads = 2, d = 3 },
    { "one key head, causal", positions = 9, heads = 4, kv_heads = 1, d = 7, causal = true },
    { "one of everything", positions = 1, heads = 1, kv_heads = 1, d = 1 },
    { "several tiles", positions = 150, heads = 2, kv_heads = 1, d = 17 },
    { "several tiles, causal", positions = 131, heads = 1, kv_heads = 1, d = 33, causal = true },
    { "several tiles of a worker", positions = 70, heads = 2, kv_heads = 1, d = 256 },
    { "several tiles of a worker, causal", positions = 70, heads = 2, kv_heads = 2, d = 256, causal = true },
    { "many heads, causal", positions = 130, heads = 12, kv_heads = 4, d = 3, causal = true },
    { "masked keys", positions = 6, heads = 2, kv_heads = 2, d = 3,
      visible = function(r, j) return r == 1 or r == 2 and j <= 4 end },
    { "masked keys in several tiles", positions = 140, heads = 4, kv_heads = 2, d = 6, causal = true,
      visible = function(r, j) return r == 1 and j % 3 ~= 1 or r == 2 and j >= 70 end },
    { "more keys than queries", positions = 5, keys = 9, heads = 2, kv_heads = 2, d = 3 },
    { "fewer keys than queries, grouped, masked", positions = 11, keys = 4, heads = 4, kv_heads = 2, d = 5,
      visible = function(r, j) return r == 1 or r == 2 and j <= 3 end },
    { "one query", positions = 1, keys = 7, heads = 2, kv_heads = 1, d = 3 },
    { "causal, more keys than queries", positions = 4, keys = 9, heads = 2, kv_heads = 1, d = 3, causal = true },
    { "causal, fewer keys than queries", positions = 20, keys = 3, heads = 2, kv_heads = 2, d = 3, causal = true },
    { "more tiles of keys, masked", positions = 70, keys = 150, heads = 2, kv_heads = 1, d = 17,
      visible = function(r, j) return r == 1 and j % 3 ~= 1 or r == 2 and j >= 70 end },
    { "fewer tiles of keys", positions = 150, keys = 20, heads = 2, kv_heads = 2, d = 5 },
    { "causal, more tiles of keys", positions = 75, keys = 140, heads = 2, kv_heads = 1, d = 3, causal = true },
    { "causal, fewer tiles of keys", positions = 140, keys = 75, heads = 1, kv_heads = 1, d = 18, causal = true },
}

-- The rotary positions { positions, heads, elements of a head, base } of the model of all cases.
local ROTARY = { { 5, 3, 8, 10000 }, { 37, 2, 6, 50 }, { 2, 1, 2, 7 } }

-- Cases of several tiles and the others, which run in a tenth of the time, are a model each.
local GROUPS = { small = {}, tiles = {} }
for _, case in ipairs(CASES) do
    case.keys = case.keys or case.positions
    case.group = math.max(case.positions, case.keys) > 100 and "tiles" or "small"
    local group = GROUPS[case.group]
    group[#group + 1] = case
    case.number = #group
end

-- The values of the model of a group; in the small one, behind the cases, also queries, keys and values in one tensor,
-- rotary positions and norms. Names of tensors: number() of the output.
local function values_of_group(t, name)
    local outputs, masks = {}, {}
    for i, case in ipairs(GROUPS[name]) do
        local T, S, H, K, d = case.positions, case.keys, case.heads, case.kv_heads, case.d
        if case.visible then masks[#masks + 1] = case end
        outputs[i] = ('attend { heads = %d, kv_heads = %d, causal = %s } (of("q%d", %d, %d), of("k%d", %d, %d), '
            .. 'of("v%d", %d, %d)%s)'):format(H, K, tostring(case.causal or false), i, T, H * d, i, S, K * d, i, S,
            K * d, case.visible and ", batch.mask" .. S or "")
    end
    if name == "tiles" then return values_of(t, name, outputs, masks) end
    outputs[#outputs + 1] = 'attend { heads = 4, kv_heads = 2, causal = true } (of("qkv", 6, 24))'
    for i, case in ipairs(ROTARY) do
        local positions, heads, d, base = table.unpack(case)
        outputs[#outputs + 1] = ('rotary { heads = %d, base = %d } (of("x%d", %d, %d))')
            :format(heads, base, i, positions, heads * d)
    end
    outputs[#outputs + 1] =
        '(layernorm "ln" { eps = 0.01 } (of("x", 2, 23))) + (rmsnorm "rms" { eps = 0.02 } (of("z", 2, 23)))'
    return values_of(t, name, outputs, masks)
end

-- The name of the i-th output of one op.
local function number(name, i) return i == 1 and name or name .. "_" .. i end

for _, case in ipairs(CASES) do
    add("attention against its definition: " .. case[1], function(t)
        local found, i = values_of_group(t, case.group), case.number
        local reference = { positions = case.positions, keys = case.keys, heads = case.heads,
            kv_heads = case.kv_heads, d = case.d,
            sees = function(row, query, key)
                return not (case.causal and key > query) and (not case.visible or case.visible(row, key))
            end }
        local function input(name, prefix) return found[(prefix or "") .. name .. i .. "_y"] end
        local out = number("attend_out", i)
        local y, dq, dk, dv = attention(reference, input "q", input "k", input "v", found["d_" .. out])
        close(t, found[out], y, "y")
        close(t, input("v", "d_"), dv, "dv")
        if case.keys > 1 then       -- with one key p is 1 for all q and k
            close(t, input("q", "d_"), dq, "dq")
            close(t, input("k", "d_"), dk, "dk")
        end
    end)
end

-- Rows of `widths`, side by side, as an array for each width.
local function split(values, widths)
    local parts, at = {}, 1
    for i in ipairs(widths) do parts[i] = {} end
    while at <= #values do
        for i, width in ipairs(widths) do
            table.move(values, at, at + width - 1, #parts[i] + 1, parts[i])
            at = at + width
        end
    end
    return table.unpack(parts)
end

add("attention against its definition: queries, keys and values in one tensor", function(t)
    local o = { positions = 6, heads = 4, kv_heads = 2, d = 3,
        sees = function(_, i, j) return j <= i end }
    local found, out = values_of_group(t, "small"), number("attend_out", #GROUPS.small + 1)
    local widths = { 12, 6, 6 }
    local q, k, v = split(found.qkv_y, widths)
    local y, dq, dk, dv = attention(o, q, k, v, found["d_" .. out])
    close(t, found[out], y, "y")
    local found_q, found_k, found_v = split(found.d_qkv_y, widths)
    close(t, found_q, dq, "dq")
    close(t, found_k, dk, "dk")
    close(t, found_v, dv, "dv")
end)

-- 0 or 1 / (1 - p) by the draws of the first cycle; seed: that of the spec.
local function drops(t, name, iteration, p, queries, keys)
    local draw = t.load("tests/lua/rng.lua")
    return function(row, h, i, j)
        local element = ((h - 1) * queries + i - 1) * keys + j - 1
        return draw(3, name, iteration, 0, row - 1, element) >= p and 1 / (1 - p) or 0
    end
end

add("dropout of attention against the draws of each row, head, query and key", function(t)
    local cases = {
        { positions = 70, keys = 70, heads = 2, kv_heads = 1, d = 3, sees = function(_, i, j) return j <= i end,
          kept = drops(t, "attend", 0, 0.3, 70, 70) },
        { positions = 12, keys = 75, heads = 2, kv_heads = 1, d = 3, sees = function() return true end,
          kept = drops(t, "attend.2", 0, 0.3, 12, 75) },
    }
    local found = values_of(t, "dropout", {
        'attend { heads = 2, kv_heads = 1, causal = true, dropout = 0.3 } (of("q1", 70, 6), of("k1", 70, 3), '
            .. 'of("v1", 70, 3))',
        'attend { heads = 2, kv_heads = 1, dropout = 0.3 } (of("q2", 12, 6), of("k2", 75, 3), of("v2", 75, 3))' })
    for i, case in ipairs(cases) do
        local function input(name, prefix) return found[(prefix or "") .. name .. i .. "_y"] end
        local out = number("attend_out", i)
        local y, dq, dk, dv = attention(case, input "q", input "k", input "v", found["d_" .. out])
        close(t, found[out], y, "y")
        close(t, input("q", "d_"), dq, "dq")
        close(t, input("k", "d_"), dk, "dk")
        close(t, input("v", "d_"), dv, "dv")
    end
end)

add("an evaluation has no dropout in attention", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function loss(name, dropout)
        local p = programs.build(name, ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (9)
model     { linear "qkv" { 60 }, reshape { 5, 12 }, attend { heads = 2, dropout = %s }, flatten {}, linear "out" { 3 } }
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 9, seed = 3 }
]]):format(dropout))
        local events = programs.events(p, { "--eval" })
        return events[2].loss, programs.events(p, { "--cycles", 1 })[2].loss
    end
    local eval, train = loss("attend_eval_drops", "0.5")
    local eval_without, train_without = loss("attend_eval_none", "0")
    t.equal(eval, eval_without)
    assert(train ~= train_without, "dropout changes nothing in training")
end)

-- Warnings of the compiler are errors here.
add("attention of the batch itself, without a gradient, has no function that nothing calls", function(t)
    local programs, marches = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t)
    for _, march in ipairs { "sapphirerapids", "x86-64-v3" } do
        local text = [[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (9)
model (function(batch)
    local x = reshape { 2, 2 } (batch.input)
    return linear "out" { 3 } (flatten {} (attend { heads = 1 } (x, x, x)))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 9, seed = 3 }
precision "bf16"
]]
        local p = programs.build("attend_no_gradient", text, { options = { "--march", march },
            level = marches.level_of(march) })
        t.equal(host.read(p.folder .. "/step.c"):find "attend_dx", nil)
    end
end)

-- With short vectors a tile has whole columns of fewer keys than sums along rows take at once. Arrays that clang compiles
-- begin as not-a-numbers (programs.lua).
add("scores that no product has written count for nothing", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    if t.shell("command -v clang").status ~= 0 then t.not_run("needs clang") end
    for _, precision in ipairs { "f32", "f64" } do
        local text = ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (9)
model (function(batch)
    local function of(name, T) return reshape { T, 4 } (linear(name) { 4 * T } (batch.input)) end
    return linear "out" { 3 } (flatten {} (attend { heads = 1, causal = true } (of("q", 7), of("k", 16), of("v", 16))))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 9, seed = 3 }
precision "%s"
]]):format(precision)
        local p = programs.build("attend_unseen_" .. precision, text, { options = { "--march", "generic" },
            compiler = "clang" })
        programs.train(p, { "--cycles", 1 })
    end
end)

add("dropout of attention differs from iteration to iteration", function(t)
    local found = values_of(t, "dropout_times", { [[times(2) "h" (function(x)
        return attend { heads = 2, dropout = 0.5 } (linear "qkv" { 12 } (x)) end) (of("x", 5, 4))]] })
    for l = 0, 1 do
        local q, k, v = split(found["h_qkv_y." .. l], { 4, 4, 4 })
        close(t, found["h_attend_out." .. l], attention({ positions = 5, heads = 2, kv_heads = 2, d = 2,
            sees = function() return true end, kept = drops(t, "h.%d.attend", l, 0.5, 5, 5) }, q, k, v,
            found["h_attend_out." .. l]), "iteration " .. l)
    end
end)

-- The convention of Llama's files: rotate_half(x) = (-second half, first half); x cos + rotate_half(x) sin.
local function rotated(x, positions, heads, d, base, sign)
    local y = {}
    for at = 1, #x, d do
        local position = (at - 1) // (heads * d) % positions
        for c = 0, d - 1 do
            local half = d // 2
            local angle = sign * position * base ^ (-2 * (c % half) / d)
            local partner = c < half and -x[at + c + half] or x[at + c - half]
            y[at + c] = x[at + c] * math.cos(angle) + partner * math.sin(angle)
        end
    end
    return y
end

add("rotary positions against their definition; their gradient rotates back", function(t)
    local found = values_of_group(t, "small")
    for i, case in ipairs(ROTARY) do
        local positions, heads, d, base = table.unpack(case)
        local out, x = number("rotary_out", i), "x" .. i .. "_y"
        close(t, found[out], rotated(found[x], positions, heads, d, base, 1), "y")
        close(t, found["d_" .. x], rotated(found["d_" .. out], positions, heads, d, base, -1), "dx")
    end
end)

add("norms against their definition", function(t)
    local found = values_of_group(t, "small")
    local function normalised(x, centred, eps)
        local y = {}
        for at = 1, #x, 23 do
            local mean, square = 0, 0
            for c = 0, 22 do mean = mean + (centred and x[at + c] / 23 or 0) end
            for c = 0, 22 do square = square + (x[at + c] - mean) ^ 2 / 23 end
            for c = 0, 22 do y[at + c] = (x[at + c] - mean) / math.sqrt(square + eps) end
        end
        return y
    end
    local start = found.parameters
    local ln, rms = normalised(found.x_y, true, 0.01), normalised(found.z_y, false, 0.02)
    for i = 1, #ln do
        local c = (i - 1) % 23 + 1
        ln[i] = ln[i] * start["ln.weight"][c] + start["ln.bias"][c]
        rms[i] = rms[i] * start["rms.weight"][c]
    end
    close(t, found.ln_y, ln, "layernorm")
    close(t, found.rms_y, rms, "rmsnorm")
end)

add("attention and rotary positions refuse wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function refused(model)
        local spec = t.temp() .. "/bad.lua"
        t.write(spec, ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (3)
model     (function(batch)
    local function of(name, width, n)
        n = n or 2
        return reshape { n, width } (linear(name) { n * width } (batch.input))
    end
    return linear "out" { 3 } (flatten {} (%s))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 1 }
]]):format(model))
        programs.folder()
        local result = programs.gagen { spec, "-o", t.temp(), env = { "GAGEN_DATA=" .. t.root .. "/"
            .. programs.folder() .. "/data" } }
        t.equal(result.status, 1, result.err)
        t.contains(result.err, "bad.lua:8: ")
        return result.err
    end
    for _, case in ipairs {
        { 'attend { heads = 3 } (of("x", 10))', "width 10 found, expected a multiple of 9" },
        { 'attend { heads = 4, kv_heads = 3 } (of("x", 10))', "4 heads found for 3 kv_heads" },
        { 'attend { heads = 2 } (of("q", 8), of("k", 6), of("v", 8))', "width 6 found, expected 8: 2 heads of 4" },
        { 'attend { heads = 2, kv_heads = 1 } (of("q", 8), of("k", 8), of("v", 8))', "width 8 found, expected 4" },
        { 'attend { heads = 2 } (of("q", 8), of("k", 8))', "got 2 tensors, expected 1, 3 or 4" },
        { 'attend { heads = 2 } (linear "x" { 12 } (batch.input))', "shape (3, 12) found, expected (rows, positions" },
        { 'attend { heads = 1 } (of("x", 771))', "heads of 257 elements found, expected at most 256" },
        { 'attend { heads = 2 } (of("q", 8), of("k", 8), of("v", 8), of("m", 1))', "mask" },
        { 'attend { heads = 2 } (of("q", 8), of("k", 8, 3), of("v", 8, 4))',
          "keys of shape (3, 3, 8) and values of shape (3, 4, 8) found, expected as many positions" },
        { 'attend { heads = 2 } (of("q", 8), of("k", 8, 3), of("v", 8, 3), of("m", 1))',
          "keys of shape (3, 3, 8) and a mask of shape (3, 2, 1) found, expected as many positions" },
        { 'rotary { heads = 2 } (of("x", 6))', "heads of 3 elements found, expected an even number" },
        { 'rotary { heads = 2, base = 1 } (of("x", 8))', "base is 1" },
    } do
        t.contains(refused(case[1]), case[2])
    end
end)

return tests
