-- docs/LOG.md lists the events and fields that runtime/log/log.c prints, in its order; those of an evaluation are
-- followed by the metrics of the catalog.

-- "update": { "cycle", "momentum?", ... } of each JSON line that log.c sends; "?": the field may be absent. Every program
-- gives an update the flag that main.c has in the first place.
local function printed()
    local always = assert(host.read "templates/program/main.c"):match "%.fields = ([%u_]+)"
    local events, names, event = {}, {}, nil
    for line in assert(host.read "runtime/log/log.c"):gmatch "[^\n]+" do
        local name = line:match [[{\"event\":\"([%w_]+)\"]]
        if name then
            names[#names + 1], events[name], event = name, {}, name
        elseif line:find("send(&l->json", 1, true) then
            event = nil
        elseif event then
            local field = line:match 'add_%w+%(&t, "([%w_]+)"' or line:match [[,\"([%w_]+)\":]]
            local flag = line:match "^    if %(v%->fields & ([%u_]+)"
            local optional = flag and flag ~= always or field == "resumed_from"       -- a text may be NULL
                or line:find "^    if %(v%->%w+%)"
            if field then table.insert(events[event], field .. (optional and "?" or "")) end
        end
    end
    for metric in require("catalog.catalog").load().metrics:each() do
        table.insert(events.eval, metric .. "?")
    end
    table.sort(names)
    return events, names
end

local function documented()
    local events, names, event = {}, {}, nil
    for line in assert(host.read "docs/LOG.md"):gmatch "[^\n]+" do
        local heading = line:match "^## (.+)$"
        local field, unit, meaning, present = line:match "^| `([%w_]+)` | (.-) | (.-) |(.-)|$"
        if heading then
            names[#names + 1], events[heading], event = heading, {}, heading
        elseif field then
            assert(unit ~= "" and meaning ~= "", line)
            table.insert(events[event], field .. (present:find "%S" and "?" or ""))
        end
    end
    table.sort(names)
    return events, names
end

return {
    { "the fields of docs/LOG.md are those that log.c prints", function(t)
        local found, expected, names = documented(), printed()
        t.equal(select(2, documented()), names)
        assert(#names >= 6, "events that log.c prints")
        for _, name in ipairs(names) do t.equal(found[name], expected[name], name) end
    end },

    { "lines of a run have the fields of docs/LOG.md", function(t)
        local programs, events = t.load("tests/lua/programs.lua")(t), documented()
        local p = programs.build("log_page", [[
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last" }
batch      (3)
model      { linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
eval       { every = 2, metrics = { "loss", "accuracy" } }
train      { updates = 2 }
]])
        local seen = {}
        for _, line in ipairs(programs.events(p, {})) do
            local listed = {}
            for _, field in ipairs(events[line.event]) do
                local name, optional = field:match "^([%w_]+)(%??)$"
                listed[name] = true
                assert(optional == "?" or line[name] ~= nil, line.event .. " has no " .. name)
            end
            for name in next, line do assert(name == "event" or listed[name], line.event .. ": " .. name) end
            seen[line.event] = true
        end
        t.equal(seen, { start = true, update = true, eval = true, checkpoint = true, ["end"] = true })
    end },
}
