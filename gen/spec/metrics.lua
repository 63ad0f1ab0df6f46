-- metrics: the metrics of an evaluation, by the names that a spec and a log have for them.
local metrics = {}

--- Whether a "lower" or a "higher" value of the metric `name` is better. c: the configuration.
function metrics.better(c, name) return c.catalog.metrics:get(name).better end

return metrics
