-- Mutants of the boundary: each is one line of a template, of the runtime or of a script made wrong in a way that
-- a trainer has been wrong before, and the tests that must fail then. tests/lua/test_boundary_mutants.lua takes them.
--   { name, file, what is there (plain text, once in the file), what comes in its place, pattern of tests }
return {
    { "the mean divides by A, not by the true weight", "templates/program/update.c",
        "const double mean = s->weight > 0 ? m->nominal / s->weight : 0; /* exactly 1 for full cycles */",
        "const double mean = s->weight > 0;", "test_clip: norm by its definition" },
    { "the norm is taken before the mean", "gen/emit/clip.lua",
        'local mean = by_value and "" or " * mean"', 'local mean = ""', "test_clip: norm by its definition" },
    { "clipped in every micro-step", "templates/program/step.c",
        "    backward(w, m, &b, role);",
        "    backward(w, m, &b, role);\n    for (int64_t i = 0; i < TRAINED && w->index == 0; i++)\n"
        .. "        m->flat_g[i] = (real)fmax(-0.001, fmin(0.001, m->flat_g[i]));\n    ga_barrier(w);",
        "test_exact: four micro-steps of 4 rows are one of 16: sgd with momentum" },
    { "a skipped update moves the parameters and their moments", "templates/program/update.c",
        "if (ga_team_status(w) < 0 || m->step.skip) return;", "if (ga_team_status(w) < 0) return;",
        "test_skip: parameters, moments, their count and the rate stay: overflow" },
    { "a skipped update counts", "templates/program/step.c",
        "return ga_cycle_commit(&m->count, !m->step.skip, e);", "return ga_cycle_commit(&m->count, true, e);",
        "test_skip: parameters, moments, their count and the rate stay: ignored" },
    { "ranks are summed over in every micro-step", "runtime/cycle.h",
        "return r == GA_ONLY || r == GA_LAST; }", "return r >= 0; }", "test_plan: no collective off the boundary" },
    { "the first micro-step adds to what the last cycle left", "runtime/cycle.h",
        "static inline bool ga_role_adds(ga_role r) { return r == GA_NEXT || r == GA_LAST; }",
        "static inline bool ga_role_adds(ga_role r) { return r >= 0; }", "test_torch: sgd_a4_f64" },
    { "the last micro-step writes over the others", "runtime/cycle.h",
        "static inline bool ga_role_adds(ga_role r) { return r == GA_NEXT || r == GA_LAST; }",
        "static inline bool ga_role_adds(ga_role r) { return r == GA_NEXT; }",
        "test_exact: four micro-steps of 4 rows are one of 16: sgd with momentum" },
    { "nothing is updated after the last micro-step", "templates/program/update.c",
        "    $sweep_calls", "    if (m->count.cycle > 0) return;\n    $sweep_calls", "test_train: parameters change at the boundary only" },
}
