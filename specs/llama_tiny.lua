-- llama_tiny: the Llama recipe in small on the same text: RMSNorm, rotary positions, SwiGLU, grouped
-- key-value heads, no biases. New here: functions of tensors; names are Hugging Face's.
local width, hidden, heads, kv_heads, layers = 128, 352, 8, 2, 4
local kv_width = width // heads * kv_heads

local function project(name, out) return linear(name) { out, bias = false } end

data       { "text", train = "tinyshakespeare/input.txt", context = 128, split = { eval = 871 } }   -- the last tenth
batch      (8)
accumulate (4)
model(function(batch)
    local x = embedding "model.embed_tokens" { 65, width } (batch.input)
    x = times(layers) "model.layers" (function(x)
        local h = rmsnorm "input_layernorm" {} (x)
        local q = rotary { heads = heads } (project("self_attn.q_proj", width)(h))
        local k = rotary { heads = kv_heads } (project("self_attn.k_proj", kv_width)(h))
        local v = project("self_attn.v_proj", kv_width)(h)
        local a = attend { heads = heads, kv_heads = kv_heads, causal = true } (q, k, v)
        x = x + project("self_attn.o_proj", width)(a)
        h = rmsnorm "post_attention_layernorm" {} (x)
        local gate = silu {} (project("mlp.gate_proj", hidden)(h))
        return x + project("mlp.down_proj", width)(gate * project("mlp.up_proj", hidden)(h))
    end) (x)
    return project("lm_head", 65)(rmsnorm "model.norm" {} (x))
end)
init       { { "*norm.weight", value = 1 }, { "*.weight", normal = 0.02 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 50, min = 1e-4 }
clip       (1.0)
train      { updates = 1000 }
eval       { every = 250 }
log        { every = 20 }
