"""Optimizers and losses of random specs (random_specs.py), with those of PyTorch."""
import torch
import torch.nn.functional as F

RULES = {
    "sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta, "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam, "adamax": torch.optim.Adamax, "adafactor": torch.optim.Adafactor,
}


def optimizer_of(draw, lines):
    """Its text in a spec, and a function of named parameters that gives the optimizer of torch. Biases may have a group
    of their own, norms may be frozen. lines: of the model."""
    name = draw.choice(["momentum"] + list(RULES))
    rate, decay = draw.choice([0.01, 0.05]), draw.choice([0, 0.1])
    more = {"lr": rate, "weight_decay": decay}
    if name == "momentum":
        name, more["momentum"], more["nesterov"] = "sgd", 0.9, draw.random() < 0.5
    elif name in ("adamw", "adam"):
        more.update(eps=1e-4, amsgrad=draw.random() < 0.3, maximize=draw.random() < 0.2)
    elif name not in ("sgd", "adafactor"):
        more["eps"] = 1e-4
    text = ", ".join(f"{key} = {str(value).lower()}" for key, value in more.items())
    text_of_model = " ".join(lines)
    frozen = "\"norm" in text_of_model and draw.random() < 0.3
    biases = "fc" in text_of_model and "bias = false" not in text_of_model and draw.random() < 0.4
    groups = (["{ \"*norm*\", frozen = true }"] * frozen
              + ["{ \"*.bias\", weight_decay = 0.05, lr_scale = 0.5 }"] * biases)
    if groups:
        text += f", groups = {{ {', '.join(groups)} }}"

    def make(parameters):
        kinds = {False: [], True: []}
        for key, value in parameters.items():
            value.requires_grad_(not (frozen and "norm" in key))
            kinds[biases and key.endswith(".bias")].append(value)
        return RULES[name]([{"params": [v for v in kinds[False] if v.requires_grad]},
                            {"params": [v for v in kinds[True] if v.requires_grad], "weight_decay": 0.05,
                             "lr": rate / 2}], **more)
    return f'{{ "{name}", {text} }}', make


def loss_of(draw, batch):
    """Its text in a spec, and functions of outputs and targets: the sum of losses, and their weight."""
    smoothing, ignore = draw.choice([0, 0, 0.1]), draw.choice([-100, -100, 1]) if batch >= 5 else -100
    weights, mean = draw.choice([None, None, [0.5, 1.5, 1]]), draw.choice(["token", "token", "sum"])
    text = f'"cross_entropy", label_smoothing = {smoothing}, ignore = {ignore}, weight = "{mean}"'
    if weights:
        text += f", class_weights = {{ {', '.join(map(str, weights))} }}"

    def total(output, target):
        return F.cross_entropy(output, target, torch.tensor(weights, dtype=output.dtype) if weights else None,
                               ignore_index=ignore, label_smoothing=smoothing, reduction="sum")

    def weight(target):
        if mean == "sum":
            return 0
        counted = target[target != ignore]
        return (torch.tensor(weights)[counted].sum() if weights else torch.tensor(len(counted))).item()
    return f"{{ {text} }}", total, weight
