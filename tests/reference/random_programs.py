"""Programs of random specs (random_specs.py): written, built and started."""
import hashlib
import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIONS = ["CFLAGS=-O1 -Werror"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit {done.returncode}: {done.stderr.strip()[-600:]}")


def write_scripts(folder):
    """A copy of gagen's scripts in which all kernels that may have twins have them, of at most five blocks."""
    for name in ("gen", "templates", "runtime"):
        shutil.copytree(f"{ROOT}/{name}", f"{folder}/{name}")
    path = folder + "/gen/emit/targets/cuda/hopper.lua"
    with open(path) as f:
        text = f.read()
    for before, behind in (("local LEAST = 1e9", "local LEAST = 1"),
                           ("PARTS_COST = launches.MULTIPROCESSORS, 32", "PARTS_COST = 5, 1")):
        assert text.count(before) == 1, before
        text = text.replace(before, behind)
    with open(path, "w") as f:
        f.write(text)


def runtime_of(program, words, march):
    """The runtime of a program, compiled once for all programs with the same files of it, words of make and profile."""
    key = hashlib.sha256(" ".join(words + march).encode())
    files = sorted(f"{path}/{name}" for path, _, names in os.walk(program + "/runtime") for name in names)
    for path in files:
        with open(path, "rb") as f:
            key.update(os.path.relpath(path, program).encode() + f.read())
    built = f"{ROOT}/out/random_runtime/{key.hexdigest()[:16]}.o"
    if not os.path.exists(built):
        run(["make", "-s", "-C", program, "runtime.o"] + words)
        os.makedirs(os.path.dirname(built), exist_ok=True)
        shutil.move(program + "/runtime.o", built)
    return built


def build(folder, march, scripts, comm):
    """Writes the program of folder/random.lua to folder/out and builds it. march: words for gagen; scripts: the folder
    of its own ones, or None; comm: what connects the ranks."""
    dev = ["--dev", scripts] if scripts else []
    run([ROOT + "/out/gagen", folder + "/random.lua", "-o", folder + "/out"] + march + dev)
    words = OPTIONS + ["COMM=" + comm]
    runtime = runtime_of(folder + "/out", words, march)
    run(["make", "-s", "-C", folder + "/out", "train", "SOURCES=" + runtime] + words)


def launched(folder, comm, ranks, threads):
    """The words that start it."""
    launch = {"self": [], "nccl": [ROOT + "/tests/device/ranks", str(ranks)],
              "mpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]}
    return launch[comm] + [folder + "/out/train", "--quiet", "--threads", str(threads)]
