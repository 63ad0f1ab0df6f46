-- threads: how many threads the work of a micro-step keeps busy. More of them would cost more than they gain: each
-- kernel ends with a barrier, and its tiles move from core to core.
local text = require "base.text"

local threads = {}

-- Microseconds of one core that a micro-step must have for each thread, by the rates of the profile.
local LEAST = 200

local MOST = 1024

--- The planned work of a micro-step, in microseconds of one core, and the threads that it keeps busy. list: the kernels
--- of the plan, of which those of forward and backward are called in each of the micro-steps.
function threads.busy(list, accumulate)
    local us = 0
    for _, kernel in ipairs(list) do
        if kernel.role == "forward" or kernel.role == "backward" then
            us = us + kernel.calls * kernel.predicted_us / accumulate
        end
    end
    return { micro_us = us, thread_us = LEAST, threads = math.tointeger(math.max(1, math.min(us // LEAST, MOST))) }
end

-- Elements that each thread of an update on the host should have: 16 tiles.
local LEAST_ELEMENTS = 65536

--- The same for the updates that the host of a device makes, of so many elements.
function threads.of_host(elements)
    return { threads = math.max(1, math.min(elements // LEAST_ELEMENTS, MOST)),
        why = ("the host updates %s elements, and each thread needs %s"):format(text.commas(elements),
            text.commas(LEAST_ELEMENTS)) }
end

-- "a micro-step is 8 microseconds of one core by the plan, and each thread needs 200"
local function reason(busy)
    return busy.why or ("a micro-step is %s microseconds of one core by the plan, and each thread needs %d"):format(
        text.commas(math.ceil(busy.micro_us)), busy.thread_us)
end

--- The number that a spec gives, 0 for "auto".
function threads.given(value) return value == "auto" and 0 or value end

--- The text of `gagen plan`. value: of the spec, a number or "auto".
function threads.text(value, busy)
    if value ~= "auto" then return ("%d, as target.threads or --threads says"):format(value) end
    return busy.threads == 1 and "1: " .. reason(busy) or
        ("%d, or as many as there are usable cores: %s"):format(busy.threads, reason(busy))
end

--- The constant of a program, with its comment.
function threads.constant(busy)
    return ("\n/* Threads that the work keeps busy:\n * %s. */\nenum { BUSY_THREADS = %d };\n"):format(
        reason(busy), busy.threads)
end

return threads
