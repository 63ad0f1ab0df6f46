-- terminal: runs a command on a pseudo-terminal of util-linux's `script`, for tests of output that depends on one.

--- The output of a command, words of a shell, on a terminal `columns` wide; env: as for t.run.
return function(t, command, columns, env)
    if t.shell("command -v script && command -v stty").status ~= 0 then t.not_run("script is not installed") end
    local result = t.run { "script", "-qec", ("stty cols %d -onlcr; %s"):format(columns, command), "/dev/null", env = env }
    return result.out, result.status
end
