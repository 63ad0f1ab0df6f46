-- sample: the text of sample.c: a model of tokens writes some of its own. Only for programs whose data are
-- tokens and whose model gives a number for each token that may follow.
local graph = require "graph.graph"
local text = require "base.text"

local sample = {}

--- Whether the program can write tokens: input (B, T), output (B, T, V) with a place for every token.
function sample.possible(g, config)
    local kind, output = config.data.kind, g.output
    if kind ~= "text" and kind ~= "tokens" or not output or not output.place then return false end
    local shape, input = output.shape, g.inputs[1].shape
    return output.place.arena == "activations" and (output.dtype == g.real or graph.is_half(output)) and #shape == 3
        and shape[1] == input[1] and shape[2] == input[2] and shape[3] >= config.data.vocabulary
end

--- sample.c, in a map of files, if there is something to write.
function sample.render(g, config, context, header, files)
    if not sample.possible(g, config) then return end
    local shape = g.output.shape
    files:set("sample.c", context.template("program/sample.c")("sample", {
        header = text.block(header("sample.c", "tokens of the model's own: --sample")),
        name = text.ident(config.name), positions = shape[2], width = shape[3],
        ids = config.data.kind == "text" and config.data.vocabulary or shape[3],
        output = text.block(context.target.pointer(g.output)), text = config.data.kind == "text",
        device = config.target == "cuda", half = graph.is_half(g.output) and text.ident(g.half) or false,
    }).text)
end

--- Tokens of a row, 0 where rows are no tokens.
function sample.positions(config)
    local kind = config.data.kind
    return (kind == "text" or kind == "tokens") and config.data.context or 0
end

return sample
