-- cross_entropy: the usual loss of a classifier; the target is the index of the class, from 0.

-- Whether a target from `low` to `high` may count: it is not ignored and its class has a weight above 0.
local function may_count(f, low, high)
    for class = low, high do
        if class ~= f.ignore and (not f.class_weights or f.class_weights[class + 1] > 0) then return true end
    end
    return false
end

-- The complaint about fields that do not fit a model of `classes` classes and targets from `low` to `high`, without an
-- ignored one above the classes, and the field; or nil.
local function check_model(f, classes, low, high)
    if f.class_weights and #f.class_weights ~= classes then
        return ("class_weights has %d numbers, the model gives %d classes"):format(#f.class_weights, classes),
            "class_weights"
    end
    if may_count(f, math.max(low, 0), high) then return nil end
    local found = ("targets are %s, and none of them counts"):format(
        high < 0 and ("all %d"):format(low) or ("from %d to %d"):format(low, high))
    if not f.class_weights then return ("ignore is %d, %s: expected others"):format(f.ignore, found), "ignore" end
    return ("class_weights: %s: expected a weight above 0 for one that is not ignored"):format(found), "class_weights"
end

loss "cross_entropy" {
    doc = "mean over the counted targets of -log softmax(out)[target]",
    fields = {
        { name = "ignore", type = "int", default = -100, min = -2147483648, max = 2147483647,
          doc = "targets of this value have weight 0; in a function their losses are 0, and count as values; a class "
            .. "or a number below 0, for arrays (npy, tensors) also a number above the classes, as 255 in masks" },
        { name = "label_smoothing", type = "num", default = 0, min = 0, below = 1,
          doc = "the part of the target that is spread over all classes" },
        { name = "class_weights", type = "list",
          doc = "a weight >= 0 for each class; the mean divides by the weights of the targets, in a function by the "
            .. "number of values" },
    },
    target = "class",
    check = function(f)
        for i, w in ipairs(f.class_weights or {}) do
            if type(w) ~= "number" or not (w >= 0 and w < math.huge) then
                return ("class_weights: number %d is %s, expected a number >= 0"):format(i,
                    type(w) == "number" and ("%g"):format(w) or "a " .. type(w))
            end
        end
    end,
    check_model = check_model,
    -- masked: the gradient of an ignored target's loss is made 0 here, not before
    rows = function(b, f, out, target, masked)
        local node = b:node("cross_entropy", { logits = out, target = target },
            { smoothing = f.label_smoothing, weights = f.class_weights, masked = masked },
            { y = "loss", lse = "loss_lse" })
        return node.outs.y.tensor
    end,
    hits = function(b, out, target)
        return b:value("hit", { logits = out, target = target }, nil, "hits")
    end,
    top_hits = function(b, out, target, k)
        return b:value("top_hit", { logits = out, target = target }, { k = k }, "top_hits")
    end,
}
