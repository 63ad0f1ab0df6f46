#!/usr/bin/env python3
"""Ten updates of a small BERT for two classes, that of Hugging Face's transformers; figures for
tests/lua/test_bert.lua.

    python3 tests/reference/bert.py        writes tests/reference/bert/*.safetensors

init.safetensors          the initial values in f64, as save_pretrained writes them in f32
OPTIMIZER_aA.safetensors  the parameters after the last update, in f64
first_aA.safetensors      the mean gradient of the first update, in f64
losses.safetensors        losses of all updates by run, in f64; eval: loss, hits, tp, fp, fn of all rows of the
                          initial values with dropout 0.1 in eval mode
Data are formulas, the same in the test. Needs torch, transformers, numpy, CPU only; made with
transformers 5.23.0."""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.append(sys.path.pop(0))            # a file beside this one is called transformers too
from transformers import BertConfig, BertForSequenceClassification

from digits_mlp import save

HERE = pathlib.Path(__file__).resolve().parent
CYCLES, BATCH, ROWS, LENGTH, VOCABULARY = 10, 4, 32, 7, 29


def rows():
    """Row r has 3 to LENGTH ids; the rest is 0 and hidden. The types turn from 0 to 1 in the middle."""
    ids = torch.zeros(ROWS, LENGTH, dtype=torch.long)
    mask, types = ids.clone(), ids.clone()
    for r in range(ROWS):
        n = 3 + r * r % (LENGTH - 2)
        for i in range(n):
            ids[r, i] = 1 + (r * 5 + i * i * 3 + r * i) % (VOCABULARY - 1)
            mask[r, i] = 1
            types[r, i] = 2 * i > n
    target = torch.tensor([(r * 7 + r // 3) % 2 for r in range(ROWS)])
    return ids, mask, types, target


def model_of(dropout):
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
                        intermediate_size=24, max_position_embeddings=9, hidden_dropout_prob=dropout,
                        attention_probs_dropout_prob=dropout, num_labels=2, attn_implementation="eager")
    return BertForSequenceClassification(config).double()


def initial_values(model):
    random, values = np.random.default_rng(21), {}
    for name, p in model.named_parameters():
        values[name] = random.normal(0, 0.3, p.shape) + (name.endswith("LayerNorm.weight"))
    return values


def load(model, values):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.tensor(values[name]))


def optimizer_of(name, model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                             lr=3e-3, eps=1e-3)


def values_of(model, get):
    return {name: get(p).detach().numpy().copy() for name, p in model.named_parameters()}


def train(initial, optimizer, accumulate):
    model = model_of(0.0).train()
    load(model, initial)
    ids, mask, types, target = rows()
    opt, losses, first, at = optimizer_of(optimizer, model), [], None, 0
    for _ in range(CYCLES):
        opt.zero_grad()
        total = 0.0
        for _ in range(accumulate):
            part = slice(at, at + BATCH)
            out = model(input_ids=ids[part], attention_mask=mask[part], token_type_ids=types[part],
                        labels=target[part])
            (out.loss / accumulate).backward()
            total += out.loss.item() / accumulate
            at = (at + BATCH) % ROWS
        first = first or values_of(model, lambda p: p.grad)
        opt.step()
        losses.append(total)
    return values_of(model, lambda p: p), first, np.array(losses)


def evaluate(initial):
    model = model_of(0.1).eval()
    load(model, initial)
    ids, mask, types, target = rows()
    logits = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    said = logits.argmax(1)
    count = [(said == target).sum(), (said * target).sum(), (said * (1 - target)).sum(), ((1 - said) * target).sum()]
    return np.array([F.cross_entropy(logits, target).item()] + [float(n) for n in count])


def main():
    torch.set_num_threads(1)
    out = HERE / "bert"
    out.mkdir(exist_ok=True)
    initial = initial_values(model_of(0.0))
    save(out / "init.safetensors", initial)
    losses = {"eval": evaluate(initial)}
    for accumulate in (1, 4):
        for optimizer in ("sgd", "adamw"):
            run = f"{optimizer}_a{accumulate}"
            final, first, losses[run] = train(initial, optimizer, accumulate)
            save(out / f"{run}.safetensors", final)
            print(f"{run:10} loss {losses[run][0]:.6f} -> {losses[run][-1]:.6f}")
        save(out / f"first_a{accumulate}.safetensors", first)
    save(out / "losses.safetensors", losses)
    print(losses["eval"])


if __name__ == "__main__":
    main()
