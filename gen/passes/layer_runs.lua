-- layer_runs: where the layers of parameters lie in memory that buckets have windows in. Parameters of a loop whose
-- layers lie alike, seen from layer 0, share a run:
--
--   two layers to a bucket, two windows of 200:   layers 0 to 5 at 0, 100, 200, 300, 0, 100 of layer 0

-- The run of a region with these offsets; made for the first parameter that has them.
local function run_of(runs, param, offsets)
    for _, run in ipairs(runs) do
        local same = run.region == param.region
        for l = 0, param.count - 1 do same = same and run.offsets[l] == offsets[l] end
        if same then return run end
    end
    local run = { region = param.region, offsets = offsets, params = {} }
    table.insert(runs, run)
    return run
end

--- Calls set(param, offset, run) for each of the parameters. place_of(param, l): where its layer l lies; offset: where
--- layer 0 does; run: { region, offsets, params }, offsets[l] = elements from layer 0 to layer l; nil: the layers lie
--- as they do in the flat space.
return function(params, place_of, set)
    local runs = {}
    for _, param in ipairs(params) do
        local first, offsets, is_flat = place_of(param, 0), {}, true
        for l = 0, param.count - 1 do
            offsets[l] = place_of(param, l) - first
            is_flat = is_flat and offsets[l] == l * param.flat.stride
        end
        local run = not is_flat and run_of(runs, param, offsets) or nil
        if run then table.insert(run.params, param) end
        set(param, first, run)
    end
end
