-- a layer used by every turn of a loop and behind it, an outer tensor read in the loop, a value read three times
data       { "csv", train = "rows.csv", target = "last" }
batch      (6)
accumulate (2)
model(function(batch)
    local tied = linear "tied" { 6 }
    local outer = tanh(linear "outer" { 6 } (batch.input))
    local x = tied(outer)
    x = times(3) "h" (function(x)
        local y = block "mlp" (function(x)
            return linear "down" { 6 } (gelu {} (linear "up" { 7 } (x)))
        end) (x)
        y = residual { tanh {}, linear "side" { 6 } } (y)
        return tanh(tied(x) * 0.5 + y * outer + x)
    end) (x)
    return linear "last" { 3 } (tied(x) + outer)
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 9, seed = 4 }
