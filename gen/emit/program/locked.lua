-- locked: shares the folder of a program with the programs that run in it and with other gagens, by the file .lock. A
-- running train holds its lock shared, a gagen that changes files alone, one that compares them shared for a moment.
local diag = require "base.diag"

local PAUSE, PATIENCE = 0.02, 1         -- seconds: between two tries; until a wait is spoken of

local function system_fails(folder, message)
    diag.fail(folder, "cannot be locked: " .. message, { kind = "environment",
        notes = { "expected a folder in which gagen may write and lock a file: -o DIR for another one" } })
end

-- A gagen ends soon, a program that trains does not.
local function is_gagen(holder)
    return holder.alone or holder.name ~= nil and holder.name .. "\n" == host.read "/proc/self/comm"
end

local function text_of(holder)
    if holder.process <= 0 then return "a process of another machine or container" end
    local process = ("process %d"):format(holder.process)
    return holder.name and ("%s (%s)"):format(holder.name, process) or process
end

local function refuse(folder, holder)
    diag.fail(("%s is used by %s"):format(folder, text_of(holder)), "-o DIR for another folder, or wait")
end

-- Takes the lock; waits for another gagen. Returns true, or false and the holder that is none. A process without a name
-- may just have ended.
local function take(lock, kind, folder)
    local waited = 0
    while true do
        local taken, holder = lock:take(kind)
        if taken then return true end
        if taken == nil then system_fails(folder, holder) end
        local short = is_gagen(holder)
        if not short and (holder.name or waited >= PATIENCE) then return false, holder end
        if short and waited < PATIENCE and waited + PAUSE >= PATIENCE then
            io.stderr:write(("%s: waits for another gagen, %s\n"):format(folder, text_of(holder)))
        end
        host.pause(PAUSE)
        waited = waited + PAUSE
    end
end

--- Calls change() with the lock of the folder alone, unless is_current(), which is asked with the lock shared. change()
--- must leave what is right as it is: another gagen may have done all of it before the lock is free. A train that is in
--- the way of change() may be what another gagen has just made and started: is_current() is then asked once more.
return function(folder, is_current, change)
    local lock, message = host.lock(folder .. "/.lock")
    if not lock then system_fails(folder, message) end
    local function shared_is_current()
        local taken, holder = take(lock, "shared", folder)
        if not taken then refuse(folder, holder) end
        return is_current()
    end
    if not shared_is_current() then
        lock:release()                  -- two gagens that keep it shared would wait for each other for ever
        local taken, holder = take(lock, "alone", folder)
        if taken then
            change()
        elseif not shared_is_current() then
            refuse(folder, holder)
        end
    end
    lock:close()
end
