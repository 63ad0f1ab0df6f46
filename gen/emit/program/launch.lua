-- launch: the scripts beside a program with ranks: run.sh starts them here, job.sbatch under Slurm.
local sections = require "emit.program.sections"
local text = require "base.text"

local launch = {}

--- Adds run.sh and job.sbatch if the program has ranks. header(file, what): the first lines of a script.
function launch.render(config, context, header, files)
    if not config.mode.ranks then return end
    local template, launcher = context.template("program/launch.sh"), context.target.launcher
    local ranks = (config.ranks_required or config.ranks > 1) and config.ranks
    local function head(file, what) return text.block(header(file, what)) end
    files:set("run.sh", sections.render(template, {
        { "run", { header = head("run.sh", "starts the ranks of train"), ranks = ranks or text.block('""') } },
        not launcher and { "await", {} },
        { launcher and "by_launcher" or "as_processes", {} },
    }))
    files:set("job.sbatch", sections.render(template, {
        { "job", { header = head("job.sbatch", "trains as a job of Slurm"), name = text.ident(config.name),
            ranks = ranks } },
        { launcher and "task" or "task_as_process", {} },
        { "await", {} },
        { "queue_again", {} },
    }))
end

return launch
