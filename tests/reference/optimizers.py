#!/usr/bin/env python3
"""Fifty updates of a small network with every optimizer; figures for tests/lua/test_optimizers.lua.

    python3 tests/reference/optimizers.py          writes tests/reference/optimizers/figures.lua

The network is 4-8-3 with tanh, the rows are those of tests/lua/programs.lua (90 rows of 4 values and a
class), an update is the mean over 16 rows in file order, 5 updates an epoch. Matrices are the first
group; vectors have a rate of their own and no weight decay. Options that a run does not name have the
default of the implementation here, so defaults are compared too. Arithmetic is in double precision. The
"conv" network has a convolution of 5 kernels of 2 x 2 over the 4 values as a plane with a border, and a linear layer.

torch's Muon makes matrices orthogonal in bf16: its function is taken from torch with that one word replaced by
float64, and each run is done again with orthogonal() below, an own reading of the method; both must agree to
1e-12. A second optimizer, the rest, updates what Muon does not take.
Needs torch, CPU only. Invariant: the same torch gives the same bytes."""
import inspect
import math
import pathlib

import torch

import order
import rules

OUT = pathlib.Path(__file__).resolve().parent / "optimizers" / "figures.lua"
SHAPES = {"mlp": {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)},
          "conv": {"conv.weight": (5, 1, 2, 2), "conv.bias": (5,), "fc.weight": (3, 45), "fc.bias": (3,)}}
FAN_IN = {"fc1": 4, "fc2": 8, "conv": 4, "fc": 45}
UPDATES, ROWS, BATCH, USED = 50, 90, 16, 80
BETAS = {"betas": (0.9, 0.999)}

ADAM = {"lr": 1e-3, "bias_correction": True, **BETAS, "eps": 1e-8, "weight_decay": 0.0, "adamw_mode": True}
SGD = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "wd_after_momentum": False}
LAMB = {"lr": 1e-3, **BETAS, "eps": 1e-6, "weight_decay": 0.0, "adam": False, "bias_correction": False}
FUSED_LAMB = {"lr": 1e-3, "bias_correction": True, **BETAS, "eps": 1e-6, "weight_decay": 0.01,
              "adam_w_mode": True, "grad_averaging": True, "max_grad_norm": 1.0, "use_nvlamb": False}
LARS = {"lr": 1e-3, "momentum": 0.0, "eeta": 1e-3, "weight_decay": 0.0, "epsilon": 0.0, "lars": True}
LION = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}

MADE = {"fused_adam": (rules.colossal_adam, ADAM), "cpu_adam": (rules.colossal_adam, ADAM),
        "hybrid_adam": (rules.colossal_adam, ADAM), "fused_sgd": (rules.fused_sgd, SGD),
        "lamb": (rules.lamb, LAMB), "fused_lamb": (rules.fused_lamb, FUSED_LAMB),
        "lars": (rules.lars, LARS), "lion": (rules.lion, LION)}
TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
         "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad, "nadam": torch.optim.NAdam,
         "radam": torch.optim.RAdam, "adadelta": torch.optim.Adadelta, "adamax": torch.optim.Adamax,
         "adafactor": torch.optim.Adafactor, "muon": torch.optim.Muon}

WD = {"weight_decay": 0.1}
RUNS = [
    ("sgd", {"lr": 0.1, **WD}), ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, **WD}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True, **WD}),
    ("sgd", {"lr": 0.01, "momentum": 0.5, "maximize": True, **WD}),
    ("adam", {"lr": 0.01, **WD}), ("adam", {**WD, "amsgrad": True, "betas": (0.8, 0.9)}),
    ("adam", {"lr": 0.01, "maximize": True, **WD}),
    ("adamw", {**WD}), ("adamw", {"lr": 0.01, "amsgrad": True, "betas": (0.8, 0.9)}),
    ("rmsprop", {**WD}), ("rmsprop", {"lr": 1e-3, "momentum": 0.9, "centered": True, "alpha": 0.9, **WD}),
    ("adagrad", {**WD}), ("adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2, **WD}),
    ("nadam", {**WD}), ("nadam", {"lr": 0.01, "decoupled_weight_decay": True, **WD, "momentum_decay": 0.05}),
    ("radam", {"lr": 0.01, **WD}), ("radam", {"decoupled_weight_decay": True, **WD, "betas": (0.8, 0.9)}),
    ("adadelta", {**WD}), ("adamax", {**WD}),
    ("lion", {**WD}), ("lion", {"lr": 1e-3, "betas": (0.5, 0.75), **WD}),
    ("fused_adam", {**WD}), ("cpu_adam", {"lr": 0.01, "bias_correction": False, **WD}),
    ("hybrid_adam", {"lr": 0.01, "adamw_mode": False, **WD}),
    ("fused_sgd", {"lr": 0.1, "momentum": 0.9, "wd_after_momentum": True, **WD}),
    ("fused_sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, **WD}),
    ("lamb", {**WD}), ("lamb", {"lr": 0.01, "bias_correction": True, **WD}), ("lamb", {"lr": 0.01, "adam": True}),
    ("fused_lamb", {}), ("fused_lamb", {"lr": 0.01, "adam_w_mode": False, "grad_averaging": False,
                                        "max_grad_norm": 0.1, **WD}),
    ("fused_lamb", {"use_nvlamb": True, "weight_decay": 0.0, "bias_correction": False}),
    ("lars", {"lr": 1.0, "momentum": 0.9, **WD}), ("lars", {"lr": 0.1, "eeta": 1.0, "epsilon": 0.01, **WD}),
    ("lars", {"lr": 0.1, "momentum": 0.9, "lars": False, **WD}),
]
FACTOR = 2.0                                       # of the rate of vectors

# Of rules that treat matrices otherwise than vectors: the network, the rest, and what the last matrix gets
# if it belongs to the rest.
ADAMW = ("adamw", {"lr": 0.01, "weight_decay": 0.1})
MATRIX_RUNS = [
    ("muon", {}, {}), ("muon", {"lr": 0.02, "weight_decay": 0.2, "nesterov": False}, {"rest": ADAMW}),
    ("muon", {"lr": 0.01, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw"},
     {"rest": ("sgd", {"lr": 0.1, "momentum": 0.9}), "heads": {"weight_decay": 0.05}}),
    ("muon", {"lr": 0.02, "adjust_lr_fn": "spectral_unclamped", "ns_steps": 4,
              "ns_coefficients": (2.0, -1.5, 0.5)}, {"model": "conv", "rest": ADAMW}),
    ("muon", {"lr": 0.02}, {"model": "conv", "rest": ("adafactor", {"lr": 0.05})}),
    ("adafactor", {}, {}), ("adafactor", {"lr": 0.1, **WD}, {"model": "conv"}),
    ("adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-2, 0.1), "d": 1.5, **WD}, {}),
    ("adafactor", {"lr": 1e-3, "maximize": True, "eps": (1e-10, 1e-3)}, {"model": "conv"}),
]

# With a schedule that moves the momentum; its rates are of the first group, all groups share its momentum.
ONE_CYCLE = ('{ "onecycle", pct_start = 0.4 }',
             lambda o: torch.optim.lr_scheduler.OneCycleLR(o, [0.1, FACTOR * 0.1], UPDATES, pct_start=0.4))
CYCLIC = ('{ "cyclic", max_lr = 0.02, step_size_up = 7, base_momentum = 0.6 }',
          lambda o: torch.optim.lr_scheduler.CyclicLR(o, [0.01, FACTOR * 0.01], [0.02, FACTOR * 0.02], 7,
                                                      base_momentum=0.6))
RUNS += [
    ("sgd", {"lr": 0.1, "momentum": 0.5, "nesterov": True, **WD}, ONE_CYCLE),
    ("rmsprop", {"lr": 0.01, "momentum": 0.5, **WD}, CYCLIC),
    ("adam", {"lr": 0.1, "amsgrad": True, **WD}, ONE_CYCLE), ("adamw", {"lr": 0.01, **WD}, CYCLIC),
    ("nadam", {"lr": 0.1, **WD}, ONE_CYCLE), ("radam", {"lr": 0.01, **WD}, CYCLIC),
    ("adamax", {"lr": 0.1, **WD}, ONE_CYCLE),
]


def rows():
    x, y = [], []
    for i in range(1, ROWS + 1):
        c = i % 3
        x.append([float("%.3f" % (math.sin(i * k + c) + (1 if k == c else 0))) for k in range(1, 5)])
        y.append(c)
    return torch.tensor(x, dtype=torch.float64), torch.tensor(y)


def orthogonal(x, coefficients, steps, eps):
    """Newton and Schulz's iteration with a polynomial of degree 5, the short side first."""
    a, b, c = coefficients
    short = x if x.shape[0] <= x.shape[1] else x.T
    y = short / max(math.sqrt((short * short).sum().item()), eps)
    for _ in range(steps):
        p = y @ y.T
        y = (a * torch.eye(p.shape[0], dtype=x.dtype) + b * p + c * (p @ p)) @ y
    return y if x.shape[0] <= x.shape[1] else y.T


def torch_orthogonal():
    """torch's own function, in double precision."""
    source = inspect.getsource(TORCH_ORTHOGONAL)
    assert source.count("torch.bfloat16") == 1
    space = dict(vars(torch.optim._muon))
    exec(source.replace("torch.bfloat16", "torch.float64"), space)
    return space["_zeropower_via_newtonschulz"]


TORCH_ORTHOGONAL = torch.optim._muon._zeropower_via_newtonschulz


def initial(model, flat):
    w = {}
    for n, shape in SHAPES[model].items():
        bound = 1 / math.sqrt(FAN_IN[n.split(".")[0]])
        shape = (shape[0], -1) if flat and len(shape) == 4 else shape
        w[n] = torch.tensor(order.uniform(1, n, math.prod(SHAPES[model][n]), -bound, bound),
                            dtype=torch.float64).reshape(shape).requires_grad_()
    return w


def forward(model, w, x):
    if model == "mlp":
        return torch.tanh(x @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T + w["fc2.bias"]
    kernel = w["conv.weight"].reshape(SHAPES[model]["conv.weight"])
    h = torch.nn.functional.conv2d(x.reshape(-1, 1, 2, 2), kernel, w["conv.bias"], padding=1)
    return torch.tanh(h).flatten(1) @ w["fc.weight"].T + w["fc.bias"]


def step_through(model, w, optimizers):
    x, y = rows()
    for update in range(UPDATES):
        at = update * BATCH % USED
        for opt in optimizers:
            opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(model, w, x[at:at + BATCH]), y[at:at + BATCH])
        loss.backward()
        for opt in optimizers:
            opt.step()
    return {n: p.detach().flatten().tolist() for n, p in w.items()}, loss.item()


def train_matrices(name, options, how):
    """A run of MATRIX_RUNS."""
    model = how.get("model", "mlp")
    w = initial(model, name == "muon")
    matrices, vectors = ([p for p in w.values() if (p.ndim == 1) == flag] for flag in (False, True))
    rule, fields = how.get("rest", ("adamw", {})) if name == "muon" else (name, options)
    lr = fields.get("lr", TORCH[rule]([torch.zeros(1)], **fields).defaults["lr"])
    rest = [{"params": vectors, "lr": FACTOR * lr, "weight_decay": 0.0}]
    if "heads" in how:
        rest.append({"params": [matrices.pop()], **how["heads"]})
    return step_through(model, w, [TORCH[name](matrices, **options), TORCH[rule](rest, **fields)])


def both_orthogonal(name, options, how):
    """The run with torch's function and with orthogonal(): they must agree."""
    figures = []
    for function in (torch_orthogonal(), orthogonal):
        torch.optim._muon._zeropower_via_newtonschulz = function
        figures.append(train_matrices(name, options, how))
    for n, values in figures[0][0].items():
        gap = max(abs(a - b) for a, b in zip(values, figures[1][0][n]))
        assert gap < 1e-12, (name, options, n, gap)
    return figures[0]


def train(name, options, schedule):
    w = initial("mlp", False)
    if name in TORCH:
        lr = options.get("lr", TORCH[name]([torch.zeros(1)], **options).defaults["lr"])
    else:
        lr = options.get("lr", MADE[name][1].get("lr"))
    groups = [{"params": [w["fc1.weight"], w["fc2.weight"]]},
              {"params": [w["fc1.bias"], w["fc2.bias"]], "lr": FACTOR * lr, "weight_decay": 0.0}]
    if name in TORCH:
        opt = TORCH[name](groups, **options)
    else:
        opt = rules.Optimizer(MADE[name][0], groups, {**MADE[name][1], **options})
    scheduler = schedule and schedule[1](opt)
    x, y = rows()
    for update in range(UPDATES):
        at = update * BATCH % USED
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward("mlp", w, x[at:at + BATCH]), y[at:at + BATCH])
        loss.backward()
        opt.step()
        if scheduler:
            scheduler.step()
    return {n: p.detach().flatten().tolist() for n, p in w.items()}, loss.item()


def lua(value):
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "{ " + ", ".join(lua(v) for v in value) + " }"
    return repr(value)


def written(options):
    return "".join(f", {key} = {lua(value)}" for key, value in options.items())


def put(out, name, options, rest, more, figures):
    parameters, loss = figures
    fields = written(options) + rest
    out.append(f'    {{ rule = "{name}", fields = [[{fields}]],{more} loss = {loss!r}, parameters = {{')
    for n, values in parameters.items():
        out.append(f'        ["{n}"] = {{ ' + ", ".join(repr(v) for v in values) + " },")
    out.append("    } },")
    print(f"{name:12}{fields:70} last loss {loss:.4f}")


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)         # NAdam keeps a product in it
    out = ["-- figures: parameters after fifty updates, made by tests/reference/optimizers.py.", "return {"]
    for name, options, *schedule in RUNS:
        schedule = schedule[0] if schedule else None
        more = f" schedule = [[{schedule[0]}]]," if schedule else ""
        put(out, name, options, "", more, train(name, options, schedule))
    for name, options, how in MATRIX_RUNS:
        more, groups = "", ""
        if "rest" in how:
            rule, fields = how["rest"]
            more = f', rest = {{ "{rule}"{written(fields)} }}'
        if "heads" in how:
            groups = f' heads = [[{{ "fc2.weight", rest = true{written(how["heads"])} }}]],'
        if "model" in how:
            groups += f' model = "{how["model"]}",'
        figures = both_orthogonal if name == "muon" else train_matrices
        put(out, name, options, more, groups, figures(name, options, how))
    out.append("}")
    OUT.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
