-- configurations: the models of `make bench` by their letters. sizes of a GPT: layers, heads, width, vocabulary,
-- context.
return {
    a = { title = "MLP", model = "mlp", rows = 64, accumulate = 4 },
    b = { title = "ResNet-18", model = "resnet18", rows = 32, accumulate = 4 },
    c = { title = "GPT, 6 layers", model = "gpt", sizes = { 6, 6, 384, 256, 256 }, rows = 8, accumulate = 4 },
    d = { title = "GPT-2", model = "gpt", sizes = { 12, 12, 768, 50257, 256 }, rows = 1, accumulate = 4 },
    e = { title = "GPT-2, llm.c's shape", model = "gpt", sizes = { 12, 12, 768, 50257, 64 }, rows = 4,
        accumulate = 1, llmc = true },
}
