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
        if (device::bf16_narrow(x).bits != bf16_narrow(x).bits) return 1;
        if (device::f16_narrow(x).bits != f16_narrow(x).bits) return 2;
    }
    for (unsigned k = 0; k < 65536; k++) {
        const unsigned short h = (unsigned short)k;
        if (__float_as_uint(device::bf16_widen({h})) != __float_as_uint(bf16_widen({h}))) return 3;
        if (__float_as_uint(device::f16_widen({h})) != __float_as_uint(f16_widen({h}))) return 4;
    }
    return 0;
}
]]

add("the device widens and rounds as the C target does", function(t)
    local folder = t.temp()
    local text = host.read("templates/cuda/half.cu"):gsub("//@[^\n]*\n", "")
    t.write(folder .. "/check.cpp", (CHECK:gsub("%%s", function() return text end)))
    local built = t.run { "c++", "-std=c++17", "-O2", "-w", "-I" .. t.root .. "/tests/device", "-I" .. t.root,
        folder .. "/check.cpp", "-o", folder .. "/check" }
    t.equal(built.status, 0, built.err)
    t.equal(t.run({ folder .. "/check" }).status, 0)
end)

return tests
