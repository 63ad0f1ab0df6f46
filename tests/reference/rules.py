"""Optimizers that torch does not have, as their papers or their own programs define them, for
optimizers.py. Each is one function from (options, state, w, g, t) to the new w; t counts from 1."""
import math

import torch


def colossal_adam(o, s, w, g, t):
    """FusedAdam, CPUAdam, HybridAdam of Colossal-AI."""
    wd = o["weight_decay"]
    if not o["adamw_mode"]:
        g = g + wd * w
    s["m"] = o["betas"][0] * s.get("m", 0) + (1 - o["betas"][0]) * g
    s["v"] = o["betas"][1] * s.get("v", 0) + (1 - o["betas"][1]) * g * g
    c1, c2 = (1 - b ** t if o["bias_correction"] else 1 for b in o["betas"])
    u = (s["m"] / c1) / ((s["v"] / c2).sqrt() + o["eps"])
    if o["adamw_mode"]:
        u = u + wd * w
    return w - o["lr"] * u


def fused_sgd(o, s, w, g, t):
    """FusedSGD of Colossal-AI; the first value of a buffer is the gradient."""
    wd, mu, damp = o["weight_decay"], o["momentum"], o["dampening"]
    if not o["wd_after_momentum"]:
        g = g + wd * w
    if mu:
        s["buf"] = g if t == 1 else mu * s["buf"] + (1 - damp) * g
        g = g + mu * s["buf"] if o["nesterov"] else s["buf"]
    if o["wd_after_momentum"]:
        g = g + wd * w
    return w - o["lr"] * g


def lion(o, s, w, g, t):
    m = s.get("m", torch.zeros_like(w))
    u = torch.sign(o["betas"][0] * m + (1 - o["betas"][0]) * g)
    s["m"] = o["betas"][1] * m + (1 - o["betas"][1]) * g
    return w - o["lr"] * (u + o["weight_decay"] * w)


def lamb(o, s, w, g, t):
    """Lamb of Colossal-AI: moments of the raw gradient, correction in the rate, no clamp."""
    b1, b2 = o["betas"]
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    lr = o["lr"]
    if o["bias_correction"]:
        lr *= math.sqrt(1 - b2 ** t) / (1 - b1 ** t)
    u = s["m"] / (s["v"].sqrt() + o["eps"]) + o["weight_decay"] * w
    pn, un = w.norm().item(), u.norm().item()
    ratio = 1.0 if o["adam"] or pn == 0 or un == 0 else pn / un
    return w - lr * ratio * u


def fused_lamb(o, s, w, g, t):
    """FusedLAMB of Colossal-AI; o["norm"] is the norm of the gradient of all parameters."""
    b1, b2 = o["betas"]
    wd, most = o["weight_decay"], o["max_grad_norm"]
    g = g / (o["norm"] / most) if o["norm"] > most else g
    if not o["adam_w_mode"]:
        g = g + wd * w
    s["m"] = b1 * s.get("m", 0) + ((1 - b1) if o["grad_averaging"] else 1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    c1, c2 = (1 - b ** t if o["bias_correction"] else 1 for b in o["betas"])
    u = (s["m"] / c1) / ((s["v"] / c2).sqrt() + o["eps"])
    if o["adam_w_mode"]:
        u = u + wd * w
    pn, un = w.norm().item(), u.norm().item()
    ratio = pn / un if (o["use_nvlamb"] or wd != 0) and pn != 0 and un != 0 else 1.0
    return w - o["lr"] * ratio * u


def lars(o, s, w, g, t):
    """Lars of Colossal-AI: the ratio in [0, 50], the step in [-10, 10]."""
    wd = o["weight_decay"] if o["lars"] else 0.0
    ratio = 1.0
    if o["lars"]:
        wn, gn = w.norm().item(), g.norm().item()
        if wn > 0 and gn > 0:
            ratio = o["eeta"] * wn / (gn + wd * wn + o["epsilon"])
        ratio = min(max(ratio, 0.0), 50.0)
    d = (g + wd * w).clamp(-10, 10)
    if o["momentum"]:
        s["buf"] = d if t == 1 else o["momentum"] * s["buf"] + d
        d = s["buf"]
    return w - o["lr"] * ratio * d


class Optimizer:
    """What training needs of torch.optim, for one of the functions above."""

    def __init__(self, rule, groups, defaults):
        self.rule, self.t = rule, 0
        self.groups = [{**defaults, **group, "state": [{} for _ in group["params"]]} for group in groups]

    def step(self):
        self.t += 1
        norm = math.sqrt(sum(p.grad.pow(2).sum().item() for g in self.groups for p in g["params"]))
        for group in self.groups:
            for p, state in zip(group["params"], group["state"]):
                with torch.no_grad():
                    p.copy_(self.rule({**group, "norm": norm}, state, p, p.grad, self.t))

    def zero_grad(self):
        for group in self.groups:
            for p in group["params"]:
                p.grad = None
