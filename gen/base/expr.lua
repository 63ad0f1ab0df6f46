-- expr: scalar expressions, built with Lua's operators, evaluated in Lua, printed for a target.
-- Pointwise ops, optimizers, schedules and gradient handlers are all written in this one language.
-- Invariant: printing keeps the order of operations (float arithmetic is not associative).
local diag = require "base.diag"

local expr = {}

local mt = {}
mt.__index = mt

local PRECEDENCE = { ["+"] = 1, ["-"] = 1, ["*"] = 2, ["/"] = 2, neg = 3 }

local function make(op, ...)
    local node = { op = op }
    for i = 1, select("#", ...) do
        node[i] = expr.lift((select(i, ...)))
    end
    return setmetatable(node, mt)
end

--- Whether x is an expression.
function expr.is(x) return getmetatable(x) == mt end

--- A number becomes a constant, an expression stays itself.
function expr.lift(x)
    if expr.is(x) then return x end
    if type(x) ~= "number" then
        error("expression expected a number, got a " .. type(x), 2)
    end
    return setmetatable({ op = "num", value = x }, mt)
end

--- A free variable.
function expr.var(name) return setmetatable({ op = "var", name = name }, mt) end

local function is_number(x, value)
    if expr.is(x) then
        if x.op ~= "num" then return false end
        x = x.value
    end
    return value == nil or x == value
end

local function number(x) return expr.is(x) and x.value or x end

-- Numbers are folded in double; adding 0 and multiplying by 1 leave no trace.
mt.__add = function(a, b)
    if is_number(a) and is_number(b) then return expr.lift(number(a) + number(b)) end
    if is_number(a, 0) then return b elseif is_number(b, 0) then return a end
    return make("+", a, b)
end
mt.__sub = function(a, b)
    if is_number(a) and is_number(b) then return expr.lift(number(a) - number(b)) end
    if is_number(b, 0) then return a end
    return make("-", a, b)
end
mt.__mul = function(a, b)
    if is_number(a) and is_number(b) then return expr.lift(number(a) * number(b)) end
    if is_number(a, 1) then return b elseif is_number(b, 1) then return a end
    return make("*", a, b)
end
mt.__div = function(a, b)
    if is_number(a) and is_number(b) then return expr.lift(number(a) / number(b)) end
    if is_number(b, 1) then return a end
    return make("/", a, b)
end
mt.__unm = function(a)
    if is_number(a) then return expr.lift(-number(a)) end
    return make("neg", a)
end
mt.__pow = function(a, b) return make("pow", a, b) end
local function refuse_comparison()
    error("expressions cannot be compared: write where(lt(a, b), x, y)", 2)
end
mt.__lt, mt.__le = refuse_comparison, refuse_comparison

local function erf(x)          -- Maclaurin series near 0, continued fraction of erfc outside
    local a = math.abs(x)
    if a < 2.5 then
        local sum, term, n = a, a, 0
        repeat
            n = n + 1
            term = -term * a * a / n
            local add = term / (2 * n + 1)
            sum = sum + add
        until math.abs(add) < 1e-18
        sum = 2 / math.sqrt(math.pi) * sum
        return x < 0 and -sum or sum
    end
    local f = 0.0
    for k = 60, 1, -1 do f = k / 2 / (a + f) end
    local c = math.exp(-a * a) / math.sqrt(math.pi) / (a + f)
    return x < 0 and c - 1 or 1 - c
end

local function tanh(x)
    if math.abs(x) > 20 then return x > 0 and 1.0 or -1.0 end
    local e = math.exp(2 * x)
    return (e - 1) / (e + 1)
end

local function log1p(x)          -- the error of 1 + x divided out
    local u = 1 + x
    if u == 1 or u == math.huge then return u == 1 and x or u end
    return math.log(u) * (x / (u - 1))
end

local function expm1(x)
    local u = math.exp(x)
    if u == 1 or u - 1 == -1 or u == math.huge then return u == 1 and x or u - 1 end
    return (u - 1) * (x / math.log(u))
end

-- name -> { arity, value in Lua }. Comparisons give booleans and are only read by `where`.
local CALLS = {
    sqrt = { 1, math.sqrt }, exp = { 1, math.exp }, log = { 1, math.log },
    sin = { 1, math.sin }, cos = { 1, math.cos }, abs = { 1, math.abs },
    floor = { 1, math.floor }, tanh = { 1, tanh }, erf = { 1, erf },
    log1p = { 1, log1p }, expm1 = { 1, expm1 },
    pow = { 2, function(a, b) return a ^ b end },
    min = { 2, math.min }, max = { 2, math.max },
    lt = { 2, function(a, b) return a < b end }, le = { 2, function(a, b) return a <= b end },
    gt = { 2, function(a, b) return a > b end }, ge = { 2, function(a, b) return a >= b end },
    eq = { 2, function(a, b) return a == b end },
    where = { 3, function(c, a, b) if c then return a end return b end },
}
for name, call in pairs(CALLS) do
    expr[name] = function(...)
        if select("#", ...) ~= call[1] then
            error(("%s takes %d values"):format(name, call[1]), 2)
        end
        local e = make(name, ...)
        return e
    end
end

--- x as the program's 16-bit type holds it: only printed, as the call of a function.
function expr.rounded(x) return make("rounded", x) end

--- The value after n rounds from `start`; n is a whole number, start has no variable. steps: new values, one after the
--- other in each round, as expressions of the variables k, the number of the round from 1, and x, the value before.
--- name, doc: what the value is called in a program.
function expr.recurrence(name, doc, n, start, steps)
    local node = make("recurrence", n, start)
    node.name, node.value = name, { doc = doc, steps = steps }
    return node
end

-- The value after n rounds of a recurrence, which goes on from the last n that it was asked for.
local function after_rounds(e, n)
    local memo = e.memo
    if not memo or memo.k > n then
        memo = { k = 0, x = expr.evaluate(e[2], {}) }
        e.memo = memo
    end
    while memo.k < n do
        memo.k = memo.k + 1
        for _, step in ipairs(e.value.steps) do memo.x = expr.evaluate(step, memo) end
    end
    return memo.x
end

local BINARY = {
    ["+"] = function(a, b) return a + b end, ["-"] = function(a, b) return a - b end,
    ["*"] = function(a, b) return a * b end, ["/"] = function(a, b) return a / b end,
}

--- The value of e in double precision; env maps variable names to numbers.
function expr.evaluate(e, env)
    if e.op == "num" then return e.value end
    if e.op == "var" then
        local value = env[e.name]
        if value == nil then error("no value for '" .. e.name .. "'", 2) end
        return value
    end
    if e.op == "recurrence" then return after_rounds(e, expr.evaluate(e[1], env)) end
    local values = {}
    for i, child in ipairs(e) do values[i] = expr.evaluate(child, env) end
    if e.op == "neg" then return -values[1] end
    local f = BINARY[e.op] or CALLS[e.op][2]
    local value = f(table.unpack(values, 1, #e))
    return value
end

-- where((c ? 1 : 0) == 0, a, b) is where(c, b, a): a comparison that a `where` reads.
local function shorten(node)
    local test = node.op == "where" and node[1]
    local flag = test and test.op == "eq" and is_number(test[2], 0) and test[1]
    if flag and flag.op == "where" and is_number(flag[2], 1) and is_number(flag[3], 0) then
        return setmetatable({ op = "where", flag[1], node[3], node[2] }, mt)
    end
    return node
end

--- e with every variable replaced by map[name] (an expression or number) where it has an entry, and without labels.
function expr.substitute(e, map)
    local op = e.op
    if op == "var" then
        local to = map[e.name]
        return to ~= nil and expr.lift(to) or e
    end
    if op == "num" then return e end
    if op == "recurrence" then
        return expr.recurrence(e.name, e.value.doc, expr.substitute(e[1], map), expr.substitute(e[2], map),
            e.value.steps)
    end
    local node = e.label and setmetatable({ op = op }, mt)      -- what has nothing to replace is no copy
    for i = 1, #e do
        local child = expr.substitute(e[i], map)
        if not node and child ~= e[i] then node = setmetatable(table.move(e, 1, i - 1, 1, { op = op }), mt) end
        if node then node[i] = child end
    end
    return shorten(node or e)
end

--- Calls f(name) for each variable of e, as often as it appears.
function expr.each_variable(e, f)
    if e.op == "var" then return f(e.name) end
    for i = 1, #e do expr.each_variable(e[i], f) end
end

--- The names of the variables of e, each once, in order of appearance.
function expr.variables(e)
    local seen, names = {}, {}
    expr.each_variable(e, function(name)
        if not seen[name] then seen[name], names[#names + 1] = true, name end
    end)
    return names
end

--- The number of operations of e.
function expr.count(e)
    local n = (e.op == "num" or e.op == "var") and 0 or 1
    for i = 1, #e do n = n + expr.count(e[i]) end
    return n
end

--- e, called `name` where it is computed apart from what reads it: see expr.hoist.
function expr.named(name, e)
    e = expr.lift(e)
    if e.op == "num" or e.op == "var" then return e end
    local node = table.move(e, 1, #e, 1, { op = e.op })
    node.label = name
    return setmetatable(node, mt)
end

-- The wanted name, or with _2, _3 ... behind it: one that no entry of the list has.
local function unused(hoisted, wanted)
    local taken, name, n = {}, wanted, 1
    for _, h in ipairs(hoisted) do taken[h.name] = true end
    while taken[name] do
        n = n + 1
        name = wanted .. "_" .. n
    end
    return name
end

--- Moves every largest sub-expression that reads no element variable out of e.
-- `is_element(name)` tells element variables; `hoisted` collects { name, e } and is shared by the
-- statements of one kernel, so that equal sub-expressions are computed once.
-- Constants stay where they are. name_of(e): the name of a sub-expression; e.label is what expr.named calls it.
function expr.hoist(e, is_element, hoisted, name_of)
    local constant = true
    for _, name in ipairs(expr.variables(e)) do
        if is_element(name) then constant = false end
    end
    if constant then
        if e.op == "num" then return e end
        local text = expr.plain_text(e)
        for _, h in ipairs(hoisted) do
            if expr.plain_text(h.e) == text then return expr.var(h.name) end
        end
        local name = unused(hoisted, name_of(e))
        hoisted[#hoisted + 1] = { name = name, e = e }
        return expr.var(name)
    end
    local node = { op = e.op, value = e.value, name = e.name }
    for i, child in ipairs(e) do node[i] = expr.hoist(child, is_element, hoisted, name_of) end
    return setmetatable(node, mt)
end

local blamed

--- The place whose numbers are printed: what expr.literal refuses is its fault. Holds until the next call; nil: none.
function expr.blame(at) blamed = at end

-- Texts of expr.literal by their number, for "f32" and for all else; they follow from the number alone.
local known_literals = { [true] = {}, [false] = {} }

local function shortest(goal, f32)
    for digits = 1, 17 do
        local text = ("%." .. digits .. "g"):format(goal)
        local back = tonumber(text)
        if f32 then back = string.unpack("f", string.pack("f", back)) end
        if back == goal then
            text = text:gsub("e([+-])0+(%d)", "e%1%2")
            if not text:find("[%.e]") then text = text .. ".0" end
            return text .. (f32 and "f" or "")
        end
    end
    error("a number that does not print")
end

--- The shortest text that reads back as x: "f64" or "f32" (with suffix f). A number that is not finite
--- or that f32 turns into 0 or infinity is refused; `at` is the place to blame, or that of expr.blame.
function expr.literal(x, dtype, at)
    local f32 = dtype == "f32"
    local goal = f32 and string.unpack("f", string.pack("f", x)) or x + 0.0
    if goal ~= goal or goal == math.huge or goal == -math.huge or goal == 0 and x ~= 0 then
        diag.fail(at or blamed or "the spec", ("the number %.6g is %s in %s%s"):format(x,
            goal == 0 and "0" or "not finite", f32 and "f32" or "f64",
            f32 and ", which holds 1.4e-45 to 3.4e38: another number, or precision \"f64\"" or ""), {})
    end
    if goal == math.floor(goal) and math.abs(goal) < 1e6 then
        return ("%.1f"):format(goal) .. (f32 and "f" or "")
    end
    local known = known_literals[f32]
    known[goal] = known[goal] or shortest(goal, f32)
    return known[goal]
end

--- x for people: without the noise of 1 - 0.9 = 0.09999999999999998, which is shown as (1 - 0.9).
function expr.readable(x)
    local exact, short = expr.literal(x, "f64"), ("%.15g"):format(x)
    if #exact <= 17 then return exact end
    local rest = tonumber(("%.6g"):format(1 - x))
    if x < 1 and 1 - rest == x then return "(1 - " .. expr.literal(rest, "f64") .. ")" end
    return expr.literal(tonumber(short), "f64")
end

--- expr.text(e), kept in e: expressions do not change.
function expr.plain_text(e)
    local text = rawget(e, "plain_text") or expr.text(e)
    e.plain_text = text
    return text
end

local COMPARE = { lt = "<", le = "<=", gt = ">", ge = ">=", eq = "==" }

--- e for comments.
function expr.shown(e, variable)
    local text = expr.text(e, { number = expr.readable, variable = variable })
    return (e.op == "where" or COMPARE[e.op]) and text:sub(2, -2) or text
end

--- The start and the steps of a recurrence.
function expr.rounds_text(e)
    local parts = { expr.plain_text(e[2]) }
    for i, step in ipairs(e.value.steps) do parts[i + 1] = expr.plain_text(step) end
    return table.concat(parts, ", ")
end

--- Prints e with the fewest parentheses that keep its meaning. Conditionals have theirs everywhere, and comparisons
-- outside of them.
-- spelling = { number = f(value), call = { name -> C name }, variable = f(name), recurrence = f(e) } (all optional).
function expr.text(e, spelling, outer)
    spelling, outer = spelling or {}, outer or 0
    if e.op == "num" then
        local text = spelling.number and spelling.number(e.value) or expr.literal(e.value, "f64")
        return e.value < 0 and outer > 2 and "(" .. text .. ")" or text
    elseif e.op == "var" then
        return spelling.variable and spelling.variable(e.name) or e.name
    elseif e.op == "recurrence" then
        return spelling.recurrence and spelling.recurrence(e)
            or ("%s of %s for k = 1..%s"):format(e.name, expr.rounds_text(e), expr.text(e[1]))
    elseif e.op == "neg" then
        local text = "-" .. expr.text(e[1], spelling, 3)
        return outer > 2 and "(" .. text .. ")" or text
    elseif e.op == "where" or COMPARE[e.op] then
        local a, b = expr.text(e[1], spelling, 1), expr.text(e[2], spelling, 1)
        if COMPARE[e.op] then return ("(%s %s %s)"):format(a, COMPARE[e.op], b) end
        if COMPARE[e[1].op] then a = a:sub(2, -2) end
        return ("(%s ? %s : %s)"):format(a, b, expr.text(e[3], spelling, 1))
    end
    local p = PRECEDENCE[e.op]
    if not p then
        local args = {}
        for i, child in ipairs(e) do args[i] = expr.text(child, spelling) end
        local name = spelling.call and spelling.call[e.op] or e.op
        return name .. "(" .. table.concat(args, ", ") .. ")"
    end
    local left, right = expr.text(e[1], spelling, p), expr.text(e[2], spelling, p + 1)
    local text = ("%s %s %s"):format(left, e.op, right)
    return p < outer and "(" .. text .. ")" or text
end

return expr
