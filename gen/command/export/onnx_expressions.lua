-- onnx_expressions: the expression of a pointwise op as nodes of ONNX.
local diag = require "base.diag"
local ordered = require "base.ordered"

local OPS = { ["+"] = "Add", ["-"] = "Sub", ["*"] = "Mul", ["/"] = "Div", neg = "Neg", sqrt = "Sqrt", exp = "Exp",
    log = "Log", sin = "Sin", cos = "Cos", abs = "Abs", floor = "Floor", tanh = "Tanh", erf = "Erf", pow = "Pow",
    min = "Min", max = "Max", lt = "Less", le = "LessOrEqual", gt = "Greater", ge = "GreaterOrEqual", eq = "Equal",
    where = "Where" }

--- The name of the value of expression e. env: names of values by variable; at: place of the op in the spec.
local function value_of(file, e, env, at)
    if e.op == "num" then return file:constant("f32", e.value) end
    if e.op == "var" then return env[e.name] end
    local inputs = ordered.collect(e, function(child) return value_of(file, child, env, at) end)
    if OPS[e.op] then return file:node(OPS[e.op], inputs) end
    local one = file:constant("f32", 1)
    if e.op == "log1p" then return file:node("Log", { file:node("Add", { one, inputs[1] }) }) end
    if e.op == "expm1" then return file:node("Sub", { file:node("Exp", inputs), one }) end
    diag.fail(at, ("export --onnx: '%s' has no form in ONNX"):format(e.op), {})
end

return value_of
