-- formats: the file formats of the word `data`. `takes` lists the fields of the word that a format has besides the
-- common ones.
local formats = {}

formats.common = { "kind", "train", "eval", "split", "shuffle", "last", "stream" }

-- pair: the two files that a path names, for formats with two. streams: rows can be read without keeping them.
formats.list = {
    { name = "csv", streams = true,
      takes = { "target", "scale", "header", "drop", "columns", "category", "ids", "unknown", "standardize" },
      doc = "numbers between commas, and texts in columns of category, quoted or not, gzip or not, lines end in LF or "
        .. "CR LF; one column is the target: classes, or numbers if the loss takes them",
      example = 'data { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { eval = 300 } }' },
    { name = "idx", takes = { "scale", "mean", "std", "crop", "flip" }, pair = "{ images, labels }",
      doc = "images and labels as MNIST has them, gzip or not; a row is (1, height, width)",
      example = 'data { "idx", train = { "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz" }, '
        .. "scale = 1/255 }" },
    { name = "cifar10", takes = { "scale", "mean", "std", "crop", "flip" },
      doc = "the binary version of CIFAR-10; a row is (3, 32, 32)",
      example = 'data { "cifar10", train = "cifar-10-batches-bin/data_batch_*.bin", '
        .. "crop = { 32, padding = 4 }, flip = true }" },
    { name = "text", takes = { "context" }, streams = true,
      doc = "bytes of text; an id is a byte's place among those that occur; the target is the next id",
      example = 'data { "text", train = "tinyshakespeare/input.txt", context = 64, split = { eval = 1000 } }' },
    { name = "tokens", takes = { "context" }, streams = true,
      doc = "ids of 16 bits, or llm.c's token files; the target is the next id",
      example = 'data { "tokens", train = "gpt2tokens/tiny_shakespeare_train.bin", '
        .. 'eval = "gpt2tokens/tiny_shakespeare_val.bin", context = 64, stream = true }' },
    { name = "npy", takes = { "scale", "mean", "std" }, pair = "{ input, target }",
      doc = "two NumPy arrays whose first axis is the row",
      example = 'data { "npy", train = { "input.npy", "target.npy" } }' },
    { name = "tensors", takes = { "target" },
      doc = "a safetensors file of 8 tensors at most: each is a field of the batch by its name, its first axis the row",
      example = 'data { "tensors", train = "train.safetensors", target = "label" }' },
}

--- The format of this name, or nil.
function formats.find(name)
    for _, format in ipairs(formats.list) do
        if format.name == name then return format end
    end
end

formats.names = {}
for i, format in ipairs(formats.list) do formats.names[i] = format.name end

return formats
