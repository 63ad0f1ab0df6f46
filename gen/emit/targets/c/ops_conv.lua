-- c_ops_conv: template arguments of convolutions of the C target besides the shared ones: sums on vectors, or blocks of
-- a product on the matrix registers.
local c_text = require "emit.targets.c_text"
local conv = require "emit.kernels.conv"
local graph = require "graph.graph"
local matrix_conv = require "emit.targets.c.matrix_conv"
local ops = require "emit.targets.ops"
local squares_conv = require "emit.targets.c.squares_conv"
local text = require "base.text"
local vector_conv = require "emit.targets.c.vector_conv"

local function ceil(a, b) return (a + b - 1) // b end

local function bytes_of(dtype) return dtype == "f64" and 8 or 4 end

-- parts: the table of parts.
--   count    their number
--   rows     a line for each; `tiles_of(part, i)` is its number of tiles
--   empty    whether no tap reaches the places of some part
local function parts_of(parts, tiles_of)
    local rows, tiles, empty = {}, 0, false
    for i, part in ipairs(parts) do
        empty = empty or part.h.taps * part.w.taps == 0
        tiles = tiles + tiles_of(part, i)
        rows[i] = conv.named_part_text(part, tiles) .. ","
    end
    return { count = #parts, rows = text.block(table.concat(rows, "\n")), empty = empty }
end

-- Outputs of a panel of turned weights for a product with this shape (emit/kernels/conv.lua), nil where they are rows.
local function panel_of(kernel, shape, dtype)
    local slices = dtype ~= "f64" and matrix_conv.slices(kernel, shape)
    return not slices and not kernel.half and vector_conv.panel(kernel.profile, shape.out, bytes_of(dtype)) or nil
end

-- By squares of results, or of one tap or few terms. Taps lie as rows, or as panels of turned weights.
local function add_part(list, node, part, tile, panel)
    tile.panel = panel or false
    list.tile, list.type = tile, c_text.type_of(node.ins.weight)
    list.part = text.block(conv.named_part_text(part, 0) .. ";")
end

local function add_squares(list, node, kernel, g, tile)
    local panel = node.op == "conv2d_dx" and panel_of(kernel, list.shape, "f32")
    tile.turned = text.block(panel and "" or "taps[9 * DEPTH * VEC_LANES], ")
    add_part(list, node, squares_conv.part(g), tile, panel)
end

local function add_vectors(list, node, kernel, g, dtype)
    local panel = node.op == "conv2d_dx" and panel_of(kernel, list.shape, dtype) or nil
    local plain = not node.behind and not kernel.can_add and not node.ins.bias and not graph.is_half(graph.result(node))
    local single = vector_conv.single(kernel, list.shape, g, bytes_of(dtype), panel, plain)
    kernel.single = single ~= nil
    if single then return add_part(list, node, single.part, single, panel) end
    local tile = vector_conv.product(kernel.profile, list.shape, g, bytes_of(dtype))
    tile.turned = panel ~= nil
    tile.panel = text.block(tile.turned and "" or "panel[TERMS * COLUMNS], ")
    list.tile = tile
    list.type = c_text.type_of(node.ins.weight)
    list.parts = parts_of(g.parts, function() return 0 end)
end

-- The lines that store 32 sums of a convolution over lines as a row of results: rounded together where results of bf16
-- are neighbours.
local function row_store(list, node, kernel)
    local y = graph.result(node)
    local rounds = graph.is_half(y) and list.tile.run == 32 and list.step.place_w == 1
    local before = kernel.can_add and ("add ? %s + value : "):format(c_text.load(y, "row[k]")) or ""
    local store = rounds and ("sum[k] = %svalue;"):format(before) or c_text.store(kernel, "row[k]", "value").text
    local lines = { "for (int k = 0; k < 32; k++) {", "    const real value = block[k]" .. list.bias.text .. ";",
        "    " .. store, "}" }
    if rounds then
        lines[1] = "real sum[32];\nINDEPENDENT " .. lines[1]
        lines[#lines + 1] = "narrow_row(row, sum, 32);"
    end
    return text.block(table.concat(lines, "\n"))
end

local function add_product(list, node, kernel, op, dtype)
    local g, shape = op.gather(node), list.shape
    local squares = dtype ~= "f64" and squares_conv.product(kernel, shape, g, 4)
    local slices = dtype ~= "f64" and not squares and matrix_conv.slices(kernel, shape)
    kernel.matrix, kernel.squares = slices or false, squares and squares.form
    if squares then return add_squares(list, node, kernel, g, squares) end
    if not slices then return add_vectors(list, node, kernel, g, dtype) end
    list.store, list.type = c_text.store(kernel, "row[k]", "value"), c_text.type_of(node.ins.weight)
    list.adds = kernel.can_add or false
    list.tile = matrix_conv.product_by_lines(kernel, shape, g, slices)
    kernel.lines = list.tile ~= nil
    if kernel.lines then
        list.store, list.bias = row_store(list, node, kernel), nil
        list.parts = parts_of(g.parts, function() return 0 end)
        return
    end
    local all = {}
    for i, part in ipairs(g.parts) do all[i] = g.B * part.h.places * part.w.places end
    list.tile = matrix_conv.product(kernel, shape, all, slices, list.step.place_w)
    kernel.spreads, list.store = matrix_conv.spreads(kernel, list.step.place_w), c_text.store(kernel, "row[c]", "value")
    list.parts = parts_of(g.parts, function(_, i)
        return ceil(shape.out, list.tile.tall) * g.groups * ceil(all[i], list.tile.wide)
    end)
end

-- The call that computes sums; the last columns have a function of their own.
local function sums_call(out, tile)
    local narrow = out % tile.columns
    local call = ("conv_sums_%dx%d(&s);"):format(tile.rows, tile.columns)
    if narrow == 0 then return text.block(call) end
    if out < tile.columns then return text.block(("conv_sums_%dx%d(&s);"):format(tile.rows, out)) end
    return text.block(("if (j + COLUMNS > OUT) conv_sums_%dx%d(&s);\nelse %s"):format(tile.rows, narrow, call))
end

-- In parts, or in the order of the weight (conv2d_dw_whole).
local function weight_gradient(kernel, node, op, dtype)
    local whole = node.op == "conv2d_dw_whole"
    local list, g = conv.weight_gradient(node, op), op.gather(node)
    local shape, part = list.shape, g.parts[1]
    local squares = dtype ~= "f64" and squares_conv.gradient(kernel, shape, g, 4)
    local slices = dtype ~= "f64" and not squares and matrix_conv.slices(kernel, shape)
    kernel.matrix, list.type = slices or false, c_text.type_of(node.ins.x)
    kernel.squares = squares and squares.form
    list.part = text.block(conv.named_part_text(part, 0) .. ";")
    if squares then
        list.tile, list.store = squares, whole and c_text.store(kernel, "y[first + k]", "value") or false
        return list
    end
    if slices then
        list.tile = matrix_conv.gradient_by_lines(kernel, shape, g, list.partials, slices)
        kernel.lines = list.tile ~= nil
        list.tile = list.tile or matrix_conv.gradient(kernel, shape, list.partials, slices)
        if not kernel.lines then list.store = whole and c_text.store(kernel, "y[first + k]", "value") or false end
        return list
    end
    local single = not kernel.half
        and vector_conv.gradient_single(kernel.profile, shape, g, list.partials, bytes_of(dtype)) or nil
    kernel.single = single ~= nil
    if single then
        list.tile, list.type = single, nil
        return list
    end
    list.tile = vector_conv.gradient(kernel.profile, shape, g, list.partials, bytes_of(dtype))
    list.tile.strips = sums_call(shape.out, list.tile)
    return list
end

-- Sets the blocks of an op: NAME, or NAME_matrix in blocks, or conv_lines.NAME_lines over planes copied by lines, or
-- conv_squares.NAME_squares by squares, or conv_single.conv2d_single of one tap or few terms, and what each needs;
-- `own`, blocks, lines, squares: what each needs besides; runs: what copies runs for blocks.
local function set_blocks(entry, name, own, blocks, lines, runs, squares)
    entry.blocks = { name, name .. "_matrix", "conv_lines." .. name .. "_lines",
        "conv_squares." .. name .. "_squares", "conv_single." .. name .. "_single" }
    entry.block = function(kernel)
        return entry.blocks[kernel.squares and 4 or kernel.single and 5 or kernel.lines and 3
            or kernel.matrix and 2 or 1]
    end
    entry.helper = function(_, kernel)
        local copies = "planes planes_blocks planes_turn:half planes_copy:half "
        if kernel.squares then
            return copies .. ("planes_squares:form %s:form"):format(squares)
        end
        if kernel.single then return copies end
        if not kernel.matrix then return copies .. "planes_places " .. own end
        return "planes " .. (kernel.half and "planes_windows" or "planes_floats") .. " planes_terms:half"
            .. (kernel.lines and lines or " planes_locate" .. blocks)
            .. (matrix_conv.takes_runs(kernel) and " planes_runs " .. runs or "")
            .. (kernel.spreads and " runs_results" or "")
    end
end

-- Sets the entries of convolution ops in the target's table.
return function(list)
    ops.add(list, "conv2d", add_product)
    ops.add(list, "conv2d_dx", add_product)
    ops.add(list, "conv2d_turned", function(arguments, node, kernel, _, dtype)
        kernel.panel = panel_of(kernel, conv.turned_shape(node), dtype)
        arguments.parts, arguments.columns = parts_of(node.parts, function() return 0 end), kernel.panel
        if kernel.panel then return end
        arguments.type = c_text.type_of(node.ins.weight)
        local first, window = node.parts[1], node.attrs.window     -- whole: all places have all taps
        arguments.whole = #node.parts == 1 and first.h.taps == window[1] and first.w.taps == window[2]
    end)
    list.conv2d_turned.helper = "planes"
    list.conv2d_turned.blocks = { "conv2d_turned", "conv2d_turned_panels" }
    list.conv2d_turned.block = function(kernel) return list.conv2d_turned.blocks[kernel.panel and 2 or 1] end
    list.conv2d_dw, list.conv2d_dw_whole = { arguments = weight_gradient }, { arguments = weight_gradient }
    local product = " planes_lines:half lines_pairs:half lines_weights:half lines_results:half"
    set_blocks(list.conv2d, "conv2d", "planes_products", " planes_panel:half", product, "runs_panel",
        "square_products")
    set_blocks(list.conv2d_dx, "conv2d", "planes_products", " planes_panel:half", product, "runs_panel",
        "square_products")
    set_blocks(list.conv2d_dw, "conv2d_dw", "planes_lists:half", " planes_rows:half",
        " planes_lines:half lines_rows:half", "runs_rows", "square_gradients")
    list.conv2d_dw_whole.blocks = { "conv2d_dw_matrix", "conv_squares.conv2d_dw_squares" }
    list.conv2d_dw_whole.block = list.conv2d_dw.block
    list.conv2d_dw_whole.helper = list.conv2d_dw.helper
end
