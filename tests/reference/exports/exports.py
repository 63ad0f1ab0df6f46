#!/usr/bin/env python3
"""What other packages compute from `gagen export`, beside the program's own outputs of the same rows; the figures are
in figures.txt beside this file.

    GAGEN_DATA=DIR python3 tests/reference/exports/exports.py [NAME...]

Each case trains a shipped spec, or one beside this file, for a few updates, exports its checkpoint and compares the
outputs of one batch, which the program's library gives. Needs the data of the specs (tools/data), torch, transformers,
onnx, onnxruntime, gguf and numpy; CPU only."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
GAGEN = ROOT / "out/gagen"
DTYPES = {"float": np.float32, "int32_t": np.int32}

DRIVER = """
#include "%(name)s.h"
#include <stdio.h>
#include <stdlib.h>

static int write_to(const char *path, const void *from, size_t bytes) {
    FILE *file = fopen(path, "wb");
    return !file || fwrite(from, 1, bytes, file) != bytes || fclose(file);
}

int main(int argc, char **argv) {
    ga_err e = {0};
    %(name)s *m;
    %(name)s_batch b;
    if (argc != 3 || %(name)s_open(&m, &(%(name)s_options){.resume = argv[1], .quiet = 1}, &e) < 0) goto fail;
    if (%(name)s_next(m, &b, &e) <= 0) goto fail;
    const size_t n = (size_t)%(name)s_output_elements(m);
    float *out = malloc(n * sizeof *out);
    if (%(name)s_predict_step(m, &b, out, &e) < 0) goto fail;
    if (chdir(argv[2]) || write_to("output", out, n * sizeof *out)) return 1;
%(writes)s
    return 0;
fail:
    fprintf(stderr, "%%s\\n", e.msg);
    return 1;
}
"""


def run(*command, **how):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, **how)


def fields_of(header):
    """Name, dtype and shape of each field of a micro-batch, from the program's header."""
    found = re.findall(r"const (float|int32_t) \*(\w+); /\* \(([\d, ]+)\) \*/", header)
    return [(name, dtype, [int(n) for n in shape.split(",")]) for dtype, name, shape in found]


class Case:
    """A spec, trained for three updates: its run, and inputs and outputs of a batch."""

    def __init__(self, spec, folder, cycles, sets):
        self.name, self.folder, self.out = spec, folder, folder / spec
        words = [word for value in sets for word in ("--set", value)]
        own = HERE / f"{spec}.lua"
        path = own if own.exists() else ROOT / f"specs/{spec}.lua"
        run(GAGEN, "run", path, *words, "-o", self.out, "--", "--quiet", "--cycles", cycles)
        run("make", "-s", "-C", self.out, "lib")
        header = (self.out / f"{spec}.h").read_text()
        fields = fields_of(header)
        writes = "".join('    if (write_to("%s", b.%s, %d)) return 1;\n' % (name, name, 4 * np.prod(shape))
                         for name, _, shape in fields)
        (folder / "driver.c").write_text("#include <unistd.h>\n" + DRIVER % {"name": spec, "writes": writes})
        libraries = re.search(r"\nLIBS\s*=(.*)", (self.out / "Makefile").read_text())
        run("sh", "-c", f"cc -O1 -I{self.out} {folder}/driver.c {self.out}/lib{spec}.a "
            f"{libraries.group(1) if libraries else ''} -ljansson -lz -lm -lpthread -o {folder}/driver")
        checkpoint = max((self.out / "runs/001/checkpoints").iterdir())
        values = folder / "values"
        values.mkdir()
        run(folder / "driver", checkpoint, values, cwd=self.out)
        self.inputs = {name: np.fromfile(values / name, DTYPES[dtype]).reshape(shape) for name, dtype, shape in fields}
        self.output = np.fromfile(values / "output", np.float32).reshape(fields[0][2][0], -1)

    def export(self, option, target, *more):
        run(GAGEN, "export", self.out, option, target, *more)
        return target

    def compare(self, what, found, bound):
        found = np.asarray(found).reshape(self.output.shape)
        gap, size = np.abs(found - self.output).max(), np.abs(self.output).max()
        assert np.isfinite(found).all() and gap <= bound, (what, gap, size)
        return f"{what:12} {self.name:18} outputs {self.output.size:9} up to {size:7.3f} largest difference {gap:.1e}"


def logits_of(case, folder):
    import torch
    from transformers import AutoModelForCausalLM
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        return model.eval()(torch.tensor(case.inputs["input"].astype(np.int64))).logits.numpy()


def gpt2_124m(case):
    from transformers import AutoTokenizer
    folder = case.export("--hf", case.folder / "hf", "--vocab", pathlib.Path(os.environ["GAGEN_DATA"], "gpt2bpe"))
    line = case.compare("transformers", logits_of(case, folder), 1e-4)
    tokens = AutoTokenizer.from_pretrained(folder)
    row = case.inputs["input"][0][:40].tolist()
    assert tokens(tokens.decode(row))["input_ids"] == row
    return line


def language_model(case):
    from transformers import AutoTokenizer
    folder = case.export("--hf", case.folder / "hf")
    text = "First Citizen:\nBefore we proceed any further, hear me speak."
    tokens = AutoTokenizer.from_pretrained(folder)
    vocabulary = sorted(set(pathlib.Path(os.environ["GAGEN_DATA"], "tinyshakespeare/input.txt").read_bytes()))
    assert tokens(text)["input_ids"] == [vocabulary.index(byte) for byte in text.encode()]
    assert tokens.decode(tokens(text)["input_ids"]) == text
    return case.compare("transformers", logits_of(case, folder), 1e-4)


def classifier(case):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    vocabulary = pathlib.Path(os.environ["GAGEN_DATA"], "bert/bert-base-uncased-vocab.txt")
    folder = case.export("--hf", case.folder / "hf", "--vocab", vocabulary)
    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    ids, mask, types = (torch.tensor(case.inputs[name].astype(np.int64)) for name in ("ids", "mask", "types"))
    with torch.no_grad():
        logits = model.eval()(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    tokens = AutoTokenizer.from_pretrained(folder)
    row = case.inputs["ids"][0][case.inputs["mask"][0] > 0].tolist()
    assert tokens(tokens.decode(row, skip_special_tokens=True))["input_ids"] == row
    return case.compare("transformers", logits.numpy(), 1e-4)


def onnx(case):
    import onnx as package
    import onnxruntime
    path = case.export("--onnx", case.folder / "model.onnx")
    package.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {value.name: case.inputs[value.name] for value in session.get_inputs()}
    found = session.run(None, inputs)[0]
    alone = session.run(None, {name: values[:1] for name, values in inputs.items()})[0]
    assert np.abs(alone - found[:1]).max() <= 1e-5
    return case.compare("onnxruntime", found, 1e-5)


def paired(rows, heads):
    """As llama.cpp's converter orders the rows of queries and keys."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf(case):
    """Each tensor, beside that of --hf, bit by bit; names as the package maps those of Hugging Face."""
    import gguf as package
    from safetensors.numpy import load_file
    from transformers import AutoConfig
    wanted = load_file(case.folder / "hf/model.safetensors")
    config, lines = AutoConfig.from_pretrained(case.folder / "hf"), []
    kind = {"gpt2": package.MODEL_ARCH.GPT2, "llama": package.MODEL_ARCH.LLAMA}[config.model_type]
    names = package.get_tensor_name_map(kind, config.num_hidden_layers)
    for precision in ("f32", "f16"):
        path = case.export("--gguf", case.folder / f"{precision}.gguf", "--precision", precision)
        reader = package.GGUFReader(path)
        facts = {name: field.contents() for name, field in reader.fields.items()}
        assert facts["general.architecture"] == config.model_type
        assert facts[f"{config.model_type}.block_count"] == config.num_hidden_layers
        assert facts[f"{config.model_type}.context_length"] == config.max_position_embeddings
        found = {tensor.name: tensor for tensor in reader.tensors}
        assert len(found) == len(wanted)
        for name, values in wanted.items():
            tensor = found[names.get_name(name, try_suffixes=(".weight", ".bias"))]
            if config.model_type == "gpt2" and values.ndim == 2 and ".h." in name:
                values = values.T
            if "q_proj" in name or "k_proj" in name:
                values = paired(values, config.num_attention_heads if "q_proj" in name
                                else config.num_key_value_heads)
            narrow = precision == "f16" and values.ndim == 2 and "wpe" not in name
            values = values.astype(np.float16 if narrow else np.float32)
            assert tensor.data.dtype == values.dtype and tensor.data.shape == values.shape, name
            assert tensor.data.tobytes() == values.tobytes(), name
        lines.append(f"{'gguf':12} {case.name:18} tensors {len(found):9} in {precision}, bit for bit")
    return "\n".join(lines)


def bert_data(folder):
    """A folder of data with rows of SST-2 as ids."""
    data = pathlib.Path(os.environ["GAGEN_DATA"])
    for name, count in (("sst2_16000", 320), ("sst2_dev", 64)):
        run(GAGEN, "tokenize", "bert", data / "sst2/dev.tsv", folder / f"{name}.safetensors", "--vocab",
            data / "bert/bert-base-uncased-vocab.txt", "--length", 64, "--types", "--first", count)
    return folder


# Updates, if not three: the running estimates of batchnorm begin far from those of the data; large models are slow.
CYCLES = {"resnet18_tutorial": 40, "gpt2_124m": 1}

# Rates that leave no bias near 0 after three updates.
FAST = ['schedule={ "constant" }', "optimizer.lr=1e-3"]

CASES = {
    "digits_ops": ([], [onnx]),
    "mnist_mlp": (FAST, [onnx]),
    "resnet18_tutorial": (["batch=16", "accumulate=1", "optimizer.lr=1e-3"], [onnx]),
    "vit_tiny_cifar10": (FAST, [onnx]),
    "char_gpt": (FAST + ["eval.batches=1"], [language_model, onnx, gguf]),
    "llama_tiny": (FAST + ["eval.batches=1"], [language_model, onnx, gguf]),
    "bert_mini_sst2": (FAST + ["train={ updates = 1000 }"], [classifier, onnx]),
    "gpt2_124m": ([FAST[0], "optimizer.lr=1e-4", "batch={ 1, global = 1 }", "eval.batches=1"], [gpt2_124m, onnx, gguf]),
}


def main(names):
    lines = []
    for name in names or CASES:
        sets, checks = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            if name.startswith("bert"):
                os.environ["GAGEN_DATA"], kept = str(folder), os.environ["GAGEN_DATA"]
                os.symlink(pathlib.Path(kept, "bert"), folder / "bert")
                os.symlink(pathlib.Path(kept, "sst2"), folder / "sst2")
                bert_data(folder)
            case = Case(name, folder, CYCLES.get(name, 3), sets)
            lines += [check(case) for check in checks]
            if name.startswith("bert"):
                os.environ["GAGEN_DATA"] = kept
    print("\n".join(lines))
    figures = HERE / "figures.txt"
    kept = figures.read_text().splitlines() if figures.exists() else []
    done = set(names or CASES)
    kept = [line for line in kept if line.split()[1] not in done]
    figures.write_text("\n".join(sorted(kept + "\n".join(lines).splitlines())) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
