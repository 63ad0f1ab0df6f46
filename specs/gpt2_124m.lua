-- gpt2_124m: GPT-2 124M on llm.c's token files; names and storage are Hugging Face's, so --init reads
-- its model.safetensors. New here: token files, weights stored as (in, out).
data       { "tokens", train = "gpt2tokens/tiny_shakespeare_train.bin", eval = "gpt2tokens/tiny_shakespeare_val.bin",
             context = 1024 }
batch      { 4, global = 16 }                          -- accumulate = 16 / 4 = 4
precision  "f32"
parallel   "none"
target     "c"
model {
    block "transformer" {
        embedding "wte" { 50257, 768 }, positions "wpe" { 1024 },
        times(12) "h" {
            residual { layernorm "ln_1" {}, block "attn" {
                linear "c_attn" { 2304, store = "in_out" }, attend { heads = 12, causal = true },
                linear "c_proj" { 768, store = "in_out" } } },
            residual { layernorm "ln_2" {}, block "mlp" {
                linear "c_fc" { 3072, store = "in_out" }, gelu { "tanh" },
                linear "c_proj" { 768, store = "in_out" } } },
        },
        layernorm "ln_f" {},
    },
    unembed { "transformer.wte" },                     -- logits with the tied embedding
}
init       { { "*.c_proj.weight", normal = 0.02 / sqrt(24) }, { "*.c_*.weight", normal = 0.02 },
             { "*.wte.weight", normal = 0.02 }, { "*.wpe.weight", normal = 0.02 }, { "*.bias", value = 0 } }
loss       { "cross_entropy", weight = "token" }
optimizer  { "adamw", lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 700, min = 6e-5 }
clip       (1.0)
train      { updates = 19560 }
eval       { every = 250, batches = 20 }
checkpoint { every = 1000, keep = 2 }
