/* ckpt_load.c: reads and verifies manifests, finds checkpoints. ckpt_resume.c loads them. */
#include "files/ckpt.h"

#include "files/file.h"
#include "files/folder.h"
#include "files/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LAST_LINE = 23, NAME = GA_CKPT_NAME }; /* bytes of `"checksum":"xxxxxxxx"}` and its newline */

void ga_ckpt_name(int64_t cycle, int r, char *out) {
    int n = snprintf(out, NAME, "cycle-%09lld", (long long)cycle);
    if (r > 0) snprintf(out + n, NAME - (size_t)n, "-r%d", r);
}

bool ga_ckpt_name_parse(const char *name, int64_t *cycle, int *r) {
    char again[NAME], *end;
    if (strncmp(name, "cycle-", 6) != 0) return false;
    *cycle = strtoll(name + 6, &end, 10);
    *r = strncmp(end, "-r", 2) == 0 ? (int)strtol(end + 2, NULL, 10) : 0;
    ga_ckpt_name(*cycle, *r, again);
    size_t n = strlen(again);
    return *cycle >= 0 && strncmp(name, again, n) == 0 &&
           (name[n] == 0 || strcmp(name + n, "-old") == 0);
}

/* crc32 of the first `bytes` of fd: 0, an errno, or ENODATA if the file is shorter. */
static int crc_of(int fd, int64_t bytes, uint32_t *crc) {
    unsigned char buffer[1 << 14];
    *crc = (uint32_t)crc32(0, NULL, 0);
    for (int64_t at = 0; at < bytes;) {
        int64_t part = bytes - at < (int64_t)sizeof buffer ? bytes - at : (int64_t)sizeof buffer;
        int64_t n = ga_file_read(fd, buffer, part, at);
        if (n != part) return n < 0 ? errno : ENODATA;
        *crc = (uint32_t)crc32(*crc, buffer, (unsigned)n);
        at += n;
    }
    return 0;
}

int ga_data_file_read(const char *path, const char *name, ga_data_file *out, ga_err *e) {
    int fd = ga_file_open(AT_FDCWD, path, path, &out->bytes, e);
    if (fd < 0) return fd;
    int rc = crc_of(fd, out->bytes, &out->checksum);
    close(fd);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", path, strerror(rc));
    if (snprintf(out->path, sizeof out->path, "%s", name) >= (int)sizeof out->path)
        return ga_fail(e, GA_INPUT, "%.64s...: the path is longer than %zu bytes", name,
                       sizeof out->path - 1);
    return GA_OK;
}

/* Counters of a run, which it goes on counting. */
static const int64_t MOST = (int64_t)1 << 53;

/* A whole number from 0 to `most`. */
static int64_t get_int(const json_t *o, const char *name, int64_t most, bool *ok) {
    const json_t *v = json_object_get(o, name);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most) *ok = false;
    return json_integer_value(v);
}

const char *const ga_saved_sum_names[GA_SAVED_SUMS] = {"weight", "loss_sum", "rows"};
const char *const ga_scale_kind_names[GA_SCALE_KINDS] = {"none", "static", "dynamic"};

const char *ga_ckpt_gradient_name(int rank, int world, char *out) {
    snprintf(out, NAME, "gradient-%dof%d.safetensors", rank + 1, world);
    return out;
}

static double get_number(const json_t *o, const char *name, bool *ok) {
    const json_t *v = json_object_get(o, name);
    if (json_is_string(v)) return strtod(json_string_value(v), NULL); /* "nan", "inf", "-inf" */
    if (!json_is_number(v)) *ok = false;
    return json_number_value(v);
}

static void get_text(const json_t *o, const char *name, char *out, size_t size, bool *ok) {
    const char *text = json_string_value(json_object_get(o, name));
    if (!text || strlen(text) >= size) *ok = false;
    snprintf(out, size, "%s", text ? text : "");
}

static uint32_t get_checksum(const json_t *v, bool *ok) {
    const char *text = json_string_value(v);
    if (!text || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8) *ok = false;
    return text ? (uint32_t)strtoul(text, NULL, 16) : 0;
}

/* The manifest of an older program has no numbers. */
static void fill_numbers(json_t *numbers, ga_ckpt_state *s, bool *ok) {
    const char *name;
    json_t *value;
    if (json_object_size(numbers) > GA_CKPT_NUMBERS) *ok = false;
    json_object_foreach(numbers, name, value) {
        if (s->number_count == GA_CKPT_NUMBERS) return;
        ga_ckpt_number *number = &s->numbers[s->number_count++];
        if (strlen(name) >= sizeof number->name) *ok = false;
        snprintf(number->name, sizeof number->name, "%s", name);
        number->value = get_number(numbers, name, ok);
    }
}

/* A program that keeps no best evaluation writes none. */
static void fill_best(const json_t *best, ga_ckpt_state *s, bool *ok) {
    s->best = GA_BEST_NONE;
    if (!best) return;
    get_text(best, "metric", s->best_metric, sizeof s->best_metric, ok);
    s->best.cycle = json_integer_value(json_object_get(best, "cycle"));
    s->best.bad = get_int(best, "bad", INT_MAX, ok);
    s->best.value = get_number(best, "value", ok);
    s->best.mark = get_number(best, "mark", ok);
}

static ga_scale_kind get_scale_kind(const json_t *scaler, bool *ok) {
    const char *name = json_string_value(json_object_get(scaler, "kind"));
    int kind = GA_NO_SCALE;
    while (name && kind < GA_SCALE_KINDS && strcmp(name, ga_scale_kind_names[kind]) != 0) kind++;
    if (kind == GA_SCALE_KINDS) *ok = false;
    return (ga_scale_kind)kind;
}

static bool fill_state(const json_t *o, ga_ckpt_state *s) {
    bool ok = true;
    const json_t *scaler = json_object_get(o, "scaler"), *data = json_object_get(o, "data");
    *s = (ga_ckpt_state){.micro = get_int(o, "micro", MOST, &ok), .cycle = get_int(o, "cycle", MOST, &ok)};
    s->update = get_int(o, "update", MOST, &ok);
    s->skipped = get_int(o, "skipped", MOST, &ok);
    s->skipped_in_row = get_int(o, "skipped_in_row", MOST, &ok);
    s->epoch = get_int(o, "epoch", MOST, &ok);
    s->position = get_int(o, "position", MOST, &ok);
    s->batch = (int)get_int(o, "batch", INT_MAX, &ok);
    s->accumulate = (int)get_int(o, "accumulate", INT_MAX, &ok);
    s->r = (int)get_int(o, "r", INT_MAX, &ok);
    for (int i = 0; i < GA_SAVED_SUMS; i++) s->sums[i] = get_number(o, ga_saved_sum_names[i], &ok);
    if (json_object_get(o, "nominal")) s->nominal = get_number(o, "nominal", &ok); /* missing in older manifests */
    s->seed = (uint64_t)get_int(o, "seed", INT64_MAX, &ok);
    s->scaler = get_scale_kind(scaler, &ok);
    s->scale = get_number(scaler, "scale", &ok);
    s->growth_step = get_int(scaler, "growth_step", MOST, &ok);
    s->hysteresis_step = get_int(scaler, "hysteresis_step", MOST, &ok);
    fill_numbers(json_object_get(o, "numbers"), s, &ok);
    fill_best(json_object_get(o, "best"), s, &ok);
    s->world = (int)get_int(o, "world", INT_MAX, &ok);
    if (json_object_get(o, "program")) get_text(o, "program", s->program, sizeof s->program, &ok);
    get_text(o, "version", s->version, sizeof s->version, &ok);
    get_text(o, "spec_sha256", s->spec_sha256, sizeof s->spec_sha256, &ok);
    get_text(o, "target", s->target, sizeof s->target, &ok);
    get_text(o, "profile", s->profile, sizeof s->profile, &ok);
    get_text(o, "tuning_sha256", s->tuning_sha256, sizeof s->tuning_sha256, &ok);
    s->data_count = (int)json_array_size(data);
    if (s->data_count > GA_DATA_FILES) return false;
    for (int i = 0; i < s->data_count; i++) {
        const json_t *one = json_array_get(data, (size_t)i);
        get_text(one, "path", s->data[i].path, sizeof s->data[i].path, &ok);
        s->data[i].bytes = get_int(one, "bytes", INT64_MAX, &ok);
        s->data[i].checksum = get_checksum(json_object_get(one, "checksum"), &ok);
    }
    return ok && s->world >= 1 && s->batch >= 1 && s->accumulate >= 1 && s->r < s->accumulate;
}

static int refuse_manifest(ga_err *e) {
    return ga_fail(e, GA_INPUT, "manifest.json: damaged or incomplete (its checksum is wrong)");
}

/* The last line is the checksum of all lines before it. */
static int check_manifest(int fd, int64_t bytes, ga_err *e) {
    char last[LAST_LINE + 1] = "", expected[LAST_LINE + 1];
    uint32_t crc = 0;
    if (bytes <= LAST_LINE) return refuse_manifest(e);
    int rc = crc_of(fd, bytes - LAST_LINE, &crc);
    if (rc == 0 && ga_file_read(fd, last, LAST_LINE, bytes - LAST_LINE) < 0) rc = errno;
    if (rc && rc != ENODATA)
        return ga_fail(e, GA_ENVIRONMENT, "manifest.json: cannot be read: %s", strerror(rc));
    snprintf(expected, sizeof expected, "\"checksum\":\"%08x\"}\n", (unsigned)crc);
    return rc == 0 && memcmp(last, expected, LAST_LINE) == 0 ? GA_OK : refuse_manifest(e);
}

/* Fills in the names of the files in s, without the gradients of the ranks. */
static bool fill_files(const json_t *root, ga_ckpt_state *s) {
    const json_t *files = json_object_get(root, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "name"));
        if (!name || !*name || strchr(name, '/') || strlen(name) >= GA_CKPT_NAME) return false;
        if (strncmp(name, "gradient-", 9) == 0) continue;
        if (s->file_count == GA_CKPT_FILES) return false;
        snprintf(s->files[s->file_count++], GA_CKPT_NAME, "%s", name);
    }
    return s->file_count > 0;
}

/* Reads and checks the manifest of an open folder; *root is the caller's to release. */
static int read_manifest(int folder, json_t **root, ga_ckpt_state *s, ga_err *e) {
    int64_t bytes;
    *root = NULL;
    int fd = ga_file_open(folder, "manifest.json", "manifest.json", &bytes, e);
    if (fd < 0) return fd;
    int code = check_manifest(fd, bytes, e);
    if (code == GA_OK) code = ga_json_read(root, fd, 0, bytes, "manifest.json", e);
    close(fd);
    GA_TRY(code);
    json_int_t format = json_integer_value(json_object_get(*root, "format"));
    if (format != 1)
        code =
            ga_fail(e, GA_INPUT,
                    "manifest.json: format %lld found, 1 expected: written by another version (%s)",
                    (long long)format, json_string_value(json_object_get(*root, "version")));
    else if (!fill_state(*root, s) || !fill_files(*root, s))
        code = ga_fail(e, GA_INPUT, "manifest.json: a field is missing or out of range");
    if (code < 0) {
        json_decref(*root);
        *root = NULL;
    }
    return code;
}

static int verify_blocks(int fd, const char *name, int64_t bytes, const json_t *checksums,
                         ga_err *e) {
    bool ok = true;
    if ((int64_t)json_array_size(checksums) != (bytes + GA_BLOCK - 1) / GA_BLOCK)
        return ga_fail(e, GA_INPUT, "%s: %zu checksums for %lld bytes", name,
                       json_array_size(checksums), (long long)bytes);
    unsigned char buffer[1 << 16];
    uint32_t crc = 0;
    for (int64_t at = 0; at < bytes;) {
        int64_t part = bytes - at < (int64_t)sizeof buffer ? bytes - at : (int64_t)sizeof buffer;
        int64_t n = ga_file_read(fd, buffer, part, at);
        if (n != part)
            return ga_fail(e, n < 0 ? GA_ENVIRONMENT : GA_INPUT, "%s: cannot be read at byte %lld: %s",
                           name, (long long)at, n < 0 ? strerror(errno) : "the file ends before");
        crc = (uint32_t)crc32(at % GA_BLOCK ? crc : 0, buffer, (unsigned)n);
        at += n;
        if (at % GA_BLOCK && at < bytes) continue;
        int64_t block = (at - 1) / GA_BLOCK;
        if (crc != get_checksum(json_array_get(checksums, (size_t)block), &ok) || !ok)
            return ga_fail(e, GA_INPUT, "%s: bytes %lld..%lld are damaged (wrong checksum)", name,
                           (long long)block * GA_BLOCK, (long long)at - 1);
    }
    return GA_OK;
}

static int verify_files(int folder, const json_t *root, ga_err *e) {
    const json_t *files = json_object_get(root, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *one = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        int64_t found, bytes = json_integer_value(json_object_get(one, "bytes"));
        int fd = ga_file_open(folder, name, name, &found, e);
        if (fd < 0) return fd;
        int code = found == bytes
                       ? verify_blocks(fd, name, bytes, json_object_get(one, "checksums"), e)
                       : ga_fail(e, GA_INPUT, "%s: %lld bytes found, %lld expected", name,
                                 (long long)found, (long long)bytes);
        close(fd);
        GA_TRY(code);
    }
    return GA_OK;
}

static int open_folder(int parent, const char *name, ga_err *e) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) return fd;
    return ga_fail(e, ga_file_status(), "%s: cannot be opened: %s", name, strerror(errno));
}

/* Checks the manifest of a checkpoint and, if `whole`, the content of its files. */
static int verify(int parent, const char *name, bool whole, ga_ckpt_state *s, ga_err *e) {
    json_t *root;
    int fd = open_folder(parent, name, e);
    if (fd < 0) return fd;
    int code = read_manifest(fd, &root, s, e);
    if (code == GA_OK && whole) code = verify_files(fd, root, e);
    json_decref(root);
    close(fd);
    return code;
}

int ga_ckpt_read(const char *path, ga_ckpt_state *out, ga_err *e) {
    ga_err why;
    int code = verify(AT_FDCWD, path, false, out, &why);
    return code < 0 ? ga_fail(e, (ga_status)code, "%.200s: %.250s", path, why.msg) : GA_OK;
}

typedef struct {
    const char *path, *program;
    ga_err *e;
} owner_check;

static int check_owner(void *arg, const char *name) {
    const owner_check *check = arg;
    int64_t cycle;
    int r;
    char path[GA_PATH_MAX + NAME];
    ga_ckpt_state s;
    ga_err damaged;
    if (!ga_ckpt_name_parse(name, &cycle, &r)) return GA_OK;
    snprintf(path, sizeof path, "%s/%s", check->path, name);
    if (ga_ckpt_read(path, &s, &damaged) < 0 || !*s.program || strcmp(s.program, check->program) == 0) return GA_OK;
    return ga_fail(check->e, GA_INPUT,
                   "%.200s: holds checkpoints of '%s' (%s), which '%s' would replace by its own: name another folder "
                   "with --checkpoint, or go on from one with --resume",
                   check->path, s.program, name, check->program);
}

int ga_ckpt_check_owner(int folder, const char *path, const char *program, ga_err *e) {
    const int code = ga_folder_each(folder, check_owner, &(owner_check){path, program, e});
    if (code != GA_ENVIRONMENT) return code;
    return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be listed: %s", path, strerror(errno));
}

/* Looks for the highest (micro, name) below a bound. */
typedef struct {
    int folder;
    const char *path;
    bool first; /* first pass: unreadable manifests are named */
    bool bounded, found;
    bool failed; /* a checkpoint could not be read: e has the reason */
    int64_t bound, micro;
    char bound_name[NAME], name[NAME];
    ga_err *e;
} search;

/* Of two names with the same micro the shorter one is later: "-old" marks the older checkpoint. */
static bool before(int64_t micro, const char *name, int64_t other, const char *other_name) {
    return micro != other ? micro < other : strcmp(name, other_name) > 0;
}

static int reject(search *s, const char *name, const ga_err *why, bool speak) {
    s->failed = why->code == GA_ENVIRONMENT;
    if (s->failed)
        return ga_fail(s->e, GA_ENVIRONMENT,
                       "%.200s/%s: %.200s; --resume with the path of an older one goes on without it",
                       s->path, name, why->msg);
    if (speak) ga_say("checkpoint %s/%s rejected: %s", s->path, name, why->msg);
    return GA_OK;
}

/* Makes `name` the best candidate if its manifest is valid and its micro is the highest below the bound. */
static int consider(void *arg, const char *name) {
    search *s = arg;
    ga_ckpt_state state;
    ga_err why;
    int64_t cycle;
    int r;
    if (!ga_ckpt_name_parse(name, &cycle, &r)) return GA_OK;
    if (verify(s->folder, name, false, &state, &why) < 0) return reject(s, name, &why, s->first);
    if (s->bounded && !before(state.micro, name, s->bound, s->bound_name)) return GA_OK;
    if (s->found && before(state.micro, name, s->micro, s->name)) return GA_OK;
    s->found = true;
    s->micro = state.micro;
    snprintf(s->name, sizeof s->name, "%s", name);
    return GA_OK;
}

/* Leaves the name of the newest valid checkpoint in s. */
static int find_newest(search *s, ga_err *e) {
    ga_ckpt_state state;
    ga_err why;
    for (;;) {
        s->found = false;
        int code = ga_folder_each(s->folder, consider, s);
        if (code < 0 && s->failed) return code;
        if (code < 0) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be listed", s->path);
        if (!s->found) return ga_fail(e, GA_INPUT, "%s: no usable checkpoint found", s->path);
        if (verify(s->folder, s->name, true, &state, &why) == GA_OK) return GA_OK;
        GA_TRY(reject(s, s->name, &why, true));
        s->first = false;
        s->bounded = true;
        s->bound = s->micro;
        memcpy(s->bound_name, s->name, sizeof s->name);
    }
}

int ga_ckpt_find_newest(const char *folder, char *path, ga_err *e) {
    search s = {.folder = open_folder(AT_FDCWD, folder, e), .path = folder, .first = true, .e = e};
    GA_TRY(s.folder);
    int code = find_newest(&s, e);
    close(s.folder);
    GA_TRY(code);
    if (snprintf(path, GA_PATH_MAX, "%s/%s", folder, s.name) >= GA_PATH_MAX)
        return ga_fail(e, GA_INPUT, "%.64s...: the path is too long", folder);
    return GA_OK;
}

int ga_ckpt_find_best(const char *folder, char *path, ga_err *e) {
    char name[NAME], best[GA_PATH_MAX];
    ga_ckpt_state newest, state;
    ga_err why;
    GA_TRY(ga_ckpt_find_newest(folder, path, e));
    GA_TRY(ga_ckpt_read(path, &newest, e));
    if (newest.best.cycle < 0 || newest.best.cycle == newest.cycle) return GA_OK;
    ga_ckpt_name(newest.best.cycle, 0, name);
    if (snprintf(best, sizeof best, "%s/%s", folder, name) >= GA_PATH_MAX || access(best, F_OK) != 0) return GA_OK;
    if (verify(AT_FDCWD, best, true, &state, &why) < 0) {
        ga_say("checkpoint %s rejected, that of the best evaluation: %s", best, why.msg);
        return GA_OK;
    }
    memcpy(path, best, sizeof best);
    return GA_OK;
}

int ga_ckpt_find_path(const char *what, char *path, ga_err *e) {
    ga_ckpt_state state;
    ga_err why;
    if (strlen(what) >= GA_PATH_MAX) return ga_fail(e, GA_INPUT, "--resume: the path is too long");
    if (verify(AT_FDCWD, what, true, &state, &why) < 0)
        return ga_fail(e, (ga_status)why.code, "--resume: %.200s: %.250s", what, why.msg);
    memmove(path, what, strlen(what) + 1);
    return GA_OK;
}
