#!/usr/bin/env python3
"""Twenty updates of three small transformers as a user of PyTorch writes them; figures for
tests/lua/test_torch_models.lua.

    python3 tests/reference/transformers.py        writes tests/reference/{gpt,llama,vit}/*.safetensors

init.safetensors holds the initial values, OPTIMIZER_aA_PRECISION.safetensors the parameters after the
last update, losses.safetensors the losses of all updates. Data are formulas, the same in the test.
Adam's eps is large: the gradient of a key's bias is zero but for rounding, and a small eps would make
of that rounding a step of full size. Needs torch and numpy, CPU only."""
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

from digits_mlp import DTYPES, save

HERE = pathlib.Path(__file__).resolve().parent
CYCLES, BATCH, VOCABULARY, CONTEXT = 20, 4, 13, 8
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=5e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.1, eps=1e-3),
}


def token_rows(count):
    """Row i: tokens iT .. iT+T-1 and the same moved by one; token k is a formula of k."""
    n = count * CONTEXT + 1
    tokens = [(k * k * 3 + k * 7 + k // 5) % VOCABULARY for k in range(n)]
    x = torch.tensor(tokens[:-1]).reshape(count, CONTEXT)
    return x, torch.tensor(tokens[1:]).reshape(count, CONTEXT)


def image_rows(count, dtype):
    """CIFAR-10 records of a formula, normalised as the spec says."""
    pixels = np.array([[(r * 7919 + k * 104729 + (r * k) % 251 * 31) % 256 for k in range(3072)]
                       for r in range(count)])
    x = torch.tensor(pixels).reshape(count, 3, 32, 32).to(dtype) / 255
    mean = torch.tensor([0.4914, 0.4822, 0.4465], dtype=dtype).reshape(3, 1, 1)
    std = torch.tensor([0.2023, 0.1994, 0.2010], dtype=dtype).reshape(3, 1, 1)
    return (x - mean) / std, torch.tensor([r * r % 10 for r in range(count)])


def heads_of(x, heads):
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).transpose(1, 2)


def attend(q, k, v, heads, kv_heads, causal):
    q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).flatten(2)


def norm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def dense(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


class Gpt:
    """GPT-2 with the embedding tied to the head; weights of linear layers stored as (in, out)."""
    width, heads, layers = 12, 3, 2

    def shapes(self):
        w, list_ = self.width, {}
        list_["transformer.wte.weight"] = (VOCABULARY, w)
        list_["transformer.wpe.weight"] = (CONTEXT, w)
        for l in range(self.layers):
            h = f"transformer.h.{l}."
            for name in ("ln_1", "ln_2"):
                list_[h + name + ".weight"] = list_[h + name + ".bias"] = (w,)
            for name, ins, outs in (("attn.c_attn", w, 3 * w), ("attn.c_proj", w, w),
                                    ("mlp.c_fc", w, 4 * w), ("mlp.c_proj", 4 * w, w)):
                list_[h + name + ".weight"], list_[h + name + ".bias"] = (ins, outs), (outs,)
        list_["transformer.ln_f.weight"] = list_["transformer.ln_f.bias"] = (w,)
        return list_

    def rows(self, count, _):
        return token_rows(count)

    def loss(self, p, ids, target):
        def conv1d(name, x):
            return x @ p[name + ".weight"] + p[name + ".bias"]
        x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"]
        for l in range(self.layers):
            h = f"transformer.h.{l}."
            q, k, v = conv1d(h + "attn.c_attn", norm(p, h + "ln_1", x)).split(self.width, dim=2)
            x = x + conv1d(h + "attn.c_proj", attend(q, k, v, self.heads, self.heads, True))
            y = F.gelu(conv1d(h + "mlp.c_fc", norm(p, h + "ln_2", x)), approximate="tanh")
            x = x + conv1d(h + "mlp.c_proj", y)
        logits = norm(p, "transformer.ln_f", x) @ p["transformer.wte.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class Llama:
    """RMSNorm, rotary positions over halves, grouped key-value heads, SwiGLU, no biases."""
    width, hidden, heads, kv_heads, layers = 16, 20, 4, 2, 2

    def shapes(self):
        w, kv, list_ = self.width, self.width // self.heads * self.kv_heads, {}
        list_["model.embed_tokens.weight"] = (VOCABULARY, w)
        for l in range(self.layers):
            h = f"model.layers.{l}."
            for name, outs, ins in (("self_attn.q_proj", w, w), ("self_attn.k_proj", kv, w),
                                    ("self_attn.v_proj", kv, w), ("self_attn.o_proj", w, w),
                                    ("mlp.gate_proj", self.hidden, w), ("mlp.up_proj", self.hidden, w),
                                    ("mlp.down_proj", w, self.hidden)):
                list_[h + name + ".weight"] = (outs, ins)
            list_[h + "input_layernorm.weight"] = list_[h + "post_attention_layernorm.weight"] = (w,)
        list_["model.norm.weight"] = (w,)
        list_["lm_head.weight"] = (VOCABULARY, w)
        return list_

    def rows(self, count, _):
        return token_rows(count)

    def rotary(self, x, heads):
        x = heads_of(x, heads)
        half = x.shape[3] // 2
        rate = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(CONTEXT, dtype=torch.float64)[:, None] * rate
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        x = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=3)
        return x.transpose(1, 2).flatten(2)

    def rms(self, p, name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * p[name + ".weight"]

    def loss(self, p, ids, target):
        x = p["model.embed_tokens.weight"][ids]
        for l in range(self.layers):
            h = f"model.layers.{l}."
            y = self.rms(p, h + "input_layernorm", x)
            q = self.rotary(dense(p, h + "self_attn.q_proj", y), self.heads)
            k = self.rotary(dense(p, h + "self_attn.k_proj", y), self.kv_heads)
            v = dense(p, h + "self_attn.v_proj", y)
            x = x + dense(p, h + "self_attn.o_proj", attend(q, k, v, self.heads, self.kv_heads, True))
            y = self.rms(p, h + "post_attention_layernorm", x)
            gate = F.silu(dense(p, h + "mlp.gate_proj", y))
            x = x + dense(p, h + "mlp.down_proj", gate * dense(p, h + "mlp.up_proj", y))
        logits = dense(p, "lm_head", self.rms(p, "model.norm", x))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class Vit:
    """Patches of 8 x 8, pre-norm blocks, the mean over patches, a linear head."""
    width, heads, layers = 12, 3, 2

    def shapes(self):
        w, list_ = self.width, {"patch.weight": (self.width, 192), "patch.bias": (self.width,)}
        list_["position.weight"] = (16, w)
        for l in range(self.layers):
            h = f"block.{l}."
            for name in ("norm1", "norm2"):
                list_[h + name + ".weight"] = list_[h + name + ".bias"] = (w,)
            for name, outs, ins in (("attn.qkv", 3 * w, w), ("attn.proj", w, w),
                                    ("mlp.fc1", 2 * w, w), ("mlp.fc2", w, 2 * w)):
                list_[h + name + ".weight"], list_[h + name + ".bias"] = (outs, ins), (outs,)
        list_["norm.weight"] = list_["norm.bias"] = (w,)
        list_["head.weight"], list_["head.bias"] = (10, w), (10,)
        return list_

    def rows(self, count, dtype):
        return image_rows(count, dtype)

    def loss(self, p, images, target):
        b = images.shape[0]
        patches = images.reshape(b, 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).reshape(b, 16, 192)
        x = dense(p, "patch", patches) + p["position.weight"]
        for l in range(self.layers):
            h = f"block.{l}."
            q, k, v = dense(p, h + "attn.qkv", norm(p, h + "norm1", x)).split(self.width, dim=2)
            x = x + dense(p, h + "attn.proj", attend(q, k, v, self.heads, self.heads, False))
            x = x + dense(p, h + "mlp.fc2", F.gelu(dense(p, h + "mlp.fc1", norm(p, h + "norm2", x))))
        x = norm(p, "norm", x).mean(1)
        return F.cross_entropy(dense(p, "head", x), target)


def train(model, initial, dtype, optimizer, accumulate):
    count = 2 * 4 * BATCH                       # two updates of four micro-steps: then from the start
    x, y = model.rows(count, dtype)
    p = {name: torch.tensor(a, dtype=dtype, requires_grad=True) for name, a in initial.items()}
    opt, losses, at = OPTIMIZERS[optimizer](list(p.values())), [], 0
    for _ in range(CYCLES):
        opt.zero_grad()
        total = 0.0
        for _ in range(accumulate):
            rows = slice(at, at + BATCH)
            loss = model.loss(p, x[rows], y[rows]) / accumulate
            loss.backward()
            total += loss.item()
            at = (at + BATCH) % count
        opt.step()
        losses.append(total)
    return {name: t.detach().numpy() for name, t in p.items()}, np.array(losses)


def main():
    torch.set_num_threads(1)
    print("torch", torch.__version__, "numpy", np.__version__)
    for name, model in (("gpt", Gpt()), ("llama", Llama()), ("vit", Vit())):
        out = HERE / name
        out.mkdir(exist_ok=True)
        random = np.random.default_rng(21)
        initial = {}
        for key, shape in model.shapes().items():
            initial[key] = random.normal(0, 1 / math.sqrt(shape[-1]), shape) * 0.5
            if "norm" in key or ".ln_" in key:
                initial[key] += key.endswith(".weight")
        save(out / "init.safetensors", initial)
        losses = {}
        for optimizer in OPTIMIZERS:
            for accumulate in (1, 4):
                for suffix, dtype in DTYPES.items():
                    run = f"{optimizer}_a{accumulate}_{suffix}"
                    final, losses[run] = train(model, initial, dtype, optimizer, accumulate)
                    save(out / f"{run}.safetensors", final)
                    print(f"{name:6}{run:16} loss {losses[run][0]:.4f} -> {losses[run][-1]:.4f}")
        save(out / "losses.safetensors", losses)


if __name__ == "__main__":
    main()
