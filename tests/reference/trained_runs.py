"""Programs of specs, built and run, and what their runs leave: logs, dumped files, checkpoints."""
import json
import os
import subprocess
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GAGEN, BUILD = ROOT + "/out/gagen", ROOT + "/out/.build"
CUDA = "cuda" in sys.argv[3:]
VOLATILE = ("ms", "rows_per_s", "tokens_per_s")
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


class Found(Exception):
    """What is wrong."""


class Refused(Exception):
    """The message of gagen about a spec."""


def run(command, status=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    if done.returncode != status:
        raise Found(f"{' '.join(command[-12:])}: exit {done.returncode}, expected {status}: "
                    + done.stderr.strip()[-500:])
    return done


def tensors(path):
    """The tensors of a safetensors file: name -> array of numbers; 16 bits of bf16 as integers."""
    with open(path, "rb") as f:
        content = f.read()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(content[start + first:start + last], KINDS.get(entry["dtype"], "<u2"))
    return found


def equal_files(a, b, what):
    """Raises Found unless two safetensors files have the same tensors, bit by bit."""
    x, y = tensors(a), tensors(b)
    if x.keys() != y.keys():
        raise Found(f"{what}: {os.path.basename(a)} has other tensors: {sorted(x.keys() ^ y.keys())[:4]}")
    for name in x:
        if x[name].tobytes() != y[name].tobytes():
            off = np.abs(x[name].astype(float) - y[name].astype(float))
            raise Found(f"{what}: {os.path.basename(a)} {name}: {(off > 0).sum()} of {off.size} differ, most "
                        f"{off.max():.3g}")


class Run:
    """What a run has left: its folder, its log, its dump."""

    def __init__(self, folder, dump, error=""):
        self.folder, self.dump, self.error = folder, dump, error
        with open(folder + "/log.jsonl") as f:
            self.events = [json.loads(line) for line in f]

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    def figures(self, without=()):
        """Updates and evaluations, in order, without times."""
        return [{k: v for k, v in event.items() if k not in VOLATILE + tuple(without)}
                for event in self.events if event["event"] in ("update", "eval")]

    def last_checkpoint(self):
        names = sorted(name for name in os.listdir(self.folder + "/checkpoints") if name.startswith("cycle-"))
        return f"{self.folder}/checkpoints/{names[-1]}"

    def same(self, other, what, files=("parameters", "gradients", "state"), without=()):
        """Raises Found unless figures, dumped files and last checkpoints are those of the other run."""
        mine, theirs = self.figures(without), other.figures(without)
        for a, b in zip(mine, theirs):
            if a != b:
                raise Found(f"{what}: log {a} instead of {b}")
        if len(mine) != len(theirs):
            raise Found(f"{what}: {len(mine)} lines of figures instead of {len(theirs)}")
        for name in files:
            if os.path.exists(f"{other.dump}/{name}.safetensors"):
                equal_files(f"{self.dump}/{name}.safetensors", f"{other.dump}/{name}.safetensors", what)
        a, b = self.last_checkpoint(), other.last_checkpoint()
        if os.path.basename(a) != os.path.basename(b):
            raise Found(f"{what}: last checkpoint {os.path.basename(a)} instead of {os.path.basename(b)}")
        for name in os.listdir(b):
            if name.endswith(".safetensors"):
                equal_files(f"{a}/{name}", f"{b}/{name}", what)
        x, y = manifest(a), manifest(b)
        for key in y:
            if x.get(key) != y[key]:
                raise Found(f"{what}: manifest {key} {x.get(key)} instead of {y[key]}")


def manifest(checkpoint):
    """The fields of a manifest that do not depend on the program, its run or its ranks."""
    with open(checkpoint + "/manifest.json") as f:
        fields = json.load(f)
    for key in ("program", "checksum", "run", "spec_sha256", "world", "tuning_sha256", "files", "model_hash", "data"):
        fields.pop(key, None)
    return fields


class Program:
    """A program of a spec, built; a program with `parallel` is started by mpirun."""

    def __init__(self, folder, name, text, mode, ranks, words=()):
        self.folder, self.mode, self.ranks = f"{folder}/{name}", mode, ranks
        self.spec, self.count = f"{folder}/{name}.lua", 0
        with open(self.spec, "w") as f:
            f.write(text)
        several = mode != "none" and "ranks =" not in text
        self.words = list(words) + ["--target", "cuda"] * CUDA + ["--ranks", str(ranks)] * several
        done = subprocess.run([GAGEN, self.spec, "-o", self.folder] + self.words, capture_output=True, text=True)
        if done.returncode == 1:
            raise Refused(next(line for line in done.stderr.split("\n") if "warning:" not in line and line[:1] != " "))
        if done.returncode:
            raise Found(f"gagen: exit {done.returncode}: {done.stderr.strip()[-600:]}")
        engine = "self" if mode == "none" else "mpi"
        objects = [f"{BUILD}/runtime/ranks/{part}.o" for part in (f"comm_{engine}", f"{engine}_exchange")]
        run(["make", "-s", "-C", self.folder, "CC=clang", "CFLAGS=-O0 -Werror", f"COMM={engine}", "SOURCES=",
             f"PROGRAM={ROOT}/tests/include/program.c", f"ENGINE={' '.join(objects)}",
             f"LIBS={BUILD}/libruntime.a -ljansson -lz -lm -ldl", "train"], env={**os.environ, "OMPI_CC": "clang"})

    def command(self, options, threads=1, ranks=None):
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        launch += ["-n", str(ranks or self.ranks)]
        train = [f"{self.folder}/train", "--quiet", "--threads", str(threads)]
        return (launch if self.mode != "none" else []) + train + [str(option) for option in options]

    def train(self, *options, status=0, name=None, threads=1, ranks=None, dump=True):
        """A run of this name, a new one if none is given: to its end, or with another status."""
        self.count += 1
        name = name or f"r{self.count}"
        started = [] if "--resume" in options else ["--run", name]
        more = ["--dump", f"{self.folder}/{name}.dump"] if dump else []
        done = run(self.command([*options, *started, *more], threads, ranks), status)
        return Run(f"{self.folder}/runs/{name}", f"{self.folder}/{name}.dump", done.stderr)

    def say(self, *options, **how):
        """What the program prints with these options."""
        command = self.command(options, **how)
        command.remove("--quiet")
        return run(command).stdout
