-- Mutants of the boundary, and of products: each changes one line as in a known bug of a trainer. In a copy of the
-- repository with the change the named test must fail. Long: `make mutants`, part of `make test-all`.
local mutants = dofile "tests/mutants/boundary.lua"
local products = dofile "tests/mutants/products.lua"
table.move(products, 1, #products, #mutants + 1, mutants)

-- A copy of the repository with its build, without programs; returns its folder.
local function copy(t)
    local folder = t.root .. "/" .. t.temp() .. "/copy"
    local result = t.shell(("mkdir -p %s/out && cp -a Makefile gen templates runtime specs tests tools docs bench %s && "
        .. "tar -C %s --exclude=./tests/worker* --exclude=./tests/store --exclude=./tests/tmp -cf - . | tar -C %s/out -xf - "
        .. "--one-top-level=.build"):format(folder, folder, t.build, folder))
    t.equal(result.status, 0, result.err)
    return folder
end

local function run(t, folder, pattern)
    return t.run { "make", "-C", folder, "run-test", "PATTERN=" .. pattern, timeout = 900,
        env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD", "GAGEN" } }
end

-- The text of a file before and after the only occurrence of `from`.
local function around(path, from)
    local text = assert(host.read(path))
    local first, last = text:find(from, 1, true)
    assert(first and not text:find(from, last + 1, true), path .. ": not once there: " .. from)
    return text:sub(1, first - 1), text:sub(last + 1)
end

local function edit(t, path, from, to)
    local before, behind = around(path, from)
    t.write(path, before .. to .. behind)
end

local tests = { { "each changes a line that is there", function()
    for _, mutant in ipairs(mutants) do around(mutant[2], mutant[3]) end
end } }

for _, mutant in ipairs(mutants) do
    local name, file, from, to, pattern = table.unpack(mutant)
    tests[#tests + 1] = { "killed: " .. name, function(t)
        t.long()
        local folder = copy(t)
        edit(t, folder .. "/" .. file, from, to)
        local result = run(t, folder, pattern)
        assert(result.status ~= 0, "it survived")
        t.contains(result.out .. result.err, "[  FAILED  ] " .. pattern)
    end }
end

return tests
