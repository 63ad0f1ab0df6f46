-- buckets: runs of the flat space that one collective moves.
--
--   12 layers, 5 to a bucket       layers 7 to 11, 2 to 6, 0 to 1
--   chunks of a size               an embedding and half of layer 0, the rest of it and layer 1, ...
local ordered = require "base.ordered"

-- The layer that an item's parameters belong to.
local function layer_of(item) return item.params[1].name:match("^(.*)%.") or item.params[1].name end

-- Whether an item goes to the bucket before it. A chunk is a layer.
local function joins(config, bucket, item)
    if bucket and bucket.handler ~= item.params[1].handler then return false end
    if not config.chunks then return bucket and bucket.n + item.size * item.count <= config.bucket_elements end
    return bucket and not item.region and not bucket.region and layer_of(bucket) == layer_of(item)
end

-- The parts of a region's layer by handler, as { offset, n, params } in its first layer.
local function pieces_of(item, aligned)
    local pieces = {}
    for _, param in ipairs(item.params) do
        local last = pieces[#pieces]
        if not last or last.params[1].handler ~= param.handler then
            last = { offset = param.flat.offset, n = 0, params = {} }
            pieces[#pieces + 1] = last
        end
        last.n = last.n + aligned(param.flat.n)
        table.insert(last.params, param)
    end
    return pieces
end

-- Divides the trained part of the flat space into buckets of at most `limit` elements: neighbouring runs, or whole
-- layers of a region that is larger, from the last layer down, as the backward pass completes them. A bucket has
-- parameters of one handler; where a layer, or the only one of a `times`, has several, each layer has a bucket for each
-- of them. A parameter or a layer that is larger alone has a bucket of its own. With limit 0 each layer of a region is
-- a bucket.
local function by_layers(g, config, items, limit, aligned)
    g.buckets = {}
    local last
    local function add(bucket)
        bucket.handler = bucket.params[1].handler
        g.buckets[#g.buckets + 1] = bucket
    end
    for _, item in ipairs(items) do
        local n = item.size * item.count
        local pieces = pieces_of(item, aligned)
        if #pieces > 1 then
            for _, piece in ipairs(pieces) do
                piece.first_bucket, piece.bucket_layers, last = #g.buckets + 1, 1, nil
                for l = item.count - 1, 0, -1 do
                    add { offset = piece.offset + l * item.size, n = piece.n, params = piece.params,
                        of = item.count > 1 and piece or nil }
                end
            end
        elseif n > limit and item.count > 1 then
            local layers, behind = math.max(1, limit // item.size), item.count
            item.first_bucket, item.bucket_layers, last = #g.buckets + 1, layers, nil
            while behind > 0 do
                local from = math.max(0, behind - layers)
                add { offset = item.offset + from * item.size, n = (behind - from) * item.size, params = item.params,
                    of = item }
                behind = from
            end
        elseif joins(config, last, item) then
            last.n = last.n + n
            table.move(item.params, 1, #item.params, #last.params + 1, last.params)
        else
            last = { offset = item.offset, n = n, params = table.move(item.params, 1, #item.params, 1, {}),
                region = item.region }
            add(last)
        end
    end
end

-- Calls f(params, l) for what cannot be divided further, in the order of the flat space: a parameter, or the members of
-- a joint one, in layer l of its loop.
local function each_unit(items, f)
    for _, item in ipairs(items) do
        for l = 0, item.count - 1 do
            local from = 1
            for i, param in ipairs(item.params) do
                local following = item.params[i + 1]
                if not (following and param.joint and following.joint == param.joint) then
                    f(table.move(item.params, from, i, 1, {}), l)
                    from = i + 1
                end
            end
        end
    end
end

-- Notes in each bucket the parameters of which it has some layers and not all.
local function note_partial(g, layers)
    for _, bucket in ipairs(g.buckets) do
        for _, param in ipairs(bucket.params) do
            if layers[bucket][param] < param.count then
                bucket.partial = bucket.partial or {}
                bucket.partial[param] = true
            end
        end
    end
end

-- Divides the trained part of the flat space into buckets of at most `limit` elements of tensors, those between tensors
-- not counted. A bucket may begin and end inside of a layer; a tensor that is larger has a bucket of its own.
local function by_size(g, items, limit, aligned)
    local last, layers = nil, {}
    g.buckets = {}
    each_unit(items, function(params, l)
        local n, filled = 0, 0
        for _, param in ipairs(params) do n, filled = n + aligned(param.flat.n), filled + param.flat.n end
        if not last or last.handler ~= params[1].handler or last.filled + filled > limit then
            last = { offset = params[1].flat.offset + l * params[1].flat.stride, n = 0, filled = 0, params = {},
                handler = params[1].handler }
            layers[last], g.buckets[#g.buckets + 1] = {}, last
        end
        last.n, last.filled = last.n + n, last.filled + filled
        for _, param in ipairs(params) do
            if not layers[last][param] then table.insert(last.params, param) end
            layers[last][param] = (layers[last][param] or 0) + 1
        end
    end)
    note_partial(g, layers)
end

-- A bucket of its own for what cycles collect.
local function collected_bucket(g)
    local n = g.summed_elements - g.trained_elements
    if n == 0 then return end
    local params = ordered.collect(g.params, function(param) return param.collected and param end)
    table.insert(g.buckets, { offset = g.trained_elements, n = n, collected = true, params = params,
        handler = params[1].handler })
end

--- Sets g.buckets: chunks of at most `chunk` elements, nil: whole layers and neighbours as the mode has them. items:
--- runs of the trained part of the flat space; aligned(n): the elements that a tensor of n takes there.
return function(g, config, items, chunk, aligned)
    if chunk then
        by_size(g, items, chunk, aligned)
    else
        by_layers(g, config, items, config.chunks and 0 or config.bucket_elements, aligned)
    end
    collected_bucket(g)
end
