#!/usr/bin/env python3
"""Twenty updates of the digits MLP as a user of PyTorch writes them; figures for
tests/lua/test_torch.lua.

    python3 tests/reference/digits_mlp.py          writes tests/reference/digits_mlp/*.safetensors

A file per run holds the parameters after its last update; losses.safetensors the losses of all its
updates, under the run's name. Needs torch and numpy, CPU only.
Invariant: the same torch gives the same bytes (one thread, fixed seeds)."""
import gzip
import json
import pathlib
import struct

import numpy as np
import torch

import order

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "digits_mlp"
DIGITS = HERE.parents[1] / "specs" / "data" / "digits" / "digits.csv.gz"
ROWS, WIDTH, HIDDEN, CLASSES, BATCH, CYCLES = 1797, 64, 64, 10, 16, 20
DTYPES = {"f64": torch.float64, "f32": torch.float32}
SHAPES = {"fc1.weight": (HIDDEN, WIDTH), "fc1.bias": (HIDDEN,),
          "fc2.weight": (CLASSES, HIDDEN), "fc2.bias": (CLASSES,)}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4,
                                          nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.01),
}


def save(path, arrays):
    """The safetensors format: length of the header, JSON header padded with spaces, data."""
    header, offset = {}, 0
    for name, a in arrays.items():
        header[name] = {"dtype": {"float64": "F64", "float32": "F32"}[a.dtype.name],
                        "shape": list(a.shape), "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in arrays.values():
            f.write(np.ascontiguousarray(a).tobytes())


def read_digits():
    with gzip.open(DIGITS, "rt") as f:
        table = np.loadtxt(f, delimiter=",", dtype=np.int64)
    assert table.shape == (ROWS, WIDTH + 1)
    return table[:, :WIDTH], table[:, WIDTH]


def make_model(dtype, initial):
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(WIDTH, HIDDEN, dtype=dtype))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("fc2", torch.nn.Linear(HIDDEN, CLASSES, dtype=dtype))
    model.load_state_dict({name: torch.tensor(a, dtype=dtype) for name, a in initial.items()})
    return model


def train(rows, dtype, initial, optimizer, accumulate, cycles, max_norm=None):
    """Takes micro-batches of 16 from `rows`; returns parameters, losses, clipped updates."""
    pixels, labels = read_digits()
    x, y = torch.tensor(pixels).to(dtype) / 16, torch.tensor(labels)
    model = make_model(dtype, initial)
    loss_fn = torch.nn.CrossEntropyLoss()
    opt = OPTIMIZERS[optimizer](model.parameters())
    batches = torch.tensor(rows[:cycles * accumulate * BATCH]).split(BATCH)
    losses, clipped = [], 0
    for cycle in range(cycles):
        opt.zero_grad()
        total = 0.0
        for batch in batches[cycle * accumulate:(cycle + 1) * accumulate]:
            loss = loss_fn(model(x[batch]), y[batch]) / accumulate
            loss.backward()
            total += loss.item()
        if max_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            clipped += norm.item() > max_norm
        opt.step()
        losses.append(total)
    assert max_norm is None or 0 < clipped < cycles, f"{clipped} of {cycles} updates were clipped"
    parameters = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return parameters, np.array(losses), clipped


def write(name, parameters, losses, clipped):
    save(OUT / f"{name}.safetensors", parameters)
    print(f"{name:24} loss {losses[0]:.4f} -> {losses[-1]:.4f}  clipped {clipped} of {len(losses)}")
    return losses


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    print("torch", torch.__version__, "numpy", np.__version__)
    random = np.random.default_rng(20)
    initial = {name: random.uniform(-0.125, 0.125, shape) for name, shape in SHAPES.items()}
    save(OUT / "init.safetensors", initial)
    losses, rows = {}, list(range(ROWS))    # at most 20 * 4 * 16 are used: one epoch, in file order
    for optimizer, accumulate, clip in (
            ("sgd", 1, False), ("sgd", 1, True), ("sgd", 4, False), ("sgd", 4, True),
            ("nesterov", 4, True),
            ("adamw", 1, False), ("adamw", 1, True), ("adamw", 4, False), ("adamw", 4, True)):
        for suffix, dtype in DTYPES.items():
            name = f"{optimizer}_a{accumulate}{'_clip' if clip else ''}_{suffix}"
            losses[name] = write(name, *train(rows, dtype, initial, optimizer, accumulate, CYCLES,
                                              0.5 if clip else None))

    # shuffled, split, gagen's own initial values; 30 cycles: from the 23rd in the second epoch
    drawn = {name: np.array(order.uniform(1, name, int(np.prod(shape)), -0.125, 0.125))
             .reshape(shape) for name, shape in SHAPES.items()}
    training, _ = order.split(ROWS, 1, fold=1, of=5)
    rows = order.epochs(training, 1, True, BATCH, 4, 1, 0, 2)
    losses["shuffled_f64"] = write("shuffled_f64",
                                   *train(rows, torch.float64, drawn, "adamw", 4, 30))
    save(OUT / "losses.safetensors", losses)


if __name__ == "__main__":
    main()
