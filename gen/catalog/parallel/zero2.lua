-- zero2: as zero1, but each rank keeps only the summed gradient of its own cuts: each micro-step writes the gradients
-- of a bucket into a window and adds them, over the ranks, to what each rank keeps.

mode "zero2" {
    doc = "as zero1, with the summed gradient divided too, each micro-step exchanges its gradients",
    ranks = true,
    engines = { "mpi", "nccl" },
    sharded = { state = true, gradients = true },
    handler = "zero",
    reduces = { collective = "reduce_scatter", of = "gradient", role = "every" },
}
