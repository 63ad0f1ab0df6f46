-- factors: the kernels of a rule that keeps factors of a matrix, one per row and one per column (rule.factors). They
-- come before the sums of a rule of tensors.
--
--   update_all_rows      row_var, from the mean of each row
--   update_all_columns   sums of the columns over chunks of rows
--   update_all_factors   col_var, from these; and the factor of each row, from its row_var and the mean of all
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local matrices = require "passes.matrices"
local text = require "base.text"

local factors = {}

local function shown(name, e) return c_text.formula(name, expr.shown(expr.lift(e))) end

--- The three kernels of a group; make: functions of emit/boundary/update.lua.
function factors.kernels(g, config, context, group, r, l, make)
    local f = r.factors
    local function value(e, ...)
        local element = {}
        for _, name in ipairs { ... } do element[name] = true end
        return text.block(l.value(e, element))
    end
    local term = l.value(f.term, { g = true })
    local list = {}
    local function add(suffix, block, operands, what, over)
        local kernel = make.new(group, suffix, l.flops)
        if over == "each" then
            kernel.reads_step = true
        else
            local loads = make.access(g, config, kernel, {}, { term })
            what.loads, what.term = text.block(table.concat(loads, "\n")), text.block(term)
        end
        for _, operand in ipairs(operands) do make.add_operand(kernel, operand[1], operand[2]) end
        what.formula = text.block(table.concat(what.formula, "\n"))
        list[#list + 1] = make.render(g, kernel, config, context, block, over, what)
    end
    add("_rows", "matrix_rows", { { "state.row_var", "real *run_row_var" }, { "columns", "int columns" },
        { "tall", "int tall" } },
        { formula = { c_text.formula("mean", "mean of " .. expr.shown(f.term) .. " over a row"),
            shown("row_var", f.row_var) },
            row_var = value(f.row_var, "row_var", "mean") }, "rows")
    add("_columns", "matrix_columns", { { "chunks", "real *sums" }, { "rows", "int rows" },
        { "columns", "int columns" } },
        { formula = { c_text.formula("sums", "sum of " .. expr.shown(f.term) .. " over a chunk of a column") },
            chunk = matrices.CHUNK }, "columns")
    add("_factors", "matrix_factors", { { "state.row_var", "const real *run_row_var" }, { "row", "real *row_factors" },
        { "chunks", "const real *sums" }, { "state.col_var", "real *run_col_var" }, { "rows", "int rows" },
        { "columns", "int columns" }, { "matrices", "int matrices" } },
        { formula = { " *   mean = mean of row_var; row = " .. expr.shown(f.row),
            " *   mean = sums / rows", shown("col_var", f.col_var) },
            row = value(f.row, "row_var", "mean"), col_var = value(f.col_var, "col_var", "mean"),
            chunk = matrices.CHUNK }, "each")
    return list
end

return factors
