-- The shipped specs and their data.
local shipped = {}

--- Each spec and the folder of its data; the digits are shipped with the project.
shipped.list = {
    { "digits_mlp", "digits" }, { "mnist_mlp", "mnist" }, { "char_gpt", "tinyshakespeare" },
    { "llama_tiny", "tinyshakespeare" }, { "vit_tiny_cifar10", "cifar-10-batches-bin" },
    { "gpt2_124m", "gpt2tokens" }, { "bert_sst2", "sst2" },
    { "bert_mini_sst2", "sst2" },
    { "resnet18_tutorial", "cifar-10-batches-bin" }, { "resnet18_cifar10", "cifar-10-batches-bin" },
}

--- The text of a spec.
function shipped.text(t, name) return assert(host.read(t.root .. "/specs/" .. name .. ".lua")) end

-- The first rows of SST-2 as the two BERTs have them: `gagen tokenize` makes the files.
local function tokenize(t, programs)
    local root = t.environment "GAGEN_DATA"
    for _, file in ipairs { "train", "16000", "dev" } do
        local text = ("%s/sst2/%s.tsv"):format(root, file == "dev" and "dev" or "train")
        local result = programs.gagen { "tokenize", "bert", text, ("%s/data/sst2_%s.safetensors"):format(
            programs.folder(), file), "--vocab", root .. "/bert/bert-base-uncased-vocab.txt", "--length", "64",
            "--types", "--first", "96" }
        t.equal(result.status, 0, result.err)
    end
end

--- The test programs, with the data folder of a spec beside their specs; without it the test ends as not run.
function shipped.open(t, folder)
    local programs = t.load("tests/lua/programs.lua")(t)
    local link = programs.folder() .. "/data/" .. folder
    if folder ~= "digits" and not host.exists(link) then
        local root = t.environment "GAGEN_DATA"
        if not root or host.exists(root .. "/" .. folder) ~= "folder" then
            t.not_run(("GAGEN_DATA has no %s"):format(folder))
        end
        if root:sub(1, 1) ~= "/" then root = t.root .. "/" .. root end
        assert(host.link(root .. "/" .. folder, link))
    end
    if folder == "sst2" then tokenize(t, programs) end
    return programs
end

return shipped
