-- runtime: which files of the runtime belong to a program.
local data = require "emit.program.data"
local gradients = require "emit.program.gradients"
local profile = require "emit.program.profile"
local ordered = require "base.ordered"
local scaler = require "emit.boundary.scaler"
local watch = require "emit.program.watch"

local runtime = {}

-- The runtime that every program has.
local RUNTIME = { "base/arena", "base/cores", "base/ga", "base/rng", "base/text", "data/data", "data/loader",
    "files/ckpt", "files/ckpt_load", "files/ckpt_manifest", "files/ckpt_resume", "files/ckpt_retain",
    "files/file", "files/folder", "files/json_file", "files/layout", "files/predictions", "files/safetensors",
    "files/safetensors_file", "files/safetensors_load", "files/safetensors_names", "files/shards",
    "files/shared", "files/weights", "log/curve", "log/log", "log/options", "log/progress", "log/run",
    "log/run_record", "loop/cycle", "loop/epochs", "loop/stop", "ranks/agree", "ranks/launcher" }

-- The runtime's files that only train-watch is made of.
local WATCHING = { "files/sha256", "log/comparison", "log/edits" }

-- More of it for several ranks.
local RANKS = { "files/layout_shard", "log/start", "ranks/exchange", "ranks/pulse", "ranks/rendezvous", "ranks/shard" }

-- Whether chunks may lie in host memory, of which the host makes a part of the update.
local function is_placed(config, target) return config.placement ~= nil and target.device end

local function has_team(config, target) return target.threads or is_placed(config, target) end

--- The files of the runtime that a program is built from, the engines of comm.h apart.
function runtime.sources(config, target)
    local list = ordered.copy(RUNTIME)
    if has_team(config, target) then list[#list + 1] = "base/team" end
    table.sort(list)
    for _, own in ipairs { data.runtime(config), config.schedule.rule.plateau and { "loop/plateau" } or {},
        config.best and { "loop/best" } or {}, watch.possible(config, target) and { "log/variant" } or {},
        config.mode.ranks and RANKS or {}, config.sends_half and { "files/sent" } or {},
        config.nvme and { "files/state_file" } or {}, is_placed(config, target) and { "ranks/placed" } or {},
        target.runtime(config) } do
        table.move(own, 1, #own, #list + 1, list)
    end
    return list
end

--- The engine of comm.h that `make` links: the last that the target has for the mode.
function runtime.engine(config, target)
    local engine
    for _, name in ipairs(target.engines(config)) do
        if ordered.find(config.mode.engines, name) then engine = name end
    end
    return engine
end

local function wants_header(config, target, name)
    local half = name:match("(b?f16)%.h$")
    if half then
        return half == gradients.half_of(config) or config.mode.ranks
            or half == "bf16" and profile.slices(config) ~= nil
    end
    if watch.possible(config, target) and ordered.find(WATCHING, name:match "^runtime/(.*)%.h$") then return true end
    if name == "runtime/files/sent.h" then return config.sends_half or false end
    if name == "runtime/ranks/moments.h" then return config.sync_batchnorm end
    if name == "runtime/files/state_file.h" then return config.nvme ~= nil end
    if name == "runtime/ranks/placed.h" then return is_placed(config, target) end
    if name == "runtime/base/team.h" then return has_team(config, target) end
    if name == "runtime/loop/scaler.h" then return scaler.moves(config) and target.wants_header(name) end
    return target.wants_header(name)
end

--- Adds the files of the runtime that go with a program, as they are.
function runtime.add(config, target, files)
    local function add(name) files:set(name, host.embedded(name)) end
    add "runtime/log/probe.c"
    if watch.possible(config, target) then
        for _, name in ipairs(WATCHING) do add(("runtime/%s.c"):format(name)) end
    end
    if target.library then add "runtime/ranks/collect.c" end
    for _, name in ipairs(runtime.sources(config, target)) do add("runtime/" .. name .. ".c") end
    for _, name in ipairs(target.engines(config)) do
        add("runtime/ranks/comm_" .. name .. ".c")
        if config.mode.ranks and name ~= "nccl" then add(("runtime/ranks/%s_exchange.c"):format(name)) end
    end
    for _, name in ipairs(host.embedded_names("runtime/")) do
        if name:match("%.h$") and wants_header(config, target, name) then add(name) end
    end
end

return runtime
