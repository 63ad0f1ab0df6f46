/* tuning.c: the choices between kernels in a file. */
#include "device/tuning.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files/json_file.h"
#include "files/sha256.h"

static bool is_of(const json_t *root, const char *device, const char *kernels) {
    const char *own = json_string_value(json_object_get(root, "device"));
    const char *text = json_string_value(json_object_get(root, "kernels"));
    return own && text && strcmp(own, device) == 0 && strcmp(text, kernels) == 0 &&
           json_is_object(json_object_get(root, "twins"));
}

void ga_tuning_read(ga_tuning *t, const char *folder, const char *device, const ga_kernel_source *text) {
    char kernels[65];
    ga_sha256 h;
    *t = (ga_tuning){0};
    if (!device) return;
    ga_sha256_start(&h);
    ga_sha256_add(&h, text->text, text->bytes);
    ga_sha256_finish(&h, kernels);
    snprintf(t->path, sizeof t->path, "%s/tuning.json", folder);
    if (ga_json_open(&t->root, t->path, NULL) == GA_OK && is_of(t->root, device, kernels)) return;
    json_decref(t->root);
    t->root = json_pack("{s:s, s:s, s:{}}", "device", device, "kernels", kernels, "twins");
}

void ga_tuning_close(ga_tuning *t) {
    json_decref(t->root);
    t->root = NULL;
}

int ga_tuning_get(const ga_tuning *t, const char *name) {
    const json_t *taken = json_object_get(json_object_get(t->root, "twins"), name);
    return json_is_boolean(taken) ? json_is_true(taken) : -1;
}

void ga_tuning_set(ga_tuning *t, const char *name, bool taken) {
    if (ga_tuning_get(t, name) == taken) return;
    json_object_set_new(json_object_get(t->root, "twins"), name, json_boolean(taken));
    t->changed = true;
}

void ga_tuning_write(const ga_tuning *t) {
    char temporary[sizeof t->path + 8];
    if (!t->changed) return;
    snprintf(temporary, sizeof temporary, "%s.tmp", t->path);
    if (json_dump_file(t->root, temporary, JSON_INDENT(1)) == 0 && rename(temporary, t->path) == 0) return;
    unlink(temporary);
    ga_say("%s: cannot be written (%s); the next start measures again", t->path, strerror(errno));
}

void ga_tuning_hash(char out[65], const ga_twin *list, const ga_twin_state *states, int count) {
    ga_sha256 h;
    bool any = false;
    ga_sha256_start(&h);
    for (int i = 0; i < count; i++)
        if (states[i].taken) {
            ga_sha256_add(&h, list[i].name, strlen(list[i].name) + 1);
            any = true;
        }
    ga_sha256_finish(&h, out);
    if (!any) out[0] = 0;
}
