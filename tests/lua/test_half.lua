-- Numbers of 16 bits: the functions of device kernels against those of the runtime; how products read their weights.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CHECK = [[
#include "shim.h"
#define GA_DEVICE static
typedef unsigned int ga_uint32;
namespace device {
%s
}
#include "runtime/base/bf16.h"
#include "runtime/base/f16.h"
int main() {
    for (unsigned long long k = 0; k < 1ull << 32; k += 251) {
        const float x = __uint_as_float((unsigned)k);
        const bf16 short_x = bf16_narrow(x);
        const f16 half_x = f16_narrow(x);
        if (x == x && device::bf16_narrow(x).bits != short_x.bits) return 1;
        if (x == x && device::f16_narrow(x).bits != half_x.bits) return 2;
        if (x != x && (!isnan(device::bf16_rounded(x)) || !isnan(device::f16_rounded(x)))) return 5;
    }
    for (unsigned k = 0; k < 65536; k++) {
        const unsigned short h = (unsigned short)k;
        if (__float_as_uint(device::bf16_widen({h})) != __float_as_uint(bf16_widen({h}))) return 3;
        const float x = device::f16_widen({h}), y = f16_widen({h});
        if (x == x || y == y ? __float_as_uint(x) != __float_as_uint(y) : false) return 4;
    }
    return 0;
}
]]

add("the device widens and rounds as the C target does", function(t)
    local folder = t.temp()
    -- an instruction is the function that the device library has for it
    local text = host.read("templates/cuda/half.cu"):gsub("//@[^\n]*\n", "")
        :gsub('asm%("([%w.]+)[^"]*" : "=%l"%((%w+)%) : (.-)%);', function(name, result, operands)
            return ("ptx_%s(%s, %s);"):format(name:gsub("%.", "_"), result, operands:gsub('"%l"', ""))
        end)
    local library = assert(host.read("tests/device/tensor.cpp"))
    local functions = { "#include \"kernel_abi.h\"\n#include <cmath>\n#include <cstdint>\n#include <cstring>\nstatic" }
    for _, name in ipairs { "uint32_t bits_of", "unsigned dev_narrow_bf16", "float dev_widen_f16",
        "unsigned dev_narrow_f16" } do
        functions[#functions + 1] = library:match("\n" .. name .. "%(.-\n}\n")
    end
    t.write(folder .. "/functions.cpp", table.concat(functions))
    t.write(folder .. "/check.cpp", (CHECK:gsub("%%s", function() return text end)))
    local built = t.run { "c++", "-std=c++17", "-O2", "-w", "-I" .. t.root .. "/tests/device", "-I" .. t.root,
        folder .. "/check.cpp", folder .. "/functions.cpp", "-o", folder .. "/check" }
    t.equal(built.status, 0, built.err)
    t.equal(t.run({ folder .. "/check" }).status, 0)
end)

-- 130 rows of a micro-step: from 128 on a panel is turned while it is packed. 45 and 10 columns, 64 and 45 terms: whole
-- vectors and rests.
local MANY_ROWS = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (%d)
accumulate (2)
model      { linear "fc1" { 45 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 3, seed = 3 }
]]

add("many rows read a weight by columns as it lies, fewer a transposed copy", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function with(text, precision) return text .. ('precision "%s"\n'):format(precision) end
    local function why(rows, half, march)
        local path = ("%s/many_rows_%s_%d.lua"):format(programs.folder(), half, rows)
        t.write(path, with(MANY_ROWS:format(rows), half))
        return programs.gagen({ "plan", path, "--march", march, "--why" }).out:match "\n  fc1%.weight +([^\n]*)"
    end
    local function gradients(precision)
        local p = programs.build("many_rows_" .. precision, with(MANY_ROWS:format(130), precision))
        return programs.dump(p, { "--cycles", 1 })
    end
    local COPY, exact = "transposed view +a product of each micro%-step reads it by columns", gradients "f32"
    for half, digits in pairs { bf16 = 8, f16 = 11 } do
        t.match(why(127, half, "x86-64-v3"), COPY)
        t.match(why(130, half, "x86-64-v3"), "view +products read " .. half)
        t.match(why(130, half, "generic"), COPY)
        programs.close(gradients(half), exact, 16 * 2.0 ^ -digits, { "gradients" })
    end
    t.match(why(130, "bf16", "sapphirerapids"), "views +products of each micro%-step read panels")
end)

return tests
