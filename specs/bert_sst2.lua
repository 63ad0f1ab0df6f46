-- bert_sst2: BERT-base, fine-tuned on film reviews (GLUE's SST-2); names are Hugging Face's, so --init reads its
-- model.safetensors. New here: tokens that `gagen tokenize bert` makes of a TSV file, token types, a mask that hides
-- the padding, the pooler, F1, values in f16 with a dynamic loss scale. The data, in a folder of --data or GAGEN_DATA:
--   gagen tokenize bert sst2/train.tsv sst2_train.safetensors --vocab vocab.txt --length 64 --types
--   gagen tokenize bert sst2/dev.tsv sst2_dev.safetensors --vocab vocab.txt --length 64 --types
local vocabulary, places, width, inner, heads, layers, drop = 30522, 512, 768, 3072, 12, 12, 0.1

local function norm(name) return layernorm(name) { eps = 1e-12 } end

data       { "tensors", train = "sst2_train.safetensors", eval = "sst2_dev.safetensors", target = "label" }
parallel   "none"
batch      (16)
accumulate (2)
precision  "f16"
scaler     { initial_scale = 65536, growth_interval = 1000, hysteresis = 2, max_scale = 2^32 }
model(function(batch)
    local x = embedding "bert.embeddings.word_embeddings" { vocabulary, width } (batch.ids)
            + embedding "bert.embeddings.token_type_embeddings" { 2, width } (batch.types)
    x = positions "bert.embeddings.position_embeddings" { places } (x)
    x = dropout(drop)(norm "bert.embeddings.LayerNorm" (x))
    x = times(layers) "bert.encoder.layer" (function(x)
        local q = linear "attention.self.query" { width } (x)
        local k = linear "attention.self.key"   { width } (x)
        local v = linear "attention.self.value" { width } (x)
        local a = attend { heads = heads, dropout = drop } (q, k, v, batch.mask)
        a = dropout(drop)(linear "attention.output.dense" { width } (a))
        x = norm "attention.output.LayerNorm" (x + a)
        local f = linear "output.dense" { width } (gelu {} (linear "intermediate.dense" { inner } (x)))
        return norm "output.LayerNorm" (x + dropout(drop)(f))
    end) (x)
    local pooled = tanh(linear "bert.pooler.dense" { width } (pick { axis = 2, index = 1 } (x)))
    return linear "classifier" { 2 } (dropout(drop)(pooled))
end)
init       { { "*LayerNorm.weight", value = 1 }, { "*.weight", normal = 0.02 }, { "*.bias", value = 0 } }
loss       "cross_entropy"
optimizer  { "hybrid_adam", lr = 2e-5, weight_decay = 0.01, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "linear", warmup = 0.1 }                  -- below 1: a fraction of all updates
train      { epochs = 3 }
eval       { every = "epoch", metrics = { "loss", "accuracy", "f1" } }
target     "c"
