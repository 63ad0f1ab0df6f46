-- predictions: the text of predictions.c, the part of model.c for --predict: the outputs of an evaluation for the rows of
-- a file.
local graph = require "graph.graph"
local sections = require "emit.program.sections"
local text = require "base.text"

local predictions = {}

--- Whether the output is whole in memory.
function predictions.is_plain(g)
    return g.output ~= nil and g.output.place ~= nil and g.output.place.arena == "activations"
end

-- Whether the output follows from this input of the batch.
local function follows(g, input)
    local known = { [input] = true }
    local function visit(body)
        for _, node in ipairs(body) do
            for _, c in ipairs(node.carries or {}) do known[c.arg] = known[c.arg] or known[c.init] end
            if node.op == "times" then visit(node.body) end
            for _, c in ipairs(node.carries or {}) do known[c.out] = known[c.out] or known[c.result] end
            local read = false
            for _, t in ipairs(graph.reads(node)) do read = read or known[t] end
            for _, out in ipairs(graph.writes(node)) do known[out.tensor] = known[out.tensor] or read end
        end
    end
    visit(g.forward)
    return known[g.output]
end

--- Why nothing can be predicted; nil: the output has a row for each row of a file.
function predictions.obstacle(g, config)
    if g.head then
        return "the output is never whole in memory: generate the program with memory { logits = \"whole\" }"
    end
    if not g.output then return "the model gives several tensors, expected one" end
    if not predictions.is_plain(g) or g.output.shape[1] ~= config.batch then
        return "the model gives no row for each row of the batch"
    end
    if follows(g, g.inputs[#g.inputs]) then return "the model reads batch.target, which rows to predict do not have" end
end

--- What makes probabilities of the output: "SOFTMAX", "SIGMOID", or nil and the reason.
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
    local name, why = text.ident(config.name), predictions.obstacle(g, config)
    if why then return { "refuse", { name = name, why = text.string("--predict: " .. why) } } end
    local form, reason = predictions.form(config)
    local width = graph.elements(g.output.shape) // config.batch
    return { "predict", { name = name, row = predictions.shape(g), width = width,
        form = form and text.ident(form) or false, reason = text.string("--probabilities: " .. (reason or "")),
        type = text.ident(DTYPE[g.output.dtype]), element = graph.bytes(g.output),
        output = text.block(context.target.pointer(g.output)), device = context.target.device,
        ema = config.optimizer.own.ema ~= nil } }
end

--- predictions.c; saving: the section that writes weights (predictor.lua).
function predictions.render(g, config, context, saving, header)
    return sections.render(context.template("program/predictions.c"), {
        { "head", { header = text.block(header("predictions.c", "--predict, --save-weights; part of model.c")),
            half = g.half and text.ident(g.half) or false } },
        predict_section(g, config, context), saving })
end

return predictions
