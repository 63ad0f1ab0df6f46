#!/usr/bin/env python3
"""Random numbers, initial values and the order of rows in Python, as runtime/base/rng.h and
runtime/data/data.h define them in words.

    python3 tests/reference/order.py > tests/reference/order.txt

tests/unit/test_order.c holds the runtime against order.txt; digits_mlp.py trains in this order.
Invariant: only Python's integers and `math` are used; nothing comes from the project's code."""
import math

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def key(seed, stream):
    return mix(mix((seed + GOLDEN) & WORD) ^ stream)


def number(seed, stream, index):
    return mix((key(seed, stream) + GOLDEN * (index + 1)) & WORD)


def stream(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & WORD
    return h


def unit(seed, stream_number, index):
    return (number(seed, stream_number, index) >> 11) * 2.0**-53


def uniform(seed, name, count, low, high):
    s = stream(name)
    return [low + (high - low) * unit(seed, s, i) for i in range(count)]


def normal(seed, name, count, sd):
    s = stream(name)
    return [sd * math.sqrt(-2 * math.log1p(-unit(seed, s, 2 * i)))
            * math.cos(2 * math.pi * unit(seed, s, 2 * i + 1)) for i in range(count)]


def permutation(seed, stream_number, n):
    """Where each of 0..n-1 goes: six Feistel rounds on 2h bits, repeated until inside."""
    h = 1
    while 4**h < n:
        h += 1
    mask = 2**h - 1

    def once(x):
        left, right = x >> h, x & mask
        for r in range(6):
            left, right = right, left ^ (number(seed, stream_number, r * 2**32 + right) & mask)
        return left << h | right

    result = []
    for i in range(n):
        x = once(i)
        while x >= n:
            x = once(x)
        result.append(x)
    return result


def split(rows, seed, fold=0, of=0, eval_rows=0):
    """Rows of the file for training and for evaluation."""
    if of == 0 and eval_rows == 0:
        return list(range(rows)), list(range(rows))
    row = permutation(seed, stream("split"), rows)
    held = [p % of == fold - 1 if of else p < eval_rows for p in range(rows)]
    return ([row[p] for p in range(rows) if not held[p]],
            [row[p] for p in range(rows) if held[p]])


def epochs(training, seed, shuffle, batch, accumulate, world, first, count):
    """Rows in the order of the global batch: cycle, micro-step, rank, row."""
    n = len(training)
    cycles = n // (batch * world) // accumulate
    result = []
    for epoch in range(first, first + count):
        place = (permutation(seed, (stream("epoch") + epoch) & WORD, n) if shuffle
                 else list(range(n)))
        result += [training[p] for p in place[:cycles * accumulate * world * batch]]
    return result


def line(*words):
    print(*words)


def main():
    for name in "", "epoch", "split", "fc1.weight", "h.11.attn.c_attn.weight":
        line("stream", name or "-", f"{stream(name):x}")
    for seed, name, index in ((0, "", 0), (1, "fc1.weight", 0), (1, "fc1.weight", 2**32),
                              (2**63, "epoch", 5), (WORD, "x", 2**64 - 2)):
        line("number", seed, name or "-", index, f"{number(seed, stream(name), index):x}")
    for n in 1, 2, 3, 4, 5, 10, 16, 17, 64, 65, 100, 257:
        line("permute", n + 3, "epoch", 7, n, *permutation(n + 3, stream("epoch") + 7, n))
    for rows, fold, of, eval_rows, seed in ((103, 1, 5, 0, 1), (103, 5, 5, 0, 1), (7, 2, 2, 0, 4),
                                            (103, 0, 0, 20, 2), (9, 0, 0, 0, 0)):
        training, held = split(rows, seed, fold, of, eval_rows)
        for name, side in ("training", training), ("evaluation", held):
            line("split", rows, fold, of, eval_rows, seed, name, len(side), *side)
    for rows, fold, of, seed, shuffle, batch, accumulate, world, first, count in (
            (103, 2, 5, 11, 1, 4, 3, 1, 0, 3), (103, 2, 5, 11, 1, 4, 3, 2, 5, 2),
            (103, 0, 0, 1, 0, 4, 3, 1, 0, 2), (1797, 1, 5, 1, 1, 16, 4, 1, 0, 2)):
        training, _ = split(rows, 1, fold, of)
        order = epochs(training, seed, shuffle, batch, accumulate, world, first, count)
        line("order", rows, fold, of, 1, seed, shuffle, batch, accumulate, world, first,
             len(order), *order)
    for seed, name, low, high in (1, "fc1.weight", -0.125, 0.125), (7, "fc2.bias", 0.5, 2.0):
        line("uniform", seed, name, low, high, 16,
             *(x.hex() for x in uniform(seed, name, 16, low, high)))
    line("normal", 5, "wte.weight", 0.02, 16, *(x.hex() for x in normal(5, "wte.weight", 16, 0.02)))


if __name__ == "__main__":
    main()
