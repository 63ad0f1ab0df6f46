"""Random training runs against themselves: models, data, accumulation, optimizers, precisions, modes of parallel, in
random specs. Each is trained once to its end; then what docs promise of any run is tried on it:

- stopped anywhere, by a micro-step, a number of cycles, a signal or a kill, and resumed: files and log of the straight
  run
- other numbers of threads, without fusion, with recomputed values: its bits
- other modes of parallel: the bits of ddp, or up to rounding; one rank with the rows of all: up to rounding
- an evaluation of a checkpoint: the figures that the run logged; initial values in a file; outputs for each row
- the log: each field and each sum; memory: the bytes of the plan; check --equiv

    python3 tests/reference/random_runs.py FIRST LAST [cuda] [refused]

tries the seeds FIRST to LAST - 1; `cuda`: with target "cuda", on the libraries that LD_LIBRARY_PATH has. A spec that
gagen refuses is drawn anew; `refused`: its message is printed. Needs torch (random_specs.py), numpy, gagen in out/, the
tests' build (make for-test), clang and mpirun. Prints a line per seed: "ok" with the checks that were made, or what was
found; a spec that is not ok stays in out/random_runs. Exit 1 if one is not ok. No part of `make test`."""
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import drawn_runs
from trained_runs import CUDA, GAGEN, ROOT, Found, Program, Refused, Run, run, tensors

WORK = ROOT + "/out/random_runs"
ATTEMPTS, VERBOSE = 20, "refused" in sys.argv[3:]
OFTEN = {"threads": 0.4, "passes": 0.5, "modes": 0.6, "one_rank": 0.7, "evaluated": 0.6, "initial": 0.2,
         "predicted": 0.8, "signals": 0.5, "memory": 0.3, "again": 0.1, "equiv": 0.1,
         "other_ranks": 0.6, "exported": 0.2}     # a check and how often it is made
COUNTED = ("collectives", "comm_bytes")
RELATIVE = {"f64": 1e-8, "f32": 2e-3}       # of losses, where order of sums differs


class Case:
    """A random spec, its program, and the checks that fit it."""

    def __init__(self, seed, attempt):
        self.spec, self.draw = drawn_runs.Spec(seed + 1000003 * attempt), random.Random(seed)
        self.folder = f"{WORK}/{seed}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.spec.data.write(self.folder + "/data")

    def program(self, name, words=(), mode=None, ranks=None, **other):
        mode = mode or self.spec.mode
        return Program(self.folder, name, self.spec.text(**other), mode, ranks or self.spec.ranks, words)

    def check(self):
        """The names of the checks that were done."""
        self.main = self.program("base")
        started = time.time()
        command = self.main.command(["--run", "straight", "--dump", f"{self.main.folder}/straight.dump"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.seconds = time.time() - started
        if done.returncode == 4:
            return ["not finite"]
        if done.returncode == 1 and "is not finite" in done.stderr:
            return ["not finite"]
        if done.returncode:
            raise Found(f"straight run: exit {done.returncode}: {done.stderr.strip()[-500:]}")
        self.straight = Run(f"{self.main.folder}/runs/straight", f"{self.main.folder}/straight.dump", done.stderr)
        self.log()
        self.stopped()
        done = ["log", "stopped"]
        for name in self.draw.sample(sorted(OFTEN), len(OFTEN)):
            if self.draw.random() < OFTEN[name] and getattr(self, name)():
                done.append(name)
        return done

    def log(self):
        """Counts of each update follow from those before; the end has the last ones."""
        s, before = self.spec, {"cycle": 0, "update": 0, "micro": 0, "epoch": 0, "skipped": 0}
        all_count = "ignore = 1" not in s.words["loss"]
        patient = "patience" in s.words["train"]
        full = all_count and s.data.last == "drop"
        start, updates, end = self.straight.of("start")[0], self.straight.of("update"), self.straight.of("end")[-1]
        if start["ranks"] != s.ranks or start["threads"] != 1 or start["target"] != ("cuda" if CUDA else "c"):
            raise Found(f"log: {start}")
        for u in updates:
            steps = u["micro"] - before["micro"]
            planned = s.micro
            for cycle, count in sorted(s.later.items()):
                planned = count if before["cycle"] >= cycle else planned
            wrong = (u["cycle"] != before["cycle"] + 1 or u["update"] + u["skipped"] != u["cycle"]
                     or u["skipped"] - before["skipped"] not in (0, 1) or not 1 <= steps <= planned
                     or steps < planned and s.tail != "flush" or u["epoch"] < before["epoch"]
                     or not 0 < u["rows"] <= steps * s.rows * s.ranks
                     or s.data.last == "drop" and u["rows"] != steps * s.rows * s.ranks
                     or s.weight == "micro" and full and u["weight"] != steps * s.ranks
                     or s.weight == "sample" and all_count and u["weight"] != u["rows"])
            if wrong:
                raise Found(f"log: {u} behind {before}, {planned} micro-steps planned")
            before = u
        for key in ("cycle", "update", "skipped"):
            if end[key] != before[key]:
                raise Found(f"log: the end has {end}, the last update {before}")
        if end["reason"] not in ("done", "patience") or end["reason"] == "patience" and not patient:
            raise Found(f"log: {end}")

    def stopped(self):
        """Stopped at a micro-step, resumed, and perhaps stopped once more."""
        last = self.straight.of("update")[-1]["micro"]
        if last < 2:
            return
        name = "stopped"
        at = sorted(self.draw.sample(range(1, last), min(last - 1, self.draw.randint(1, 3))))
        for i, k in enumerate(at):
            options = ["--resume", name] if i else []
            self.main.train(*options, "--stop-micro", k, status=75, name=name, dump=False)
        resumed = self.main.train("--resume", name, name=name, threads=self.draw.randint(1, 2))
        resumed.same(self.straight, f"stopped at micro-steps {at}", without=COUNTED)    # those of the last process
        cycles = self.straight.of("update")[-1]["cycle"]
        if cycles > 1:
            self.main.train("--cycles", self.draw.randint(1, cycles - 1), name="cut", dump=False)
            resumed = self.main.train("--resume", "cut", name="cut")
            due = {(event["event"], event["cycle"]) for event in self.straight.events if "cycle" in event}
            resumed.events = [e for e in resumed.events if (e["event"], e.get("cycle")) in due]    # one ends each run
            resumed.same(self.straight, "ended by --cycles")

    def threads(self):
        if CUDA:
            return False
        for threads in (2, 3):
            self.main.train(threads=threads).same(self.straight, f"{threads} threads")
        return True

    def again(self):
        """The same once more, and with only some lines in the log."""
        other = self.program("again", log="{ every = 2 }")
        done = other.train()
        done.events = [e for e in self.straight.events if e["event"] == "update"] + done.of("eval")
        straight = Run(self.straight.folder, self.straight.dump)
        straight.events = straight.of("update") + straight.of("eval")
        done.same(straight, "log every second cycle")
        return True

    def passes(self):
        choice = self.draw.choice(["fusion", "recompute", "unroll"])
        if choice == "fusion":
            other = self.program("passes", ["--without", "fusion"])
        elif choice == "recompute" and not self.spec.words.get("memory"):
            other = self.program("passes", memory='{ recompute = { "*" } }')
        else:
            text = self.spec.words["accumulate"]
            other = self.program("passes", accumulate=re.sub(r"unroll = \d+", "unroll = 2", text))
        other.train().same(self.straight, choice, without=COUNTED)
        return True

    def modes(self):
        """Another mode and other options of it: the bits of ddp, or nearly. A checkpoint goes from one to the other."""
        s = self.spec
        if s.mode == "none" or s.grouped or "comm" in s.words["parallel"] or "kahan" in s.accum:
            return False
        mode = self.draw.choice([mode for mode in ("ddp", "zero1", "zero2", "zero3") if mode != s.mode])
        if "zero3" in (mode, s.mode):
            words = f'{{ "{mode}"{", sync_batchnorm = true" * s.synced} }}'
        else:
            words = s.words["parallel"].replace(s.mode, mode)
        other = self.program("modes", mode=mode, parallel=words)
        done = other.train()
        if {s.mode, mode} == {"ddp", "zero1"} and not CUDA:
            done.same(self.straight, f"{mode} instead of {s.mode}", without=COUNTED)
        else:
            self.near(done, self.straight, f"{mode} instead of {s.mode}")
        self.crossed(other, mode)
        return True

    def crossed(self, other, mode):
        """Stopped at a boundary in the one program and resumed in the other: as the other alone from there on."""
        updates = self.straight.of("update")
        if len(updates) < 3:
            return
        k = self.draw.choice(updates[:-1])["micro"]
        self.main.train("--stop-micro", k, status=75, name="crossed", dump=False)
        checkpoint = Run(f"{self.main.folder}/runs/crossed", "").last_checkpoint()
        target = f"{other.folder}/crossed"
        shutil.copytree(checkpoint, f"{target}/{os.path.basename(checkpoint)}")
        log = f"{target}/log.jsonl"
        run(other.command(["--resume", "latest", "--checkpoint", target, "--log", log, "--dump", target + "/dump"]))
        with open(log) as f:
            events = [json.loads(line) for line in f]
        rest = [e for e in events if e["event"] == "update"]
        expected = [e for e in updates if e["micro"] > k]
        if [e["cycle"] for e in rest] != [e["cycle"] for e in expected]:
            raise Found(f"{mode}: resumed from {self.spec.mode} at micro-step {k}: other cycles")
        for a, b in zip(rest, expected):
            self.near_update(a, b, f"{mode} resumed from {self.spec.mode} at micro-step {k}")

    def near_update(self, a, b, what):
        s = self.spec
        for key in ("cycle", "update", "epoch", "rows", "lr", "skipped", "momentum", "weight"):
            if a.get(key) != b.get(key) and not (key == "weight" and math.isclose(a[key], b[key], rel_tol=1e-6)):
                raise Found(f"{what}: {key} in {a} instead of {b}")
        finite = isinstance(a["loss"], float) and isinstance(b["loss"], float)
        if s.precision in RELATIVE and s.rule != "lion" and finite:
            if abs(a["loss"] - b["loss"]) > RELATIVE[s.precision] * max(abs(b["loss"]), 1):
                raise Found(f"{what}: loss in {a} instead of {b}")

    def near(self, done, straight, what):
        mine, theirs = done.of("update"), straight.of("update")
        if len(mine) != len(theirs) and "patience" not in self.spec.words["train"]:
            raise Found(f"{what}: {len(mine)} updates instead of {len(theirs)}")
        for a, b in zip(mine, theirs):
            self.near_update(a, b, what)
        if self.spec.precision == "f64" and self.spec.rule != "lion" and len(mine) == len(theirs):
            x, y = (tensors(f"{r.dump}/parameters.safetensors") for r in (done, straight))
            for name in y:
                off = np.abs(x[name] - y[name]).max()
                if off > 1e-6 * max(1, np.abs(y[name]).max()):
                    raise Found(f"{what}: {name} differs by {off:.3g}")

    def one_rank(self):
        """One process with as many micro-steps as all ranks together."""
        s = self.spec
        local = s.normed and (s.synced or 'running = "micro"' in s.words["model"] or s.kind == "layers")
        several = s.ranks > 1 and not s.grouped and "comm" not in s.words["parallel"]
        same_rows = s.data.rows % (s.rows * s.ranks) == 0 or s.tail == "drop" and s.data.last == "drop"
        if not several or local or not same_rows or "kahan" in s.accum or "batches" in s.words.get("eval", ""):
            return False
        other = self.program("alone", mode="none", ranks=1, parallel=None, accumulate=s.accumulate(s.ranks))
        done = other.train()
        self.near(done, self.straight, f"one rank instead of {s.ranks}")
        return True

    def evaluated(self):
        """The figures of the last evaluation, from the checkpoint of its cycle."""
        evals = self.straight.of("eval")
        checkpoint = self.straight.last_checkpoint()
        if not evals or evals[-1]["cycle"] != int(os.path.basename(checkpoint)[6:15]):
            return False
        log = self.folder + "/eval.jsonl"
        run(self.main.command(["--eval", "--resume", checkpoint, "--log", log], self.draw.randint(1, 3)))
        with open(log) as f:
            found = [e for e in map(json.loads, f) if e["event"] == "eval"]
        if len(found) != 1 or {**found[0], "best": 0} != {**evals[-1], "best": 0}:
            raise Found(f"--eval of a checkpoint: {found} instead of {evals[-1]}")
        if self.spec.mode != "none" and not self.spec.grouped and "batches" not in self.spec.words["eval"]:
            ranks = self.draw.randint(1, 3)
            run(self.main.command(["--eval", "--resume", checkpoint, "--log", log + "2"], ranks=ranks))
            with open(log + "2") as f:
                other = [e for e in map(json.loads, f) if e["event"] == "eval"][0]
            for key, value in found[0].items():
                if isinstance(value, float) and not math.isclose(value, other[key], rel_tol=1e-5, abs_tol=1e-6):
                    raise Found(f"--eval with {ranks} ranks: {other} instead of {found[0]}")
        return True

    def other_ranks(self):
        """Stopped at a boundary, gone on with another number of ranks: no row of the epoch comes twice or is lost."""
        s, updates = self.spec, self.straight.of("update")
        if s.mode == "none" or len(updates) < 3 or s.later or s.grouped:
            return False
        ranks = self.draw.choice([n for n in (1, 2, 3) if n != s.ranks])
        k = self.draw.choice(updates[:-1])
        self.main.train("--stop-micro", k["micro"], status=75, name="ranks", dump=False)
        command = self.main.command(["--resume", "ranks"], ranks=ranks)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 1 and "micro-batches, a cycle needs" in done.stderr:
            return False
        if done.returncode:
            raise Found(f"resumed with {ranks} ranks: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        found, rows, epoch = Run(f"{self.main.folder}/runs/ranks", "").of("update"), {}, 0
        for i, u in enumerate(found):
            if u["cycle"] != i + 1 or u["update"] + u["skipped"] != u["cycle"]:
                raise Found(f"resumed with {ranks} ranks behind cycle {k['cycle']}: {u} at place {i + 1}")
            rows[epoch], epoch = rows.get(epoch, 0) + u["rows"], u["epoch"]
        epochs = re.search(r"epochs = (\d+),", s.words["train"])
        if epochs and "patience" not in s.words["train"] and s.tail != "carry" and epoch != int(epochs[1]):
            raise Found(f"resumed with {ranks} ranks behind {k}: {epoch} epochs, {epochs[1]} in the spec")
        cycle = s.micro * s.rows * max(ranks, s.ranks)
        for e in range(epoch):
            most = s.data.rows + (cycle if s.tail == "carry" else s.micro * s.rows * ranks if e == k["epoch"] else 0)
            if not s.data.rows - 2 * cycle < rows.get(e, 0) <= most:
                raise Found(f"resumed with {ranks} ranks behind {k}: {rows} rows in epochs of {s.data.rows}")
        return True

    def exported(self):
        """The log as a table, and the run beside itself."""
        table = run([GAGEN, "export", self.straight.folder, "--csv"]).stdout.split("\n")
        names = table[0].split(",")
        lines = [dict(zip(names, line.split(","))) for line in table[1:] if line]
        events = [e for e in self.straight.events if e["event"] in ("update", "eval")]
        for line, event in zip(lines, events):
            for key, value in event.items():
                if key in line and isinstance(value, float) and not math.isclose(float(line[key]), value, rel_tol=1e-8):
                    raise Found(f"export: {key} of {line} instead of {event}")
        if len(lines) != len(events):
            raise Found(f"export: {len(lines)} lines of {len(events)}")
        run([GAGEN, "compare", self.straight.folder, self.straight.folder, "--tol", "0"])
        return True

    def initial(self):
        """The initial values in a file, and a run from them."""
        first = self.folder + "/first.safetensors"
        run(self.main.command(["--save-init", first]))
        self.main.train("--init", first).same(self.straight, "--init of --save-init")
        return True

    def predicted(self):
        """The loss of outputs for each row, against that of an evaluation."""
        s = self.spec
        whole = "chunked" not in s.words.get("memory", "") and "batches" not in s.words.get("eval", "")
        if not s.plain or "eval.csv" not in s.data.files or s.mode == "zero3" or not whole:
            return False
        checkpoint, out = self.straight.last_checkpoint(), self.folder + "/out.npy"
        log = self.folder + "/predicted.jsonl"
        run(self.main.command(["--predict", f"{self.folder}/data/eval.csv", "--out", out, "--resume", checkpoint]))
        run(self.main.command(["--eval", "--resume", checkpoint, "--log", log]))
        with open(log) as f:
            loss = [e for e in map(json.loads, f) if e["event"] == "eval"][0]["loss"]
        rows = s.data.files["eval.csv"].decode().split()[s.kind == "cells":]
        target, output = np.array([float(row.split(",")[-1]) for row in rows]), np.load(out).astype(float)
        if len(output) != len(rows):
            raise Found(f"--predict: {len(output)} rows of {len(rows)}")
        output = output.reshape(len(rows), -1)
        if s.classes:
            top = output.max(1)
            mine = np.log(np.exp(output - top[:, None]).sum(1)) + top - output[np.arange(len(rows)), target.astype(int)]
        else:
            mine = (output[:, 0] - target) ** 2
        mine = mine.mean()
        if abs(mine - loss) > 1e-4 * max(1, abs(loss)):
            raise Found(f"--predict: loss {mine:.6g}, --eval: {loss}")
        self.predictor(checkpoint, output)
        return True

    def predictor(self, checkpoint, expected):
        """The program that only predicts, against those outputs."""
        program, weights, out = self.main, self.folder + "/weights.bin", self.folder + "/own.npy"
        if program.mode != "none" or self.draw.random() < 0.5:
            return
        run(program.command(["--save-weights", weights, "--resume", checkpoint]))
        run(["make", "-s", "-C", program.folder, "CC=clang", "CFLAGS=-O0 -Werror", "predict"])
        run([f"{program.folder}/base_predict", f"{self.folder}/data/eval.csv", out, "--weights", weights])
        off = np.abs(np.load(out).reshape(expected.shape) - expected).max()
        if off > (1e-4 if self.spec.precision in RELATIVE else 2e-2) * max(1, np.abs(expected).max()):
            raise Found(f"base_predict: outputs differ by {off:.3g}")

    def signals(self):
        """Stopped or killed at random times, again and again, and resumed each time."""
        name, kinds, left = "signals", [signal.SIGUSR1], 6
        if self.spec.mode == "none":
            kinds = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL, signal.SIGKILL]
        fresh = True
        while left:
            options = ["--run", name] if fresh else ["--resume", name]
            process = subprocess.Popen(self.main.command(options), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            time.sleep(self.draw.random() * self.seconds)
            kind = self.draw.choice(kinds)
            process.send_signal(kind)
            error = process.communicate(timeout=120)[1]
            if process.returncode == 0:
                break
            if process.returncode not in (75, -kind, 128 + kind):
                raise Found(f"signal {kind}: exit {process.returncode}: {error[-300:]}")
            saved = f"{self.main.folder}/runs/{name}/checkpoints"
            fresh = not os.path.isdir(saved) or not any(entry.startswith("cycle-") for entry in os.listdir(saved))
            if fresh:
                shutil.rmtree(f"{self.main.folder}/runs/{name}", ignore_errors=True)
            left -= 1
        if process.returncode:
            run(self.main.command(["--run", name] if fresh else ["--resume", name]))
        done = Run(f"{self.main.folder}/runs/{name}", self.straight.dump)
        done.same(self.straight, "signals", files=())
        return True

    def memory(self):
        """The bytes that the program plans, against those of gagen's plan."""
        threads = self.draw.randint(1, 5)
        words = ["--threads", str(threads)]
        plan = json.loads(run([GAGEN, "plan", self.main.spec, "--json"] + self.main.words + words).stdout)
        done = self.main.train("--cycles", 1, threads=threads, dump=False)
        own, planned = done.of("start")[0]["planned_bytes"], plan["totals"]["bytes"]
        if own > planned or own < planned and (self.spec.ranks == 1 or self.spec.mode == "ddp"):   # of the fullest rank
            raise Found(f"memory: {own} bytes, plan: {planned}")
        return True

    def equiv(self):
        if CUDA or self.spec.normed or self.spec.mode != "none" or self.spec.later or self.spec.weight == "micro":
            return False
        rows = self.spec.rows * self.spec.micro
        run([GAGEN, "check", self.main.spec, "--equiv", "A=" + ",".join(str(n) for n in range(1, 5) if rows % n == 0)])
        return True


def tried(seed):
    """What is found with a seed: None if nothing is, and a line about it. A spec that gagen refuses is drawn anew."""
    for attempt in range(ATTEMPTS):
        case = Case(seed, attempt)
        about = f"{seed} {case.spec.kind} {case.spec.mode} {case.spec.precision}"
        try:
            done = case.check()
            shutil.rmtree(case.folder)
            return None, f"{about} ok: {' '.join(done)}"
        except Refused as refused:
            message = f"{about} refused: {refused}"
            if VERBOSE:
                print(message, flush=True)
        except (Found, subprocess.TimeoutExpired, KeyError, ValueError, OSError) as error:
            return error, f"{about} {type(error).__name__} {error}"
    return None, message


def main():
    bad = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        found, line = tried(seed)
        print(line, flush=True)
        bad += found is not None
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
