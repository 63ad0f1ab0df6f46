#!/usr/bin/env python3
"""The updates of bench/specs in PyTorch, for `make bench`: the same models, rows and rules, random rows in memory.

Prints one JSON object: {"torch": version, "measured_s": seconds of the measured updates, "ms": [milliseconds of each]}.
The first update is not measured: it opens memory and compiles.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

RING = 8  # micro-batches, as --overfit 8 of a program


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def conv(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        stages, inputs = [conv(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU()], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            stages += [Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)]
            inputs = outputs
        self.stages, self.fc = nn.Sequential(*stages), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.stages(x).mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, 2)
        q, k, v = (p.view(rows, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_out(y.transpose(1, 2).reshape(rows, length, width))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, vocab, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(Layer(heads, width) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, x):
        y = self.h(self.wte(x) + self.wpe.weight)
        return F.linear(self.ln_f(y), self.wte.weight)


class Encoder(nn.Module):
    def __init__(self, heads, width, drop):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.first, self.second = nn.Linear(width, width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        rows, length, width = x.shape
        q, k, v = (f(x).view(rows, length, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.drop)
        y = self.output(y.transpose(1, 2).reshape(rows, length, width))
        x = self.first(x + F.dropout(y, self.drop))
        return self.second(x + F.dropout(self.out(F.gelu(self.inner(x))), self.drop))


class BERT(nn.Module):
    def __init__(self, layers, heads, width, vocab, context, drop=0.1):
        super().__init__()
        self.drop = drop
        self.words, self.types = nn.Embedding(vocab, width), nn.Embedding(2, width)
        self.places, self.norm = nn.Embedding(context, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Encoder(heads, width, drop) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, ids, types, mask):
        x = F.dropout(self.norm(self.words(ids) + self.types(types) + self.places.weight), self.drop)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return self.classifier(F.dropout(torch.tanh(self.pooler(x[:, 0])), self.drop))


def sequences(rows, vocab, length):
    """Ids, all of one type, of which some are hidden at the end."""
    seen = torch.randint(length // 2, length, (rows, 1))
    return torch.randint(0, vocab, (rows, length)), torch.zeros(rows, length, dtype=torch.long), torch.arange(length) < seen


def make(o):
    """The model, its micro-batches and its optimizer."""
    if o.model == "mlp":
        model, targets = MLP(), 10
        inputs = lambda: torch.randn(o.rows, 784)
        rule, fields = torch.optim.SGD, dict(lr=0.01, momentum=0.9)
    elif o.model == "resnet18":
        model, targets = ResNet18(), 10
        inputs = lambda: torch.randn(o.rows, 3, 32, 32)
        rule, fields = torch.optim.AdamW, dict(lr=1e-3, weight_decay=0.01)
    elif o.model == "bert":
        model, targets = BERT(*o.sizes), 2
        inputs = lambda: sequences(o.rows, *o.sizes[3:])
        rule, fields = torch.optim.AdamW, dict(lr=2e-5, weight_decay=0.01)
    else:
        model, targets = GPT(*o.sizes), o.sizes[3]
        inputs = lambda: torch.randint(0, targets, (o.rows, o.sizes[4]))
        rule, fields = torch.optim.AdamW, dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    batches = []
    for _ in range(RING):
        x = inputs()
        x = x if isinstance(x, tuple) else (x,)
        shape = x[0].shape if o.model == "gpt" else (o.rows,)
        batches.append(([part.to(o.device) for part in x], torch.randint(0, targets, shape).to(o.device)))
    model = model.to(o.device)
    if o.channels_last:
        model = model.to(memory_format=torch.channels_last)
        batches = [([x[0].contiguous(memory_format=torch.channels_last)], y) for x, y in batches]
    return model.train(), batches, rule(model.parameters(), fused=True, **fields)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=["mlp", "resnet18", "gpt", "bert"])
    p.add_argument("--sizes", type=lambda s: [int(n) for n in s.split(",")], help="layers,heads,width,vocab,context")
    p.add_argument("--rows", type=int, required=True)
    p.add_argument("--accumulate", type=int, required=True)
    p.add_argument("--threads", type=int)
    p.add_argument("--cuda", action="store_true", help="on the first GPU")
    p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--seconds", type=float, required=True, help="how long updates are measured")
    p.add_argument("--least", type=int, required=True, help="fewest measured updates")
    o = p.parse_args()
    o.device = "cuda" if o.cuda else "cpu"
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model, batches, optimizer = make(o)
    run = torch.compile(model) if o.compile else model

    def update(number):
        total = 0.0
        for k in range(o.accumulate):
            x, y = batches[(number * o.accumulate + k) % RING]
            with torch.autocast(o.device, torch.bfloat16, enabled=o.precision == "bf16"):
                out = run(*x)
                loss = F.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1))
            (loss / o.accumulate).backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    # The loss of an update is read while the next one is computed: no device waits for Python. On a GPU the first
    # updates also choose algorithms.
    for number in range(3 if o.cuda else 1):
        before = update(number)
    ms, begun, from_ = [], time.perf_counter(), time.perf_counter()
    while len(ms) < o.least or time.perf_counter() - begun < o.seconds:
        now = update(number + len(ms) + 1)
        float(before)
        before, until = now, time.perf_counter()
        ms.append(1e3 * (until - from_))
        from_ = until
    float(before)
    print(json.dumps({"torch": torch.__version__, "measured_s": sum(ms) / 1e3, "ms": ms}))


if __name__ == "__main__":
    main()
