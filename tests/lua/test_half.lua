-- Numbers of 16 bits: the functions of device kernels against those of the runtime.
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

return tests
