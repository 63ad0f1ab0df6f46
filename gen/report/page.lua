-- page: the report as one page of HTML: what is known of a program and its runs, in sections.
local axis = require "report.axis"
local comparison = require "report.comparison"
local html = require "report.html"
local ordered = require "base.ordered"
local parts = require "report.parts"
local plan_parts = require "report.plan_parts"
local roofline = require "report.roofline"
local run_figures = require "report.run_figures"
local series = require "report.series"
local template = require "base.template"
local text = require "base.text"

local page = {}

local FOOT = "Made by gagen %s. This page needs no network and no other file."

-- Amounts for people: 1,234, 12.3 M.
local function amount(value)
    return value < 1e6 and axis.number(value) or axis.label(tonumber(("%.4g"):format(value)))
end

-- The figures at the top: of the plan, and of the last run.
local function facts_of(facts, runs)
    local list = {}
    local function add(name, value) list[#list + 1] = { name = html.text(name), value = html.text(value) } end
    if facts then
        add("parameters", amount(facts.totals.parameters))
        add("memory planned", text.bytes(facts.totals.bytes))
        add("FLOP of an update", amount(facts.totals.flops_per_cycle))
        add("rows of an update", amount(facts.cycle.global_rows))
        add("micro-steps", tostring(facts.cycle.accumulate))
    end
    local run = runs[#runs]
    if not run then return list end
    add("updates", axis.number(run.cycles[#run.cycles] or 0))
    for _, name in ipairs { "loss", "eval.loss", "eval.accuracy" } do
        local s = series.summary(series.points(run, name))
        if s.last then add(name == "loss" and "last loss" or "last " .. name, axis.number(s.last)) end
    end
    for _, name in ipairs { "tokens_per_s", "rows_per_s" } do
        local speed = comparison.median(run.columns[name])
        if speed then
            add(name == "rows_per_s" and "rows per second" or "tokens per second", amount(speed))
            break
        end
    end
    return list
end

local SETTINGS = { { title = "setting" }, { title = "first run", wrap = true }, { title = "other run", wrap = true } }

-- The differences between the first run and each other one.
local function differences(runs)
    local list = {}
    for i = 2, #runs do
        local a, b = runs[1].record, runs[i].record
        local changes = a.spec and b.spec and comparison.spec_changes(a.spec, b.spec) or {}
        local settings = comparison.setting_changes(a.settings, b.settings)
        local found = comparison.of(runs[1], runs[i], 0)
        local worst = found.loss.worst
        list[#list + 1] = parts.paragraph(("%s and %s: %s"):format(runs[1].label, runs[i].label, not worst
            and "no place of equal rows" or worst.difference == 0
            and ("equal losses at %d places of equal rows"):format(found.loss.count)
            or ("losses differ by at most %.2g at %d places of equal rows, first at update %d"):format(worst.difference,
            found.loss.count, found.loss.first.cycle_a)))
        if #changes > 0 then list[#list + 1] = parts.text(changes) end
        if #settings > 0 then
            local rows = ordered.collect(settings, function(s) return { s.name, s.a, s.b } end)
            list[#list + 1] = parts.table(SETTINGS, rows)
        elseif #changes == 0 then
            list[#list + 1] = parts.paragraph "The same spec and settings, as far as they are known."
        end
    end
    return list
end

-- Sentences about what a reader should know.
local function warnings_of(r)
    local list = {}
    local function add(...) list[#list + 1] = string.format(...) end
    for _, w in ipairs(r.facts and r.facts.warnings or {}) do
        add("spec%s: %s [%s]", w.line and ", line " .. w.line or "", w.message, w.name)
    end
    for _, run in ipairs(r.runs) do
        for _, note in ipairs(run.notes) do add("%s: %s", run.label, note) end
        local bad = series.summary(series.points(run, "loss")).bad
        if bad > 0 then add("%s: %d losses are not finite", run.label, bad) end
        if #run.skips > 0 then add("%s: updates were skipped at %d places", run.label, #run.skips) end
        if run.same_program == false then
            add("%s: a run of another program, or before it changed: the plan shown is not its own", run.label)
        end
        if not run.finish then add("%s: the log has no end: the run goes on, or was killed", run.label) end
    end
    for _, sentence in ipairs(r.facts and plan_parts.network_warnings(r.facts, r.runs) or {}) do add("%s", sentence) end
    return list
end

local function sections_of(r)
    local list = {}
    local function add(id, title, intro, found)
        if #found > 0 then
            list[#list + 1] = { id = text.block(id), title = html.text(title),
                intro = intro and html.text(intro) or false, parts = found }
        end
    end
    local warnings = warnings_of(r)
    add("curves", "Curves", nil, #r.runs > 0 and run_figures.parts(r.runs) or {})
    add("runs", "Runs", nil, #r.runs > 0 and { run_figures.table(r.runs) } or {})
    add("differences", "Differences", "Each run beside the first one.", differences(r.runs))
    if r.facts then
        add("model", "Model", nil, plan_parts.model(r.facts))
        add("memory", "Memory", nil, plan_parts.memory(r.facts))
        add("kernels", "Kernels", "Each takes at least the time of its arithmetic and of the bytes that it moves.",
            roofline.parts(roofline.of(r.facts, r.profile)))
        add("network", "Network", nil, plan_parts.network(r.facts, r.runs))
    end
    add("warnings", "Warnings", nil, { #warnings > 0 and parts.list(warnings) or parts.paragraph "None." })
    add("again", "Once more", "From the spec to the same run, bit for bit on a processor of the same profile.",
        { parts.text(r.again) })
    return list
end

--- The page. r: { title, about = a sentence, facts = plan or nil, runs = of log.read, each with `record` (its spec and
--- settings) and same_program = whether the plan is that of the run, or nil; profile or nil, again = commands }.
function page.render(r)
    local marks = template.embedded "templates/report/curves.svg"("marks", {})
    local colours = {}
    for i = 1, 6 do colours[i] = (".c%d { --c: var(--c%d); }"):format(i, i) end
    local style = template.embedded "templates/report/style.css"("style", {
        marks = text.block(marks.text .. table.concat(colours, "\n") .. "\n") })
    return parts.render("page", { p = { title = html.text(r.title), about = html.text(r.about), style = style,
        facts = facts_of(r.facts, r.runs), sections = sections_of(r),
        foot = html.text(FOOT:format(host.version)) } }).text
end

return page
