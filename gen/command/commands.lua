-- commands: gagen's commands and options as data. The parser, `gagen help`, the manual page, the
-- completions of shells and docs/COMMANDS.md are all made from these two lists.
--
-- A command: { name, arguments, doc, options, rest, apart, example, details }. An argument in brackets is optional;
-- SPEC is the name of a file; there may be more of a last one that ends in "...". rest: the name of the arguments that
-- may follow `--`. apart: lists of options, and optional arguments, of which at most one is given.
-- An option: { name, key, doc, value, most, many, values, among }. value: the name of its value, nil for a flag; most:
-- its largest integer, from 1; many: it may be given several times; values: the choices that completion offers; among:
-- others are refused.
local ordered = require "base.ordered"
local passes = require "passes.passes"
local words = require "spec.words"

local commands = {}

local function target_values(name)
    for _, field in ipairs(words.find("target").fields) do
        if field.name == name then return field.values end
    end
end

local MOST_TOKENS = 2147483647

commands.options = {
    { name = "-o", key = "output", value = "DIR", doc = "the program's own folder; default: out/NAME, or "
        .. "out/NAME--WORD.FIELD=VALUE with --set, --target, --march, --ranks or --without" },
    { name = "--set", key = "set", value = "WORD.FIELD=LUA", many = true,
        doc = "replace a value of the spec: --set accumulate=8 --set optimizer.lr=1e-3" },
    { name = "--target", key = "target", value = "NAME", values = target_values("kind"),
        doc = table.concat(target_values("kind"), " or ") },
    { name = "--march", key = "march", value = "NAME", values = target_values("march"),
        doc = "the profile to build for" },
    { name = "--ranks", key = "ranks", value = "N", most = 256, doc = "number of processes; run starts them" },
    { name = "-n", key = "ranks", value = "N", most = 256, doc = "of run: the same as --ranks" },
    { name = "--hosts", key = "hosts", value = "HOST:N,...",
        doc = "of run: the hosts of the ranks, each with its number of ranks" },
    { name = "--restart", key = "restart", value = "N", most = 1000,
        doc = "of run: start the ranks again, at most N times, where one has failed" },
    { name = "--threads", key = "threads", value = "N", most = 1024, doc = "threads per process; default: the spec's" },
    { name = "--without", key = "without", value = "PASS", many = true, values = passes.names(true),
        doc = "leave an optional pass out" },
    { name = "--trace", key = "trace", value = "DIR", doc = "write the graph after every pass" },
    { name = "--stop-after", key = "stop_after", value = "PASS", values = passes.names(),
        doc = "print the graph after this pass, and write nothing" },
    { name = "--equiv", key = "equiv", value = "A=1,2,4",
        doc = "compare the gradients and parameters of these numbers of micro-steps" },
    { name = "--like", key = "like", value = "SPEC", doc = "a shipped spec by its name, or a file" },
    { name = "--man", key = "man", doc = "the manual page, for man -l" },
    { name = "--markdown", key = "markdown", doc = "the text of docs/COMMANDS.md" },
    { name = "--annotations", key = "annotations",
        doc = "the text of gagen.d.lua: everything a spec may use, for the Lua language server" },
    { name = "--completion", key = "completion", value = "SHELL", values = { "bash", "zsh", "fish" },
        doc = "completion of the command line: bash, zsh or fish" },
    { name = "--vocab", key = "vocab", value = "PATH",
        doc = "bert: the file vocab.txt; gpt2: the folder of encoder.json and vocab.bpe" },
    { name = "--length", key = "length", value = "N", most = 65536,
        doc = "bert: ids of a row; longer rows are cut, shorter ones padded" },
    { name = "--text", key = "text", value = "COLUMN", doc = "bert: column of the text; default: sentence" },
    { name = "--pair", key = "pair", value = "COLUMN", doc = "bert: column of a second text" },
    { name = "--class", key = "class", value = "COLUMN", doc = "bert: column of the class; default: label" },
    { name = "--types", key = "types", doc = "bert: add a field of token types, 1 in the second text and 0 elsewhere" },
    { name = "--documents", key = "documents",
        doc = "gpt2: <|endoftext|> before the text and after each empty line" },
    { name = "--raw", key = "raw", doc = "gpt2: the tokens alone, without a header" },
    { name = "--ids", key = "ids", doc = "gpt2: the tokens as numbers, for --prompt of a program of tokens" },
    { name = "--decode", key = "decode",
        doc = "gpt2: TEXT has tokens as numbers, as --sample prints them; write their text" },
    { name = "--first", key = "first", value = "N", most = MOST_TOKENS, doc = "at most N rows or tokens" },
    { name = "--skip", key = "skip", value = "N", most = MOST_TOKENS, doc = "leave out the first N rows or tokens" },
    { name = "--force", key = "force",
        doc = "overwrite edited files, keeping a copy of each; write into a folder with files of others" },
    { name = "--calibrate", key = "calibrate", doc = "measure the rates that times are predicted from" },
    { name = "--lr", key = "lr", doc = "fit the learning rate" },
    { name = "--metric", key = "metric", value = "NAME", doc = "the figure to draw; default: loss" },
    { name = "--by", key = "by", value = "WHAT", values = { "update", "rows" }, among = true,
        doc = "the axis: number of the update, or rows trained on; default: update" },
    { name = "--scale", key = "scale", value = "WHAT", values = { "linear", "log" }, among = true,
        doc = "linear or log; default: linear" },
    { name = "--html", key = "html", value = "FILE", doc = "the file of the report; default: report.html" },
    { name = "--tol", key = "tol", value = "X", doc = "the largest difference at which runs count as equal" },
    { name = "--svg", key = "svg", value = "FILE", doc = "write the picture to FILE instead" },
    { name = "--csv", key = "csv", doc = "updates and evaluations as a table: to FILE, else to standard output" },
    { name = "--tensorboard", key = "tensorboard", value = "DIR",
        doc = "updates and evaluations as a file for TensorBoard in this folder" },
    { name = "--hf", key = "hf", value = "DIR", doc = "the model for transformers of Hugging Face, in this folder" },
    { name = "--onnx", key = "onnx", value = "FILE", doc = "the model as an ONNX file" },
    { name = "--gguf", key = "gguf", value = "FILE", doc = "the model as a GGUF file for llama.cpp" },
    { name = "--precision", key = "precision", value = "TYPE", values = { "f32", "f16" },
        doc = "of --gguf: type of its matrices, f32 (default) or f16" },
    { name = "--checkpoint", key = "checkpoint", value = "NAME",
        doc = "the checkpoint to take: newest (default), best, or its name" },
    { name = "--arch", key = "arch", value = "NAME", doc = "of kernels: compile for this device, sm_80 or sm_90a" },
    { name = "--json", key = "json", doc = "output for programs" },
    { name = "--why", key = "why", doc = "also what passes decided, and the reasons" },
    { name = "--dev", key = "dev", value = "DIR", doc = "use gagen's scripts and templates from a checkout" },
}

--- Options of each command that reads a spec.
commands.of_spec = { "--set", "--target", "--march", "--ranks", "--threads", "--without", "--trace" }

local function with(...)
    return table.move(commands.of_spec, 1, #commands.of_spec, select("#", ...) + 1, { ... })
end

commands.list = {
    { name = "generate", arguments = { "SPEC" }, options = with("-o", "--force", "--stop-after"),
        apart = { { "--stop-after", "-o" }, { "--stop-after", "--force" } },
        doc = "write the program to out/NAME; then make -C out/NAME and out/NAME/train",
        example = "gagen specs/digits_mlp.lua --set accumulate=8",
        details = "With --set, --target, --march, --ranks or --without and without -o the folder is "
            .. "out/NAME--WORD.FIELD=VALUE, out/digits_mlp--accumulate=8--optimizer.lr=1e-3 for example: the same "
            .. "values in any order give the same folder; a value that is long or has other signs than letters, "
            .. "digits and ._+- is shown by a hash. A file that was edited since gagen wrote it stops the command, "
            .. "and so does a folder with files of others and no program of gagen; --force overwrites and keeps "
            .. "copies in the folder edited. A folder in which a train runs is not changed. --set is part of the "
            .. "program's provenance: the files show it and spec_sha256 covers it." },
    { name = "run", arguments = { "SPEC" }, rest = "OPTIONS",
        options = with("-n", "--hosts", "--restart", "-o", "--force"),
        doc = "write, build and train; OPTIONS go to the program",
        example = "gagen run specs/digits_mlp.lua -- --cycles 100",
        details = "-n N starts N ranks of a spec with the word parallel: through the mpirun in PATH, or for a device "
            .. "as processes of this machine with the variables of torchrun. Each takes its part of the cores as "
            .. "threads, unless the spec or --threads says how many. Ctrl-C, SIGTERM and SIGHUP reach the ranks as "
            .. "SIGUSR1: they save, and the exit status is 75; a second Ctrl-C ends them at once. The status of a "
            .. "rank that fails is gagen's; ranks that still run 5 seconds later are ended. With --restart the ranks "
            .. "start again after status 3 or a signal, from the newest checkpoint of the run if there is one. "
            .. "--hosts a:2,b:2 goes to mpirun; the folder of the program must be on each host, at the same path. "
            .. "run.sh and job.sbatch in that folder start the ranks without gagen." },
    { name = "profile", arguments = { "SPEC" }, rest = "OPTIONS", options = with("-o", "--force"),
        doc = "write, build and run train-probe: the time of each kernel beside the predicted one",
        example = "gagen profile specs/digits_mlp.lua -- --cycles 20",
        details = "OPTIONS go to train-probe; without them it runs 10 updates on one micro-batch and keeps no "
            .. "checkpoint. Times are sums over all calls, with the threads that --threads says, else as many as the "
            .. "work keeps busy here. Predicted times come from the rates that doctor --calibrate has measured, else "
            .. "from coarse ones of the profile; the last line says which, and how far they are off. The measured "
            .. "times are kept as profile.json in the program's folder, for gagen report." },
    { name = "check", arguments = { "SPEC" }, options = with("--equiv", "--json"),
        apart = { { "--equiv", "--target" } },
        doc = "read and check only; --equiv proves that accumulation is exact",
        example = "gagen check specs/digits_mlp.lua --equiv A=1,2,4",
        details = "--equiv A=1,2,4 builds one program for each A in double precision in a temporary "
            .. "folder (a C compiler is needed), with the rows of a cycle held constant: B rows x A "
            .. "micro-steps. All start from the same values, run three cycles on the same data and are "
            .. "compared with the first: max|a - b| / max|b| of each tensor of gradients and "
            .. "parameters. Exit 0 if no difference is above 1e-12, else 1. Beyond 2e12 "
            .. "operations, one cycle of as few rows as all A divide is run instead, and the report says so." },
    { name = "plan", arguments = { "SPEC" }, options = with("--json", "--why"),
        doc = "every layer, byte, kernel and collective, before anything runs",
        details = "A row of the model's table is a layer, with the shape that a micro-step gives it, the iterations "
            .. "of its times, and the parameters and forward FLOP of an update of all of them; on a terminal too "
            .. "narrow for a table names lose their middles. --why adds a line for each decision: what is fused "
            .. "and what is not, recomputed, read from a copy or from its home, in which bucket, whether logits "
            .. "are whole, why a kernel waits. --json prints the facts as plan.json in the program's folder has "
            .. "them. There a kernel has its name, its function fn, for a device the kernel that it launches with its "
            .. "sizes, if several functions do, its role in the cycle, calls in an update, "
            .. "FLOP and bytes of a call, predicted_us of one core or of the device, and kind: its op, "
            .. "with _squares_of_2 or _squares_of_4 behind it for a convolution by squares of 2 x 2 or 4 x 4 "
            .. "results, and _by_2 behind that for a stride of 2; \"pointwise\", or \"functions\" with exp and the "
            .. "like; \"update\", or the name of another function of the boundary. For a device, device says what it "
            .. "is like and call_us, what each call adds; "
            .. "graph has the nodes of a cycle (nodes_per_cycle), of the largest graph, which is of a cycle or of a "
            .. "micro-step, and of the one behind the sweep over a file (after_sweep). busy, for the processor only, "
            .. "has micro_us, the work of a micro-step in microseconds of one core, thread_us, the work that a thread "
            .. "needs, and threads, as many as the work keeps busy. A run may have fewer: "
            .. "threads_why in its log says the reason. film has the memory of the activations: "
            .. "steps of a micro-step, and blocks with their offset, bytes, and the first and last step that uses "
            .. "them, from 1; warnings those of the spec.",
        example = "gagen plan specs/digits_mlp.lua --set batch=64" },
    { name = "lr", arguments = { "SPEC" }, options = with(),
        doc = "the learning rate of each update: its number from 1, a tab, the rate",
        details = "A third column is the momentum, or beta1, if the schedule moves it. The rate is the optimizer's; "
            .. "that of a group is multiplied by its lr_scale. For \"plateau\" it is the rate before any "
            .. "evaluation. Skipped updates are not considered.",
        example = "gagen lr specs/digits_mlp.lua" },
    { name = "fit", arguments = { "SPEC" }, rest = "OPTIONS", options = with("--lr", "-o", "--force"),
        doc = "suggest a learning rate, --lr: train with rising rates and read the losses",
        details = "The program is written to out/NAME--fit=lr, or with -o, and trains for 200 updates in a run of its "
            .. "own: in the place of the schedule the rate rises by one factor from update to update, from the "
            .. "optimizer's lr / 1000 to lr * 1000. The loss is smoothed, its mean over 11 updates, and ends where it "
            .. "is not finite or above 4 times the least. Suggested is the rate around which the smoothed loss falls "
            .. "most, from 5 updates before to 5 behind, up to its least; exit 1 if it falls by no more than its "
            .. "noise. A schedule that is a function of the spec cannot be replaced. OPTIONS go to the program.",
        example = "gagen fit specs/digits_mlp.lua --lr" },
    { name = "kernels", arguments = { "SPEC" }, options = with("--arch", "--json"),
        doc = "the kernels, as C or CUDA", example = "gagen kernels specs/digits_mlp.lua",
        details = "With --arch NVRTC compiles those of a device for it, and a table has a row for each, by the time of "
            .. "its calls in an update: registers of a thread, bytes of static shared memory and of spilled registers; "
            .. "FLOP and bytes of a call; its least time by the rates of a device like an H200, and the predicted "
            .. "one, with the time between two nodes of a graph; instructions, those of tensor cores, and accesses of "
            .. "16 bytes among those to global memory, where cuobjdump or nvdisasm is in PATH or CUDA_HOME/bin. "
            .. "--json has the same numbers. GAGEN_NVRTC names another library than libnvrtc.so.13 or .12; without "
            .. "one the exit code is 3." },
    { name = "show", arguments = { "SPEC", "[NAME]" }, options = with(),
        doc = "one file or kernel of the program; step.c if none is named",
        example = "gagen show specs/digits_mlp.lua fc1_forward" },
    { name = "diff", arguments = { "A", "[B]" }, options = with("--json"),
        doc = "the differences of two specs or programs: first the plan, then the text",
        example = "gagen diff specs/digits_mlp.lua --set accumulate=8",
        details = "A and B are specs or folders of programs. With one spec and --set, the unchanged spec is "
            .. "compared with the changed one; with two specs, --set applies to both. Lines about the origin of "
            .. "a program are left out." },
    { name = "ls", arguments = { "[SPEC]" }, options = { "--json" },
        doc = "the training runs of a spec's programs, or of all programs below out",
        details = "One line for each folder out/NAME/runs/RUN: when it began, in local time; running, done, stopped "
            .. "(on request, or as evaluations grew no better) or failed; updates; the last and the least loss of its "
            .. "evaluations, the other metrics of the last one; its size on disk; how it differs from the run before.",
        example = "gagen ls specs/digits_mlp.lua" },
    { name = "plot", arguments = { "RUN..." }, options = { "--metric", "--by", "--scale", "--svg" },
        doc = "curves of runs over each other: in the terminal, at its width, or as an SVG",
        details = "RUN is the folder of a run, a log, or the folder of a program, whose newest run is taken. A metric "
            .. "is a figure of updates (loss, lr, grad_norm, scale, ms, rows_per_s, tokens_per_s, ...) or of "
            .. "evaluations (eval.loss, accuracy, ...); docs/LOG.md has them all. Below the axis ! is a value that is "
            .. "not finite, s a skipped update, r a resume. Into a pipe goes plain text of 80 columns. A log that ends "
            .. "in the middle of a line, as after a kill, is drawn as far as it goes.",
        example = "gagen plot out/digits_mlp/runs/001 out/digits_mlp/runs/002 --metric accuracy" },
    { name = "report", arguments = { "RUN..." }, options = with("--html"),
        doc = "one page of HTML about runs, a program or a spec: curves, model, memory, kernels, network",
        details = "RUN is as for plot. The folder of a program stands for its newest 8 runs, and a spec for its plan "
            .. "alone. The page is one file that needs no network and no script: curves of all runs by update and by "
            .. "rows, what differs between them, the layers, what memory holds when, each kernel with its floor and, "
            .. "after gagen profile, its measured time, collectives planned and counted, and how to run it once more. "
            .. "A curve of many updates is thinned; each figure has its data as CSV. The plan is that of the first "
            .. "program among the words.",
        example = "gagen report out/digits_mlp/runs/001 out/digits_mlp/runs/002" },
    { name = "compare", arguments = { "RUN", "RUN" }, options = { "--tol", "--json" },
        doc = "two runs: what differs in their specs, losses at equal rows, speed, memory",
        details = "RUN is as for plot. Losses are compared where both runs have trained on the same number of rows; "
            .. "where one has several updates in between, by their mean. A difference is |a - b| over the larger of "
            .. "both. With --tol the exit status is 1 if a loss or a metric of an evaluation differs by more, or if "
            .. "there is nothing to compare. gagen diff compares programs instead.",
        example = "gagen compare out/digits_mlp/runs/001 out/digits_mlp/runs/002 --tol 1e-6" },
    { name = "export", arguments = { "RUN", "[FILE]" }, options = { "--csv", "--tensorboard", "--hf", "--onnx",
        "--gguf", "--checkpoint", "--vocab", "--precision" },
        doc = "a run for other programs: its log for TensorBoard, its model for transformers, ONNX, llama.cpp",
        example = "gagen export out/digits_mlp/runs/001 --csv run.csv",
        details = "RUN is the folder of a run, or of a program: its newest run. --csv writes a line for each update "
            .. "and evaluation of the log, and a column for each of their fields. --tensorboard writes "
            .. "events.out.tfevents.START.gagen, START in seconds since 1970: curves train/FIELD and eval/FIELD, by "
            .. "cycle, rounded to f32. Their times follow from the start of the run and the times of its cycles. "
            .. "--hf, --onnx and --gguf take the parameters of a whole checkpoint, or their averages (ema), and "
            .. "read of the data files what the spec needs. --hf writes config.json, model.safetensors and the files "
            .. "of a tokenizer where one is known: that of a text's letters, or with --vocab, as tokenize has it, "
            .. "that of BERT's vocab.txt or of GPT-2's encoder.json and vocab.bpe. It takes models of the form of "
            .. "GPT-2, Llama, and BERT with a classifier, whatever their layers are called; another one is refused "
            .. "with the line of the spec that has no place in it. --onnx takes models with one output, as an "
            .. "evaluation computes them: opset 17, any number of rows, inputs as the word data gives them to the "
            .. "model. --gguf takes GPT-2 and Llama. A file is written under another name and renamed when it is "
            .. "whole." },
    { name = "new", arguments = { "NAME" }, options = { "--like" },
        doc = "write NAME.lua, a spec to begin with", example = "gagen new hello --like digits_mlp",
        details = "Without --like it is a small commented spec; with it, a copy of a shipped spec or of "
            .. "another file. An existing file is never overwritten." },
    { name = "list", arguments = { "[KIND]" }, options = {},
        doc = "list all that a spec may use: words, layers, ops, losses, optimizers, schedules, data, warnings",
        example = "gagen list layers" },
    { name = "tokenize", arguments = { "METHOD", "TEXT", "FILE" }, options = { "--vocab", "--first", "--skip",
        "--documents", "--raw", "--ids", "--decode", "--length", "--text", "--pair", "--class", "--types" },
        doc = "turn a text into the ids of its tokens for training; METHOD: gpt2 or bert",
        example = "gagen tokenize bert sst2/dev.tsv sst2_dev.safetensors --vocab vocab.txt --length 64",
        details = "gpt2 writes the tokens of a text in the format of llm.c's token files, for data { \"tokens\" }. "
            .. "<|endoftext|> in the text becomes that token. --ids writes a prompt for a program of tokens, --decode "
            .. "turns what --sample prints into text. bert reads the rows of a TSV file, whose first line "
            .. "names the columns, and writes a safetensors file for data { \"tensors\" }: ids = [CLS] text "
            .. "[SEP], padded with [PAD]; mask = 0 for padding, else 1; types; the class under the name of "
            .. "its column. The ids are those of Hugging Face's tokenizers for uncased BERT; [CLS], [SEP], "
            .. "[MASK], [PAD] and [UNK] in the text become those pieces. With --pair a row is [CLS] text [SEP] "
            .. "second text [SEP] and has types; the longer text is cut first." },
    { name = "help", arguments = { "[WORD]" },
        options = { "--man", "--markdown", "--annotations", "--completion" },
        apart = { { "--man", "--markdown", "--annotations", "--completion", "[WORD]" } },
        doc = "this list, a command, or anything that list shows", example = "gagen help plan" },
    { name = "doctor", arguments = {}, options = { "--calibrate", "--march" },
        doc = "say what is installed and what is missing; --calibrate measures this machine",
        example = "gagen doctor",
        details = "--calibrate measures the rates of this machine for a profile, its own or --march: FLOP in f32 and "
            .. "bf16, memory, a cache, a call, and the shares that kernels of two small programs reach, with one "
            .. "thread and with all cores. They take about a minute, lie in the cache folder, one file for each "
            .. "machine and profile, and give the times that plan and profile print; no program depends on them. "
            .. "Measure on a quiet machine: other processes make the rates lower." },
    { name = "version", arguments = {}, options = {},
        doc = "version of gagen and of Lua", example = "gagen version" },
}

commands.exit = {
    { 0, "done" }, { 1, "your input; or check --equiv or compare --tol finds a difference, fit no rate" },
    { 2, "a bug of gagen" },
    { 3, "disk, memory or tools" },
}

commands.environment = {
    { "GAGEN_DATA", "folder of data files, searched before the folder data beside the spec" },
    { "CC, CFLAGS, LDFLAGS", "compiler and flags with which make builds a program" },
    { "XDG_CACHE_HOME", "its folder gagen keeps compiled runtimes of `run` and `check --equiv`, and the "
        .. "rates of `doctor --calibrate`; default ~/.cache" },
    { "NO_COLOR", "any text but an empty one: no colours on a terminal, as with TERM=dumb" },
    { "TMPDIR", "folder in which check --equiv and doctor --calibrate build their programs; default /tmp" },
}

--- The command of this name, or nil.
function commands.find(name)
    for _, command in ipairs(commands.list) do
        if command.name == name then return command end
    end
end

function commands.names() return ordered.collect(commands.list, function(c) return c.name end) end

--- The option of this name, or nil.
function commands.option(name)
    for _, option in ipairs(commands.options) do
        if option.name == name then return option end
    end
end

--- "0 done, 1 ..." on one line.
function commands.exit_text()
    return table.concat(ordered.collect(commands.exit, function(e) return e[1] .. " " .. e[2] end), ", ")
end

--- "-o DIR", "--force".
function commands.option_usage(option)
    return option.name .. (option.value and " " .. option.value or "")
end

--- "run SPEC [-- OPTIONS]".
function commands.usage(command)
    local parts = command.name ~= "generate" and { command.name } or {}
    table.move(command.arguments, 1, #command.arguments, #parts + 1, parts)
    if command.rest then parts[#parts + 1] = "[-- " .. command.rest .. "]" end
    return table.concat(parts, " ")
end

return commands
