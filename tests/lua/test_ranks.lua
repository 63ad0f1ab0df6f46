-- The C tests of collectives, checkpoints and divided arrays with several ranks, over MPI. The suite runs them with one
-- rank.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Of the tests' build.
local OBJECTS = { "tests/unit/test_ranks", "tests/unit/test_shards", "runtime/ranks/comm_mpi", "runtime/ranks/mpi_exchange" }

add("collectives, checkpoints and divided arrays with 2, 3 and 4 ranks", function(t)
    if t.shell("command -v mpicc && mpirun --version").status ~= 0 then t.not_run("MPI is not installed") end
    local folder = t.temp()
    t.write(folder .. "/main.c", "int test_ranks(void), test_shards(void);\n"
        .. "int main(int n, char **arguments) { return n > 1 && arguments ? test_shards() : test_ranks(); }\n")
    local objects = {}
    for i, name in ipairs(OBJECTS) do objects[i] = ("%s/%s.o"):format(t.build, name) end
    local made = t.shell(("mpicc -O1 -pthread -o %s/ranks %s/main.c %s %s/libruntime.a -ljansson -lz -lm -lcmocka")
        :format(folder, folder, table.concat(objects, " "), t.build))
    t.equal(made.status, 0, made.err)
    for ranks = 2, 4 do
        for _, group in ipairs { { 5 }, { 8, "shards" } } do
            local command = t.mpirun(ranks)
            table.move({ folder .. "/ranks", group[2] }, 1, 2, #command + 1, command)
            command.env = { "GAGEN_TIMEOUT=60" }
            local result = t.run(command)
            t.equal(result.status, 0, result.out .. result.err)
            t.equal(select(2, (result.out .. result.err):gsub(("PASSED  %%] %d test"):format(group[1]), "")), ranks)
        end
    end
end)

return tests
