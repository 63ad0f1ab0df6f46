/* safetensors_load.c: loads arrays by name from a checked file. Data is read, not mapped, so that a file
 * truncated meanwhile gives an error and no signal. */
#include "files/safetensors.h"

#include "files/safetensors_file.h"
#include "files/safetensors_names.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER = 1 << 16 };

typedef ga_tensors_file file;

/* The types that are loaded; false for all others. */
static bool float_type(const char *name, ga_dtype *out) {
    static const ga_dtype read[] = {GA_F32, GA_BF16, GA_F16, GA_F64};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(name, ga_dtype_name(read[i])) == 0) {
            *out = read[i];
            return true;
        }
    return false;
}

/* A counter is a single number; other writers store it as an integer. */
static bool counter_type(const char *name, const ga_param *p, ga_dtype *out) {
    if (p->rank > 0 || strcmp(name, ga_dtype_name(GA_I64)) != 0) return false;
    *out = GA_I64;
    return true;
}

/* How a file may differ from the arrays that it is loaded into. */
typedef struct {
    bool extra;  /* it may hold tensors that are not in the model */
    bool narrow; /* its values may have a wider type, and are rounded */
    bool speak;  /* print to stderr: ignored tensors, and differences that one message has no room for */
    const char *fresh; /* globs of names that it may lack or have with another shape; NULL: none */
} rules;

static const rules EXACT = {false, false, false, NULL};

/* Parameters that keep their initial values for one reason, the first of them by name. */
typedef struct {
    int count;
    char text[360];
} fresh_list;

typedef struct {
    file *f;
    rules rules;
    bool lines; /* print each difference as a line on stderr, instead of adding it to list */
    int missing, shapes, types, extra;
    char text[360];
    ga_text list;
    fresh_list absent, reshaped;
} comparison;

static const json_t *entry_of(file *f, const ga_array *a, const ga_param *p, int l, char *name) {
    return json_object_get(f->root, ga_param_name(p, l, a->suffix, name));
}

static const char *dtype_text(const json_t *entry) {
    return json_string_value(json_object_get(entry, "dtype"));
}

static void add_difference(comparison *c, const char *name, const char *what) {
    if (c->lines)
        ga_say("%s: '%.255s' %s", c->f->path, name, what);
    else
        ga_text_add(&c->list, "%s'%.100s' %s", c->list.used ? "; " : "", name, what);
}

/* "has shape (20, 10), (64, 64) expected" */
static void shape_difference(const json_t *shape, const ga_param *p, ga_text *t) {
    ga_text_add(t, "has shape (");
    for (size_t d = 0; d < json_array_size(shape); d++)
        ga_text_add(t, d ? ", %lld" : "%lld",
                    (long long)json_integer_value(json_array_get(shape, d)));
    ga_text_add(t, "), (");
    for (int d = 0; d < p->rank; d++) ga_text_add(t, d ? ", %lld" : "%lld", (long long)p->shape[d]);
    ga_text_add(t, ") expected");
}

/* Counts a fresh parameter; the first two are named. */
static void add_fresh(fresh_list *list, const char *name, const char *what) {
    const size_t used = strlen(list->text);
    ga_text t = {.base = list->text, .size = sizeof list->text, .used = used};
    if (list->count++ < 2) ga_text_add(&t, "%s'%.100s'%s%s", used ? ", " : "", name, *what ? " " : "", what);
}

static bool same_shape(const json_t *shape, const ga_param *p) {
    if (json_array_size(shape) != (size_t)p->rank) return false;
    for (int d = 0; d < p->rank; d++)
        if (json_integer_value(json_array_get(shape, (size_t)d)) != p->shape[d]) return false;
    return true;
}

static void compare_tensor(comparison *c, const ga_array *a, const ga_param *p, int l) {
    char name[GA_NAME_MAX], what[400] = "";
    ga_text t = {.base = what, .size = sizeof what};
    ga_dtype dtype;
    const json_t *entry = entry_of(c->f, a, p, l, name), *shape = json_object_get(entry, "shape");
    const bool reshaped = entry && !same_shape(shape, p);
    if (reshaped) shape_difference(shape, p, &t);
    if ((!entry || reshaped) && c->rules.fresh && ga_name_fits(c->rules.fresh, name)) {
        add_fresh(entry ? &c->reshaped : &c->absent, name, what);
        return;
    }
    if (!entry || reshaped) {
        *(entry ? &c->shapes : &c->missing) += 1;
        add_difference(c, name, entry ? what : "is missing");
        return;
    }
    if (counter_type(dtype_text(entry), p, &dtype))
        return;
    else if (!float_type(dtype_text(entry), &dtype))
        ga_text_add(&t, "is %s, F16, BF16, F32 or F64 expected", dtype_text(entry));
    else if (dtype != a->dtype && ga_dtype_bytes(dtype) >= ga_dtype_bytes(a->dtype) && !c->rules.narrow)
        ga_text_add(&t, "is %s, which %s would round", ga_dtype_name(dtype),
                    ga_dtype_name(a->dtype));
    else
        return;
    c->types++;
    add_difference(c, name, what);
}

/* Finds the tensors that are not in the model: its names are removed from a shallow copy of the header. */
static int compare_extra(comparison *c, const ga_array *arrays, int count) {
    char name[GA_NAME_MAX];
    const char *extra;
    json_t *value, *rest = json_copy(c->f->root);
    if (!rest) return ga_fail(c->f->e, GA_ENVIRONMENT, "%s: no memory for its names", c->f->path);
    json_object_del(rest, "__metadata__");
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                json_object_del(rest,
                                ga_param_name(&arrays[i].params[k], l, arrays[i].suffix, name));
    c->extra = (int)json_object_size(rest);
    json_object_foreach(rest, extra, value) {
        if (c->rules.extra)
            ga_text_add(&c->list, "%s'%.100s'", c->list.used ? ", " : "", extra);
        else
            add_difference(c, extra, "is not in the model");
    }
    json_decref(rest);
    return GA_OK;
}

static int compare(comparison *c, const ga_array *arrays, int count) {
    c->missing = c->shapes = c->types = 0;
    c->absent = c->reshaped = (fresh_list){0};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                compare_tensor(c, &arrays[i], &arrays[i].params[k], l);
    return c->rules.extra ? GA_OK : compare_extra(c, arrays, count);
}

static int refuse_differences(comparison *c, const ga_array *arrays, int count) {
    const char *where = "";
    if (c->list.full && c->rules.speak) {
        c->lines = true;
        where = "; each is named above";
        GA_TRY(compare(c, arrays, count));
    }
    const char *hint = c->rules.extra && !c->types ? "; --fresh GLOB keeps the initial values of names of GLOB" : "";
    if (!c->list.full)
        return ga_fail(c->f->e, GA_INPUT, "%s: does not fit the model, nothing loaded: %s%s",
                       c->f->path, c->text, hint);
    return ga_fail(c->f->e, GA_INPUT,
                   "%s: does not fit the model, nothing loaded: %d missing, %d of another shape or "
                   "type, %d not in the model%s; the first: %.200s%s",
                   c->f->path, c->missing, c->shapes + c->types, c->extra, where, c->text, hint);
}

static void say_fresh(file *f, const fresh_list *list, const char *why) {
    if (list->count)
        ga_say("%s: parameters %s keep their initial values (%d): %s%s", f->path, why, list->count, list->text,
               list->count > 2 ? ", ..." : "");
}

/* Compares names in both directions, shapes and types. */
static int check_arrays(file *f, const ga_array *arrays, int count, rules r) {
    comparison c = {.f = f, .rules = r};
    c.list = (ga_text){.base = c.text, .size = sizeof c.text};
    GA_TRY(compare(&c, arrays, count));
    if (c.missing || c.shapes || c.types || c.extra) return refuse_differences(&c, arrays, count);
    if (!r.extra) return GA_OK;
    if (r.fresh && c.absent.count + c.reshaped.count == 0)
        return ga_fail(f->e, GA_INPUT, "--fresh %.100s: fits no parameter that %s lacks or has with another shape",
                       r.fresh, f->path);
    if (r.speak) say_fresh(f, &c.absent, "that are not in it");
    if (r.speak) say_fresh(f, &c.reshaped, "of another shape in it");
    GA_TRY(compare_extra(&c, arrays, count));
    if (c.extra && r.speak)
        ga_say("%s: %d tensors are not in the model and are ignored: %s%s", f->path, c.extra, c.text,
               c.list.full ? ", ..." : "");
    return GA_OK;
}

/* The values of one tensor in the file, on their way to memory. */
typedef struct {
    file *f;
    const ga_array *array;
    const char *name;
    ga_dtype dtype;
    int64_t begin; /* offset in the file */
    bool add;      /* to the values in memory */
} values;

/* Gives a run, or a part of one, these values, converted to the type of memory. */
static int take(const values *v, const char *from, ga_held h) {
    _Alignas(16) char buffer[GA_RUN];
    const ga_array *a = v->array;
    if (v->dtype == a->dtype && !v->add) return ga_array_put(a, &h, from, v->f->e);
    void *to = ga_array_get(a, &h, buffer, v->f->e);
    if (!to) return GA_ENVIRONMENT;
    for (int64_t i = 0; i < h.n; i++) {
        double value = ga_get(from, v->dtype, i);
        if (v->add) value += ga_get(to, a->dtype, i);
        ga_set(to, a->dtype, i, value);
        if (isfinite(value) && !isfinite(ga_get(to, a->dtype, i)))
            return ga_fail(v->f->e, GA_INPUT, "%s: '%.100s' holds %g, too large for %s", v->f->path,
                           v->name, value, ga_dtype_name(a->dtype));
    }
    return ga_array_put(a, &h, to, v->f->e);
}

/* Reads elements of the tensor, in parts, to their place. */
static int load_run(const values *v, ga_held h) {
    _Alignas(16) char buffer[BUFFER];
    const int64_t size = (int64_t)ga_dtype_bytes(v->dtype), from = v->begin + h.i * size;
    if (v->dtype == v->array->dtype && !v->add && !v->array->rest)
        return ga_tensors_file_read(v->f, (char *)v->array->base + h.at * size, h.n * size, from);
    for (int64_t i = 0, part; i < h.n; i += part) {
        part = BUFFER / size < h.n - i ? BUFFER / size : h.n - i;
        GA_TRY(ga_tensors_file_read(v->f, buffer, part * size, from + i * size));
        GA_TRY(take(v, buffer, (ga_held){h.i + i, part, h.at + i}));
    }
    return GA_OK;
}

/* Rank 0 reads the whole tensor in parts, of which each rank takes what it holds. */
static int load_together(const values *v, const ga_param *p, int l) {
    _Alignas(16) char buffer[BUFFER];
    const int64_t size = (int64_t)ga_dtype_bytes(v->dtype);
    int code = GA_OK;
    for (int64_t i = 0, part; i < p->n; i += part) {
        part = BUFFER / size < p->n - i ? BUFFER / size : p->n - i;
        GA_TRY(ga_tensors_file_read(v->f, buffer, part * size, v->begin + i * size));
        for (ga_held h = {0}; code == GA_OK && ga_array_next(v->array, p, l, &h);) {
            const int64_t first = h.i > i ? h.i : i, end = h.i + h.n < i + part ? h.i + h.n : i + part;
            if (first < end)
                code = take(v, buffer + (first - i) * size, (ga_held){first, end - first, h.at + first - h.i});
        }
    }
    return ga_tensors_file_agree(v->f, code);
}

static int load_tensor(file *f, const ga_array *a, const ga_param *p, int l, bool add) {
    char name[GA_NAME_MAX];
    ga_dtype dtype = GA_F32;
    const json_t *entry = entry_of(f, a, p, l, name);
    if (!entry || !same_shape(json_object_get(entry, "shape"), p)) return GA_OK; /* a fresh one keeps its value */
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!counter_type(dtype_text(entry), p, &dtype)) float_type(dtype_text(entry), &dtype);
    const int64_t begin = 8 + f->header + json_integer_value(json_array_get(offsets, 0));
    const values v = {f, a, name, dtype, begin, add};
    if (f->comm) return load_together(&v, p, l);
    for (ga_held h = {0}; ga_array_next(a, p, l, &h);) GA_TRY(load_run(&v, h));
    return GA_OK;
}

static int load_arrays(file *f, const ga_array *arrays, int count, bool add) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                GA_TRY(load_tensor(f, &arrays[i], &arrays[i].params[k], l, add));
    return GA_OK;
}

static void load_notes(file *f, ga_note *notes, int count) {
    const json_t *all = json_object_get(f->root, "__metadata__");
    for (int i = 0; i < count; i++) {
        const char *text = json_string_value(json_object_get(all, notes[i].key));
        snprintf(notes[i].value, sizeof notes[i].value, "%s", text ? text : "");
    }
}

int ga_safetensors_check(const char *path, ga_comm *comm, const ga_array *arrays, int count, bool speak,
                         ga_err *e) {
    file f;
    rules r = EXACT;
    r.speak = speak;
    GA_TRY(ga_tensors_file_open(&f, path, comm, e));
    int code = ga_tensors_file_agree(&f, check_arrays(&f, arrays, count, r));
    ga_tensors_file_close(&f);
    return code;
}

static int load(const char *path, ga_comm *comm, const ga_array *arrays, int count, rules r, bool add,
                ga_note *notes, int note_count, ga_err *e) {
    file f;
    GA_TRY(ga_tensors_file_open(&f, path, comm, e));
    for (int i = 0; i < count && r.extra; i++) ga_tensors_adapt(&f, &arrays[i], r.speak);
    int code = ga_tensors_file_agree(&f, check_arrays(&f, arrays, count, r));
    if (code == GA_OK) code = load_arrays(&f, arrays, count, add);
    if (code == GA_OK) load_notes(&f, notes, note_count);
    ga_tensors_file_close(&f);
    return code;
}

int ga_safetensors_load(const char *path, ga_comm *comm, const ga_array *arrays, int count, ga_note *notes,
                        int note_count, ga_err *e) {
    return load(path, comm, arrays, count, EXACT, false, notes, note_count, e);
}

int ga_safetensors_add(const char *path, ga_comm *comm, const ga_array *arrays, int count, ga_note *notes,
                       int note_count, ga_err *e) {
    return load(path, comm, arrays, count, EXACT, true, notes, note_count, e);
}

int ga_safetensors_init(const char *path, const ga_array *arrays, int count, const char *fresh, bool speak,
                        ga_err *e) {
    return load(path, NULL, arrays, count, (rules){true, true, speak, fresh}, false, NULL, 0, e);
}
