-- every op of one element, each between layers of its own
data       { "tensors", train = "ids.safetensors" }
batch      (4)
accumulate (2)
model(function(batch)
    local number, total = 0, nil
    local function add(f)
        number = number + 1
        local y = block("op" .. number) (function(x)
            return linear "after" { 3 } (f(linear "before" { 5 } (x)))
        end) (batch.input)
        total = total and total + y or y
    end
    local function a(x) return linear "a" { 5 } (x) end
    local function b(x) return linear "b" { 5 } (x) end
    for _, f in ipairs { exp {}, sin {}, cos {}, abs {}, sigmoid {}, silu {}, leaky_relu { 0.2 }, square {}, softplus {},
        softplus { 2, threshold = 0.5 }, elu {}, elu { 0.7 }, relu {}, tanh {}, gelu {}, gelu { "tanh" }, scale { 0.5 },
        clamp { min = -0.3, max = 0.4 }, clamp { min = 0 }, clamp { max = 0.1 } } do add(f) end
    add(function(x) return math.log(x * x + 1) end)
    add(function(x) return sqrt(x * x + 1) end)
    add(function(x) return (x * x + 1) ^ (0.5 * x) end)
    add(function(x) return a(x) - b(x) end)
    add(function(x) return -a(x) / (b(x) + 4) end)
    add(function(x) return where(le(x, 0.1), x * x, 3 * x) end)
    add(function(x) return where(eq(x, x), tanh(x), ge(x, 2) + lt(x, 0)) end)
    add(function(x) return min(a(x), b(x)) + max(a(x), x) end)
    add(function(x) return silu(silu(x)) * gelu(x) + exp(-x * x) * x end)
    return total
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05, momentum = 0.9 }
train      { updates = 8, seed = 3 }
