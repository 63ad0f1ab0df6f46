-- zero3: as zero2, but each rank keeps only its own cuts of the parameters too: a chunk of them is gathered before its
-- first use in a pass over a micro-batch, and its memory is free behind the last one.

mode "zero3" {
    doc = "as zero2, with the parameters divided too, a chunk of them is gathered before each use",
    ranks = true,
    engines = { "mpi", "nccl" },
    sharded = { state = true, gradients = true, parameters = true },
    undivided = "ddp",
    handler = "zero",
    reduces = { collective = "reduce_scatter", of = "gradient", role = "every" },
}
