"""Random specs against PyTorch: models of random layers, a random loss, optimizer with groups and schedule,
accumulation, clip, recompute, chunked logits and mode of ranks. A program trains three cycles, PyTorch does the same in
f64 from the same first values, and each parameter must agree. In 16 bits it trains one cycle, and the gradient of each
parameter must point where that of f64 does.

    python3 tests/reference/random_specs.py FIRST LAST [cuda|twins] [f32|bf16|f16] [planes] [MARCH...]

tries the seeds FIRST to LAST - 1; `cuda`: with target "cuda", on the libraries that LD_LIBRARY_PATH has; `twins`: so
too, with the kernels for sm_90 wherever a kernel may have one; `f32`: in f32 and with more rows and columns, as in 16
bits, else in f64; `planes`: images, and mostly convolutions of 3 x 3 taps without a stride; MARCH: the profiles, in
turn. Needs torch, safetensors, gagen in out/, and mpirun. Prints a line per seed: "ok", or what was found; a spec that
is not ok stays in out/random_specs. Exit 1 if one is not ok."""
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

import random_programs
import torch
import torch.nn.functional as F
from random_training import loss_of, optimizer_of
from safetensors.torch import load_file

WORK = random_programs.ROOT + "/out/random_specs"
TWINS, CUDA = "twins" in sys.argv[3:], bool({"cuda", "twins"} & set(sys.argv[3:]))
WORDS = [word for word in sys.argv[3:] if word not in ("cuda", "twins")]
PRECISION = WORDS.pop(0) if WORDS and WORDS[0] in ("f32", "bf16", "f16") else "f64"
IMAGES = "planes" in WORDS
WORDS = [word for word in WORDS if word != "planes"]
F32, HALF = PRECISION != "f64", PRECISION in ("bf16", "f16")
CLASSES, CYCLES = 3, 1 if HALF else 3
if TWINS:       # rows are whole chunks of 16 bytes, heads have 64 or 128 elements, half a tile has 64 places
    SHAPES = [[512], [64, 8], [8, 8, 8]]
    BATCHES, OUTS, PLANES, HEADS = [2, 3, 5, 17], [8, 16, 64, 136], [3, 8, 16], [64, 64, 128, 16]
elif F32:
    SHAPES = [[144], [4, 36], [36, 4], [6, 24], [1, 12, 12], [3, 6, 8], [8, 3, 6], [36, 2, 2]]
    BATCHES, OUTS = [2, 3, 5, 7, 8, 9, 16, 17, 33, 64, 65, 70, 129], [3, 5, 8, 16, 24, 33, 64, 65, 100]
    PLANES, HEADS = [2, 3, 8, 12, 16, 20, 36], [2, 4, 6, 8, 16, 24, 32, 40, 64, 80]
else:
    SHAPES = [[16], [4, 4], [2, 8], [1, 4, 4], [4, 2, 2]]
    BATCHES, OUTS, PLANES, HEADS = [2, 3, 5, 8], [3, 5, 8, 12, 16], [2, 3, 4, 6], [2, 4, 6]
if IMAGES:
    SHAPES, BATCHES = [[1, 24, 24], [4, 12, 12], [9, 8, 8], [16, 6, 6], [36, 4, 4]], [2, 3, 5, 16, 17, 32, 64]
    PLANES = [16, 17, 20, 32, 36, 48]
WIDTH = math.prod(SHAPES[0])
ROWS = 12 * CYCLES * BATCHES[-1]
BOUND = 5e-4 if F32 else 1e-7       # of the greatest change of a parameter; in f32 also what PyTorch rounds, 5 times
NOISE = 1e-5 if F32 else 1e-12     # a gradient that is smaller is rounding alone: a rule may make any step of it
AWAY = 0.15     # in 16 bits: of the norm of a gradient; small beside all gradients, it is rounding alone

UNARY = {
    "relu {}": F.relu, "tanh {}": torch.tanh, "sigmoid {}": torch.sigmoid, "silu {}": F.silu, "gelu {}": F.gelu,
    'gelu { "tanh" }': lambda x: F.gelu(x, approximate="tanh"), "elu {}": F.elu, "softplus {}": F.softplus,
    "leaky_relu { slope = 0.1 }": lambda x: F.leaky_relu(x, 0.1), "square {}": torch.square, "sin {}": torch.sin,
    "scale { 0.7 }": lambda x: 0.7 * x, "abs {}": torch.abs, "softmax {}": lambda x: F.softmax(x, -1),
    "clamp { min = -0.8, max = 1.1 }": lambda x: torch.clamp(x, -0.8, 1.1),
    "log_softmax {}": lambda x: F.log_softmax(x, -1),
}
PAIRS = {
    "{a} + {b}": torch.add, "{a} - {b}": torch.sub, "{a} * {b}": torch.mul, "min ({a}, {b})": torch.minimum,
    "max ({a}, {b})": torch.maximum, "{a} + 0.3 * {b} - 1": lambda a, b: a + 0.3 * b - 1,
    "{a} / (1.5 + {b} * {b})": lambda a, b: a / (1.5 + b * b),
    "where (gt ({a}, {b}), {a}, 0.5 * {b})": lambda a, b: torch.where(a > b, a, 0.5 * b),
}


class Prefixed:
    """The parameters of a layer of a loop, by their names inside."""

    def __init__(self, parameters, prefix):
        self.parameters, self.prefix = parameters, prefix

    def __getitem__(self, name):
        return self.parameters[self.prefix + name]


class Body:
    """Lines of Lua, and for each value the function that PyTorch computes it with: of (parameters, values)."""

    def __init__(self, draw, names, depth=1):
        self.draw, self.names, self.depth = draw, names, depth
        self.lines, self.steps, self.made = [], [], []

    def name(self, stem):
        self.names[0] += 1
        return f"{stem}{self.names[0]}"

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def value(self, text, shape, function):
        """A new value; shape: without the rows. Values are pairs of name and shape."""
        name = self.name("v")
        self.line(f"local {name} = {text}")
        self.steps.append((name, function))
        self.made.append((name, shape))
        return name, shape

    def run(self, parameters, values):
        for name, function in self.steps:
            values[name] = function(parameters, values)

    def unary(self, x):
        v, shape = x
        text = self.draw.choice(list(UNARY))
        return self.value(f"{text} ({v})", shape, lambda p, e: UNARY[text](e[v]))

    def pair(self, x):
        (a, shape), (b, _) = x, self.unary(x)
        text = self.draw.choice(list(PAIRS))
        return self.value(text.format(a=a, b=b), shape, lambda p, e: PAIRS[text](e[a], e[b]))

    def skip(self, x):
        """A value and one of its shape that was made before, which others read too."""
        (a, shape), text = x, self.draw.choice(list(PAIRS))
        before = [name for name, other in self.made if other == shape]
        b = self.draw.choice(before or [a])
        return self.value(text.format(a=a, b=b), shape, lambda p, e: PAIRS[text](e[a], e[b]))

    def attend_own(self, x):
        """A value by itself, as queries, keys and values of one head."""
        v, shape = x

        def function(p, e):
            t = e[v][:, None]
            return F.scaled_dot_product_attention(t, t, t)[:, 0]
        return self.value(f"attend {{ heads = 1 }} ({v}, {v}, {v})", shape, function)

    def linear(self, x, out=None):
        (v, shape), n = x, self.name("fc")
        out = out or self.draw.choice(OUTS)
        bias, turned = self.draw.random() < 0.7, self.draw.random() < 0.2
        more = ("" if bias else ", bias = false") + (', store = "in_out"' if turned else "")

        def function(p, e):
            weight = p[n + ".weight"]
            return F.linear(e[v], weight.t() if turned else weight, p[n + ".bias"] if bias else None)
        return self.value(f'linear "{n}" {{ {out}{more} }} ({v})', shape[:-1] + [out], function)

    def norm(self, x):
        (v, shape), n = x, self.name("norm")
        if HALF and shape[-1] < 4:      # equal values, whose differences are rounding
            return self.unary(x)
        bias = self.draw.random() < 0.7
        if self.draw.random() < 0.5:
            return self.value(f'layernorm "{n}" {{ {"" if bias else "bias = false"} }} ({v})', shape,
                              lambda p, e: F.layer_norm(e[v], shape[-1:], p[n + ".weight"],
                                                        p[n + ".bias"] if bias else None, 1e-5))
        return self.value(f'rmsnorm "{n}" {{}} ({v})', shape,
                          lambda p, e: F.rms_norm(e[v], shape[-1:], p[n + ".weight"], 1e-6))

    def twice(self, x):
        """A layer and itself behind it: one weight with two gradients."""
        (v, shape), n = x, self.name("fc")
        self.line(f'local {n} = linear "{n}" {{ {shape[-1]} }}')

        def function(p, e):
            once = torch.tanh(F.linear(e[v], p[n + ".weight"], p[n + ".bias"]))
            return F.linear(once, p[n + ".weight"], p[n + ".bias"])
        return self.value(f"{n} (tanh {{}} ({n} ({v})))", shape, function)

    def residual(self, x):
        y = self.draw.choice([self.unary, self.norm])(x)
        if len(x[1]) < 3:
            y = self.linear(y, x[1][-1])
        a, b = x[0], y[0]
        return self.value(f"{a} + {b}", x[1], lambda p, e: e[a] + e[b])

    def attend(self, x):
        heads, size, causal = self.draw.choice([1, 2]), self.draw.choice(HEADS), self.draw.random() < 0.5
        groups = self.draw.choice([1, heads])
        q, k, v = (self.linear(x, size * n) for n in (heads, groups, groups))
        if self.draw.random() < 0.4:
            q, k = self.rotary(q, heads), self.rotary(k, groups)
        q, k, v = q[0], k[0], v[0]

        def split(t, n):
            t = t.view(t.shape[0], t.shape[1], n, size).transpose(1, 2)
            return t.repeat_interleave(heads // n, 1)

        def function(p, e):
            y = F.scaled_dot_product_attention(split(e[q], heads), split(e[k], groups), split(e[v], groups),
                                               is_causal=causal)
            return y.transpose(1, 2).flatten(2)
        return self.value(f"attend {{ heads = {heads}, kv_heads = {groups}, causal = {str(causal).lower()} }} "
                          f"({q}, {k}, {v})", x[1][:-1] + [heads * size], function)

    def rotary(self, x, heads):
        v, shape = x

        def function(p, e):
            t = e[v].unflatten(-1, (heads, -1))
            half = t.shape[-1] // 2
            angles = torch.arange(t.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) / half)
            cos, sin = angles.cos()[:, None].to(t.dtype), angles.sin()[:, None].to(t.dtype)
            a, b = t[..., :half], t[..., half:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).flatten(2)
        return self.value(f"rotary {{ heads = {heads} }} ({v})", shape, function)

    def conv(self, x):
        (v, (planes, high, wide)), n, draw = x, self.name("conv"), self.draw
        groups = draw.choice([1, planes] + [2] * (planes % 2 == 0))
        out = groups * draw.choice([1, 2, 3, 8]) if groups > 1 else draw.choice(PLANES)
        size, stride, dilation = draw.choice([1, 2, 3]), draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
        if IMAGES and draw.random() < 0.8:
            groups, out, size, stride, dilation = 1, draw.choice(PLANES), 3, 1, 1
        bias = draw.random() < 0.6
        reach = (size - 1) * dilation + 1
        padding = draw.choice([0, 1, 2] if IMAGES else [0, 1]) if reach > 1 else 0
        if min(high, wide) + 2 * padding < reach:
            return self.unary(x)
        shape = [out] + [(n + 2 * padding - reach) // stride + 1 for n in (high, wide)]
        return self.value(f'conv2d "{n}" {{ {out}, {size}, stride = {stride}, padding = {padding}, '
                          f"dilation = {dilation}, groups = {groups}, bias = {str(bias).lower()} }} ({v})", shape,
                          lambda p, e: F.conv2d(e[v], p[n + ".weight"], p[n + ".bias"] if bias else None, stride,
                                                padding, dilation, groups))

    def batchnorm(self, x):
        (v, shape), n = x, self.name("bn")
        return self.value(f'batchnorm "{n}" {{}} ({v})', shape,
                          lambda p, e: F.batch_norm(e[v], None, None, p[n + ".weight"], p[n + ".bias"], True))

    def pool(self, x):
        v, (planes, high, wide) = x
        if min(high, wide) < 2:
            return self.unary(x)
        text, function, shape = self.draw.choice([
            ("maxpool2d { 2, stride = 1 }", lambda t: F.max_pool2d(t, 2, 1), [high - 1, wide - 1]),
            ("avgpool2d { 2, stride = 1 }", lambda t: F.avg_pool2d(t, 2, 1), [high - 1, wide - 1]),
            ("adaptive_avgpool2d { 2 }", lambda t: F.adaptive_avg_pool2d(t, 2), [2, 2])])
        return self.value(f"{text} ({v})", [planes] + shape, lambda p, e: function(e[v]))

    def reduce(self, x):
        v, shape = x
        axis, (text, function) = self.draw.randrange(len(shape)), self.draw.choice(
            [("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)])
        if text == "max":       # the gradient flows to the first of equal values
            function = lambda t, d: t.max(d)[0]
        return self.value(f"{text} {{ axis = {axis + 2} }} ({v})", shape[:axis] + shape[axis + 1:],
                          lambda p, e: function(e[v], axis + 1))

    def reshaped(self, x):
        v, shape = x
        kind, last = self.draw.choice(["slice", "pick", "transpose", "concat", "reshape"]), len(shape) + 1
        if kind == "slice" and shape[-1] > 3:
            return self.value(f"slice {{ axis = {last}, from = 2, to = {shape[-1] - 1} }} ({v})",
                              shape[:-1] + [shape[-1] - 2], lambda p, e: e[v][..., 1:-1])
        if kind == "pick" and len(shape) > 1:
            return self.value(f"pick {{ axis = 2, index = 1 }} ({v})", shape[1:], lambda p, e: e[v][:, 0])
        if kind == "transpose" and len(shape) > 1:
            order = self.draw.sample(range(2, last + 1), len(shape))
            return self.value(f"transpose {{ 1, {', '.join(map(str, order))} }} ({v})", [shape[i - 2] for i in order],
                              lambda p, e: e[v].permute(0, *(i - 1 for i in order)).contiguous())
        if kind == "concat":
            y, _ = self.unary(x)
            return self.value(f"concat {{ axis = {last} }} ({v}, {y})", shape[:-1] + [2 * shape[-1]],
                              lambda p, e: torch.cat([e[v], e[y]], -1))
        return self.flat(x)

    def flat(self, x):
        v, shape = x
        return self.value(f"flatten {{}} ({v})", [math.prod(shape)], lambda p, e: e[v].flatten(1))

    def times(self, x):
        """x + 0.5 f(x), two to four times, each with parameters of its own."""
        (v, shape), region, count = x, self.name("h"), self.draw.randint(2, 4)
        inner = Body(self.draw, self.names, self.depth + 1)
        argument = inner.name("x")
        y = (argument, shape)
        for _ in range(self.draw.randint(1, 3)):
            kinds = [inner.unary, inner.norm, inner.residual, inner.pair, inner.skip]
            attends = [inner.attend, inner.attend_own] * (len(shape) == 2)
            y = self.draw.choice(kinds + attends + [inner.linear] * (len(shape) < 3))(y)
        if y[1] != shape:
            y = inner.linear(y, shape[-1])

        def function(p, e):
            t = e[v]
            for i in range(count):
                values = {argument: t}
                inner.run(Prefixed(p, f"{region}.{i}."), values)
                t = t + 0.5 * values[y[0]]
            return t
        self.line(f'local {region} = times({count}) "{region}" (function({argument})')
        self.lines += inner.lines
        self.line(f"    return {argument} + 0.5 * {y[0]}")
        self.line("end)")
        return self.value(f"{region} ({v})", shape, function)

    def model(self):
        shape = self.draw.choice(SHAPES)
        x = self.value(f"reshape {{ {', '.join(map(str, shape))} }} (batch.input)", shape,
                       lambda p, e: e["input"].reshape(-1, *shape))
        if len(shape) < 3:
            x = self.linear(x)
        for n in range(self.draw.randint(2, 7)):
            if IMAGES and n < 3:
                x = self.conv(x)
                continue
            every = [self.unary, self.norm, self.residual, self.pair, self.skip, self.skip, self.reshaped, self.times]
            kinds = every + {
                1: [self.linear, self.linear, self.twice, self.batchnorm],
                2: [self.linear, self.twice, self.attend, self.attend, self.attend_own, self.times, self.reduce],
                3: [self.conv, self.conv, self.conv, self.batchnorm, self.batchnorm, self.pool, self.reduce],
            }[len(x[1])]
            x = self.draw.choice(kinds)(x)
        return self.linear(self.flat(x) if len(x[1]) > 1 else x, CLASSES)


class Case:
    """A random spec, its program's parameters and PyTorch's."""

    def __init__(self, seed):
        draw, self.seed = random.Random(seed), seed
        self.draw = draw
        self.body = Body(draw, [0])
        self.output, _ = self.body.model()
        self.micro, self.batch = draw.randint(1, 2 if TWINS else 4), draw.choice(BATCHES)
        self.optimizer, self.make_optimizer = optimizer_of(draw, self.body.lines)
        self.clip = draw.choice(["", "", "(0.1)", "{ value = 0.01 }"])
        if HALF:
            self.clip = ""
        self.loss, self.total, self.weight = loss_of(draw, self.batch)
        self.gamma = draw.choice([1, 1, 0.5])
        memory = ", ".join(['recompute = { "*" }'] * (draw.random() < 0.3)
                           + ['logits = "chunked", logits_rows = 4'] * (draw.random() < 0.3))
        normed = any("batchnorm" in line for line in self.body.lines)
        self.mode = draw.choice(["none", "none", "ddp", "zero1", "zero2", "zero3"])
        if normed:
            self.mode = "none"
        self.ranks = draw.randint(1, 3) if self.mode != "none" else 1
        self.text = (f'data       {{ "csv", train = "rows.csv", target = "last", shuffle = false }}\n'
                     f"batch      ({self.batch})\naccumulate ({self.micro})\nmodel (function(batch)\n"
                     + "\n".join(self.body.lines) + f"\n    return {self.output}\nend)\n"
                     f"loss       {self.loss}\noptimizer  {self.optimizer}\n"
                     + f'schedule   {{ "exponential", gamma = {self.gamma} }}\n' * (self.gamma < 1)
                     + f"clip       {self.clip}\n" * bool(self.clip) + f"memory     {{ {memory} }}\n" * bool(memory)
                     + f'precision  "{PRECISION}"\nparallel   "{self.mode}"\n'
                     + "scaler     { initial_scale = 8 }\n" * (PRECISION == "f16")    # no gradient overflows
                     + f'target     "{"cuda" if CUDA else "c"}"\n'
                     f"train      {{ updates = 50, seed = {seed + 1} }}\n")

    def trained(self, folder, scripts):
        """First and last values by the program, as two dictionaries."""
        os.makedirs(folder + "/data")
        with open(folder + "/data/rows.csv", "w") as f:
            f.write("".join(",".join(map(repr, x)) + f",{y}\n" for x, y in rows()))
        with open(folder + "/random.lua", "w") as f:
            f.write(self.text)
        march = ["--march", WORDS[self.seed % len(WORDS)]] if WORDS else []
        comm = "self" if self.mode == "none" else "nccl" if CUDA else "mpi"
        random_programs.build(folder, march, scripts if TWINS else None, comm)
        train = random_programs.launched(folder, comm, self.ranks, self.draw.randint(1, 3))
        first, dump = folder + "/first.safetensors", folder + "/dump"
        random_programs.run(train + ["--cycles", str(CYCLES), "--save-init", first, "--dump", dump, "--checkpoint",
                                     folder + "/saved"])
        return load_file(first), load_file(dump + ("/gradients" if HALF else "/parameters") + ".safetensors")

    def expected(self, first, kind=torch.float64):
        """The same by torch, and the greatest gradient of each parameter; in 16 bits the gradients."""
        p = {k: v.to(kind).clone().requires_grad_(True) for k, v in first.items() if k.endswith((".weight", ".bias"))}
        optimizer, at = self.make_optimizer(p), 0
        x = torch.tensor([x for x, _ in rows()], dtype=kind)
        y = torch.tensor([y for _, y in rows()])
        most = {k: 0.0 if v.requires_grad else math.inf for k, v in p.items()}     # a frozen one is always compared
        for _ in range(CYCLES):
            optimizer.zero_grad()
            rows_of_cycle = self.batch * self.micro * self.ranks
            weight = self.weight(y[at:at + rows_of_cycle]) or 1
            for start in range(at, at + rows_of_cycle, self.batch):
                values = {"input": x[start:start + self.batch]}
                self.body.run(p, values)
                (self.total(values[self.output], y[start:start + self.batch]) / weight).backward()
            at += rows_of_cycle
            if HALF:
                return {k: v.grad for k, v in p.items() if v.grad is not None}, None
            for k, v in p.items():      # no gradient: nothing reads the parameter, or it is frozen
                most[k] = max(most[k], v.grad.abs().max().item() if v.grad is not None else 0)
            if "value" in self.clip:
                torch.nn.utils.clip_grad_value_(list(p.values()), 0.01)
            elif self.clip:
                torch.nn.utils.clip_grad_norm_(list(p.values()), 0.1)
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] *= self.gamma
        return {k: v.detach() for k, v in p.items()}, most

    def compare(self, folder, scripts):
        """None, or what differs. scripts: the folder of those that have twins."""
        first, last = self.trained(folder, scripts)
        expected, gradient = self.expected(first)
        if HALF:
            kind = torch.bfloat16 if PRECISION == "bf16" else torch.float16
            return self.compare_gradients(last, expected, self.expected(first, kind)[0])
        rounded = self.expected(first, torch.float32)[0] if F32 else expected
        for name, value in expected.items():
            off = (last[name].double() - value).abs().max().item()
            own = (rounded[name].double() - value).abs().max().item()   # what PyTorch rounds
            change = (value - first[name].double()).abs().max().item()
            if gradient[name] > NOISE and not off <= max(BOUND * max(change, 1e-6), 5 * own):
                return f"{name} differs by {off:.3g}, its change is {change:.3g}, PyTorch rounds {own:.3g}"
        return None

    @staticmethod
    def compare_gradients(found, expected, rounded):
        """None, or the gradient that is farthest from the expected one, all in the scale of the expected ones."""
        names = [k for k in expected if k in found]
        whole = sum(expected[k].square().sum().item() for k in names)
        if whole == 0:      # nothing counts, or nothing reaches a parameter
            return None if all(found[k].abs().max() == 0 for k in names) else "gradients are not 0"

        def away(gradients):
            inner = sum((gradients[k].double() * expected[k]).sum().item() for k in names)
            return {k: (gradients[k].double() * whole / inner - expected[k]).norm().item() for k in names}
        off, own = away(found), away(rounded)       # own: what PyTorch rounds
        size = {k: expected[k].norm().item() + 0.01 * math.sqrt(whole) for k in names}
        worst = max(names, key=lambda k: off[k] / max(AWAY * size[k], 3 * own[k]))
        if off[worst] <= max(AWAY * size[worst], 3 * own[worst]):
            return None
        return (f"the gradient of {worst}, of norm {size[worst]:.3g} among {math.sqrt(whole):.3g}, is {off[worst]:.3g} "
                f"away, PyTorch's {own[worst]:.3g}")


def rows():
    draw = random.Random(5)
    return [([round(draw.gauss(0, 1), 4) for _ in range(WIDTH)], draw.randrange(CLASSES)) for _ in range(ROWS)]


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    scripts = tempfile.TemporaryDirectory()
    if TWINS:
        random_programs.write_scripts(scripts.name)     # as a start takes no times of the device library: all are taken
        os.environ["GAGEN_TWINS"] = "all"
    bad = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        folder = f"{WORK}/{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            found = Case(seed).compare(folder, scripts.name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            found = str(error)
        print(seed, found or "ok", flush=True)
        bad += found is not None
        if found is None:
            shutil.rmtree(folder)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
