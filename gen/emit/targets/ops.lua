-- ops: completes the table `ops` of a target: template arguments, launch and template blocks of each op of the catalog.
-- A target has entries of its own; the catalog's entry of an op may have them for all targets:
--
--   arguments = function(node, how) return { n = node.size.N, store = how.store("y[i]", "sum") } end,
--   launch = function(node) return { over = node.size.N } end,    -- or { rows =, width = }, { blocks =, threads = }
--   helper = "scan",                                                -- block scan of templates/TARGET/scan.*
local ordered = require "base.ordered"
local template = require "base.template"
local text = require "base.text"

local ops = {}

--- { [op] = { arguments } } of modules of emit/kernels, with arguments that all targets share.
function ops.shared(...)
    local list = {}
    for _, family in ipairs { ... } do
        for name, arguments in ordered.each(family.arguments) do list[name] = { arguments = arguments } end
    end
    return list
end

--- Lets `more(list, node, kernel, op, dtype, target)` add to the shared arguments of op `name`.
function ops.add(list, name, more)
    local shared = list[name].arguments
    list[name].arguments = function(kernel, node, op, dtype, target)
        local arguments = shared(kernel, node, op, dtype, target)
        more(arguments, node, kernel, op, dtype, target)
        return arguments
    end
end

-- A target's spelling of the parts of an op's arguments: a number, a function of the math library, the read of an
-- element, the statement that stores or adds an element of the first result.
local function spelling(kernel, dtype, target)
    return {
        number = function(x) return text.number(x, dtype) end,
        call = function(name) return target.call(name, dtype) end,
        load = function(t, place) return text.block(target.load(t, place)) end,
        store = function(place, value) return target.store(kernel, place, value) end,
    }
end

-- The entry of a target's table made from the catalog's entry of an op.
local function of_catalog(op, target)
    return {
        arguments = op.arguments and function(kernel, node, _, dtype)
            return op.arguments(node, spelling(kernel, dtype, target))
        end,
        launch = op.launch and target.launch and function(node) return target.launch(op.launch(node)) end,
        helper = op.helper, blocks = op.blocks or type(op.block) == "string" and { op.block } or { op.name },
    }
end

-- The blocks of a target's template files: { [file] = { [block] = function } }.
local function blocks_of(target)
    local found = {}
    for _, file in ipairs(host.embedded_names("templates/" .. target.folder .. "/")) do
        found[file] = select(2, template.embedded(file))
    end
    return found
end

--- The name of a template file without its ending, and that of a block in it, of a block that a target's entry names as
--- BLOCK, in the file of the op's family, or as FILE.BLOCK.
function ops.place(block, op)
    local file, own = block:match "^(.+)%.(.+)$"
    return file or op.lower, own or block
end

local function missing(op, target, what, expected)
    error(("op '%s' has no %s for target '%s': expected it in %s"):format(op.name, what, target.name, expected), 0)
end

local function check(op, entry, target, found)
    for _, place in ipairs(entry.blocks) do
        local family, block = ops.place(place, op)
        local file = ("templates/%s/%s%s"):format(target.folder, family, target.extension)
        if not (found[file] and found[file][block]) then
            missing(op, target, ("template block '%s'"):format(block), file)
        end
    end
    local where = ("gen/emit/targets/%s or in the op's entry of the catalog"):format(target.name)
    if not entry.arguments then missing(op, target, "template arguments", where) end
    if target.launch and not entry.launch then missing(op, target, "launch", where) end
end

--- Completes target.ops by the entries of the catalog, and refuses an op that the target cannot emit. An op that needs
--- a field of the interface is for targets with that field.
function ops.complete(target, catalog_ops)
    local found, all = blocks_of(target), ordered.copy(target.ops)
    for name, op in catalog_ops:each() do
        if op.lower ~= "pointwise" and (not op.needs or target[op.needs]) then
            all[name] = ordered.copy(of_catalog(op, target), target.ops[name])
            check(op, all[name], target, found)
        end
    end
    if target.launch and not (all.map and all.map.launch) then
        missing({ name = "map" }, target, "launch", "gen/emit/targets/" .. target.name)
    end
    target.ops = all
end

--- The template arguments of a node; sets kernel.launch and kernel.sizes: what a kernel of a device gets as arguments,
--- so that nodes which differ in these alone share it, by
---   op, kind the operation in its name, nil: the node's; what the name has behind it
---   plain    whether the name says nothing of a node behind the op
---   types    helpers with the types of sizes; a block NAME_launch says the same to the host
---   list     parameters: { "conv_sizes s", value }, the value as the host writes it, or a list of fields
---   missing  parameters of results and inputs that the node has not got, by name: null pointers to the kernel
--- `own`: makes the arguments for a node that is not an op.
function ops.arguments(kernel, node, op, dtype, target, own)
    local entry = target.ops[own and "map" or node.op] or {}
    kernel.launch = entry.launch and entry.launch(node, dtype)
    kernel.sizes = entry.sizes and entry.sizes(kernel, node, op, dtype)
    local arguments = (own or entry.arguments)(kernel, node, op, dtype, target)
    arguments.threads = kernel.launch and kernel.launch.threads
    return arguments
end

--- The name of the block of a node's kernel.
function ops.block(kernel, node, op, target)
    local own = target.ops[node.op].block
    if own then return own(kernel) end
    if type(op.block) == "function" then return op.block(node) end
    return op.block or node.op
end

--- The names of the helpers of a node's kernel, in order, separated by spaces; or nil.
function ops.helper(node, target, kernel)
    local own = target.ops[node.op]
    local helper = own and own.helper
    if type(helper) == "function" then return helper(node, kernel) end
    return helper
end

return ops
