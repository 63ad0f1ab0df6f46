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

--- Makes a file NAME.safetensors of the first rows of SST-2, for a BERT of `length` tokens, by `gagen tokenize`. file:
--- train or dev.
function shipped.tokenize(t, programs, file, name, length, rows)
    local root = t.environment "GAGEN_DATA" or t.not_run("GAGEN_DATA has no sst2")
    local result = programs.gagen { "tokenize", "bert", ("%s/sst2/%s.tsv"):format(root, file),
        ("%s/data/%s.safetensors"):format(programs.folder(), name), "--vocab",
        root .. "/bert/bert-base-uncased-vocab.txt", "--length", tostring(length), "--types", "--first",
        tostring(rows) }
    t.equal(result.status, 0, result.err)
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
    if folder == "sst2" then
        for _, part in ipairs { "train", "16000", "dev" } do
            shipped.tokenize(t, programs, part == "dev" and "dev" or "train", "sst2_" .. part, 64, 96)
        end
    end
    return programs
end

return shipped
