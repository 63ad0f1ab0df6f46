-- print: one line per node, for --trace and tests.
local graph = require "graph.graph"
local statements = require "base.statements"

local function operand(t)
    local text = t.name
    if t.place then
        text = ("%s@%s+%d"):format(text, t.place.arena, t.place.offset)
    end
    return text
end

local function node_line(node)
    local outs, ins = {}, {}
    for i, out in ipairs(graph.writes(node)) do
        local acc = out.acc and (out.acc.first and " =" or " +=") or ""
        outs[i] = ("%s %s%s%s"):format(operand(out.tensor), out.tensor.dtype,
            graph.shape_text(out.tensor.shape), acc)
    end
    for i, t in ipairs(graph.reads(node)) do ins[i] = operand(t) end
    local body = node.op
    if node.op == "map" then
        local lines, value = statements.text(node.statements, "real")
        lines[#lines + 1] = value
        body = "map[" .. table.concat(lines, " ") .. "]"
    end
    if node.drops then body = body .. "[dropout]" end
    if node.behind then
        local lines, value = statements.text(node.behind.statements, "real")
        lines[#lines + 1] = value
        body = body .. "[" .. table.concat(lines, " ") .. "]"
    end
    local branch = node.branch and ("branch %d; "):format(node.branch)
        or node.joins and ("join %s; "):format(table.concat(node.joins, ", ")) or ""
    return ("%s%s%s <- %s(%s)"):format(branch, node.barrier and "barrier; " or "",
        table.concat(outs, ", "), body, table.concat(ins, ", "))
end

local function print_body(lines, body, pad)
    for _, node in ipairs(body) do
        if node.op == "times" then
            lines[#lines + 1] = ("%stimes %d %s step %d"):format(pad, node.count, node.name,
                node.step)
            for _, c in ipairs(node.carries) do
                lines[#lines + 1] = ("%s  carry %s: %s -> %s -> %s"):format(pad, operand(c.init),
                    operand(c.arg), operand(c.result), operand(c.out))
            end
            print_body(lines, node.body, pad .. "    ")
        else
            lines[#lines + 1] = pad .. node_line(node)
        end
    end
end

--- The graph as text.
return function(g)
    local lines = { "graph " .. g.name }
    for _, param in ipairs(g.params) do
        lines[#lines + 1] = ("param %s %s x %d%s"):format(param.name, graph.shape_text(param.shape),
            param.count, param.flat and " at " .. param.flat.offset or "")
    end
    for _, joint in ipairs(g.joints) do
        lines[#lines + 1] = ("joint %s %s of %d parameters"):format(joint.name, graph.shape_text(joint.shape),
            #joint.members)
    end
    for _, section in ipairs { "forward", "evaluation", "backward", "boundary", "views" } do
        if g[section] and #g[section] > 0 then
            lines[#lines + 1] = section .. ":"
            print_body(lines, g[section], "  ")
        end
    end
    return table.concat(lines, "\n") .. "\n"
end
