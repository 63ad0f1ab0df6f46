"""Random specs of whole runs for random_runs.py: each word of a spec as a text, and the files of its data."""
import gzip
import json
import os
import random
import struct

import random_specs

LETTERS = "abcdefghijkl "
RATES = {
    "sgd": 0.05, "adamw": 0.01, "adam": 0.01, "rmsprop": 0.003, "adagrad": 0.02, "adadelta": 0.5, "nadam": 0.005,
    "radam": 0.01, "adamax": 0.01, "adafactor": 0.02, "lion": 0.001, "lamb": 0.01, "fused_lamb": 0.01, "lars": 0.5,
    "muon": 0.01, "fused_adam": 0.01, "hybrid_adam": 0.01, "cpu_adam": 0.01, "fused_sgd": 0.02,
}
WHOLE_TENSORS = ("lamb", "fused_lamb", "adafactor", "muon")     # rules that parallel.nvme refuses
SCHEDULES = [
    '"cosine", warmup = 3', '"cosine", warmup = 0.3, min = 1e-4', '"linear", warmup = 2',
    '"step", step_size = 2, gamma = 0.5',
    '"exponential", gamma = 0.9', '"wsd", warmup = 2, decay = 0.4', '"onecycle", max_lr = 0.02, cycle_momentum = false',
    '"cosine_annealing_warm_restarts", T_0 = 2', '"multistep", milestones = { 2, 5 }, gamma = 0.3',
    'function(t, base) return base / (1 + 0.1 * t) end', 'function(t) return 1 / (1 + 0.01 * t) end, product = true',
    '"sequential", stages = { { "constant" }, { "exponential", gamma = 0.8 } }, milestones = { 3 }',
    '"constant", warmup = 2',
]


class Data:
    """Files of rows, with their word of a spec: `rows` for training, `eval` for evaluation (0: none)."""

    def __init__(self, draw, kind):
        self.draw, self.kind, self.files = draw, kind, {}
        self.rows, self.eval = draw.randint(20, 90), draw.choice([0, 0, 5, 12, 23])
        self.split = self.eval == 0 and draw.random() < 0.6
        self.stream = self.eval > 0 and kind in ("layers", "cells", "text", "tokens") and draw.random() < 0.2
        self.last = draw.choice(["drop", "drop", "pad"])
        self.fields = []
        getattr(self, "draw_" + kind)()
        if self.split:
            count = draw.randint(3, 9)
            seed = "" if kind in ("text", "tokens") else f", seed = {draw.randint(1, 9)}"
            if seed and self.rows % 5 == 0:
                count = self.rows // 5
                self.fields.append(f"split = {{ fold = 2, of = 5{seed} }}")
            else:
                self.fields.append(f"split = {{ eval = {count}{seed} }}")
            self.rows, self.eval = self.rows - count, count
        if self.stream:
            self.fields.append("stream = true")
        elif draw.random() < 0.2:
            self.fields.append("shuffle = false")
        if self.last == "pad":
            self.fields.append('last = "pad"')
        self.word = "{ " + ", ".join(self.fields) + " }"

    def parts(self, rows):
        """The rows in one file or two."""
        at = self.draw.randint(5, len(rows) - 1) if self.draw.random() < 0.4 else len(rows)
        return [part for part in (rows[:at], rows[at:]) if part]

    def lines(self, rows, header):
        """Files of lines for training and evaluation."""
        several = self.parts(rows[:self.rows])
        for i, part in enumerate(several):
            text = "".join(line + "\n" for line in header + part).encode()
            zipped = self.draw.random() < 0.3
            self.files[f"train_{i}.csv" + ".gz" * zipped] = gzip.compress(text) if zipped else text
        train = "train_*" if len(several) > 1 else next(iter(self.files))
        self.fields.append(f'"csv", train = "{train}"')
        if self.eval:
            self.files["eval.csv"] = "".join(line + "\n" for line in header + rows[self.rows:]).encode()
            self.fields.append('eval = "eval.csv"')

    def draw_layers(self):
        rows = random_specs.rows()
        while len(rows) < self.rows + self.eval:
            rows = rows + rows
        self.lines([",".join(map(repr, x)) + f",{y}" for x, y in rows[:self.rows + self.eval]], [])
        self.fields.append('target = "last"')

    def draw_cells(self):
        """A number, a text, a text that is an id, another number, and a number or class as the target."""
        self.number = self.draw.random() < 0.5
        rows = []
        for i in range(self.rows + self.eval):
            a, b, c, d = self.draw.gauss(3, 2), self.draw.choice("xyz"), self.draw.choice("uvw"), self.draw.gauss(0, 1)
            b, c = "xyz"[i] if i < 3 else b, "uvw"[i] if i < 3 else c
            y = a * 0.3 - d + (c == "u") if self.number else int(a > 3) + int(d > 0.5)
            rows.append(f"{a:.4f},{b},{c},{d:.4f},{y:.4f}" if self.number else f"{a:.4f},{b},{c},{d:.4f},{y}")
        self.lines(rows, ["a,b,c,d,y"])
        self.fields += ['target = "y"', 'category = { "b", "c" }', 'ids = { "c" }', "standardize = true"]
        self.fields.append("unknown = true")

    def draw_images(self):
        self.idx, self.shape = self.draw.random() < 0.5, (1, 6, 6)
        for name, count in (("train", self.rows), ("eval", self.eval)):
            pixels = bytes(self.draw.randrange(256) for _ in range(count * 36))
            classes = bytes((sum(pixels[36 * i:36 * i + 9]) // 300) % 3 for i in range(count))
            if self.idx:
                self.files[name + ".x"] = struct.pack(">IIII", 0x803, count, 6, 6) + pixels
                self.files[name + ".y"] = struct.pack(">II", 0x801, count) + classes
            else:
                self.files[name + ".x"] = npy("|u1", (count, 1, 6, 6), pixels)
                self.files[name + ".y"] = npy("<i8", (count,), struct.pack(f"<{count}q", *classes))
        self.fields.append(f'"{"idx" if self.idx else "npy"}", train = {{ "train.x", "train.y" }}')
        if self.eval:
            self.fields.append('eval = { "eval.x", "eval.y" }')
        self.fields.append("scale = 1/255, mean = { 0.5 }, std = { 0.3 }")
        if self.idx and self.draw.random() < 0.6:
            self.fields.append("crop = { 6, padding = 1 }, flip = true")

    def draw_ids(self, one, kind):
        self.context = self.draw.randint(3, 8)
        parts = self.parts(list(range(self.rows)))      # files are one behind the other, and the last id is a target
        for i, part in enumerate(parts):
            rest = 1 + self.draw.randrange(self.context) if i + 1 == len(parts) else 0
            self.files[f"train_{i}.{kind}"] = one(len(part) * self.context + rest, i == 0)
        several = len(self.files) > 1
        self.fields.append(f'"{kind}", train = "train_{"*" if several else 0}.{kind}"')
        if self.eval:
            self.files[f"eval.{kind}"] = one(self.eval * self.context + 1, False)
            self.fields.append(f'eval = "eval.{kind}"')
        self.fields.append(f"context = {self.context}")

    def draw_text(self):
        def one(length, first):
            letters = [self.draw.choice(LETTERS) for _ in range(length)]
            return "".join((list(LETTERS) if first else []) + letters[len(LETTERS) if first else 0:]).encode()
        self.draw_ids(one, "text")

    def draw_tokens(self):
        def one(length, _):
            return struct.pack(f"<{length}H", *(self.draw.randrange(len(LETTERS)) for _ in range(length)))
        self.draw_ids(one, "tokens")

    def draw_tensors(self):
        for name, count in (("train", self.rows), ("eval", self.eval)):
            ids = [self.draw.randrange(9) for _ in range(count * 5)]
            mask = [int(k < 2 + i % 4) for i in range(count) for k in range(5)]
            label = [sum(ids[5 * i:5 * i + 2]) % 3 for i in range(count)]
            self.files[name + ".safetensors"] = safetensors({
                "ids": ("I32", [count, 5], struct.pack(f"<{5 * count}i", *ids)),
                "mask": ("I32", [count, 5], struct.pack(f"<{5 * count}i", *mask)),
                "label": ("I32", [count], struct.pack(f"<{count}i", *label))})
        self.fields.append('"tensors", train = "train.safetensors"')
        if self.eval:
            self.fields.append('eval = "eval.safetensors"')
        self.fields.append('target = "label"')

    def write(self, folder):
        os.makedirs(folder)
        for name, content in self.files.items():
            with open(f"{folder}/{name}", "wb") as f:
                f.write(content)


def npy(kind, shape, content):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content


def safetensors(tensors):
    at, entries = 0, {}
    for name, (kind, shape, content) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    head = json.dumps(entries).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(content for _, _, content in tensors.values())


class Spec:
    """The words of a random spec, each with its text, and what checks must know of it."""

    def __init__(self, seed):
        self.draw = draw = random.Random(seed)
        self.kind = draw.choice(["layers", "layers", "cells", "images", "text", "tokens", "tensors"])
        self.data = Data(draw, self.kind)
        self.drops, self.normed = draw.random() < 0.5, False
        self.words = {"data": self.data.word}
        self.rows = draw.randint(2, 6)
        self.draw_precision()
        self.draw_parallel()
        self.draw_cycles()
        self.words["model"] = getattr(self, "model_" + self.kind)()
        self.draw_loss()
        self.draw_optimizer()
        self.draw_boundary()
        self.draw_rest(seed)

    def chance(self, p):
        return self.draw.random() < p

    def dropout(self):
        return f"dropout({self.draw.choice([0.1, 0.3])})" if self.drops else "scale { 1 }"

    def draw_precision(self):
        kind = self.draw.choice(["f64", "f32", "f32", "bf16", "f16"])
        self.precision = kind
        more = self.draw.choice([""] * 4 + [', accum = "kahan"'] + [
            ', accum = "bf16"', ', accum = "bf16", stochastic = true'] * (kind in ("f32", "bf16")))
        self.accum = more
        self.words["precision"] = f'{{ "{kind}"{more} }}'
        if kind == "f16" or kind != "bf16" and not more and self.chance(0.2):
            self.words["scaler"] = self.draw.choice([
                "{ initial_scale = 2^20, growth_interval = 2, hysteresis = 1 }",
                "{ initial_scale = 64, growth_interval = 1 }",
                "{ initial_scale = 2^40, max_scale = 2^50, hysteresis = 2 }", "{ static = 128 }",
                '{ preset = "torch", growth_interval = 3 }'])

    def draw_parallel(self):
        draw = self.draw
        self.mode = draw.choice(["none", "none", "none", "ddp", "zero1", "zero2", "zero3"])
        if self.accum:
            self.mode = draw.choice(["none", "none", "ddp", "zero1"]) if "kahan" in self.accum else "none"
        self.ranks, fields = 1 if self.mode == "none" else draw.randint(1, 3), [f'"{self.mode}"']
        if self.mode == "zero3":
            fields.append(draw.choice(["", "chunk_size = 300", "chunk_size = 1000", 'chunks = "utilization"']))
            fields.append(draw.choice(["", "", 'enable_distributed_storage = "owner"', "prefetch = 0", "prefetch = 3"]))
            fields.append(draw.choice(["", "", 'placement = "host"', 'placement = "const"']))
        elif self.mode != "none":
            fields.append(draw.choice(["", 'bucket = 200', 'bucket = "2KiB"']))
            fields.append(draw.choice(["", "overlap = false"]))
        if self.mode != "none" and self.precision != "f64":
            fields.append(draw.choice(["", "", 'comm = "bf16"', 'comm = "f16"']))
        self.grouped = self.mode == "ddp" and self.ranks > 1 and self.chance(0.4)
        if self.grouped:
            fields.append(f"ranks = {self.ranks}, groups = {{ pair = {{ {{ 0, 1 }} }} }}, handlers = {{ "
                          '{ "%s", params = "*.weight", group = "pair" }, { "data_parallel" } }' % draw.choice(
                              ["moe", "pipeline_shared", "sequence_parallel"]))
        self.nvme = self.chance(0.15)
        if self.nvme:
            fields.append(draw.choice(['nvme = "/tmp"', 'nvme = { "/tmp", fraction = 0.4 }']))
        self.synced = self.mode != "none" and self.data.last == "drop" and self.kind == "images" and self.chance(0.5)
        if self.synced:
            fields.append("sync_batchnorm = true")
        self.words["parallel"] = "{ " + ", ".join(filter(None, fields)) + " }"

    def draw_cycles(self):
        draw = self.draw
        self.micro, self.tail = draw.randint(1, 4), draw.choice(["drop", "flush", "carry"])
        self.later = {draw.randint(1, 3): draw.randint(1, 4)} if self.chance(0.25) else {}
        if len(self.later) and self.chance(0.5):
            self.later[draw.randint(4, 6)] = draw.randint(1, 4)
        self.unroll = draw.choice([16, 16, 1])
        self.words["batch"] = f"({self.rows})"
        self.whole = self.mode == "none" and not self.later and self.chance(0.2)
        if self.whole:
            self.words["batch"] = f"{{ {self.rows}, global = {self.rows * self.micro} }}"
        self.words["accumulate"] = self.accumulate(1)

    def accumulate(self, factor):
        """The text of the word with so many times the micro-steps."""
        later = ", ".join(f"[{cycle}] = {count * factor}" for cycle, count in sorted(self.later.items()))
        if self.whole:
            return f'{{ tail = "{self.tail}", unroll = {self.unroll} }}'
        drain = ', drain = "consume"' if self.data.stream and self.tail == "drop" and self.unroll == 1 else ""
        return (f'{{ {self.micro * factor}, later = {{ {later} }}, tail = "{self.tail}", '
                f"unroll = {self.unroll}{drain} }}")

    def model_layers(self):
        body = random_specs.Body(self.draw, [0])
        body.name("start")
        output, _ = body.model()
        self.normed = any("batchnorm" in line for line in body.lines)
        lines = body.lines[:1] + [f"    {body.made[0][0]} = {self.dropout()} ({body.made[0][0]})"] + body.lines[1:]
        return "(function(batch)\n" + "\n".join(lines) + f"\n    return {output}\nend)"

    def norm(self, name):
        """A norm of planes or rows; batchnorm needs full micro-batches."""
        if self.data.last == "pad" or self.chance(0.4):
            return f'layernorm "{name}" {{}}'
        self.normed = True
        return f'batchnorm "{name}" {{ running = "{self.draw.choice(["micro", "cycle"])}" }}'

    def model_cells(self):
        out = 1 if self.data.number else 3
        ending = ", flatten {}" if out == 1 else ""
        return f"""(function(batch)
    local c = embedding "c" {{ 4, 5 }} (batch.c)
    local x = concat {{ axis = 2 }} (batch.input, c)
    x = {self.norm("n")} (tanh {{}} (linear "fc1" {{ {self.draw.choice([6, 16])} }} (x)))
    x = x + {self.dropout()} (linear "fc2" {{ {6} }} (x)) * 0.5
    return linear "out" {{ {out} }} (x)
end)""".replace("{ 16 } (x)))", "{ 6 } (x)))")

    def model_images(self):
        stride = self.draw.choice([1, 2])
        return f"""{{
    conv2d "c1" {{ 4, 3, padding = 1 }}, {self.norm("n1")}, relu {{}}, maxpool2d {{ 2 }},
    conv2d "c2" {{ 6, 3, stride = {stride}, padding = 1, bias = false }}, {self.norm("n2")}, relu {{}},
    flatten {{}}, {self.dropout()}, linear "fc" {{ 3 }},
}}"""

    def model_text(self):
        width, hidden = self.draw.choice([(8, 16), (12, 24)])
        share = self.draw.random() < 0.5
        head = 'unembed { "wte" }' if share else f'linear "head" {{ {len(LETTERS)}, bias = false }}'
        drop = self.draw.choice([0, 0.2]) if self.drops else 0
        return f"""{{
    embedding "wte" {{ {len(LETTERS)}, {width} }}, positions "wpe" {{ {self.data.context} }},
    times({self.draw.randint(1, 3)}) "h" {{
        residual {{ layernorm "ln_1" {{}}, linear "qkv" {{ {3 * width} }},
            attend {{ heads = 2, causal = true, dropout = {drop} }}, linear "proj" {{ {width} }} }},
        residual {{ rmsnorm "ln_2" {{}}, linear "fc" {{ {hidden} }}, gelu {{}}, linear "back" {{ {width} }},
            {self.dropout()} }},
    }},
    layernorm "ln_f" {{}}, {head},
}}"""

    model_tokens = model_text

    def model_tensors(self):
        return f"""(function(batch)
    local x = positions "p" {{ 5 }} (embedding "words" {{ 9, 8 }} (batch.ids))
    x = times({self.draw.randint(1, 3)}) "h" (function(x)
        local q, k, v = linear "q" {{ 8 }} (x), linear "k" {{ 8 }} (x), linear "v" {{ 8 }} (x)
        x = layernorm "ln" {{}} (x + {self.dropout()} (attend {{ heads = 2 }} (q, k, v, batch.mask)))
        return x + linear "down" {{ 8 }} (silu {{}} (linear "gate" {{ 12 }} (x)) * linear "up" {{ 12 }} (x))
    end) (x)
    return linear "head" {{ 3 }} (pick {{ axis = 2, index = 1 }} (x))
end)"""

    def draw_loss(self):
        draw = self.draw
        self.weight = draw.choice(["token", "token", "sample", "micro", "sum"])
        self.classes = not (self.kind == "cells" and self.data.number)
        if not self.classes:
            text = draw.choice(['"mse"', '"smooth_l1", beta = 0.5',
                                'function(out, batch) return mse(out, batch.target) end'])
        else:
            ids = self.kind in ("text", "tokens")
            text = '"cross_entropy"' + draw.choice(["", "", ", label_smoothing = 0.1"]) \
                + draw.choice(["", "", ", ignore = 1"]) \
                + ("" if ids else draw.choice(["", "", ", class_weights = { 0.5, 1.5, 1 }"]))
        self.plain = text in ('"mse"', '"cross_entropy"') and self.weight in ("token", "sum")
        self.words["loss"] = f'{{ {text}, weight = "{self.weight}" }}'

    def draw_optimizer(self):
        draw = self.draw
        self.rule = draw.choice([name for name in RATES if not (self.nvme and name in WHOLE_TENSORS)])
        rate = RATES[self.rule] / (10 if self.weight == "sum" else 1)
        fields = [f'"{self.rule}", lr = {rate}']
        if self.rule in ("sgd", "fused_sgd", "lars"):
            fields.append(draw.choice(["", "momentum = 0.9", "momentum = 0.9"]))
        if self.rule == "adamw":
            fields.append(draw.choice(["", "amsgrad = true"]))
        if self.rule == "rmsprop":
            fields.append(draw.choice(["", "momentum = 0.9", "centered = true, momentum = 0.5"]))
        self.average = self.chance(0.3)
        if self.average:
            fields.append("ema = 0.8")
        model, count = self.words["model"], draw.choice([0, 0, 1, 2])
        groups = [draw.choice(['{ "*.weight", lr_scale = 0.5 }', '{ rank = 1, weight_decay = 0 }',
                               '{ "*.bias", frozen = true }',
                               '{ "*.bias", lr_scale = 2 }'] + ['{ "h.0.*", frozen = true }'] * ('"h" ' in model)
                              + ['{ "*1.weight", frozen = true }'] * ('1" ' in model)) for _ in range(count)]
        if groups and self.rule != "lion":
            fields.append(f"groups = {{ {', '.join(groups)} }}")
        if self.chance(0.1) and self.kind in ("text", "tokens", "tensors"):
            fields.append("layer_decay = 0.7")
        self.words["optimizer"] = "{ " + ", ".join(filter(None, fields)) + " }"

    def draw_boundary(self):
        draw = self.draw
        if self.chance(0.6):
            epochs = not self.later and not self.data.stream
            by = draw.choice(["", "", ', on_skip = "advance"'] + [', by = "epoch"'] * epochs)
            self.words["schedule"] = "{ " + draw.choice(SCHEDULES) + by + " }"
        elif self.data.eval:
            self.words["schedule"] = '{ "plateau", patience = 0, factor = 0.5 }'
        self.clip = draw.choice(["", "", "(0.3)"] + [
            "{ value = 0.02 }", '{ 0.2, p = "inf" }', "{ 0.3, per_group = true }", "{ 0.5, value = 0.1, p = 1 }"
        ] * ("bf16" not in self.accum))
        schedule = self.words.get("schedule", "{ }")
        named = schedule[2] == '"' and "plateau" not in schedule
        if named and self.mode == "none" and not self.later and self.chance(0.2):
            self.words["schedule"] = schedule[:-1] + ', auto_lr = "sqrt", base_rows = 7 }'
        if self.clip:
            self.words["clip"] = self.clip
        if self.chance(0.15) and "bf16" not in self.accum:
            self.words["gradient"] = "(function(g, w) return g + 0.01 * w end)"
        memory = ['recompute = { "*" }'] * self.chance(0.2) + ['logits = "chunked", logits_rows = 3'] * self.chance(0.2)
        if memory and self.classes:
            self.words["memory"] = "{ " + ", ".join(memory) + " }"

    def draw_rest(self, seed):
        draw = self.draw
        length = f"updates = {draw.randint(4, 14)}"
        self.finite = draw.choice(["stop", "skip"] + ["ignore"] * ("scaler" not in self.words))
        if self.finite != "ignore" and self.chance(0.1):
            length = f"updates = {draw.randint(135, 160)}, skip_z = {draw.choice([1, 2])}"
        elif not self.data.stream and self.chance(0.4):
            length = f"epochs = {draw.choice([1, 1.5, 2, 3])}"
        evaluated = self.data.eval and (self.chance(0.7) or "plateau" in self.words.get("schedule", ""))
        more = ", patience = 2, min_delta = 0.001" if evaluated and self.chance(0.2) else ""
        self.words["train"] = f'{{ {length}, seed = {seed % 97 + 1}, on_nonfinite = "{self.finite}"{more} }}'
        if evaluated:
            ids = self.kind in ("text", "tokens")
            plain = self.plain and self.weight == "token"
            self.metrics = ["loss"] + (["accuracy"] + ["top5"] * ids + ["perplexity"] * plain if self.classes
                                       else ["mae", "rmse", "r2"] * self.plain)
            metrics = ", ".join(f'"{name}"' for name in self.metrics[:draw.randint(1, 4)])
            if self.chance(0.2):
                metrics += ", size = function(out, batch) return out * out end"
            every = draw.choice(["1", "2", "3", '"epoch"'])
            some = f", batches = {draw.randint(1, 3)}" if self.chance(0.2) else ""
            self.words["eval"] = f"{{ every = {every}, metrics = {{ {metrics} }}{some} }}"
        best = ', best = "loss"' if "eval" in self.words and self.chance(0.4) else ""
        every = draw.choice(["1", "2", "3", "nil"])
        self.words["checkpoint"] = f"{{ every = {every}, keep = {draw.randint(1, 3)}{best} }}"
        self.synced = self.synced and self.normed
        if not self.synced:
            self.words["parallel"] = self.words["parallel"].replace(", sync_batchnorm = true", "")
        if self.chance(0.2):
            self.words["init"] = draw.choice(['{ { "*.bias", value = 0.1 }, { "*.weight", normal = 0.2 } }',
                                              '{ { "*.weight", uniform = 0.3 } }'])
        self.words["log"] = "{ every = 1 }"

    def text(self, **other):
        """The spec, with other texts for some words; None leaves a word out."""
        words = {**self.words, **other}
        return "".join(f"{name} {text}\n" for name, text in words.items() if text)
