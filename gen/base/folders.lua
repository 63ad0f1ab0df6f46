-- folders: what gagen finds by folder: a folder that is there is known, without a list that names it.
local folders = {}

--- The names of the folders inside a folder of gagen ("gen/emit/targets/"), sorted.
function folders.inside(path)
    local list = {}
    for _, file in ipairs(host.embedded_names(path)) do
        local name = file:sub(#path + 1):match("^([%w_]+)/")
        if name and name ~= list[#list] then list[#list + 1] = name end
    end
    return list
end

return folders
