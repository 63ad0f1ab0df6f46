-- The foundations: expressions, templates, typed text, field checks.
local check = require "base.check"
local expr = require "base.expr"
local template = require "base.template"
local text = require "base.text"

local E = expr

return {
    { "expressions keep the order of operations", function(t)
        local a, b, c = E.var "a", E.var "b", E.var "c"
        t.equal(E.text(a - (b - c)), "a - (b - c)")
        t.equal(E.text(a - b - c), "a - b - c")
        t.equal(E.text(-(a + b) * c / (a * b)), "-(a + b) * c / (a * b)")
        t.equal(E.text(a * (b * c)), "a * (b * c)")
        t.equal(E.text(E.where(E.lt(a, 1), b, c)), "(a < 1.0 ? b : c)")
    end },
    { "constants are folded, and 0 and 1 are simplified away", function(t)
        local a = E.var "a"
        t.equal(E.text(0 + (3.0 - 1) * 0.5 * a + 0), "a")
        t.equal(E.text(1 * a / 1 - 0), "a")
        t.equal(E.text(0 - a), "0.0 - a")
    end },
    { "evaluation agrees with Lua", function(t)
        local x = E.var "x"
        local e = E.sqrt(x * x + 1) / (E.exp(-x) + E.max(x, 0.25)) ^ 2
        local v = 0.7
        t.near(E.evaluate(e, { x = v }), math.sqrt(v * v + 1) / (math.exp(-v) + v) ^ 2, 1e-15)
        t.near(E.evaluate(E.erf(x), { x = 0.5 }), 0.52049987781304653768, 1e-15)
        t.near(E.evaluate(E.erf(x), { x = -3 }), -0.99997790950300141456, 1e-15)
        t.near(E.evaluate(E.tanh(x), { x = 0.3 }), 0.29131261245159090582, 1e-15)
    end },
    { "a comparison of traced expressions is an error with its place", function(t)
        t.fails(function() return E.var "t" < E.var "u" end, "where%(lt")
    end },
    { "literals read back exactly and are finite", function(t)
        t.equal(E.literal(0.1, "f32"), "0.1f")
        t.equal(E.literal(1e-5, "f32"), "1e-5f")
        t.equal(E.literal(1, "f64"), "1.0")
        t.equal(E.literal(0.1 + 0.2, "f64"), "0.30000000000000004")
        t.equal(E.literal((1 << 53) + 1, "f64"), "9007199254740992.0")      -- a whole number that f64 lacks
        t.fails(function() E.literal(0 / 0, "f64") end, "finite")
        t.fails(function() E.literal(1e-60, "f32", "a.lua:3") end, "^a%.lua:3: the number 1e%-60 is 0 in f32")
        t.equal(E.literal(1e-60, "f64"), "1e-60")
        t.equal(E.literal(0, "f32"), "0.0f")
        t.equal(E.readable(1 - 0.9), "(1 - 0.9)")
        t.equal(E.readable(1 - 0.999), "(1 - 0.999)")
        t.equal(E.readable(0.7 + 0.1), "0.8")
        t.equal(E.readable(0.1), "0.1")
        t.equal(E.readable(1 / 3), "0.333333333333333")
    end },
    { "a value that reads no element is hoisted once", function(t)
        local g, lr, n = E.var "g", E.var "lr", E.var "n"
        local hoisted = {}
        local function is_element(name) return name == "g" end
        local function name_of(e) return e.label or "number" end
        local product = E.named("step", lr * n)
        local rest = E.hoist(g * product + product + n * g, is_element, hoisted, name_of)
        t.equal(E.text(rest), "g * step + step + number * g")
        t.equal(#hoisted, 2)
        t.equal(E.text(hoisted[1].e), "lr * n")
    end },
    { "templates: blocks, directives, indentation", function(t)
        local render = template.load("//@ f(name, body, n)\nvoid $name(int x) {\n    $body\n"
            .. "//% if n > 1 then\n    x += $n; // $$x\n//% end\n}\n", "templates/x.c")
        local out = render("f", { name = text.ident "go", body = text.block("a;\nb;"), n = 2 }).text
        t.equal(out, "void go(int x) {\n    a;\n    b;\n    x += 2; // $x\n}\n")
        out = render("f", { name = text.ident "go", body = text.block "", n = 1 }).text
        t.equal(out, "void go(int x) {\n}\n")
    end },
    { "templates refuse plain strings, unknown, missing and extra names", function(t)
        local function load_one(line)
            return template.load("//@ f(a)\n" .. line .. "\n", "templates/x.c")
        end
        t.fails(function() load_one("$a")("f", { a = "string" }) end, "expected an identifier")
        t.fails(function() load_one("$b")("f", { a = 1 }) end, "x.c:2: undefined template name 'b'")
        t.fails(function() load_one("$a")("f", {}) end, "missing argument 'a'")
        t.fails(function() load_one("$a")("f", { a = 1, c = 2 }) end, "unknown argument 'c'")
        t.fails(function() load_one("$a")("f", { a = 1.5 }) end, "float")
    end },
    { "templates: values that belong together are fields of one argument", function(t)
        local render = template.load("//@ f(shape, bias)\nint n = $(shape.rows) * $(shape.rows + 1);\n"
            .. "//% if bias then\nint b = $(bias.at);\n//% end\n", "templates/x.c")
        t.equal(render("f", { shape = { rows = 2, other = 3 }, bias = { at = 4 } }).text,
            "int n = 2 * 3;\nint b = 4;\n")
        t.equal(render("f", { shape = { rows = 2 }, bias = false }).text, "int n = 2 * 3;\n")
        t.fails(function() render("f", { shape = { row = 2 }, bias = false }) end,
            "x.c:2: f: argument 'shape' has no field 'rows'")
        t.fails(function() render("f", { shape = { rows = 2 }, bias = {} }) end,
            "x.c:4: f: argument 'bias' has no field 'at'")
        local shape = { rows = 2 }
        render("f", { shape = shape, bias = false })
        t.equal(shape.columns, nil)
    end },
    { "templates: a block inserts another one of its file", function(t)
        local render = template.load("//@ whole(n)\n{\n    $(part { from = n, to = 2 })\n}\n\n"
            .. "//@ part(from, to)\na = $from;\n//% if to > 1 then\n    b = $to;\n//% end\n\n", "templates/x.c")
        t.equal(render("whole", { n = 1 }).text, "{\n    a = 1;\n        b = 2;\n}\n\n")
        local wrong = template.load("//@ whole()\n$(part { from = 1 })\n//@ part(from, to)\n", "templates/x.c")
        t.fails(function() wrong("whole", {}) end, "part: missing argument 'to'")
    end },
    { "text: identifiers, strings and comments cannot escape", function(t)
        t.fails(function() text.ident "a; system()" end, "not an identifier")
        t.equal(text.string('a"b\\c\n??/%n').text, '"a\\042b\\134c\\012\\077\\077/%n"')
        t.equal(text.comment("a */ b /* c \\").text, "a * / b / * c ")
    end },
    { "fields: defaults, ranges, did-you-mean", function(t)
        local schema = {
            { name = "out", type = "int", position = 1, required = true, min = 1 },
            { name = "bias", type = "bool", default = true },
        }
        local context = { what = "linear 'x'", locate = function() return "spec.lua:3" end }
        local f = check.fields(schema, { 4.0 }, context)
        t.equal(math.type(f.out), "integer")
        t.equal(f.bias, true)
        t.fails(function() check.fields(schema, { 4, bia = 1 }, context) end, "unknown field 'bia'")
        t.fails(function() check.fields(schema, { 0 }, context) end, "out is 0, expected an integer >= 1")
        t.fails(function() check.fields(schema, {}, context) end, "out is missing")
        t.fails(function() check.fields(schema, { 4, 5 }, context) end, "unexpected value 5")
        t.fails(function() check.fields(schema, { 0 / 0 }, context) end, "out is not finite")
        local list = { { name = "decays", type = "list" }, { name = "split", type = "table" } }
        t.equal(check.fields(list, { decays = { 1, 2 }, split = { fold = 1 } }, context).decays, { 1, 2 })
        t.fails(function() check.fields(list, { decays = { 1, x = 2 } }, context) end, "decays has the key 'x'")
    end },
}
