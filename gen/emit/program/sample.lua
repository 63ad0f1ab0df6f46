-- sample: the text of sample.c: a model of tokens writes some of its own. Only for programs whose data are
-- tokens and whose model gives a number for each token that may follow.
local graph = require "graph.graph"
local sections = require "emit.program.sections"
local text = require "base.text"

local sample = {}

-- The tensor that a token is chosen by, and its shape: the output, or the last layer's input if that is never whole.
local function source_of(g)
    local head, output = g.head, g.output
    if not head then return output, output and output.shape end
    return head.x, { head.shape[1], head.shape[2] or 0, head.classes }
end

--- The tensor that a token is chosen by.
function sample.source(g) return (source_of(g)) end

--- Whether the program can write tokens: input (B, T), output (B, T, V) with a place for every token.
function sample.possible(g, config)
    local kind, source, shape = config.data.kind, source_of(g)
    if g.sharded.parameters then return false end
    if kind ~= "text" and kind ~= "tokens" or not source or not source.place then return false end
    local input = g.inputs[1].shape
    return source.place.arena == "activations" and (source.dtype == g.real or graph.is_half(source)) and #shape == 3
        and shape[1] == input[1] and shape[2] == input[2] and shape[3] >= config.data.vocabulary
end

-- How many ids the model can read and write: an id that is drawn is read again.
local function ids_of(g, config, width)
    if config.data.kind == "text" then return config.data.vocabulary end
    graph.walk(g.forward, function(node)
        if node.op == "embedding" and node.ins.ids == g.inputs[1] then width = math.min(width, node.size.R) end
    end)
    return width
end

-- The last layer as literals: where its weight and bias lie in the flat space, and what is next to what.
local function head_section(head)
    local features = head.x.shape[#head.x.shape]
    return { "apply_head", { weight = head.weight.flat.offset, next = head.in_out and 1 or features,
        step = head.in_out and head.classes or 1,
        bias = text.block(head.bias and ("m->flat_w[%d + id]"):format(head.bias.flat.offset) or "0") } }
end

-- The function that reads a position of the output, or of the last layer's input where there is no output.
local function read_section(g, context, source, device)
    local half, head = graph.is_half(source), g.head
    local width = head and "FEATURES" or "OUTPUT_WIDTH"
    return { "read" .. (device and "_device" or "") .. (half and "_half" or ""), {
        fn = text.ident(head and "read_features" or "read_output"),
        n = text.ident(width), row = device and (source.row or text.ident(width)) or nil,
        output = text.block(context.target.pointer(source)), half = half and text.ident(g.half) or nil } }
end

--- sample.c, in a map of files, if there is something to write.
function sample.render(g, config, context, header, files)
    if not sample.possible(g, config) then return end
    local source, shape = source_of(g)
    local name, row = text.ident(config.name), g.one_row
    local device, head, kind = context.target.device, g.head, config.data.kind
    files:set("sample.c", sections.render(context.template("program/sample.c"), {
        { "head", { header = text.block(header("sample.c", "tokens of the model's own: --sample")),
            positions = shape[2], width = shape[3], ids = ids_of(g, config, shape[3]) } },
        { "tokens", { text = kind == "text" } }, { "prompt", {} },
        { "draws", {} },
        head and { "features", { features = head.x.shape[#head.x.shape] } } or false,
        read_section(g, context, source, device),
        head and head_section(head) or false,
        { "forward", { name = name, batch = text.ident(head and "forward_batch" or "evaluate_batch"),
            row = row ~= nil, position = row ~= nil and row.position ~= false } },
        { "sample", { name = name, chunked = head ~= nil, device = device } },
    }))
end

--- Tokens of a row, 0 where rows are no tokens.
function sample.positions(config)
    local kind = config.data.kind
    return (kind == "text" or kind == "tokens") and config.data.context or 0
end

return sample
