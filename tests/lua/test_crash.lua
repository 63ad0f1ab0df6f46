-- Power failures while checkpoints are saved: tests/crash tries all states that a failure may leave. It must also
-- detect each wrong order of the steps that it lists.

local HARMFUL = {
    "data files not synced", "parts of data files not synced", "manifest not synced", "new folder not synced",
    "folder of checkpoints not synced", "parents of a new folder not synced",
    "acknowledged before the folder is synced", "acknowledged before the rename", "renamed before the files are synced",
    "manifest first, files after the rename", "old one removed first",
    "old one removed before the folder is synced", "replaced one removed before the folder is synced",
    "replaced one moved out of sight", "in place, manifest not synced",
}

return {
    { "power failure at any moment of a save", function(t)
        local all = t.all and "all" or "few"
        local result = t.run { t.build .. "/tests/crash/crash", all, timeout = 1800 }
        t.equal({ result.status, result.timed_out, result.err }, { 0, false, "" }, result.out)
        local scenarios = 0
        for name, violations in result.out:gmatch("\n?([%w ,]+): %d+ operations, [^\n]* (%d+) violations") do
            t.equal(violations, "0", name)
            scenarios = scenarios + 1
        end
        t.equal(scenarios, 6)
        for _, name in ipairs(HARMFUL) do
            t.contains(result.out, "\n  caught " .. name .. ": ")
        end
        t.match(result.out, ('"violations":0,"variants":%d,"caught":%d}\n$'):format(#HARMFUL, #HARMFUL))
    end },
}
