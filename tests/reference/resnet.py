#!/usr/bin/env python3
"""Ten updates of two narrow ResNet-18 as torchvision writes them; figures for tests/lua/test_resnet.lua.

    python3 tests/reference/resnet.py        writes tests/reference/resnet_{tutorial,cifar10}/*.safetensors

tutorial has the stem of 7 x 7 with a pool behind it, cifar10 that of 3 x 3. init.safetensors is the
state_dict of the start, counters as torch writes them (I64); gradient_aA is the first update's gradient in
f32, aA_f64 the state_dict after the last update, losses the losses of all updates and, the last number of
each, the loss of an evaluation behind them. Images are formulas, those of transformers.py and the test.
Needs torch, safetensors and numpy, CPU only."""
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

from transformers import image_rows

HERE = pathlib.Path(__file__).resolve().parent
UPDATES, BATCH, ROWS, EVAL = 10, 8, 64, 12


def conv(ins, outs, size, stride):
    return nn.Conv2d(ins, outs, size, stride, size // 2, bias=False)


class Basic(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(ins, outs, 3, stride), nn.BatchNorm2d(outs)
        self.conv2, self.bn2 = conv(outs, outs, 3, 1), nn.BatchNorm2d(outs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(conv(ins, outs, 1, stride), nn.BatchNorm2d(outs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    def __init__(self, width, stem):
        super().__init__()
        self.stem = stem
        self.conv1 = conv(3, width, 7, 2) if stem == "tutorial" else conv(3, width, 3, 1)
        self.bn1 = nn.BatchNorm2d(width)
        ins = width
        for i in range(4):
            outs = width << i
            blocks = nn.Sequential(Basic(ins, outs, 1 if i == 0 else 2), Basic(outs, outs, 1))
            setattr(self, f"layer{i + 1}", blocks)
            ins = outs
        self.fc = nn.Linear(ins, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.stem == "tutorial":
            x = F.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def train(start, width, stem, dtype, accumulate):
    """Losses of the updates and of an evaluation, the gradient of the first update, the last state."""
    model = ResNet18(width, stem)
    model.load_state_dict(start)
    model = model.to(dtype)
    x, y = image_rows(ROWS + EVAL, dtype)
    opt = torch.optim.SGD(model.parameters(), lr=0.0005, momentum=0.9, weight_decay=5e-4)
    losses, gradient, at = [], None, 0
    for _ in range(UPDATES):
        opt.zero_grad()
        total = 0.0
        for _ in range(accumulate):
            rows = slice(at, at + BATCH)
            loss = F.cross_entropy(model(x[rows]), y[rows]) / accumulate
            loss.backward()
            total += loss.item()
            at = (at + BATCH) % ROWS
        if gradient is None:
            gradient = {name: p.grad.clone() for name, p in model.named_parameters()}
        opt.step()
        losses.append(total)
    model.eval()
    with torch.no_grad():
        losses.append(F.cross_entropy(model(x[ROWS:]), y[ROWS:]).item())
    return losses, gradient, model.state_dict()


def main():
    for stem, width in (("tutorial", 2), ("cifar10", 3)):
        torch.manual_seed(1)
        folder = HERE / f"resnet_{stem}"
        folder.mkdir(exist_ok=True)
        start, all_losses = ResNet18(width, stem).state_dict(), {}
        save_file(start, folder / "init.safetensors")
        for accumulate in (1, 4):
            for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
                losses, gradient, state = train(start, width, stem, dtype, accumulate)
                all_losses[f"a{accumulate}_{name}"] = torch.tensor(losses, dtype=torch.float64)
                if name == "f32":
                    save_file(gradient, folder / f"gradient_a{accumulate}.safetensors")
                elif accumulate == 4:
                    save_file({k: v.to(dtype) for k, v in state.items()}, folder / "a4_f64.safetensors")
                print(stem, accumulate, name, losses[0], losses[-2:], flush=True)
        save_file(all_losses, folder / "losses.safetensors")


if __name__ == "__main__":
    main()
