#!/usr/bin/env python3
"""Learning rates, and momenta where they move, of torch.optim.lr_scheduler, of Colossal-AI's schedulers
and of Hugging Face's; figures for tests/lua/test_schedules.lua.

    python3 tests/reference/schedules.py           writes tests/reference/schedules/figures.lua

torch's own classes run here. Colossal-AI's put a warm-up or a flat part in front of them, Hugging Face's
are factors for LambdaLR; both are written out below. A run is a spec's schedule, the base rate, and as
many values as updates are asked for: beyond the schedule's end where the originals allow it.
Needs torch, CPU only. Invariant: the same torch gives the same bytes."""
import math
import pathlib
import warnings

import torch
from torch.optim import lr_scheduler as L

OUT = pathlib.Path(__file__).resolve().parent / "schedules" / "figures.lua"


def optimizer(base, kind=torch.optim.SGD):
    more = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    return kind([torch.zeros(1, requires_grad=True)], lr=base, **more)


def values(make, base, count, kind=torch.optim.SGD):
    opt = optimizer(base, kind)
    scheduler, rates, momenta = make(opt), [], []
    group = opt.param_groups[0]
    for _ in range(count):
        rates.append(group["lr"])
        momenta.append(group["momentum"] if "momentum" in group else group["betas"][0])
        opt.step()
        try:
            scheduler.step()
        except ValueError:
            break                                   # OneCycleLR ends
    return rates, momenta if max(momenta) > min(momenta) else None


def behind(first, make):
    """`first` are factors of the base rate; then torch's scheduler from its own beginning."""
    def rates(base, count):
        after, _ = values(make, base, max(count - len(first), 1))
        return ([base * f for f in first] + after)[:count], None
    return rates


def plain(make, kind=torch.optim.SGD):
    return lambda base, count: values(make, base, count, kind)


def factor(f):
    return plain(lambda o: L.LambdaLR(o, f))


def warm(w):
    return [(t + 1) / w for t in range(w)]


def cosine(T, eta=0.0):
    return lambda o: L.CosineAnnealingLR(o, T, eta_min=eta)


def polynomial(T, end, power):
    def make(o):
        b = o.param_groups[0]["lr"]
        return L.LambdaLR(o, lambda t: ((b - end) * (1 - min(t, T) / T) ** power + end) / b)
    return make


def hf_cosine(w, T, cycles=0.5):
    def f(t):
        if t < w:
            return t / max(1, w)
        p = (t - w) / max(1, T - w)
        return max(0.0, 0.5 * (1 + math.cos(math.pi * cycles * 2 * p)))
    return f


def hf_restarts(w, T, cycles):
    def f(t):
        if t < w:
            return t / max(1, w)
        p = (t - w) / max(1, T - w)
        return 0.0 if p >= 1 else max(0.0, 0.5 * (1 + math.cos(math.pi * ((cycles * p) % 1.0))))
    return f


def hf_linear(w, T):
    return lambda t: t / max(1, w) if t < w else max(0.0, (T - t) / max(1, T - w))


def hf_polynomial(w, T, end, power, base):
    def f(t):
        if t < w:
            return t / max(1, w)
        if t > T:
            return end / base
        return ((base - end) * (1 - (t - w) / (T - w)) ** power + end) / base
    return f


def hf_inverse_sqrt(w, scale=None):
    scale = scale or w or 10000
    return lambda t: t / max(1, w) if t < w else 1 / math.sqrt((t + scale - w) / scale)


def wsd(w, T, d):
    """Warm-up, stable, and the last d of T linearly to 0."""
    return lambda t: (t + 1) / w if t < w else 1.0 if t < T - d else max(0.0, (T - t) / d)


def sequence(*makes, milestones):
    return plain(lambda o: L.SequentialLR(o, [m(o) for m in makes], milestones=milestones))


ZERO = 'compat = { "warmup_from_zero" }'
RUNS = [
    # torch
    ('{ "step", step_size = 4, gamma = 0.5 }', 0.1, 13, plain(lambda o: L.StepLR(o, 4, 0.5))),
    ('{ "multistep", milestones = { 3, 5, 5, 9 } }', 0.1, 12, plain(lambda o: L.MultiStepLR(o, [3, 5, 5, 9]))),
    ('{ "exponential", gamma = 0.9 }', 0.1, 12, plain(lambda o: L.ExponentialLR(o, 0.9))),
    ('{ function(t) return 0.95 end, product = true }', 0.1, 12, plain(lambda o: L.MultiplicativeLR(o, lambda t: 0.95))),
    ('{ function(t) return where(lt(t, 6), 1 + 1 / t, 0.5) end, product = true }', 0.1, 15,
     plain(lambda o: L.MultiplicativeLR(o, lambda t: 1 + 1 / t if t < 6 else 0.5))),
    ('{ "constant_lr" }', 0.1, 9, plain(lambda o: L.ConstantLR(o))),
    ('{ "constant_lr", factor = 0.2, total_iters = 1 }', 0.1, 4, plain(lambda o: L.ConstantLR(o, 0.2, 1))),
    ('{ "linear_lr" }', 0.1, 9, plain(lambda o: L.LinearLR(o))),
    ('{ "linear_lr", start_factor = 0.5, end_factor = 0.1, total_iters = 1 }', 0.1, 4,
     plain(lambda o: L.LinearLR(o, 0.5, 0.1, 1))),
    ('{ "polynomial_lr" }', 0.1, 9, plain(lambda o: L.PolynomialLR(o))),
    ('{ "polynomial_lr", total_iters = 7, power = 2 }', 0.1, 9, plain(lambda o: L.PolynomialLR(o, 7, 2.0))),
    ('{ "cosine_annealing", T_max = 6, eta_min = 0.01 }', 0.1, 40, plain(cosine(6, 0.01))),
    ('{ "cosine_annealing", T_max = 1 }', 0.1, 7, plain(cosine(1))),
    ('{ "cosine_annealing" }', 0.1, 12, plain(cosine(12))),
    ('{ "cosine_annealing_warm_restarts", T_0 = 4 }', 0.1, 17,
     plain(lambda o: L.CosineAnnealingWarmRestarts(o, 4))),
    ('{ "cosine_annealing_warm_restarts", T_0 = 3, T_mult = 2, eta_min = 0.02 }', 0.1, 60,
     plain(lambda o: L.CosineAnnealingWarmRestarts(o, 3, 2, 0.02))),
    ('{ "cosine_annealing_warm_restarts", T_0 = 1, T_mult = 3 }', 0.1, 125,
     plain(lambda o: L.CosineAnnealingWarmRestarts(o, 1, 3))),
    ('{ "cyclic", max_lr = 0.5, step_size_up = 4 }', 0.1, 27,
     plain(lambda o: L.CyclicLR(o, 0.1, 0.5, 4, cycle_momentum=True))),
    ('{ "cyclic", base_lr = 0.2, max_lr = 0.5, step_size_up = 2, step_size_down = 5, mode = "triangular2" }', 0.1,
     24, plain(lambda o: L.CyclicLR(o, 0.2, 0.5, 2, 5, mode="triangular2"))),
    ('{ "cyclic", max_lr = 0.5, step_size_up = 3, mode = "exp_range", gamma = 0.95, cycle_momentum = false }', 0.1,
     20, plain(lambda o: L.CyclicLR(o, 0.1, 0.5, 3, mode="exp_range", gamma=0.95, cycle_momentum=False))),
    ('{ "onecycle" }', 0.1, 10, plain(lambda o: L.OneCycleLR(o, 0.1, 10))),
    ('{ "onecycle" }', 0.1, 1, plain(lambda o: L.OneCycleLR(o, 0.1, 1))),
    ('{ "onecycle", max_lr = 0.4, pct_start = 0.25, anneal_strategy = "linear", div_factor = 10, '
     'final_div_factor = 100 }', 0.1, 33,
     plain(lambda o: L.OneCycleLR(o, 0.4, 33, pct_start=0.25, anneal_strategy="linear", div_factor=10,
                                  final_div_factor=100))),
    ('{ "onecycle", three_phase = true, base_momentum = 0.5, max_momentum = 0.7 }', 0.1, 41,
     plain(lambda o: L.OneCycleLR(o, 0.1, 41, three_phase=True, base_momentum=0.5, max_momentum=0.7),
           torch.optim.Adam)),
    ('{ "sequential", { "linear_lr", total_iters = 4 }, { "cosine_annealing", T_max = 5 }, { "constant" }, '
     'milestones = { 4, 9 } }', 0.1, 15,
     sequence(lambda o: L.LinearLR(o, total_iters=4), cosine(5), lambda o: L.ConstantLR(o, 1.0, 0),
              milestones=[4, 9])),
    ('{ "sequential", { "constant_lr", factor = 0.5, total_iters = 2 }, { "cosine_annealing" }, milestones = { 3 } }',
     0.1, 12, sequence(lambda o: L.ConstantLR(o, 0.5, 2), cosine(9), milestones=[3])),
    ('{ "sequential", { "cosine_annealing", T_max = 6 }, { "swa", swa_lr = 0.05, anneal_epochs = 4 }, '
     'milestones = { 5 } }', 0.1, 14,
     sequence(cosine(6), lambda o: torch.optim.swa_utils.SWALR(o, 0.05, 4), milestones=[5])),
    ('{ "chained", { "constant_lr", factor = 0.1, total_iters = 3 }, { "exponential", gamma = 0.9 } }', 0.1, 9,
     plain(lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)]))),
    ('{ "swa", swa_lr = 0.05 }', 0.1, 15, plain(lambda o: torch.optim.swa_utils.SWALR(o, 0.05))),
    ('{ "swa", swa_lr = 0.5, anneal_epochs = 4, anneal_strategy = "linear" }', 0.1, 9,
     plain(lambda o: torch.optim.swa_utils.SWALR(o, 0.5, 4, "linear"))),
    # Colossal-AI
    ('{ "cosine", warmup = 3 }', 0.1, 8, behind(warm(3), cosine(5))),
    ('{ "cosine", warmup = 1 }', 0.1, 8, behind(warm(1), cosine(7))),
    ('{ "cosine", min = 0.02 }', 0.1, 1, behind([], cosine(1, 0.02))),
    ('{ "flat_annealing" }', 0.1, 20, behind([1] * 14, cosine(6))),
    ('{ "flat_annealing", warmup = 4, pct_start = 0.5, eta_min = 0.01 }', 0.1, 21,
     behind(warm(4) + [1] * 8, cosine(9, 0.01))),
    ('{ "linear_warmup", warmup = 3 }', 0.1, 8,
     factor(lambda t: (t + 1) / 4 if t < 3 else (8 - t) / 5)),
    ('{ "linear_warmup", warmup = 2, total = 5, compat = { "negative" } }', 0.1, 9,
     factor(lambda t: (t + 1) / 3 if t < 2 else (5 - t) / 3)),
    ('{ "linear_warmup", warmup = 2, total = 5 }', 0.1, 9,
     factor(lambda t: (t + 1) / 3 if t < 2 else max(0, (5 - t) / 3))),
    ('{ "multistep", warmup = 3, milestones = { 5, 8 }, gamma = 0.5 }', 0.1, 11,
     behind(warm(3), lambda o: L.MultiStepLR(o, [2, 5], 0.5))),
    ('{ "multistep", warmup = 3, milestones = { 2, 8 }, compat = { "drop_milestones" } }', 0.1, 11,
     behind(warm(3), lambda o: L.MultiStepLR(o, [5]))),
    ('{ "polynomial" }', 0.1, 10, plain(polynomial(10, 1e-4, 1.0))),
    ('{ "polynomial", warmup = 2, end_lr = 0.01, power = 3, total = 8 }', 0.1, 11,
     behind(warm(2), polynomial(6, 0.01, 3.0))),
    # Hugging Face
    ('{ "constant" }', 0.1, 4, factor(lambda t: 1.0)),
    (f'{{ "constant_with_warmup", warmup = 3, {ZERO} }}', 0.1, 6, factor(lambda t: min(1.0, t / 3))),
    (f'{{ "linear", warmup = 3, total = 10, {ZERO} }}', 0.1, 14, factor(hf_linear(3, 10))),
    (f'{{ "cosine", warmup = 2, {ZERO} }}', 0.1, 12, factor(hf_cosine(2, 12))),
    ('{ "cosine", cycles = 1.5 }', 0.1, 12, factor(hf_cosine(0, 12, 1.5))),
    (f'{{ "cosine_with_restarts", warmup = 2, cycles = 3, total = 14, {ZERO} }}', 0.1, 16,
     factor(hf_restarts(2, 14, 3))),
    (f'{{ "polynomial", warmup = 2, end_lr = 1e-7, power = 2, total = 8, {ZERO} }}', 0.1, 11,
     factor(hf_polynomial(2, 8, 1e-7, 2, 0.1))),
    (f'{{ "inverse_sqrt", warmup = 4, {ZERO} }}', 0.1, 12, factor(hf_inverse_sqrt(4))),
    ('{ "inverse_sqrt", timescale = 5 }', 0.1, 12, factor(hf_inverse_sqrt(0, 5))),
    ('{ "wsd", warmup = 2, decay = 4, total = 10 }', 0.1, 12, factor(wsd(2, 10, 4))),
    ('{ "wsd", warmup = 2, decay = 0.5 }', 0.1, 10, factor(wsd(2, 10, 4))),
]


def plateau(metrics, base, **options):
    opt = optimizer(base)
    scheduler, rates = L.ReduceLROnPlateau(opt, **options), []
    for metric in metrics:
        scheduler.step(metric)
        rates.append(opt.param_groups[0]["lr"])
    return rates


METRICS = [3.0, 2.0, 1.9999, 1.9, 1.95, 1.94, 1.93, 1.0, 1.1, 1.2, 1.0, 0.99995, 0.9999, 0.9, 0.91, 0.92, 0.93, 0.94,
           0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.0]
PLATEAUS = [
    ("", {}), (", patience = 1, factor = 0.5", {"patience": 1, "factor": 0.5}),
    (", patience = 0, threshold = 0.06, threshold_mode = \"abs\", cooldown = 2, min_lr = 0.001",
     {"patience": 0, "threshold": 0.06, "threshold_mode": "abs", "cooldown": 2, "min_lr": 0.001}),
    (", mode = \"max\", patience = 2, eps = 0.001", {"mode": "max", "patience": 2, "eps": 0.001}),
]


def numbers(xs):
    return "{ " + ", ".join(repr(float(x)) for x in xs) + " }"


def main():
    warnings.filterwarnings("ignore")
    out = ["-- figures: rates and momenta, made by tests/reference/schedules.py.", "return {", "    runs = {"]
    for spec, base, count, run in RUNS:
        rates, momenta = run(base, count)
        more = f", momenta = {numbers(momenta)}" if momenta else ""
        out.append(f"        {{ spec = [[{spec}]], base = {base}, updates = {count},")
        out.append(f"            rates = {numbers(rates)}{more} }},")
    out += ["    },", f"    metrics = {numbers(METRICS)},", "    plateaus = {"]
    for fields, options in PLATEAUS:
        out.append(f"        {{ fields = [[{fields}]], rates = {numbers(plateau(METRICS, 0.1, **options))} }},")
    out += ["    },", "}"]
    OUT.write_text("\n".join(out) + "\n")
    print(len(RUNS), "schedules,", len(PLATEAUS), "plateaus")


if __name__ == "__main__":
    main()
