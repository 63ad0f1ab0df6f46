-- none: one process has it all.

mode "none" {
    doc = "one process",
    default = true,
    engines = { "self" },
}
