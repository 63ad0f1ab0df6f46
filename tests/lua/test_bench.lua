-- make bench: medians, ratios and shares of load by hand; the driver with programs whose times are known; its specs.
local function shell_script(t, path, text)
    t.write(path, "#!/bin/sh\n" .. text)
    t.equal(t.run { "chmod", "+x", path }.status, 0)
end

-- Programs that say fixed times, in the place of gagen, of its train and of Python; a compiler whose program says fixed
-- rates.
local function known_programs(t, folder)
    shell_script(t, folder .. "/train", [[
echo turn >> "$0.turns"
while [ $# -gt 0 ]; do [ "$1" != --log ] || log=$2; shift; done
case $(wc -l < "$0.turns") in 1) times="99 10 10 70" ;; *) times="99 20 20 20" ;; esac
for ms in $times; do echo "{\"event\":\"update\",\"ms\":$ms}" >> "$log"; done
]])
    shell_script(t, folder .. "/gagen", [[
while [ $# -gt 0 ]; do case $1 in -o) to=$2 ;; --log) log=$2 ;; esac; shift; done
mkdir -p "$to"
cp "${0%/*}/train" "$to/train"
echo '{"kernels":[{"calls":4,"flops":0,"bytes":1000000},{"calls":0,"flops":1e15,"bytes":1e15}]}' > "$to/plan.json"
echo '{"event":"start"}
{"event":"update","ms":5}' > "$log"
]])
    shell_script(t, folder .. "/cc", [[
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\necho f32 2e9; echo memory 1e9\n' > "$2"
chmod +x "$2"
]])
    shell_script(t, folder .. "/python", [[
case $* in
*import*) echo 9.9 ;;
*--compile*) echo "no compiler here" >&2; exit 1 ;;
*) echo "a warning"; echo '{"torch":"9.9","measured_s":0,"ms":[30, 31, 29]}' ;;
esac
]])
end

-- make bench without make: the driver, with these variables.
local function bench(t, folder, variables)
    local env = { "OUT=" .. folder .. "/out", "RESULTS=" .. folder .. "/results", "GAGEN=" .. folder .. "/gagen",
        "PYTHON=" .. folder .. "/python", "CONFIGS=a", "PRECISIONS=f32", "TURNS=2", "SECONDS=0.001", "THREADS=1",
        "SWEEP=0", "COMPILE=1", "LLMC", "MARCH=generic" }
    table.move(variables, 1, #variables, #env + 1, env)
    t.equal(t.run { "mkdir", "-p", folder .. "/out" }.status, 0)
    return t.run { t.build .. "/bench/host", "bench/training.lua", env = env }
end

-- A gagen and a compiler of known programs for bench/products.lua; oneDNN is not installed.
local function known_products(t, folder)
    shell_script(t, folder .. "/gagen", [[
while [ "$1" != -o ]; do shift; done
mkdir -p "$2"
cat > "$2/plan.json" <<end
{"kernels":[{"name":"this_forward","fn":"f"},{"name":"backward_before_y","fn":"i"},
{"name":"backward_this_weight","fn":"w"},{"name":"pack_this_weight_in_out","fn":"p"}]}
end
]])
    shell_script(t, folder .. "/cc", [[
case $* in *-ldnnl*) exit 1 ;; *rates.c*) said='echo f32 4e9' ;;
*) said='printf "%s\n" "forward gagen 1e-3 2e-3 9" "forward OpenBLAS 2e-3 2e-3 9" "by_input gagen 1e-3 1e-3 9" \
"by_input OpenBLAS 5e-4 1e-3 9" "by_weight gagen 1e-3 1e-3 9" "by_weight OpenBLAS 1e-3 1e-3 9" "pack gagen 5e-4 1 9"' ;;
esac
case $* in *products.c*) case $* in *-DFORWARD=f\ -DBY_INPUT=i\ -DBY_WEIGHT=w*-DPACK=p*) ;; *) exit 1 ;; esac ;; esac
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n%s\n' "$said" > "$2"
chmod +x "$2"
]])
end

-- A GPU, a gagen whose programs take known times, and a cuBLASLt for bench/gpu.lua.
local function known_gpu(t, folder)
    known_programs(t, folder)
    shell_script(t, folder .. "/bin/nvidia-smi", 'echo "NVIDIA H200, 580.1"')
    shell_script(t, folder .. "/train-probe", [[
echo "kernel calls ms % GFLOP/s GB/s least from"
[ "$2" = --quiet ] && echo "first         12     24.000   80.0         1         1     10.000  a.lua:1"
echo "second        12      6.000   20.0         1         1      5.000  a.lua:2"
]])
    local gagen = host.read(folder .. "/gagen"):gsub("\necho '{\"kernels.-\n", [[

cp "${0%%/*}/train-probe" "$to/train-probe"
printf 'train-probe:\n' > "$to/Makefile"
echo '{"device":{"call_us":1},"kernels":[
{"name":"first","kind":"linear","fn":"linear_5x7x3","calls":4,"flops":989e9,"bytes":1,"predicted_us":999},
{"name":"second","kind":"norm","fn":"norm_5x7x3","calls":4,"flops":1,"bytes":4.8e9,"predicted_us":1999},
{"name":"third","kind":"norm","fn":"evaluated","calls":0,"flops":1,"bytes":1,"predicted_us":1}]}' > "$to/plan.json"
]])
    t.write(folder .. "/gagen", gagen)
    shell_script(t, folder .. "/cublaslt",
        [[read line; [ "$line" = "1 5 7 3 0 1 bf16 bf16" ] && echo "1 1500.000"]])
    shell_script(t, folder .. "/data", "mkdir -p $2")
end

-- bench/gpu.lua without make, with these variables.
local function bench_gpu(t, folder, variables)
    local env = { "OUT=" .. folder .. "/out", "RESULTS=" .. folder .. "/results", "GAGEN=" .. folder .. "/gagen",
        "PYTHON=" .. folder .. "/python", "CUBLASLT=" .. folder .. "/cublaslt", "HOST=" .. folder .. "/data",
        "CONFIGS=mlp", "PRECISIONS=bf16", "TURNS=2", "SECONDS=0.001", "SMALL", "MARCH", "PATH=" .. folder .. "/bin:"
        .. t.environment "PATH" }
    table.move(variables, 1, #variables, #env + 1, env)
    t.equal(t.run { "mkdir", "-p", folder .. "/out" }.status, 0)
    return t.run { t.build .. "/bench/host", "bench/gpu.lua", env = env }
end

return {
    { "medians, paired ratios, floors and shares of load by hand", function(t)
        local s = t.load("bench/statistics.lua")
        t.equal(s.median { 3, 1, 2 }, 2)
        t.equal(s.median { 4, 1, 2, 3 }, 2.5)
        t.equal(s.ratios({ 30, 30, 10 }, { 10, 20, 10 }), { median = 1.5, least = 1.0, most = 3.0 })
        local before = s.ticks("cpu  100 0 50 1000 10 0 0 5 0 0\n")
        local after = s.ticks("cpu  180 10 70 1060 20 5 5 15 0 0\n")
        t.equal(before, { all = 1165, busy = 150, stolen = 5 })
        local sum = { all = 0, foreign = 0, stolen = 0 }
        s.add_load(sum, before, after, 70)
        t.equal(sum, { all = 200, foreign = 50, stolen = 10 })
        local kernels = { { calls = 2, flops = 100, bytes = 10 }, { calls = 3, flops = 10, bytes = 40 } }
        t.near(s.floor(kernels, 100, 10), 1e6 * (2 * 1 + 3 * 4), 1e-6)
    end },
    { "ratios are those of turns, and a mode that fails is not run", function(t)
        local folder = t.temp()
        known_programs(t, folder)
        local result = bench(t, folder, {})
        t.equal(result.status, 0, result.err)
        local all = host.parse_json(host.read(folder .. "/results/training.json"))
        local row = all.rows[1]
        t.equal(row.ours.turns_ms, { 10, 20 })
        t.equal(row.yardstick, "PyTorch eager")
        t.near(row.ratio.median, (3 + 1.5) / 2, 1e-9)
        t.equal({ row.ratio.least, row.ratio.most }, { 1.5, 3.0 })
        t.near(row.ours.floor_ms, 4e6 / row.rates.memory * 1e3, 1e-9)
        t.equal(row.others[2], { name = "PyTorch compiled", not_run = "exit 1: no compiler here" })
        t.equal(all.torch, "9.9")
        t.contains(result.out, "| 1 | 15 (10 to 20) | 30 (30 to 30) | PyTorch eager | 2.25 (1.5 to 3) |")
        t.equal(host.read(folder .. "/results/training.md"), result.out)
    end },
    { "without PyTorch its columns say NOT RUN; llm.c's times are those of its lines", function(t)
        local folder = t.temp()
        known_programs(t, folder)
        shell_script(t, folder .. "/llm/train_gpt2", [[
for step in 0 1 2; do echo "step $step: train loss 5.0 (took 10$step.0 ms)"; done
]])
        local result = bench(t, folder, { "PYTHON=/bin/false", "CC=" .. folder .. "/cc", "CONFIGS=a e", "TURNS=1",
            "LLMC=" .. folder .. "/llm" })
        t.equal(result.status, 0, result.err)
        local rows = host.parse_json(host.read(folder .. "/results/training.json")).rows
        t.equal(rows[1].others, {})
        t.near(rows[1].ours.floor_ms, 4, 1e-9)
        t.contains(result.out, "| a: MLP | f32 | 4 | 1 | 10 (10 to 10) | NOT RUN | NOT RUN | NOT RUN |")
        t.contains(result.out, "PyTorch: NOT RUN, /bin/false has no PyTorch")
        t.equal(rows[2].yardstick, "llm.c")
        t.equal(rows[2].others[1].turns_ms, { 101.5 })
    end },
    { "a sweep has micro-steps, layers and threads", function(t)
        local folder = t.temp()
        known_programs(t, folder)
        local result = bench(t, folder, { "PYTHON=/bin/false", "CC=" .. folder .. "/cc", "CONFIGS=c",
            "TURNS=1", "SWEEP=1", "THREADS=2" })
        t.equal(result.status, 0, result.err)
        local seen = {}
        for i, row in ipairs(host.parse_json(host.read(folder .. "/results/training.json")).sweep) do
            seen[i] = ("%s %d %d"):format(row.title, row.accumulate, row.threads)
        end
        t.equal(seen, { "GPT, 6 layers 1 2", "GPT, 6 layers 4 2", "GPT, 6 layers 16 2", "GPT, 6 layers 64 2",
            "GPT, 1 layer 4 2", "GPT, 3 layers 4 2", "GPT, 12 layers 4 2", "GPT, 6 layers 4 1" })
        t.contains(host.read(folder .. "/out/c_f32_4_2_12.lua"),
            "\nlocal layers, heads, width, vocab, context = 12, 6, 384, 256, 256\n")
    end },
    { "a folder that another one uses is refused; what a command said is shown", function(t)
        local folder = t.temp()
        known_programs(t, folder)
        t.write(folder .. "/gagen", '#!/bin/sh\necho "a reason" >&2\necho "make failed" >&2\nexit 3\n')
        local result = bench(t, folder, { "PYTHON=/bin/false", "CC=" .. folder .. "/cc" })
        t.equal(result.status, 3)
        t.contains(result.err, "a reason\nmake failed\n")
        t.contains(result.err, "bench: MLP: exit 3: make failed")
        local lock = assert(host.lock(folder .. "/out/.lock"))
        t.equal(lock:take "alone", true)
        result = bench(t, folder, {})
        t.equal(result.status, 1)
        t.contains(result.err, "bench: OUT: another make bench uses ")
        lock:close()
    end },
    { "wrong variables are refused", function(t)
        local folder = t.temp()
        for variable, message in next, {
            ["CONFIGS=a x"] = "bench: CONFIGS: 'x', expected some of a b c d e",
            ["PRECISIONS= "] = "bench: PRECISIONS is empty, expected some of f32 bf16",
            ["TURNS=1.5"] = "bench: TURNS: '1.5', expected a whole number above 0",
            ["SECONDS=0"] = "bench: SECONDS: '0', expected a number above 0",
            ["SWEEP=yes"] = "bench: SWEEP: 'yes', expected 0 or 1",
            ["MARCH=none"] = "bench: MARCH: no profile 'none'",
            ["LLMC=/none"] = "bench: LLMC: no file /none/train_gpt2, expected a checkout",
        } do
            local result = bench(t, folder, { variable })
            t.equal(result.status, 1)
            t.contains(result.err, message)
        end
    end },
    { "the specs are right for the rows that bench/data.lua makes", function(t)
        local folder = t.temp()
        t.equal(t.run { t.build .. "/bench/host", "bench/data.lua", folder }.status, 0)
        for _, name in ipairs { "mlp", "resnet18", "gpt" } do
            local result = t.run { t.gagen, "check", ("bench/specs/%s.lua"):format(name),
                env = { "GAGEN_DATA=" .. folder } }
            t.equal(result.status, 0, result.err)
            t.equal(result.err, ("bench/specs/%s.lua: ok\n"):format(name))
        end
    end },
    { "products: rates, the better library, a library that is not installed", function(t)
        local folder = t.temp()
        known_products(t, folder)
        t.equal(t.run { "mkdir", "-p", folder .. "/out" }.status, 0)
        local result = t.run { t.build .. "/bench/host", "bench/products.lua", env = { "OUT=" .. folder .. "/out",
            "RESULTS=" .. folder .. "/results", "GAGEN=" .. folder .. "/gagen", "CC=" .. folder .. "/cc",
            "CONFIGS=c d e", "ROWS=64 2048", "THREADS=1", "SECONDS", "MARCH=generic" } }
        t.equal(result.status, 0, result.err)
        local all = host.parse_json(host.read(folder .. "/results/products.json"))
        t.equal(all.not_run, { oneDNN = "libdnnl-dev is not installed" })
        local large = { c = 0, ["d, e"] = 0 }
        for _, row in ipairs(all.rows) do
            large[row.config] = large[row.config] + (row.rows == 2048 and 1 or 0)
        end
        t.equal(large, { c = 15, ["d, e"] = 12 })       -- without the vocabulary of d
        t.equal(all.rows[1].ratio, { least = 2.0, median = 1.0 })
        t.equal(all.rows[2].ratio, { least = 0.5, median = 1.0 })
        t.contains(result.out, "| c | c_attn | 64, 384, 1152 | forward | 56.6 (28.3) | 1416 % | 28.3 (28.3) | NOT RUN | "
            .. "2.00 (1.00) |")
        t.contains(result.out, "Medians of the ratios: 1.00 (1.00). A packed weight takes 50 % of the time")
        t.contains(result.out, "oneDNN: NOT RUN, libdnnl-dev is not installed.")
        t.equal(host.read(folder .. "/results/products.md"), result.out)
    end },
    { "on a GPU: rates, floors, predictions, PyTorch's and cuBLASLt's times", function(t)
        local folder = t.temp()
        known_gpu(t, folder)
        local result = bench_gpu(t, folder, {})
        t.equal(result.status, 0, result.err)
        local all = host.parse_json(host.read(folder .. "/results/nvidia-h200/gpu.json"))
        t.equal(all.gpu, { name = "NVIDIA H200", driver = "580.1" })
        local row = all.rows[1]
        t.equal(row.ours.turns_ms, { 10, 20 })
        t.near(row.ours.per_second, 1e3 * 256 / 15, 1e-6)
        t.near(row.ours.floor_ms, 4 * 1 + 4 * 1, 1e-9)                  -- 989e9 / 989e12 and 4.8e9 / 4.8e12 s
        t.near(row.ours.floor_share, 8 / 15, 1e-9)
        t.near(row.ours.predicted_ms, 4 * 1 + 4 * 2, 1e-9)
        t.near(row.ours.yardstick_share, 4 * 1.5 / (24 / 3), 1e-9)
        t.equal({ row.kernels[1].name, row.kernels[1].calls, row.kernels[2].name, #row.kernels },
            { "first", 4.0, "second", 2 })
        t.near(row.others[1].ratio.median, (3 + 1.5) / 2, 1e-9)
        t.near(row.others[1].per_second, 1e3 * 256 / 30, 1e-6)
        t.equal(row.others[2], { name = "PyTorch compiled", not_run = "exit 1: no compiler here" })
        t.contains(result.out, "| MLP | bf16 | 64, 4 | 1.707e+04 images | 15 (10 to 20) | 12 | 8 | 53 % | 75 % |")
        t.contains(result.out, "| first | 4 | 8 | 4 | 4 | 6 |\n| second | 4 | 2 | 8 | 4 |  |\n")
        t.equal(host.read(folder .. "/results/nvidia-h200/gpu.md"), result.out)
        bench_gpu(t, folder, { "MODES=compiled", "TURNS=1" })
        row = host.parse_json(host.read(folder .. "/results/nvidia-h200/gpu.json")).rows[1]
        t.equal({ #row.others, row.others[1].name }, { 1, "PyTorch compiled" })
    end },
    { "without a GPU, PyTorch, cuBLASLt or peaks the place says NOT RUN; small models are no record", function(t)
        local folder = t.temp()
        known_gpu(t, folder)
        shell_script(t, folder .. "/cublaslt", "echo 'cublaslt: no libcublasLt.so.13' >&2; exit 3")
        shell_script(t, folder .. "/bin/nvidia-smi", 'echo "NVIDIA L4, 580.1"')
        local result = bench_gpu(t, folder, { "PYTHON=/bin/false", "TURNS=1" })
        t.equal(result.status, 0, result.err)
        t.contains(result.out, "PyTorch: NOT RUN, /bin/false has no PyTorch with CUDA")
        t.contains(result.out, "cuBLASLt: NOT RUN, cublaslt: no libcublasLt.so.13")
        t.contains(result.out, "| 12 | NOT RUN | NOT RUN | NOT RUN |")
        result = bench_gpu(t, folder, { "SMALL=1", "RESULTS" })
        t.equal(result.status, 1)
        t.contains(result.err, "bench: SMALL: times of small models are no record, expected RESULTS to be another")
        shell_script(t, folder .. "/bin/nvidia-smi", "exit 9")
        result = bench_gpu(t, folder, {})
        t.equal(result.status, 3)
        t.equal(result.out, "NOT RUN: bench-gpu: no NVIDIA GPU here (nvidia-smi lists none)\n")
    end },
    { "on a GPU: the whole path, with programs on the device library", function(t)
        t.long()
        local folder, record = t.temp(), host.read "bench/results/nvidia-h200/gpu.json"
        shell_script(t, folder .. "/bin/nvidia-smi", 'echo "NVIDIA H200, 580.1"')
        local result = bench_gpu(t, folder, { "GAGEN=" .. t.gagen, "HOST=" .. t.build .. "/bench/host",
            "CUBLASLT=" .. t.build .. "/bench/cublaslt", "SMALL=1", "TURNS=1", "PYTHON=/bin/false",
            "CONFIGS=gpt2 bert resnet18 mlp", "LD_LIBRARY_PATH=" .. t.root .. "/" .. t.build .. "/device/lib",
            "GAGEN_DEVICE_CLOCK=1" })
        t.equal(result.status, 0, result.err)
        for _, row in ipairs(host.parse_json(host.read(folder .. "/results/nvidia-h200/gpu.json")).rows) do
            assert(#row.kernels > 10 and row.ours.kernels_ms > 0 and row.ours.floor_ms > 0, row.title)
        end
        t.equal(host.read "bench/results/nvidia-h200/gpu.json", record)
    end },
    { "cuBLASLt computes the transpose of a product, by layouts of columns", function(t)
        local folder, library = t.temp(), t.root .. "/" .. t.build .. "/device/lib"
        t.write(folder .. "/lt.c", [[
#include <stdint.h>
#include <stdio.h>
int cublasLtCreate(void **h) { *h = h; return 0; }
int cublasLtMatmulDescCreate(void **p, int c, int s) { *p = p; return c != 68 || s != 0; }
int cublasLtMatmulDescDestroy(void *p) { return !p; }
int cublasLtMatmulDescSetAttribute(void *p, int n, const int *v, size_t b) {
    return !p || printf("turn %d %d %d\n", n, *v, (int)b) < 0;
}
int cublasLtMatrixLayoutCreate(void **l, int t, uint64_t r, uint64_t c, int64_t s) {
    *l = l;
    return printf("layout %d %d %d %d\n", t, (int)r, (int)c, (int)s) < 0;
}
int cublasLtMatrixLayoutDestroy(void *l) { return !l; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = p; return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int n, const size_t *v, size_t b) {
    return !p || n != 1 || !*v || b != 8;
}
int cublasLtMatmulAlgoGetHeuristic(void *h, void *p, void *a, void *b, void *c, void *d, void *f, int most, void *w,
                                   int *found) {
    *found = 1;
    return most < 1;
}
int cublasLtMatmul(void) { return 0; }
]])
        t.shell(("cc -shared -fPIC -w -o %s/libcublasLt.so.13 %s/lt.c"):format(folder, folder))
        local function said(line)
            local result = t.run { "sh", "-c", ("echo %s | %s/bench/cublaslt"):format(line, t.build),
                env = { ("LD_LIBRARY_PATH=%s:%s"):format(folder, library) } }
            return result.out, result.status, result.err
        end
        t.equal(said "forward 5 7 3 0 1 bf16 bf16",
            "turn 3 1 4\nturn 4 0 4\nlayout 14 3 7 3\nlayout 14 3 5 3\nlayout 14 7 5 7\nforward 0.000\n")
        t.equal(said "weight 5 7 3 1 0 f16 f32",
            "turn 3 0 4\nturn 4 1 4\nlayout 2 7 3 7\nlayout 2 5 3 5\nlayout 0 7 5 7\nweight 0.000\n")
        local _, status, message = said "weight 5"
        t.equal(status, 1)
        t.contains(message, "cublaslt: wrong line, expected eight words")
    end },
}
