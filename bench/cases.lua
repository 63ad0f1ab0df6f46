-- cases: what is measured: a model of bench/specs at a size, and the spec of it.
local cases = {}

--- A case: the fields { model, rows, accumulate, sizes, ... }, with the folder of its program and its spec. id: names
--- both. sizes: the values of the spec's first `local`, if they are others than in the file.
function cases.of(o, id, fields)
    local case = {}
    for key, value in pairs(fields) do case[key] = value end
    case.folder, case.spec = o.out .. "/" .. id, ("bench/specs/%s.lua"):format(case.model)
    if case.sizes then
        local text, count = host.read(case.spec):gsub("(local [%w_, ]+ = )[^\n]*",
            "%1" .. table.concat(case.sizes, ", "), 1)
        assert(count == 1, case.spec)
        assert(host.write(o.out, id .. ".lua", text))
        case.spec = o.out .. "/" .. id .. ".lua"
    end
    assert(host.run { "rm", "-rf", case.folder, case.folder .. ".cache" })
    return case
end

return cases
