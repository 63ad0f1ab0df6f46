-- parts: divides the recorded events of a spec by the functions that they belong to. The model is replayed before the
-- functions of its output, since the spec may name these first.

-- The event that ends a function which is no part of the model.
local LAST = { loss_begin = "loss_end", metric_begin = "metric_end", schedule_begin = "schedule_end",
    gradient_begin = "gradient_end", handler_begin = "handler_end" }

--- { model, loss, metrics }: the events of each, in order. measured: the set of the metrics that are wanted. Those of
--- the functions of schedule, gradient and handlers are in none (spec/traced.lua).
return function(events, measured)
    local parts = { model = {}, loss = {}, metrics = {} }
    local list, last = parts.model, nil
    for _, event in ipairs(events) do
        if LAST[event.event] then
            last = LAST[event.event]
            list = last == "loss_end" and parts.loss or last == "metric_end" and measured[event.name] and parts.metrics
                or {}
        end
        list[#list + 1] = event
        if event.event == last then list, last = parts.model, nil end
    end
    return parts
end
