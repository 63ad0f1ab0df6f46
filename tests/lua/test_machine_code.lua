-- gagen kernels --arch: what NVRTC makes of the kernels, and the instructions that a disassembler lists.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function kernels(t, env, ...)
    local command = { t.root .. "/" .. t.gagen, "kernels", t.root .. "/specs/digits_mlp.lua", env = env }
    return t.run(table.move({ ... }, 1, select("#", ...), #command + 1, command))
end

-- The same for the CUDA target and sm_80; NOT RUN without NVRTC.
local function compiled(t, env, ...)
    local result = kernels(t, env, "--target", "cuda", "--arch", "sm_80", ...)
    if result.status == 3 then t.not_run "no libnvrtc here" end
    t.equal(result.status, 0, result.err)
    return result.out
end

add("registers, shared memory and spills are those of ptxas", function(t)
    local nothing = t.temp()
    local out = compiled(t, { "PATH=" .. nothing, "CUDA_HOME=" .. nothing }, "--without", "fusion")
    t.contains(out, "kernels for sm_80, NVRTC ")
    t.contains(out, "no cuobjdump and no nvdisasm in PATH")
    local text = host.read(t.root .. "/templates/cuda/matmul.cu")
    assert(text:find("a_tile[DEPTH][ROWS + 1], b_tile[DEPTH][COLUMNS + 1]", 1, true), "the tiles have another size")
    local calls, registers, shared, spilled, flops = out:match(
        "\nlinear_in_out_16x64x64 +(%d+) +(%d+) +(%d+) +(%d+) +(%S+)")
    t.equal(tonumber(calls), 4)
    assert(tonumber(registers) >= 16 and tonumber(registers) <= 255, registers)
    t.equal(tonumber(shared), 2 * 32 * 33 * 4)             -- two tiles of 32 x 32 with a column to spare
    t.equal(tonumber(spilled), 0)
    t.near(tonumber(flops), 2 * 16 * 64 * 64 / 1e6, 2e-3)
end)

add("times follow from the rates of the device, JSON has all numbers", function(t)
    local found = host.parse_json(compiled(t, {}, "--json"))
    t.equal(found.arch, "sm_80")
    local last = math.huge
    for _, k in ipairs(found.kernels) do
        t.near(k.floor_us, math.max(k.flops / 67e12, k.bytes / 3.7e12) * 1e6, 1e-9)
        t.near(k.predicted_us, k.floor_us + 3, 1e-9)
        assert(k.calls * k.predicted_us <= last, "rows are not in the order of their times")
        last = k.calls * k.predicted_us
    end
end)

add("instructions are counted by kind and width", function(t)
    local folder = t.temp()
    t.write(folder .. "/cuobjdump", [[#!/bin/sh
cat <<'END'
		Function : relu_n
        /*0000*/                   MOV R1, c[0x0][0x28] ;                  /* 0x00000a0000017a02 */
                                                                           /* 0x000fe40000000f00 */
        /*0010*/              @!P0 LDG.E.128 R4, [R2.64] ;                 /* 0x0000000402048981 */
        /*0020*/                   LDG.E R8, [R2.64+0x10] ;
        /*0030*/               @P1 STG.E.128 [R2.64], R4 ;
        /*0040*/                   LDS R3, [R5] ;
        /*0050*/                   FFMA R3, R4, R5, R3 ;
        /*0060*/             @!UP0 HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
        /*0070*/                   EXIT ;
		Function : decide
        /*0000*/                   EXIT ;
END
]])
    t.shell(("chmod +x %s/cuobjdump"):format(folder))
    local env = { "PATH=" .. folder .. ":" .. t.environment "PATH" }
    local found = host.parse_json(compiled(t, env, "--without", "fusion", "--json"))
    local mixes = {}
    for _, k in ipairs(found.kernels) do mixes[k.fn] = k.instructions end
    local expected = { total = 8, tensor = 1, multiply_add = 1, global = 3, global_16_bytes = 2, shared = 1 }
    for kind, n in next, expected do t.equal(mixes.relu_16x64[kind], n, kind) end
    t.equal(mixes.decide.total, 1)
    t.match(compiled(t, env, "--without", "fusion"), "\nrelu_16x64 [^\n]+ 8 +1 +2/3\n")
end)

add("without NVRTC, for another architecture or target the message says what to do", function(t)
    local result = kernels(t, { "GAGEN_NVRTC=/nowhere/libnvrtc.so" }, "--target", "cuda", "--arch", "sm_80")
    t.equal(result.status, 3)
    t.match(result.err, "%-%-arch: /nowhere/libnvrtc%.so: not found .*; install NVRTC of the CUDA toolkit, or name")
    for _, case in ipairs {
        { { "--arch", "h200", "--target", "cuda" }, "'h200', expected an architecture such as sm_80 or sm_90a" },
        { { "--arch", "sm_80" }, "choose another target, --target" }, { { "--json" }, "--json needs --arch" } } do
        result = kernels(t, {}, table.unpack(case[1]))
        t.equal(result.status, 1)
        t.contains(result.err, case[2])
    end
end)

return tests
