// load: the end of step.c, where the kernels are compiled and loaded, or compiled before the start.

//@ load(name, sharing, twins)
/* -- the kernels ------------------------------------------------------------------------------- */

/* The text of kernels.cu is part of the program; GAGEN_KERNELS=DIR takes DIR/kernels.cu instead. */
__asm__(".section .rodata\n"
        "kernels_begin:\n"
        ".incbin \"kernels.cu\"\n"
        "kernels_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char kernels_begin[], kernels_end[];

/* The text, its options and the folder of modules that were compiled before (make offline). */
static int kernel_source(ga_kernel_source *source, char *modules, size_t size, ga_err *e) {
    static const char *const OPTIONS[] = {"--fmad=false"}; /* fused where a kernel says fma */
    GA_TRY(ga_program_folder(modules, size - sizeof "/modules", e));
    strcat(modules, "/modules");
    *source = (ga_kernel_source){
        .file = "kernels.cu", .text = kernels_begin, .bytes = (size_t)(kernels_end - kernels_begin),
        .names = KERNEL_NAMES, .name_count = KERNELS, .options = OPTIONS, .option_count = 1,
        .modules = modules};
    return 0;
}

int $(name)_model_load_kernels(model *m, ga_err *e) {
    char modules[4096];
    ga_kernel_source source;
    GA_TRY(kernel_source(&source, modules, sizeof modules, e));
//% if sharing then
    static const unsigned SHARED_BYTES[KERNELS] = {
        $sharing
    };
    GA_TRY(ga_device_load_kernels(m->device, &source, m->kernels, e));
    for (int i = 0; i < KERNELS; i++)
        if (SHARED_BYTES[i] > 0) GA_TRY(ga_device_allow_shared(m->device, m->kernels[i], SHARED_BYTES[i], e));
//% if twins then
    char folder[4000];
    GA_TRY(ga_program_folder(folder, sizeof folder, e));
    m->twins = (ga_twins){.device = m->device, .stream = m->stream, .kernels = m->kernels, .list = TWIN_LIST,
                          .states = m->twin_states, .count = TWINS, .parts_bytes = PARTS_BYTES};
    return ga_twins_open(&m->twins, folder, &source, m->comm, e);
//% else
    return 0;
//% end
//% else
    return ga_device_load_kernels(m->device, &source, m->kernels, e);
//% end
}

int $(name)_model_compile_kernels(const char *architecture, ga_err *e) {
    char modules[4096];
    ga_kernel_source source;
    GA_TRY(kernel_source(&source, modules, sizeof modules, e));
    return ga_kernels_compile(&source, architecture, e);
}
