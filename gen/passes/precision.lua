-- precision: replaces the type "real" by the program's type.
--
--   y real (16, 64)  ->  y f32 (16, 64)
local precision = { name = "precision", doc = "a concrete type for every tensor" }

function precision.run(g, config)
    g.real = config.precision
    for _, tensor in ipairs(g.tensors) do
        if tensor.dtype == "real" then tensor.dtype = g.real end
    end
end

return precision
