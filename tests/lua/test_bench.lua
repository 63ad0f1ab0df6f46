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
}
