-- clip: the gradient between its last micro-step and the update: what the word `gradient` makes of it, how it is
-- measured, and cut where it is too long. Elements first, where clip.value asks for it, then the norm.
--
--   clip (1.0)                    one call over the flat space; decide() makes one factor of its norm
--   clip { 1, per_group = true }  a call for each run of a parameter group; a norm and a factor for each
--   clip { value = 0.5 }          the weight of the cycle is summed up first, then the mean gradient is
--                                 written back, cut to -0.5 .. 0.5; as with `gradient`, whatever it makes
local expr = require "base.expr"
local ordered = require "base.ordered"
local text = require "base.text"
local update_pass = require "passes.update"

local clip = {}

--- Elements of a tile, of which each has its own sum.
clip.TILE = update_pass.TILE

local function number(x) return expr.literal(x, "f64") end

-- How a p-norm is summed up: the name of the sum, what an element adds, the norm of the sum.
local function norm_of(config)
    local p = config.clip and config.clip.p or 2
    if p == 2 then
        return { p = p, name = "squares", term = "g * g", root = "sqrt(%s)", says = "the sum of squares" }
    elseif p == 1 then
        return { p = p, name = "sizes", term = "fabs(g)", root = "%s", says = "the sum of sizes" }
    elseif p == math.huge then
        return { p = p, name = "largest", term = "fabs(g)", root = "%s", largest = true, says = "the largest size" }
    end
    return { p = p, name = "powers", term = ("pow(fabs(g), %s)"):format(number(p)),
        root = "pow(%s, 1.0 / " .. number(p) .. ")", says = ("the sum of sizes to the power of %g"):format(p) }
end

local function limit_of(config) return config.clip and config.clip.value end

--- Whether the mean gradient is written back, changed.
function clip.writes(config) return (limit_of(config) or config.gradient) ~= nil end

local function reads_w(config)
    for _, name in ipairs(config.gradient and expr.variables(config.gradient.e) or {}) do
        if name == "w" then return true end
    end
    return false
end

local function per_group(config) return config.clip and config.clip.per_group or false end

--- The meaning of grad_norm, in words.
function clip.norm_text(config)
    local p = norm_of(config).p
    return ("%s-norm of the mean gradient, %s"):format(p == math.huge and "inf" or ("%g"):format(p),
        limit_of(config) and "clipped by value" or config.gradient and "changed by the spec" or "before clipping")
end

--- Whether the weights of a cycle are summed up before its gradient is measured (passes/update.lua).
function clip.weights_first(g, config) return clip.writes(config) or g.handlers ~= nil end

-- The factor that handlers give an element of the gradient, as text behind another factor.
local function share(g) return g.handlers and " * s->share[handler]" or "" end

--- The same in an update, and the operand by which a kernel reads it; a gradient that was written back has had it.
function clip.share(g, config)
    if not g.handlers or clip.writes(config) then return "" end
    return share(g), { "handler", "int handler" }
end

--- Whether the norm is the largest of something, not a sum.
function clip.takes_largest(config) return norm_of(config).largest or false end

--- The operands of gradient_partials, and its parameters for them.
function clip.operands(g, config)
    local element = config.accum == "bf16" and "const bf16" or clip.writes(config) and "real" or "const real"
    local list = { { "partials", "double *partials" }, { "g", element .. " *run_g" },
        reads_w(config) and { "w", "const real *run_w" } or nil }
    list[#list + 1] = g.handlers and { "handler", "int handler" } or nil
    return list
end

-- The lines that read an element of the gradient as x, change it as the spec wants, count it if it is not finite, and
-- widen it. place: of an array with elements of the flat space, the text of its element.
local function read_lines(g, config, target, place)
    local element, limit = (g.half_sums and "bf16_widen(%s)" or "%s"):format(place "g"), limit_of(config)
    local lines, value, counted = {}, element, "x"
    if clip.writes(config) then
        lines[1], value = ("const real mean = s->mean%s * %s;"):format(share(g), element), "mean"
    elseif g.handlers then
        value = "s->share[handler] * " .. element
    end
    if config.gradient then
        value = expr.text(config.gradient.e, target.spelling(g.real, function(name)
            return name == "g" and "mean" or place "w"
        end, config.gradient.at))
        if limit then lines[2], value = ("const real made = %s;"):format(value), "made" end
    end
    if limit then
        local cut = text.number(limit, g.real, config.clip.at).text
        counted = value
        value = ("%s > %s ? %s : %s < -%s ? -%s : %s"):format(value, cut, cut, value, cut, cut, value)
    end
    lines[#lines + 1] = ("const real x = %s%s;"):format(clip.writes(config) and element .. " = " or "", value)
    lines[#lines + 1] = target.count_nonfinite(counted)
    lines[#lines + 1] = "const double g = x;"
    return lines
end

--- The arguments of the template of gradient_partials. `add`: the statement that adds an element to its sum.
function clip.measure(g, config, target)
    local norm, few = norm_of(config), target.few_of_sweep
    local sum = norm.name .. target.lane
    local function place(name) return (few and "of_%s.at[k]" or "run_%s[" .. target.element .. "]"):format(name) end
    local moved = few and { few = few(g), reads = text.block("auto of_g = ga_read<FEW>(run_g + first);"
        .. (reads_w(config) and "\nconst auto of_w = ga_read<FEW>(run_w + first);" or "")),
        writes = text.block(clip.writes(config) and "ga_write(run_g + first, of_g);" or "") }
    return ordered.copy({ says = text.block(norm.says), name = text.ident(norm.name), largest = norm.largest or false,
        add = text.block(norm.largest and ("%s = fmax(%s, %s);"):format(sum, sum, norm.term)
            or ("%s += %s;"):format(sum, norm.term)),
        read = text.block(table.concat(read_lines(g, config, target, place), "\n")) }, moved)
end

--- The factor in a sweep of this group.
function clip.factor(config, group)
    return per_group(config) and ("s->factor[%d]"):format(group.position) or "s->factor"
end

--- The declaration of the factor in the struct step, and how many there are.
function clip.factor_field(g, config)
    local count = per_group(config) and g.norm_groups or 1
    return per_group(config) and ("factor[%d]"):format(count) or "factor", count
end

--- The arguments of the decision: what the norm is, and the lines that make factors of it.
function clip.decision(g, config)
    local norm, rewrites = norm_of(config), clip.writes(config)
    local mean = rewrites and "" or " * mean"
    local ends = per_group(config) and g.norm.ends or {}
    local lines = {}
    local limit = config.clip and config.clip.norm
    if limit then
        lines[1] = ("const double clip = %s / (%s + 1e-6);"):format(number(limit),
            per_group(config) and norm.root:format("of_group[k]") .. mean or "s->grad_norm")
        lines[2] = per_group(config) and ("s->factor[k] = (real)(clip < 1 ? clip%s : %s);"):format(mean,
            rewrites and "1" or "mean") or "if (clip < 1) factor *= clip;"
    end
    return { sum = text.ident(norm.name), largest = norm.largest or false, rewrites = rewrites,
        grad_norm = text.block(norm.root:format(norm.name) .. mean),
        group_tiles = text.block(table.concat({ 0, table.unpack(ends) }, ", ")), groups = #ends,
        clip = text.block(table.concat(lines, "\n")) }
end

--- Operations and bytes of a call over so many elements.
function clip.work(g, config, elements)
    local size = g.half_sums and 2 or g.real == "f64" and 8 or 4
    return 2 * elements, elements * size * (clip.writes(config) and 2 or 1)
end

return clip
