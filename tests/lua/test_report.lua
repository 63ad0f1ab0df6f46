-- `gagen report`: the page is well-formed, needs nothing but itself, has each figure with its data, and shows the numbers
-- of logs and plans.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local markup = dofile "tests/lua/markup.lua"

local FIGURES_OF_PLAN = { "arenas", "film", "model", "roofline" }

local FIGURES_OF_RUNS = { "eval-accuracy", "grad_norm", "loss", "lr", "ms", "rows_per_s" }

local SECTIONS_OF_PLAN = { "model", "memory", "kernels", "network", "warnings", "again" }

-- A log of `count` updates of a program, as one would write it: rows = those of an update, seed = of its noise.
local function log_of(how)
    local lines, state = {}, how.seed
    local function noise()
        state = (state * 1103515245 + 12345) % 2147483648
        return state / 2147483648
    end
    local function line(...) lines[#lines + 1] = string.format(...) end
    line('{"event":"start","program":"p","version":"%s","spec_sha256":"%s","target":"c","profile":"generic","ranks":1,'
        .. '"threads":2,"parameters":4810,"planned_bytes":1167360,"seed":%d}\n', host.version, how.sha or "ab", how.seed)
    for i = 1, how.count do
        local loss = 2 * math.exp(-i / how.count * 3) + 0.2 * noise()
        line('{"event":"update","cycle":%d,"update":%d,"micro":%d,"epoch":0,"rows":%d,"loss":%.15g,"lr":%.15g,'
            .. '"grad_norm":%.15g,%s"skipped":0,"weight":%d,"ms":%.9g,"rows_per_s":%.9g,%s"collectives":0,"comm_bytes":0}\n',
            i, i, 4 * i, how.rows, loss, 1e-2 * (1 - i / (how.count + 1)), 0.5 + noise(), how.more and '"scale":1024,' or "",
            how.rows, 1 + noise(), 64000 + 1000 * noise(), how.more and ('"tokens_per_s":%.9g,'):format(1e6 + noise()) or "")
        if i % math.max(how.count // 20, 1) == 0 then
            line('{"event":"eval","cycle":%d,"split":"eval","rows":360,"loss":%.15g,"accuracy":%.15g}\n', i, loss, 1 - loss / 3)
            line('{"event":"checkpoint","cycle":%d,"path":"c","ms":3}\n', i)
        end
    end
    line('{"event":"end","cycle":%d,"update":%d,"skipped":0,"reason":"done","seconds":9.5,"peak_rss_bytes":19000000}\n',
        how.count, how.count)
    return table.concat(lines)
end

-- The page in `path`: its text and its document.
local function page_of(path)
    local text = assert(host.read(path))
    return text, markup.read(text)
end

local function of_name(document, name) return document:all(function(e) return e.name == name end) end

-- Identifiers of elements of a name, sorted.
local function ids(document, name)
    local list = {}
    for _, e in ipairs(of_name(document, name)) do list[#list + 1] = e.attributes.id end
    table.sort(list)
    return list
end

local function decoded(link)
    local body = link:match "^data:text/csv;charset=utf%-8,(.*)$"
    return body and body:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
end

-- Fails unless all links and references of a page lead into itself.
local function stands_alone(t, document)
    local known = {}
    for _, e in ipairs(document:all(function(e) return e.attributes.id ~= nil end)) do
        assert(not known[e.attributes.id], "the id " .. e.attributes.id .. " is given twice")
        known[e.attributes.id] = true
    end
    for _, e in ipairs(document:all(function() return true end)) do
        local to = e.attributes.href
        if to and not to:find "^data:" then assert(known[to:match "^#(.*)$"], to) end
        t.equal(e.attributes.src, nil)
        assert(e.name ~= "script" and not e.attributes.onclick, e.name)
        assert(not (e.attributes.style or ""):find "url", e.attributes.style)
        if e.attributes["for"] then assert(known[e.attributes["for"]], e.attributes["for"]) end
    end
    for _, e in ipairs(of_name(document, "style")) do
        assert(not e:text():find "url%(" and not e:text():find "@import", "a style from elsewhere")
    end
end

-- The CSV files of a page by figure; each has a head and rows of as many cells.
local function data_of(t, document)
    local found = {}
    for _, figure in ipairs(of_name(document, "figure")) do
        local links = figure:all(function(e) return e.name == "a" and e.attributes.download end)
        t.equal(#links, 1, figure.attributes.id)
        local rows = {}
        for line in decoded(links[1].attributes.href):gmatch "([^\n]+)\n" do
            local plain, cells = line:gsub('"[^"]*"', "x"), {}
            for cell in (plain .. ","):gmatch "([^,]*)," do cells[#cells + 1] = cell end
            rows[#rows + 1] = cells
            t.equal(#cells, #rows[1], line)
        end
        assert(#rows > 1, figure.attributes.id .. " has no data")
        assert(#figure:all(function(e) return e.name == "table" end) > 0, figure.attributes.id .. " has no table")
        found[figure.attributes.id:match "^figure%-(.*)$"] = rows
    end
    return found
end

local function sorted(...)
    local list = {}
    for _, names in ipairs { ... } do
        for _, name in ipairs(names) do list[#list + 1] = "figure-" .. name end
    end
    table.sort(list)
    return list
end

for _, case in ipairs { { "digits_mlp", "digits" }, { "char_gpt", "tinyshakespeare" },
    { "resnet18_tutorial", "cifar-10-batches-bin" } } do
    local name, data = table.unpack(case)

    add(name .. ": a bare spec, then its program with runs: every figure, well-formed, alone", function(t)
        local shipped = t.load "tests/lua/shipped.lua"
        local programs = shipped.open(t, data)
        local folder, spec = t.root .. "/" .. t.temp(), ("%s/%s/%s.lua"):format(t.root, programs.folder(), name)
        t.write(spec, shipped.text(t, name))
        local function report(what)
            local result = programs.gagen { "report", what, "--html", folder .. "/page.html" }
            t.equal(result.status, 0, result.err)
            return page_of(folder .. "/page.html")
        end
        local _, document = report(spec)
        stands_alone(t, document)
        t.equal(ids(document, "figure"), sorted(FIGURES_OF_PLAN))
        for _, section in ipairs(SECTIONS_OF_PLAN) do
            assert(#document:all(function(e) return e.attributes.id == section end) == 1, section)
        end
        data_of(t, document)
        t.equal(programs.gagen { spec, "-o", folder .. "/p" }.status, 0)
        for i = 1, 2 do
            t.write(("%s/p/runs/00%d/log.jsonl"):format(folder, i), log_of { count = 300, rows = 64, seed = i })
        end
        _, document = report(folder .. "/p")
        stands_alone(t, document)
        t.equal(ids(document, "figure"), sorted(FIGURES_OF_PLAN, FIGURES_OF_RUNS))
        data_of(t, document)
        t.contains(document:text(), "the plan shown is not its own")
    end)
end

for _, case in ipairs { { "digits_mlp", "digits" }, { "resnet18_cifar10", "cifar-10-batches-bin" } } do
    local name, data = table.unpack(case)

    add(name .. ": 10,000 updates of three runs with all figures: at most 400 kB in 1 s of the processor", function(t)
        local shipped = t.load "tests/lua/shipped.lua"
        local programs = shipped.open(t, data)
        local folder, spec = t.root .. "/" .. t.temp(), ("%s/%s/%s.lua"):format(t.root, programs.folder(), name)
        t.write(spec, shipped.text(t, name))
        t.equal(programs.gagen { spec, "-o", folder .. "/p" }.status, 0)
        for i = 1, 3 do
            t.write(("%s/p/runs/00%d/log.jsonl"):format(folder, i), log_of { count = 10000, rows = 48 + 16 * i, seed = i,
                more = true })
        end
        local least = math.huge
        for _ = 1, 3 do                         -- other processes make a try slower
            local result = programs.gagen { "report", folder .. "/p", "--html", folder .. "/page.html" }
            t.equal(result.status, 0, result.err)
            least = math.min(least, result.cpu_seconds)
        end
        assert(least < 1, least)
        local text, document = page_of(folder .. "/page.html")
        assert(#text <= 400000, #text)
        stands_alone(t, document)
        t.equal(ids(document, "figure"), sorted(FIGURES_OF_PLAN, FIGURES_OF_RUNS, { "scale", "tokens_per_s" }))
    end)
end

add("the numbers are those of the log and the plan", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local json = t.load "tests/lua/json.lua"
    local folder = t.root .. "/" .. t.temp()
    t.equal(programs.gagen { "specs/digits_mlp.lua", "-o", folder .. "/p" }.status, 0)
    local log = log_of { count = 90, rows = 64, seed = 7 }
    t.write(folder .. "/p/runs/001/log.jsonl", log)
    t.equal(programs.gagen { "report", folder .. "/p/runs/001", "--html", folder .. "/page.html" }.status, 0)
    local _, document = page_of(folder .. "/page.html")
    local data, plan = data_of(t, document), json.read(host.read(folder .. "/p/plan.json"))
    local row = 1
    for _, event in ipairs(json.lines(log)) do
        if event.event == "update" then
            row = row + 1
            local cells = data.loss[row]
            t.equal({ cells[2], cells[3], cells[8] }, { tostring(event.cycle), tostring(64 * event.cycle), "train" })
            t.near(tonumber(cells[4]), event.loss, 1e-4 * event.loss)
            t.near(tonumber(data.lr[row][4]), event.lr, 1e-4 * event.lr)
        end
    end
    t.equal(row, 91)
    for i, kernel in ipairs(plan.kernels) do
        local cells = data.roofline[i + 1]
        t.equal({ cells[1], cells[3], cells[4], cells[5] }, { kernel.name, tostring(kernel.calls), tostring(kernel.flops),
            tostring(kernel.bytes) })
    end
    t.equal(#data.film - 1, #plan.film.blocks)
    t.equal(#data.model - 1, #plan.layers)
    local text = document:text()
    t.contains(text, "4,810")
    t.match(text, "1,167,360")
    t.match(text, "make %-C %S+/p\n%S+/p/train")
end)

add("the film: values that live together do not overlap, and fill the arena", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local json = t.load "tests/lua/json.lua"
    local spec = programs.folder() .. "/film.lua"
    t.write(spec, 'data { "csv", train = "tiny.csv", target = "last", split = { eval = 10 } }\nbatch (8)\nmodel { linear "in" { 6 }, times(3) "h" '
        .. '{ residual { tanh {}, linear "a" { 6 }, gelu {} } }, linear "out" { 3 } }\nloss "cross_entropy"\n'
        .. 'optimizer { "adamw", lr = 0.1 }\ntrain { updates = 3 }\neval { every = 1 }\n')
    for _, path in ipairs { "specs/digits_mlp.lua", spec } do
        local plan = json.read(programs.gagen { "plan", "--json", path }.out)
        local film, top, arena = plan.film, 0, nil
        for _, a in ipairs(plan.arenas) do
            if a.name == "activations" then arena = a.bytes end
        end
        for i, a in ipairs(film.blocks) do
            assert(1 <= a.from and a.from <= a.to and a.to <= #film.steps, a.name)
            top = math.max(top, a.offset + a.bytes)
            for k = 1, i - 1 do
                local b = film.blocks[k]
                assert(a.from > b.to or b.from > a.to or a.offset >= b.offset + b.bytes or b.offset >= a.offset + a.bytes,
                    a.name .. " and " .. b.name .. " overlap")
            end
        end
        t.equal(arena, (top + 4095) // 4096 * 4096)
        for _, tensor in ipairs(plan.tensors) do
            local within = false
            for _, b in ipairs(film.blocks) do
                within = within or b.offset <= tensor.offset and tensor.offset + tensor.bytes <= b.offset + b.bytes
            end
            assert(within, tensor.name .. " lies in no block")
        end
    end
    local film = json.read(programs.gagen { "plan", "--json", "specs/digits_mlp.lua" }.out).film
    for _, block in ipairs(film.blocks) do
        if block.name == "relu_out" then
            t.equal({ film.steps[block.from].name, film.steps[block.to].section }, { "fc1_forward", "backward" })
        end
    end
end)

add("two ranks: collectives planned and counted, warnings of the spec; on a device too", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, spec = t.root .. "/" .. t.temp(), programs.folder() .. "/report_ranks.lua"
    t.write(spec, 'data { "csv", train = "tiny.csv", target = "last" }\nbatch (8)\nparallel "zero1"\n'
        .. 'model { linear "in" { 3 }, softmax {} }\nloss "cross_entropy"\noptimizer { "sgd", lr = 0.1 }\n'
        .. 'train { updates = 3 }\n')
    local result = programs.gagen { spec, "--ranks", "2", "-o", folder .. "/p" }
    t.equal(result.status, 0, result.err)
    t.write(folder .. "/p/runs/001/log.jsonl", (log_of { count = 9, rows = 16, seed = 1,
        sha = host.read(folder .. "/p/model.c"):match '#define SPEC_SHA256 "(%x+)"' }
        :gsub('"collectives":0,"comm_bytes":0', '"collectives":77,"comm_bytes":128')))
    t.equal(programs.gagen { "report", folder .. "/p", "--html", folder .. "/page.html" }.status, 0)
    local _, document = page_of(folder .. "/page.html")
    stands_alone(t, document)
    local rows = data_of(t, document).collectives
    t.equal({ rows[2][1], rows[3][1], rows[4][1] }, { "reduce_scatter", "small", "all_gather" })
    local shown = document:text()
    t.contains(shown, "spec, line 4: model: it ends with softmax")
    t.match(shown, "p/001: an update had 77 collectives, 3 are planned")
    t.match(shown, "\nsh %S+/p/run%.sh")
    result = programs.gagen { "report", "specs/digits_mlp.lua", "--target", "cuda", "--html", folder .. "/device.html" }
    t.equal(result.status, 0, result.err)
    _, document = page_of(folder .. "/device.html")
    stands_alone(t, document)
    t.equal(ids(document, "figure"), sorted(FIGURES_OF_PLAN))
end)

add("measured times of gagen profile, until the program changes", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local function make(...) t.equal(programs.gagen { "specs/digits_mlp.lua", "-o", folder .. "/p", ... }.status, 0) end
    local function report()
        local result = programs.gagen { "report", folder .. "/p", "--html", folder .. "/page.html" }
        t.equal(result.status, 0, result.err)
        local _, document = page_of(folder .. "/page.html")
        return data_of(t, document).roofline, document:text()
    end
    make()
    t.write(folder .. "/p/profile.json", host.json { format = 1, threads = 1, cycles = 10,
        plan_sha256 = host.sha256(host.read(folder .. "/p/plan.json")),
        kernels = { { name = "fc1_forward", calls = 40, ms = 1.25 } } })
    local rows, text = report()
    t.equal({ rows[1][8], rows[2][1], rows[2][8] }, { "measured_us", "fc1_forward", "125" })
    t.contains(text, "filled: measured by gagen profile")
    make("--set", "batch=32")
    rows, text = report()
    assert(rows[1][8] ~= "measured_us")
    t.contains(text, "gagen profile adds measured times")
end)

add("signs of markup in names and texts of logs are texts", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local run = folder .. "/a<b>&'\"/runs/x</title><script>"
    t.write(run .. "/log.jsonl", (log_of { count = 5, rows = 4, seed = 1 }:gsub('"program":"p"', '"program":"<i>&p</i>"')
        :gsub('"accuracy"', '"<b>&amp;"')))
    t.write(run .. "/run.json", '{"settings": {"program": "gagen <x> & y", "seed": "1"}, "command": ["train", "--data", '
        .. '"</pre><script>alert(1)</script>"]}')
    local result = programs.gagen { "report", run, "--html", folder .. "/page.html" }
    t.equal(result.status, 0, result.err)
    local _, document = page_of(folder .. "/page.html")
    stands_alone(t, document)
    t.contains(document:text(), "<i>&p</i>")
    t.contains(document:text(), "</pre><script>alert(1)</script>")
end)

add("what report refuses", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local function report(...) return programs.gagen { cwd = folder, "report", ... } end
    t.write(folder .. "/mine.html", "<p>my own page</p>")
    t.write(folder .. "/log.jsonl", log_of { count = 3, rows = 4, seed = 1 })
    t.write(folder .. "/broken/plan.json", "{ broken")
    t.write(folder .. "/empty.jsonl", "")
    for _, case in ipairs {
        { "is there already and no report of gagen", "log.jsonl", "--html", "mine.html" },
        { "plan.json is missing or cannot be read", "broken" },
        { "there is no such run", "none" },
        { "the log is empty", "empty.jsonl" },
        { "report: expected RUN" },
    } do
        local result = report(table.unpack(case, 2))
        t.equal(result.status, 1, case[1])
        t.contains(result.err, case[1])
    end
    t.equal(host.read(folder .. "/mine.html"), "<p>my own page</p>")
    t.equal(host.exists(folder .. "/report.html"), false)
    for _ = 1, 2 do t.equal(report("log.jsonl").status, 0) end
    t.equal(host.exists(folder .. "/report.html"), "file")
end)

add("the reader of markup refuses what is not well-formed", function(t)
    for _, text in ipairs { "<p>", "</p>", "<p></q>", "<p a=b></p>", "<p a='b'></p>", "a & b", "&copy;", "<p a=\"<\"></p>",
        "<p a=\"1\" a=\"2\"></p>", "<p><b></p></b>", "< p></p>", "<style>x", "<p", "\xff" } do
        assert(not pcall(markup.read, text), text)
    end
    local document = markup.read '<!doctype html><p class="x" checked>a &lt;b&#39;</p><br/><meta>'
    t.equal({ document:text(), document.children[1].attributes }, { "a <b'", { class = "x", checked = "" } })
end)

add("in Chromium: pictures of 360 and 1,400 pixels, light and dark, without a message", function(t)
    t.long()
    local browser
    for _, name in ipairs { "chromium", "chromium-browser", "google-chrome" } do
        if not browser and t.shell("command -v " .. name).status == 0 then browser = name end
    end
    if not browser then t.not_run "Chromium is not installed" end
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    t.equal(programs.gagen { "specs/digits_mlp.lua", "-o", folder .. "/p" }.status, 0)
    for i = 1, 2 do
        t.write(("%s/p/runs/00%d/log.jsonl"):format(folder, i), log_of { count = 500, rows = 64, seed = i })
    end
    t.equal(programs.gagen { "report", folder .. "/p", "--html", folder .. "/page.html" }.status, 0)
    local seen = {}
    for _, width in ipairs { 360, 1400 } do
        for _, scheme in ipairs { 0, 1 } do
            local file = ("%s/%d-%d.png"):format(folder, width, scheme)
            local result = t.run { browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--user-data-dir=" .. folder .. "/browser",
                ("--window-size=%d,900"):format(width), "--blink-settings=preferredColorScheme=" .. scheme,
                "--enable-logging=stderr", "--screenshot=" .. file, "file://" .. folder .. "/page.html", timeout = 120 }
            t.equal(result.status, 0, result.err)
            assert(not result.err:find "CONSOLE", result.err)
            local png = assert(host.read(file))
            t.equal({ string.unpack(">I4I4", png, 17) }, { width, 900, 25 })
            assert(not seen[png], "light and dark look the same")
            seen[png] = true
        end
    end
end)

return tests
