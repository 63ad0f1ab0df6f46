-- model: the graph of a run's spec, before any pass, and the parameters of one of its checkpoints.
local checkpoint = require "command.export.checkpoint"
local diag = require "base.diag"
local graph = require "graph.graph"
local load_spec = require "spec.load"
local runs = require "command.runs"
local safetensors = require "command.safetensors"
local set = require "spec.set"
local text = require "base.text"

local model = {}

local Model = {}
Model.__index = Model

-- The sets and the ranks of the command that wrote the program of a run.
local function options_of(command)
    local words, sets, ranks = text.shell_words(command or ""), {}, nil
    for i, word in ipairs(words) do
        if word == "--set" then sets[#sets + 1] = words[i + 1] end
        if word == "--ranks" then ranks = math.tointeger(tonumber(words[i + 1])) end
    end
    return set.read_all(sets), ranks
end

-- The copy of the run's spec beside which the link to the data lies: that of the program, if it is the same text.
local function spec_of(folder)
    local own = folder .. "/spec.lua"
    local program = (folder:match "^(.*)/runs/[^/]*$" or folder) .. "/spec.lua"
    local source = host.exists(own) == "file" and host.read(own)
    if not source then diag.fail(own, "is not there, expected the spec of the run", {}) end
    return host.exists(program) == "file" and host.read(program) == source and program or own
end

-- The graph and the configuration of the run in `folder`.
local function load(folder)
    local facts = runs.facts(folder)
    local sets, ranks = options_of((facts.settings or {}).program)
    local path = spec_of(folder)
    local g, c = diag.without_warnings(load_spec.load, path, sets, { ranks = ranks })
    if c.sha256 ~= facts.spec_sha256 then
        diag.fail(path, "is not the spec of this run: another hash than spec_sha256 in its run.json", {})
    end
    return g, c, facts.program
end

-- Refuses a checkpoint that does not have each parameter in its shape.
local function check_tensors(m)
    for _, param in ipairs(m.g.params) do
        for layer = 0, param.count - 1 do
            local name = param.name:format(param.first + layer)
            local shape, found = param.saved_shape or param.shape, m.tensors:get(name)
            if not found or graph.shape_text(found.shape) ~= graph.shape_text(shape) then
                diag.fail(m.checkpoint.folder, ("parameter '%s' is %s, expected the shape %s"):format(name, found
                    and "of shape " .. graph.shape_text(found.shape) or "not there", graph.shape_text(shape)), {})
            end
        end
    end
end

--- The model of the run in `folder`, with the parameters of the checkpoint `wanted` (checkpoint.lua): { g, c, program =
--- its name, checkpoint, tensors, averages = those of the optimizer, or nil }.
function model.open(folder, wanted)
    local m = setmetatable({ checkpoint = checkpoint.find(folder, wanted) }, Model)
    m.g, m.c, m.program = load(folder)
    m.tensors = safetensors.open(checkpoint.file(m.checkpoint, "model.safetensors"))
    if m.c.optimizer.own.ema then
        m.averages = safetensors.open(checkpoint.file(m.checkpoint, "optimizer.safetensors"))
    end
    check_tensors(m)
    return m
end

--- The tensor of a parameter in the layer with this number, from 0, of its `times`: its average, if the optimizer keeps
--- one, as evaluations measure that.
function Model:tensor(param, layer)
    local name = param.name:format(param.first + (layer or 0))
    return self.averages and self.averages:get(name .. ".ema") or self.tensors:get(name)
end

--- The elements of a parameter as bytes of F32.
function Model:floats(param, layer) return self:tensor(param, layer):floats() end

return model
