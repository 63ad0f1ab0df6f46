-- The runtime of a device (runtime/device) under the conditions that machines differ in: the versions of driver and
-- libraries, their folders, the launcher of the ranks. tests/device/probe runs one scenario on the device library.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local devices = dofile "tests/lua/devices.lua"

-- Runs a scenario of the probe; its exit code must be `status`.
local function probe(t, scenario, settings, status)
    devices.needs_library(t)
    local _, environment, build = devices.open(t)
    local env = environment(settings)
    for _, name in ipairs { "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
        "SLURM_LOCALID", "CUDA_HOME", "CUDA_MODULE_LOADING" } do
        table.insert(env, 1, name)              -- not set, unless a later word sets it
    end
    local result = t.run { build .. "/device/probe", scenario, env = env }
    t.equal(result.status, status or 0, result.err)
    return result
end

-- A copy of kernels.cu of the probe with `text` behind it.
local function kernels_with(t, text)
    local folder = t.temp()
    t.write(folder .. "/kernels.cu", host.read(t.root .. "/" .. t.build .. "/device/kernels.cu") .. text)
    return "GAGEN_KERNELS=" .. folder
end

-- Kernels that need one architecture compile only where its name ends in an a.
local function only_for(number)
    return ("#if !defined(__CUDA_ARCH_FEAT_SM%d_ALL)\n#error compiled for every architecture\n#endif\n"):format(number)
end

add("kernels for one architecture are compiled for it alone", function(t)
    probe(t, "add", { kernels_with(t, only_for(90)) })
    probe(t, "add", { kernels_with(t, only_for(100)), "GAGEN_DEVICE_ARCH=100" })
    local text = "\n#define ADVANCED defined(__CUDA_ARCH_FEAT_SM90_ALL)\n"
    probe(t, "add", { kernels_with(t, text), "GAGEN_DEVICE_ARCH=80" })     -- sm_80 has no such code
    probe(t, "add", { kernels_with(t, text), "GAGEN_DEVICE_ARCH=103" })    -- compute_100: later devices load it
end)

-- A kernel that is there for one architecture is known there alone.
add("kernels between #ifdef and #endif are those of sm_90a", function(t)
    local text = "\n#ifdef __CUDA_ARCH_FEAT_SM90_ALL\nGA_KERNEL(32) own(int *p) { *p = 1; }\n#endif\n"
    probe(t, "add", { kernels_with(t, text) })
    probe(t, "add", { kernels_with(t, text), "GAGEN_DEVICE_ARCH=80" })
end)

add("inline PTX that the device library does not have does not compile", function(t)
    local function kernel(instruction)
        return kernels_with(t, ("GA_KERNEL(32) own(unsigned *p) {\n    unsigned x;\n    %s\n    *p = x;\n}\n"):format(
            instruction))
    end
    probe(t, "add", { kernel 'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(1.0f), "f"(2.0f));' })
    probe(t, "add", { kernel 'asm("{ .reg .pred p; selp.u32 %0, 1, 2, p; }" : "=r"(x));' })
    local result = probe(t, "add", { kernel 'asm volatile("mov.u32 %0, 1;" : "=r"(x));' }, 1)
    t.contains(result.err, "ptx_mov_u32")
end)

add("blocks of a cluster have the shared memory of their launch alone; clusters divide its blocks", function(t)
    local function in_clusters(kernel, blocks, status, ...)
        local folder = t.temp()
        local text, count = host.read(t.root .. "/" .. t.build .. "/device/kernels.cu"):gsub(("%%) %s%%("):format(kernel),
            (") __cluster_dims__(%d) %s("):format(blocks, kernel))
        t.equal(count, 1)
        t.write(folder .. "/kernels.cu", text)
        return probe(t, kernel, { "GAGEN_DEVICE_CHECK=1", "GAGEN_KERNELS=" .. folder, ... }, status).err
    end
    in_clusters("reverse", 1)
    t.match(in_clusters("block_sum", 3, 3), "device: cluster: a __shared__ array, .* block %(%d,0,0%)")
    t.match(in_clusters("block_sum", 2, 3), "3 blocks of 256 threads in clusters of 2 cannot be")
    t.match(in_clusters("add", 5, 3), "5 blocks of 256 threads in clusters of 5 cannot be")     -- more than 1024 threads
    t.match(in_clusters("reverse", 1, 3, "GAGEN_DEVICE_ARCH=80"), "in clusters of 1 cannot be")
end)

add("kernels that begin beside the end of the one in front wait for it", function(t)
    local folder = t.temp()
    local function added(pattern, status, ...)
        local text = host.read(t.root .. "/" .. t.build .. "/device/kernels.cu")
        t.write(folder .. "/kernels.cu", (text:gsub(pattern, "%1\n    ga_begin();")))
        return probe(t, "add", { "PROBE_DEPENDENT=1", "GAGEN_DEPENDENT=1", "GAGEN_KERNELS=" .. folder, ... }, status).err
    end
    local EACH, NONE = "(\nGA_KERNEL%b()[^{;]*{)", "(no kernel)"
    added(EACH, 0, "GAGEN_DEVICE_CHECK=1")
    added(NONE, 0, "GAGEN_DEVICE_CHECK=1", "GAGEN_DEPENDENT=0")
    added(NONE, 0, "GAGEN_DEVICE_CHECK=1", "GAGEN_DEVICE_ARCH=80")
    t.contains(added(NONE, 3, "GAGEN_DEVICE_CHECK=1"), "device: dependent: global memory before the wait")
    t.contains(added(NONE, 3), "device: dependent: a thread never waits")
    t.contains(added(EACH, 1, "GAGEN_DEPENDENT=yes"), 'GAGEN_DEPENDENT: found "yes", expected 0 or 1')
end)

add("NVRTC is that of the driver's CUDA or an older one", function(t)
    probe(t, "add", { "GAGEN_DEVICE_DRIVER=12080" })
    probe(t, "add", { "GAGEN_DEVICE_DRIVER=13000" })
    local result = probe(t, "add", { "GAGEN_DEVICE_DRIVER=11080" }, 3)
    t.match(result.err, "device 0: its driver is for CUDA 11%.8; install one for CUDA 12 or newer")
end)

add("libraries are found in the toolkit's folder", function(t)
    local library = t.root .. "/" .. t.build .. "/device/lib"
    local driver, home = t.temp(), t.temp()
    t.shell(("ln -s %s/*.h %s"):format(library, driver))
    t.shell(("ln -s %s/libdevice.so %s/libcuda.so.1; mkdir %s/lib64"):format(library, driver, home))
    t.shell(("ln -s %s/*.h %s/libnvrtc.so.12 %s/lib64"):format(library, library, home))
    if t.shell("ldconfig -p").out:find("libnvrtc.so.12", 1, true) then t.not_run("NVRTC 12 is installed") end
    local settings = { "GAGEN_DEVICE_DRIVER=12080", "LD_LIBRARY_PATH=" .. driver }
    if not host.read("/usr/local/cuda/lib64/libnvrtc.so.12") then
        local result = probe(t, "add", settings, 3)
        t.match(result.err, "libnvrtc.so.12: not found .*the driver is for CUDA 12: install NVRTC 12")
    end
    settings[#settings + 1] = "CUDA_HOME=" .. home
    probe(t, "add", settings)
end)

add("a driver that cannot load kernels in a capture loads them at the start", function(t)
    local old = { "GAGEN_DEVICE_DRIVER=12020" }
    probe(t, "graph", old)
    old[#old + 1] = "CUDA_MODULE_LOADING=LAZY"     -- a setting of the user stays
    t.match(probe(t, "graph", old, 3).err, "loaded lazily inside a capture")
end)

add("a rank takes the device of its number on its host", function(t)
    local function device(...) return probe(t, "ordinal", { ... }).out end
    t.equal(device(), "device 0\n")
    for _, name in ipairs { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID" } do
        t.equal(device(name .. "=3"), "device 3\n")
        t.equal(device(name .. "=3", "GAGEN_DEVICE_COUNT=1"), "device 0\n")
        local result = probe(t, "ordinal", { name .. "=x" }, 1)
        t.contains(result.err, name .. ': found "x", expected a number')
    end
    t.equal(device("SLURM_LOCALID=0", "OMPI_COMM_WORLD_LOCAL_RANK=2"), "device 2\n")
    local result = probe(t, "ordinal", { "SLURM_LOCALID=5", "GAGEN_DEVICE_COUNT=2" }, 3)
    t.match(result.err, "device 5: this process sees 2")
end)

-- Two ranks run a scenario of the probe.
local function two_ranks(t, scenario, settings, status)
    devices.needs_library(t)
    local _, environment, build = devices.open(t)
    local result = t.run { t.root .. "/tests/device/ranks", "2", build .. "/device/probe", scenario,
        env = environment(settings) }
    t.equal(result.status, status or 0, result.err)
    return result
end

add("an NCCL without what a program needs is refused", function(t)
    t.match(two_ranks(t, "nccl", { "GAGEN_DEVICE_NCCL=20908" }, 3).err, "NCCL 2%.9 is too old; install NCCL 2%.10")
    t.match(two_ranks(t, "nccl", { "GAGEN_DEVICE_NCCL=2804" }, 3).err, "NCCL 2%.8 is too old; install NCCL 2%.10")
    two_ranks(t, "nccl", { "GAGEN_DEVICE_NCCL=21003" })
end)

add("a collective that fails ends the wait for it", function(t)
    for collective = 1, 4 do                        -- the later ones are in a graph
        local result = two_ranks(t, "nccl", { "GAGEN_DEVICE_NCCL_FAILS=" .. collective }, 3)
        t.match(result.err, "NCCL failed in a collective: remote process failed %(6%)")
        assert(not result.err:find "device: nccl", result.err)
    end
end)

-- tools/gpu-check with a GPU that is none: `make`, the tests and compute-sanitizer write down how they are called.
local function gpu_check(t, failing, ...)
    local folder = t.temp()
    local function script(name, text)
        t.write(folder .. "/" .. name, "#!/bin/sh\n" .. text .. "\n")
        t.shell(("chmod +x %s/%s"):format(folder, name))
    end
    script("bin/nvidia-smi", [[case $1 in -L) echo "GPU 0: none" ;; *compute_cap*) echo 9.0 ;; *driver*) echo 580.1 ;;
*) echo "NVIDIA H200" ;; esac]])
    script("bin/make", ":")
    script("bin/compute-sanitizer", ('echo "$@" >> %s/sanitized'):format(folder))
    script("tests/run", ([[shift
status=0
for test; do
    echo "$GAGEN_GPU_CHECK $GAGEN_GPU_ARCH $test" >> %s/ran
    name=${test%%%%:*}
    echo "[       OK ] $name: one"
    case $test in %s*) for n in 1 2; do echo "[  FAILED  ] $name: two"; done; status=1; esac
done
exit $status]]):format(folder, failing))
    for _, name in ipairs { "cuda_digits_cuda", "hopper_small_bf16_cuda", "other" } do
        script(("tests/worker0/programs/%s/train"):format(name), ":")
    end
    local result = t.run { t.root .. "/tools/gpu-check", env = { "BUILD=" .. folder, "RECORD=" .. folder
        .. "/record/gpu-check.md", "PATH=" .. folder .. "/bin:" .. t.environment "PATH", ... } }
    return result, host.read(folder .. "/ran"), host.read(folder .. "/sanitized"),
        host.read(folder .. "/record/gpu-check.md")
end

add("gpu-check runs every file of tests that has one of a device, descriptors first, and writes a record", function(t)
    local result, ran, sanitized, record = gpu_check(t, "none")
    t.equal(result.status, 0, result.err)
    t.match(ran, "^1 90 test_hopper: descriptors: %*\n")
    for _, name in ipairs { "cuda", "cuda_ops", "precision", "cross_attention", "batchnorm", "scaler", "streams",
        "sample", "resume_cuda", "zero3_cuda", "tensor", "tensor_attention", "tensor_conv", "hopper" } do
        t.contains(ran, ("1 90 test_%s: *\n"):format(name))
    end
    for _, tool in ipairs { "memcheck", "racecheck", "initcheck", "synccheck" } do
        for _, program in ipairs { "cuda_digits_cuda", "hopper_small_bf16_cuda" } do
            t.match(sanitized, ("%%-%%-tool %s [^\n]+/%s/train"):format(tool, program))
        end
        t.contains(record, ("| compute-sanitizer %s | 2 programs, 0 with findings |\n"):format(tool))
    end
    t.match(record, "\n1 x NVIDIA H200, driver 580%.1; %d+%-%d%d%-%d%d; commit %x+[%l ]*; passed%.\n")
    t.contains(record, "| test_streams | 1 passed, 0 failed, 0 not run |\n")
    result, ran, sanitized, record = gpu_check(t, "test_hopper:\\ d*|test_cuda")
    t.equal(result.status, 1)
    t.contains(ran, "test_streams: *")              -- the others run all the same
    t.contains(result.out, "gpu-check: failed: descriptors test_cuda test_cuda_ops\n")
    t.contains(record, "| test_cuda | 1 passed, 1 failed, 0 not run |\n")
    t.contains(record, "; failed: descriptors test_cuda test_cuda_ops.\n")
    t.contains(result.out, "gpu-check: a product by TMA and wgmma is wrong or stuck on this GPU: ")
    result, ran, sanitized, record = gpu_check(t, "none", "FILES=test_scaler", "TOOLS=racecheck")
    t.equal(result.status, 0, result.err)
    t.equal(ran, "1 90 test_hopper: descriptors: *\n1 90 test_scaler: *\n")
    assert(not sanitized:find("memcheck", 1, true), sanitized)
    t.contains(record, "| other files of tests | NOT RUN: FILES names some |\n| other tools | NOT RUN: ")
end)

add("ranks that connect inside a capture are noticed", function(t)
    t.match(two_ranks(t, "nccl_unconnected", {}, 3).err, "first all%-reduce of 1000 elements connects the ranks")
end)

return tests
