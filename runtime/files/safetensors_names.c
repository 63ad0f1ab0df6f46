/* safetensors_names.c: variants of parameter names in files of pretrained models. */
#include "files/safetensors_names.h"

#include "base/text.h"

#include <string.h>

/* Writes "x.LayerNorm.weight" as "x.LayerNorm.gamma" to out[GA_NAME_MAX]; false: not the name of a LayerNorm. */
static bool old_name(const char *name, char *out) {
    static const struct {
        const char *now, *before;
    } ends[] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    const size_t size = strlen(name);
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(ends[i].now);
        if (size < n || strcmp(name + size - n, ends[i].now) != 0) continue;
        ga_text t = {.base = out, .size = GA_NAME_MAX};
        ga_text_add(&t, "%.*s%s", (int)(size - n), name, ends[i].before);
        return !t.full;
    }
    return false;
}

/* Renames the entry `found`, or the entry with its old name, to `name`; false if the file has neither. */
static bool rename_entry(json_t *root, const char *found, const char *name) {
    char old[GA_NAME_MAX];
    json_t *entry = json_object_get(root, found);
    if (!entry && old_name(found, old)) entry = json_object_get(root, found = old);
    return entry && json_object_set(root, name, entry) == 0 && json_object_del(root, found) == 0;
}

/* Bytes of the prefix of the first parameter's name, with its dot; 0 if a name in the file has the prefix. */
static size_t missing_prefix(json_t *root, const char *first) {
    const char *dot = strchr(first, '.'), *name;
    const size_t n = dot ? (size_t)(dot + 1 - first) : 0;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        if (strncmp(name, first, n) == 0) return 0;
    }
    return n;
}

void ga_tensors_adapt(ga_tensors_file *f, const ga_array *a, bool speak) {
    char first[GA_NAME_MAX], name[GA_NAME_MAX];
    int renamed = 0;
    if (a->count == 0) return;
    const size_t n = missing_prefix(f->root, ga_param_name(&a->params[0], 0, a->suffix, first));
    for (int k = 0; k < a->count; k++)
        for (int l = 0; l < a->params[k].count; l++) {
            ga_param_name(&a->params[k], l, a->suffix, name);
            if (json_object_get(f->root, name) || rename_entry(f->root, name, name)) continue;
            /* no prefix for "fc.weight": at least two parts must follow the prefix */
            if (n > 0 && strncmp(name, first, n) == 0 && strchr(name + n, '.'))
                renamed += rename_entry(f->root, name + n, name);
        }
    if (renamed > 0 && speak)
        ga_say("%s: its names lack the model's prefix '%.*s': it was added to %d tensors", f->path, (int)n,
               first, renamed);
}

/* Whether the name fits the first of the globs. */
static bool fits(const char *glob, const char *name) {
    for (; *glob != '*'; glob++, name++) {
        if (*glob == 0 || *glob == ',') return *name == 0;
        if (*glob != *name) return false;
    }
    for (;; name++) {
        if (fits(glob + 1, name)) return true;
        if (*name == 0) return false;
    }
}

bool ga_name_fits(const char *globs, const char *name) {
    const char *comma;
    for (; !fits(globs, name); globs = comma + 1)
        if (!(comma = strchr(globs, ','))) return false;
    return true;
}
