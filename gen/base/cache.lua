-- cache: the folder in which gagen keeps what it can make again: compiled runtimes, measured rates of this machine.
local cache = {}

--- $XDG_CACHE_HOME/gagen, else ~/.cache/gagen: an absolute path that make reads as one word, or nil.
function cache.folder()
    local base, home = host.environment "XDG_CACHE_HOME", host.environment "HOME"
    base = base and base:match("^/") and base or home and home .. "/.cache"
    return base and base:match("^/[%w/._+-]*$") and base .. "/gagen"
end

return cache
