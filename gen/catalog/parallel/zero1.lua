-- zero1: as ddp, but the optimizer's state and the update are divided over the ranks: each gets the sum of its own cut
-- of every bucket, updates these parameters, and then all gather them.

mode "zero1" {
    doc = "as ddp, with the optimizer's state and the update divided over the processes",
    ranks = true,
    engines = { "mpi", "nccl" },
    sharded = { state = true },
    handler = "zero",
    reduces = { collective = "reduce_scatter", of = "gradient", role = "last" },
}
