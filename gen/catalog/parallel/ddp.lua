-- ddp: each rank has all parameters and state and its own rows; the gradient is summed over the ranks, bucket by
-- bucket, in the micro-step that ends a cycle.

mode "ddp" {
    doc = "each process has the whole model and rows of its own, gradients are summed",
    ranks = true,
    engines = { "mpi", "nccl" },
    sharded = {},
    handler = "data_parallel",
    grouped = true,
    reduces = { collective = "all_reduce", of = "gradient", role = "last" },
}
