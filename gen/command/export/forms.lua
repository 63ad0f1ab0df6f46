-- forms: finds in a graph the parts of a GPT-2, a Llama or a BERT, whatever its layers are called. A form is a table of
-- sizes, options and parts; a part is a linear layer or a norm as match.lua gives it, parameters of the graph.
--
--   gpt2    x = wte[ids] + wpe; blocks: x += out(attend(qkv(ln_1(x)))); x += down(act(up(ln_2(x)))); head(ln_f(x))
--   llama   x = wte[ids]; blocks: x += out(attend(rotary(q(n)), rotary(k(n)), v(n))), n = ln_1(x);
--           x += down(act(gate(n)) * up(n)), n = ln_2(x); head(ln_f(x))
--   bert    x = ln_0(wte[ids] + wtt[types] + wpe); blocks: x = ln_1(x + out(attend(q(x), k(x), v(x), mask)));
--           x = ln_2(x + down(act(up(x)))); head(tanh(pooler(x[first place])))
local diag = require "base.diag"
local graph = require "graph.graph"
local match = require "command.export.match"
local ordered = require "base.ordered"

local forms = {}

-- -- parts that several forms have ----------------------------------------------------------------

-- The queries, keys and values of an attention: one joint linear layer or three, all of the same input.
local function projections(m, node, behind)
    local list = {}
    for i, name in ipairs { "query", "key", "value" } do
        local tensor = node.ins[name]
        if tensor then list[i] = m:linear(behind and behind(tensor, i) or tensor, "its queries, keys and values") end
    end
    for i = 2, #list do m:same(list[i].x, list[1].x, "its keys and values", "the input of the queries") end
    return list, list[1].x
end

-- Keeps the head of a language model: the layer, or nil if its weight is the table of the embedding.
local function set_head(m, form, head, lookup)
    form.head = head.weight ~= lookup and head or nil
    if head.bias then m:refuse_option(head.node, "the head has a bias") end
end

-- The table that ids of the batch are looked up in.
local function embedding(m, tensor, what)
    local node = m:node(tensor, what, "embedding")
    if node.ins.ids.kind ~= "input" then m:refuse(node.ins.ids.def, what, "ids of the batch") end
    return node.ins.weight.param
end

-- The sizes that every form has.
local function sizes(m, form, attend, loop)
    local a = attend.attrs
    form.heads, form.kv_heads, form.head_width = a.heads, a.kv_heads, a.d
    form.width, form.context = loop.arg.shape[3], loop.arg.shape[2]
    form.layers, form.eps, form.drops = loop.region.count, m.eps, m.drops
    if form.name ~= "llama" and form.kv_heads ~= form.heads then
        m:refuse_option(attend, "kv_heads is %d, heads is %d", form.kv_heads, form.heads)
    end
    if form.heads * form.head_width ~= form.width then
        m:refuse_option(attend, "%d heads of %d in a model of width %d", form.heads, form.head_width, form.width)
    end
    return form
end

-- -- the forms ----------------------------------------------------------------------------------

local function gpt2(g)
    local m, form = match.new(g, "GPT-2"), { name = "gpt2" }
    local head = m:linear(g.output, "its head")
    form.ln_f = m:norm(head.x, "the norm before its head", "layernorm")
    local loop = m:loop(form.ln_f.x, "its blocks")
    local stream = loop.result
    form.down, stream = m:residual(stream, "the sum that ends a block")
    local act
    form.activation, act = m:activation(form.down.x, "its activation")
    form.up = m:linear(act, "the first layer behind the attention")
    form.ln_2 = m:norm(form.up.x, "its second norm", "layernorm")
    m:same(form.ln_2.x, stream, "the input of its second norm", "the stream")
    form.out, stream = m:residual(stream, "the sum behind its attention")
    local attend = m:attend(form.out.x, true)
    local x
    form.qkv, x = projections(m, attend)
    form.ln_1 = m:norm(x, "its first norm", "layernorm")
    m:same(form.ln_1.x, loop.arg, "the input of its first norm", "the stream")
    m:same(stream, loop.arg, "its residual", "the stream")
    local sum = m:node(m:behind_dropout(loop.init, "embedding"), "its embeddings", "positions")
    form.wpe = m:positions(sum)
    form.wte = embedding(m, sum.ins.x1, "its tokens")
    set_head(m, form, head, form.wte)
    return sizes(m, form, attend, loop)
end

local function llama(g)
    local m, form = match.new(g, "Llama"), { name = "llama" }
    local head = m:linear(g.output, "its head")
    form.ln_f = m:norm(head.x, "the norm before its head", "rmsnorm")
    local loop = m:loop(form.ln_f.x, "its blocks")
    local stream, gated = loop.result, nil
    form.down, stream = m:residual(stream, "the sum that ends a block")
    local product = m:node(form.down.x, "its gated layer", "mul")
    local a, b = m:operands(product, "its gated layer")
    if match.rule(a.def) == nil then a, b = b, a end
    form.activation, gated = m:activation(a, "its activation")
    form.gate, form.up = m:linear(gated, "its gate"), m:linear(b, "the layer beside its gate")
    m:same(form.up.x, form.gate.x, "the input of the layer beside its gate", "that of the gate")
    form.ln_2 = m:norm(form.up.x, "its second norm", "rmsnorm")
    m:same(form.ln_2.x, stream, "the input of its second norm", "the stream")
    form.out, stream = m:residual(stream, "the sum behind its attention")
    local attend, x = m:attend(form.out.x, true), nil
    if not attend.ins.key then m:refuse(attend.ins.query.def, "its turned queries", "rotary of queries and of keys") end
    form.qkv, x = projections(m, attend, function(tensor, i)
        if i == 3 then return tensor end
        local node = m:node(tensor, "its turned queries and keys", "rotary")
        if form.base and form.base ~= node.attrs.base then
            m:refuse_option(node, "rotary with two bases, %g and %g", form.base, node.attrs.base)
        end
        form.base = node.attrs.base
        if node.attrs.d ~= attend.attrs.d then
            m:refuse_option(node, "rotary turns heads of %d, attend has heads of %d", node.attrs.d, attend.attrs.d)
        end
        return node.ins.x
    end)
    form.ln_1 = m:norm(x, "its first norm", "rmsnorm")
    m:same(form.ln_1.x, loop.arg, "the input of its first norm", "the stream")
    m:same(stream, loop.arg, "its residual", "the stream")
    form.wte = embedding(m, m:behind_dropout(loop.init, "embedding"), "its tokens")
    set_head(m, form, head, form.wte)
    return sizes(m, form, attend, loop)
end

-- The tables that are added: of words, of types (which may be missing) and of positions.
local function bert_tables(m, form, tensor)
    local found = {}
    local function walk(t)
        local rule = match.rule(t.def)
        if rule == "positions" then
            form.wpe = m:positions(t.def)
            return walk(t.def.ins.x1)
        elseif rule == "add" then
            local a, b = m:operands(t.def, "its embeddings")
            walk(a)
            return walk(b)
        end
        found[#found + 1] = embedding(m, t, "its embeddings")
    end
    walk(tensor)
    table.sort(found, function(a, b) return a.shape[1] > b.shape[1] end)
    form.wte, form.wtt = found[1], found[2]
    if #found > 2 or not form.wpe then
        m:refuse(tensor.def, "its embeddings", "tables of words, positions and, if at all, types")
    end
end

local function bert(g)
    local m, form = match.new(g, "BERT"), { name = "bert" }
    form.head = m:linear(g.output, "its classifier")
    local tanh = m:node(m:behind_dropout(form.head.x, "classifier"), "its pooled place", "tanh")
    form.pooler = m:linear(graph.reads(tanh)[1], "its pooler")
    local pick = m:node(form.pooler.x, "the place that it pools", "slice")
    if pick.attrs.axis ~= 2 or pick.attrs.first ~= 1 or pick.attrs.last ~= 1 then
        m:refuse_option(pick, "another place than the first is picked")
    end
    local loop = m:loop(pick.ins.x, "its blocks")
    form.ln_2 = m:norm(loop.result, "the norm that ends a block", "layernorm")
    local stream, act
    form.down, stream = m:residual(form.ln_2.x, "the sum before the norm that ends a block")
    form.activation, act = m:activation(form.down.x, "its activation")
    form.up = m:linear(act, "the first layer behind the attention")
    m:same(form.up.x, stream, "the input of the layer behind the attention", "the stream")
    form.ln_1 = m:norm(stream, "the norm behind its attention", "layernorm")
    form.out, stream = m:residual(form.ln_1.x, "the sum behind its attention")
    m:same(stream, loop.arg, "its residual", "the stream")
    local attend, x = m:attend(form.out.x, false), nil
    form.qkv, x = projections(m, attend)
    m:same(x, loop.arg, "the input of its attention", "the stream")
    form.ln_0 = m:norm(m:behind_dropout(loop.init, "hidden"), "the norm behind its embeddings", "layernorm")
    bert_tables(m, form, form.ln_0.x)
    return sizes(m, form, attend, loop)
end

--- The form of the model of graph g; `wanted`: the names of those that `format` has a place for.
function forms.find(g, wanted, format)
    local ops = {}
    graph.walk(g.forward, function(node)
        ops[node.op] = true
        if node.op == "attend" and node.attrs.causal then ops.causal = true end
    end)
    local name = (ops.rmsnorm or ops.rotary) and "llama" or ops.causal and "gpt2" or ops.attend and "bert"
    if not name or not g.output or not ordered.find(wanted, name) then
        diag.fail(g.loss.at, ("export: the model has %s, and %s has a place for the forms %s"):format(
            not g.output and "several outputs" or not name and "no attention" or "the form of " .. name, format,
            table.concat(wanted, ", ")), { notes = { "--onnx takes other models" } })
    end
    return ({ gpt2 = gpt2, llama = llama, bert = bert })[name](g)
end

return forms
