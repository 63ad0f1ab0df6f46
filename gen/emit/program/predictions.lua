-- predictions: the text of predictions.c, the part of model.c for --predict: the outputs of an evaluation for the rows
-- of a file.
local graph = require "graph.graph"
local sections = require "emit.program.sections"
local text = require "base.text"

local predictions = {}

--- Whether the output is whole in memory.
function predictions.is_plain(g)
    return g.output ~= nil and g.output.place ~= nil and g.output.place.arena == "activations"
end

--- Why one process alone does nothing with parameters that are divided.
predictions.DIVIDED = "the parameters are divided over the processes: expected a program of one process, which reads "
    .. "the same checkpoints"

--- Why an evaluation predicts nothing; nil: its output has a row for each row of a file.
function predictions.obstacle(g)
    if g.sharded.parameters then return predictions.DIVIDED end
    if type(g.forward_only) == "string" then return g.forward_only end
    if g.head then
        return "the output is never whole in memory: use make predict, or memory { logits = \"whole\" }"
    end
    if not predictions.is_plain(g) then return "the output is no value of its own" end
end

--- The function that makes probabilities of the output: "SOFTMAX", "SIGMOID", or nil and why there is none.
function predictions.form(config)
    local rule = config.loss.rule
    if not rule then return nil, "the loss is a function of the spec, so nobody knows what the outputs mean" end
    if rule.name == "cross_entropy" then return "SOFTMAX" end
    if rule.name == "bce" then return "SIGMOID" end
    return nil, ("the loss is %s, whose outputs are no logits"):format(rule.name)
end

--- The shape of a row of the output, as the rest of an array's initializer, and its axes.
function predictions.shape(g)
    local shape = table.move(g.output.shape, 2, #g.output.shape, 1, {})
    return { rank = #shape, extents = text.block(#shape > 0 and table.concat(shape, ", ") or "1") }
end

local DTYPE = { f32 = "GA_F32", f64 = "GA_F64", bf16 = "GA_BF16", f16 = "GA_F16" }

-- The section that writes outputs.
local function predict_section(g, config, context)
    if predictions.obstacle(g) then return false end
    local name = text.ident(config.name)
    local form, reason = predictions.form(config)
    local shape, row = g.output.shape, g.output.row
    local width, last = graph.elements(shape) // config.batch, shape[#shape]
    return { "predict", { name = name, row = predictions.shape(g), width = width,
        form = form and text.ident(form) or false, reason = text.string("--probabilities: " .. (reason or "")),
        type = text.ident(DTYPE[g.output.dtype]), element = graph.bytes(g.output),
        apart = row and { count = width // last, width = last, row = row } or false,
        output = text.block(context.target.pointer(g.output)), device = context.target.device,
        ema = config.optimizer.own.ema ~= nil } }
end

--- predictions.c; saving: the section that writes weights (predictor.lua), or false.
function predictions.render(g, config, context, saving, header)
    return sections.render(context.template("program/predictions.c"), {
        { "head", { header = text.block(header("predictions.c", "--predict, --save-weights; part of model.c")),
            half = g.half and text.ident(g.half) or false } },
        predict_section(g, config, context), saving })
end

return predictions
