-- The C tests of collectives and checkpoints with several ranks, over MPI. The suite runs them with one rank.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SOURCES = "tests/unit/test_ranks.c runtime/ranks/comm_mpi.c runtime/ranks/mpi_exchange.c"

add("collectives and checkpoints with 2, 3 and 4 ranks", function(t)
    if t.shell("command -v mpicc && mpirun --version").status ~= 0 then t.not_run("MPI is not installed") end
    local folder = t.temp()
    t.write(folder .. "/main.c", "int test_ranks(void);\nint main(void) { return test_ranks(); }\n")
    local made = t.shell(("mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -pthread -Iruntime -o %s/ranks %s/main.c %s "
        .. "%s/libruntime.a -ljansson -lz -lm -lcmocka"):format(folder, folder, SOURCES, t.build))
    t.equal(made.status, 0, made.err)
    for ranks = 2, 4 do
        local result = t.run { "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
            tostring(ranks), folder .. "/ranks", env = { "GAGEN_TIMEOUT=60" } }
        t.equal(result.status, 0, result.out .. result.err)
        t.equal(select(2, (result.out .. result.err):gsub("PASSED  %] 4 test", "")), ranks)
    end
end)

return tests
