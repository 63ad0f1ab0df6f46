-- bert_mini_sst2: a BERT of 4 layers and width 256, trained from scratch on 16,000 rows of SST-2 (good and bad film
-- reviews) in minutes on two cores. Its data, in a folder of --data or GAGEN_DATA (bench/bert_mini makes them):
--   gagen tokenize bert sst2/train.tsv sst2_16000.safetensors --vocab vocab.txt --length 64 --types --first 16000
--   gagen tokenize bert sst2/dev.tsv sst2_dev.safetensors --vocab vocab.txt --length 64 --types
local vocabulary, places, width, inner, heads, layers, drop = 30522, 512, 256, 1024, 4, 4, 0.1

local function norm(name) return layernorm(name) { eps = 1e-12 } end

data       { "tensors", train = "sst2_16000.safetensors", eval = "sst2_dev.safetensors", target = "label" }
batch      (16)
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
optimizer  { "adamw", lr = 2e-4, weight_decay = 0.01, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 0.1 }
clip       (1.0)
train      { epochs = 2 }
eval       { every = 250, metrics = { "loss", "accuracy", "f1" } }
log        { every = 50 }
