-- ls: `gagen ls`: the training runs of programs as a table, or as JSON.
local columns = require "base.columns"
local diag = require "base.diag"
local ordered = require "base.ordered"
local runs = require "command.runs"
local text = require "base.text"

local function local_time(utc)
    local seconds = utc and runs.seconds_of(utc)
    return seconds and os.date("%Y-%m-%d %H:%M", seconds)
end

local function loss_text(loss) return math.type(loss) and ("%.4g"):format(loss) or loss end

-- "accuracy 0.9694, f1 0.5", or nil.
local function metrics_text(metrics)
    return metrics and table.concat(ordered.collect(ordered.keys(metrics), function(name)
        return name .. " " .. loss_text(metrics[name])
    end), ", ")
end

-- Title and text of each column, and its kind for columns.aligned.
local COLUMNS = {
    { "program", function(run) return run.program end, name = true },
    { "run", function(run) return run.run end, name = true },
    { "when", function(run) return local_time(run.started) end },
    { "state", function(run) return run.state .. (run.reason and run.reason ~= run.state
        and " (" .. run.reason .. ")" or "") end },
    { "updates", function(run) return run.updates end },
    { "loss", function(run) return loss_text(run.last_loss) end },
    { "best", function(run) return loss_text(run.best_loss) end },
    { "metrics", function(run) return metrics_text(run.metrics) end },
    { "size", function(run) return run.bytes and text.bytes(run.bytes) end },
    { "differs", function(run) return #run.differs > 0 and table.concat(run.differs, ", ") or nil end,
        prose = true },
}

-- The columns of a table; metrics only where a run has some.
local function columns_of(list)
    local measured = ordered.collect(list, function(run) return run.metrics end)
    return ordered.collect(COLUMNS, function(column)
        return (column[1] ~= "metrics" or #measured > 0) and column or nil
    end)
end

-- width: of the terminal, or nil.
local function table_of(list, width)
    local shown = columns_of(list)
    local rows = ordered.collect(list, function(run)
        return ordered.collect(shown, function(column) return diag.escape(tostring(column[2](run) or "-")) end)
    end)
    table.insert(rows, 1, ordered.collect(shown, function(column) return column[1] end))
    return table.concat(columns.aligned(rows, { columns = shown, width = width }), "\n") .. "\n"
end

--- The text of `gagen ls` for the program `name`, or for all below out if it is nil. width: of the terminal, or nil.
return function(name, as_json, width)
    local list = runs.list(name)
    if as_json then return host.json(setmetatable(list, { array = true })) end
    if #list == 0 then
        return ("no runs%s below out: gagen run starts one\n"):format(name and " of " .. name or "")
    end
    return table_of(list, width)
end
