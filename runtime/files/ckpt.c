/* ckpt.c: writes checkpoints. A save is reported, and older checkpoints are deleted, only after the new
 * folder is synced under its final name. ckpt_load.c finds and reads them. Each rank writes what it holds; where some
 * ranks do not see the folder, the values of all travel to rank 0. */
#define _GNU_SOURCE /* renameat2 */
#include "files/ckpt.h"

#include "files/ckpt_manifest.h"
#include "files/ckpt_retain.h"
#include "files/file.h"
#include "files/folder.h"
#include "files/shared.h"
#include "files/shards.h"
#include "base/rng.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 96, SCRATCH = GA_PATH_MAX + NAME };

struct ga_ckpt {
    ga_ckpt_config c;
    int folder, lock; /* descriptors, -1: none; lock: rank 0 only */
    bool shared;      /* all ranks see the folder; else it is open on rank 0 only */
    char run[17];
    uint64_t model;
    bool warned;
    int64_t blocks; /* room in checksums */
    uint32_t *checksums;
    size_t manifest_bytes;
    char *manifest;
};

/* One save under way. */
typedef struct {
    ga_ckpt *c;
    const ga_ckpt_state *s;
    char temporary[NAME], final[NAME];
    char old[NAME + 8]; /* new name of the replaced folder, where folders cannot be exchanged; "": none */
    int fd; /* of the temporary folder */
    bool renamed;
    ga_text manifest;
    int listed; /* files in the manifest so far */
    ga_err *e;
} save;

/* The notes of a file: of a gradient, with its sums; of a list of ranks. Returns their number. */
static int notes_of(const ga_ckpt_config *c, const ga_ckpt_file *f, const double *sums, ga_note notes[GA_SAVED_SUMS]) {
    const ga_ckpt_list list = ga_ckpt_list_of(c->comm, f->name);
    notes[0] = list.note;
    if (!sums) return list.group > 0;
    for (int i = 0; i < GA_SAVED_SUMS; i++) {
        notes[i].key = ga_saved_sum_names[i];
        snprintf(notes[i].value, sizeof notes[i].value, "%.17g", sums[i]);
    }
    return GA_SAVED_SUMS;
}

/* Returns the largest number of blocks in one file; *total becomes the bytes of one checkpoint. */
static int64_t measure(const ga_ckpt_config *c, int64_t *total) {
    int64_t largest = 0;
    *total = 0;
    for (int i = 0; i < c->file_count; i++) {
        int64_t bytes = ga_safetensors_bytes(c->files[i].arrays, c->files[i].count, NULL, 0);
        *total += bytes;
        if (bytes > largest) largest = bytes;
    }
    if (c->gradient) {
        int64_t bytes = ga_safetensors_bytes(c->gradient, c->gradient_count, NULL, 0) + GA_PATH_MAX;
        if (bytes > largest) largest = bytes;
    }
    return largest / GA_BLOCK + 1;
}

static size_t manifest_bytes(const ga_ckpt_config *c, int64_t blocks) {
    size_t files = (size_t)(c->file_count + ga_comm_size(c->comm));
    return ga_padded(16384 + GA_DATA_FILES * 640 + GA_CKPT_NUMBERS * 96 + files * (192 + 11 * (size_t)blocks));
}

size_t ga_ckpt_bytes(const ga_ckpt_config *c) {
    int64_t total, blocks = measure(c, &total);
    return ga_padded(sizeof(ga_ckpt)) + ga_padded(4 * (size_t)blocks) + manifest_bytes(c, blocks);
}

static int take_lock(ga_ckpt *c, ga_err *e) {
    char text[160] = "", host[64] = "?";
    c->lock = openat(c->folder, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (c->lock < 0)
        return ga_fail(e, ga_file_status(), "%s/.lock: %s", c->c.folder, strerror(errno));
    if (flock(c->lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK)
            return ga_fail(e, GA_ENVIRONMENT, "%s/.lock: cannot be locked: %s", c->c.folder,
                           strerror(errno));
        ssize_t n = pread(c->lock, text, sizeof text - 1, 0);
        if (n > 0 && text[n - 1] == '\n') text[n - 1] = 0;
        return ga_fail(
            e, GA_INPUT,
            "%s: in use by another run (%s), expected one run per folder: wait for it, or name "
            "another folder",
            c->c.folder, n > 0 ? text : "unknown");
    }
    gethostname(host, sizeof host - 1);
    int n =
        snprintf(text, sizeof text, "pid %ld on host %s, run %s\n", (long)getpid(), host, c->run);
    if (ftruncate(c->lock, 0) || ga_write_all(c->lock, text, (size_t)n))
        return ga_fail(e, GA_ENVIRONMENT, "%s/.lock: writing failed: %s", c->c.folder,
                       strerror(errno));
    return GA_OK;
}

static int remove_temporary(void *arg, const char *name) {
    const ga_ckpt *c = arg;
    if (strncmp(name, ".tmp-", 5) == 0 && ga_folder_remove(c->folder, name) == ENOTDIR) unlinkat(c->folder, name, 0);
    return GA_OK;
}

static int count_checkpoint(void *arg, const char *name) {
    int64_t cycle;
    int r;
    if (ga_ckpt_name_parse(name, &cycle, &r)) ++*(int *)arg;
    return GA_OK;
}

static int check_space(ga_ckpt *c, ga_err *e) {
    struct statvfs v;
    int there = 0;
    int64_t bytes;
    measure(&c->c, &bytes);
    ga_folder_each(c->folder, count_checkpoint, &there);
    const int kept = c->c.keep + (c->c.keep_best ? 1 : 0);
    int64_t saves = there < kept ? kept + 1 - there : 1;
    if (fstatvfs(c->folder, &v)) return GA_OK;
    double room = (double)v.f_bavail * (double)v.f_frsize, need = (double)saves * (double)bytes;
    if (room >= need) return GA_OK;
    return ga_fail(
        e, GA_ENVIRONMENT,
        "%s: %.0f bytes free on the disk, %.0f needed for %lld checkpoints: free some, or "
        "keep fewer",
        c->c.folder, room, need, (long long)saves);
}

/* Rank 0 opens the folder: it creates, locks and cleans it. */
static int open_rank_0(ga_ckpt *c, ga_err *e) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t id =
        ga_rng((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, (uint64_t)getpid(), 0);
    snprintf(c->run, sizeof c->run, "%016llx", (unsigned long long)id);
    GA_TRY(ga_folder_make(c->c.folder, e));
    c->folder = open(c->c.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->folder < 0)
        return ga_fail(e, ga_file_status(), "%s: cannot be opened: %s", c->c.folder, strerror(errno));
    GA_TRY(take_lock(c, e));
    if (!c->c.resumes) GA_TRY(ga_ckpt_check_owner(c->folder, c->c.folder, c->c.program, e));
    ga_folder_each(c->folder, remove_temporary, c);
    return check_space(c, e);
}

static int open_folder(ga_ckpt *c, ga_err *e) {
    ga_comm *comm = c->c.comm;
    const bool first = ga_comm_rank(comm) == 0;
    GA_TRY(ga_comm_agree(comm, first ? open_rank_0(c, e) : GA_OK, e));
    GA_TRY(ga_comm_broadcast(comm, c->run, sizeof c->run, 0, e));
    if (!first) c->folder = open(c->c.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GA_TRY(ga_shared_folder(comm, c->folder, c->c.folder, c->run, &c->shared, e));
    if (!first && !c->shared) ga_ckpt_close(c);
    return GA_OK;
}

int ga_ckpt_open(ga_ckpt **out, const ga_ckpt_config *config, ga_arena *a, ga_err *e) {
    int64_t total, blocks = measure(config, &total);
    *out = NULL;
    if (config->file_count < 1 || config->file_count > GA_CKPT_FILES || config->keep < 1 ||
        strlen(config->folder) > GA_PATH_MAX - NAME)
        return ga_fail(
            e, GA_INPUT,
            "checkpoints: keep %d, or a folder name of %zu bytes: at least 1, at most %d expected",
            config->keep, strlen(config->folder), GA_PATH_MAX - NAME);
    ga_ckpt *c = ga_take(a, sizeof *c, 64, e);
    uint32_t *checksums = c ? ga_take(a, 4 * (size_t)blocks, 64, e) : NULL;
    char *manifest = checksums ? ga_take(a, manifest_bytes(config, blocks), 64, e) : NULL;
    if (!manifest) return GA_BUG;
    *c = (ga_ckpt){.c = *config,
                   .folder = -1,
                   .lock = -1,
                   .model = GA_LAYOUT_HASH,
                   .blocks = blocks,
                   .checksums = checksums,
                   .manifest_bytes = manifest_bytes(config, blocks),
                   .manifest = manifest};
    for (int i = 0; i < config->file_count; i++)
        for (int k = 0; k < config->files[i].count; k++)
            c->model = ga_layout_hash(config->files[i].arrays[k].params,
                                      config->files[i].arrays[k].count, c->model);
    int code = GA_OK;
    for (int i = 0; i < config->file_count && code == GA_OK; i++)
        code = ga_shard_check(config->comm, config->files[i].arrays, config->files[i].count, e);
    if (code == GA_OK && config->gradient)
        code = ga_shard_check(config->comm, config->gradient, config->gradient_count, e);
    if (code == GA_OK) code = open_folder(c, e);
    if (code < 0) {
        ga_ckpt_close(c);
        return code;
    }
    *out = c;
    return GA_OK;
}

void ga_ckpt_close(ga_ckpt *c) {
    if (!c) return;
    if (c->lock >= 0) close(c->lock);
    if (c->folder >= 0) close(c->folder);
    c->lock = c->folder = -1;
}

bool ga_ckpt_has(const ga_ckpt *c, int64_t cycle) {
    char name[NAME];
    ga_ckpt_name(cycle, 0, name);
    return faccessat(c->folder, name, F_OK, 0) == 0;
}

static int fail_folder(save *v, const char *what) {
    return ga_fail(v->e, GA_ENVIRONMENT, "%s: %s: %s", v->c->c.folder, what, strerror(errno));
}

static int fail_at(save *v, const char *name, const char *what) {
    return ga_fail(v->e, GA_ENVIRONMENT, "%s/%s/%s: %s: %s", v->c->c.folder, v->temporary, name,
                   what, strerror(errno));
}

/* Syncs and closes fd, also after a failure; a failed sync or close loses the file. */
static int finish_file(save *v, int fd, const char *name, int code) {
    if (code == GA_OK && fsync(fd)) code = fail_at(v, name, "sync failed");
    if (close(fd) && code == GA_OK) code = fail_at(v, name, "close failed");
    return code;
}

static void list_file(save *v, const char *name, int64_t bytes) {
    ga_manifest_list(&v->manifest, v->listed++ == 0, name, bytes, v->c->checksums);
}

static void path_of(const save *v, const char *name, char path[SCRATCH + NAME]) {
    snprintf(path, SCRATCH + NAME, "%s/%s/%s", v->c->c.folder, v->temporary, name);
}

static int create_file(save *v, const char *name) {
    const int fd = openat(v->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? fail_at(v, name, "cannot be created") : fd;
}

static bool is_divided(const ga_ckpt_file *f) {
    return ga_array_divided(f->arrays, f->count);
}

/* Whether rank 0 does not have all of its values. */
static bool is_shared(const ga_ckpt_file *f) {
    return ga_ckpt_list_named(f->name) || is_divided(f);
}

static ga_ckpt_file gradient_file(const ga_ckpt_config *c, const char *name) {
    return (ga_ckpt_file){.name = name, .arrays = c->gradient, .count = c->gradient_count};
}

/* Creates a file and writes what this rank holds: whole arrays, or the header and its part of divided ones. */
static int write_file(save *v, const ga_ckpt_file *file, bool gradient) {
    const char *name = file->name;
    const ga_array *arrays = file->arrays;
    const int count = file->count;
    char path[SCRATCH + NAME];
    ga_note notes[GA_SAVED_SUMS];
    ga_written written = {.checksums = v->c->checksums, .blocks = v->c->blocks};
    const int fd = create_file(v, name);
    GA_TRY(fd);
    const int note_count = notes_of(&v->c->c, file, gradient ? v->s->sums : NULL, notes);
    path_of(v, name, path);
    const bool finite_only = !gradient || !v->c->c.overflows, divided = ga_array_divided(arrays, count);
    int64_t data = 0;
    int code = divided ? ga_safetensors_begin(fd, path, arrays, count, notes, note_count, &data, v->e)
                       : ga_safetensors_write(fd, path, arrays, count, notes, note_count, finite_only, &written, v->e);
    if (code == GA_OK && divided)
        code = ga_safetensors_put((ga_values_file){fd, path, finite_only, data}, arrays, count, true, v->e);
    code = finish_file(v, fd, name, code);
    if (code == GA_OK && !gradient && !is_shared(file)) list_file(v, name, written.bytes);
    return code;
}

/* Writes this rank's part of divided arrays to the file that rank 0 has created. */
static int write_part(save *v, const ga_ckpt_file *f) {
    char path[SCRATCH + NAME];
    int fd = openat(v->fd, f->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return fail_at(v, f->name, "cannot be opened");
    path_of(v, f->name, path);
    const ga_values_file file = {fd, path, true, ga_safetensors_data(f->arrays, f->count)};
    return finish_file(v, fd, f->name, ga_safetensors_put(file, f->arrays, f->count, false, v->e));
}

/* Rank 0 writes the parts of all ranks to a file, or what rank `of` holds. Collective. */
static int gather_file(save *v, const ga_ckpt_file *file, int of, bool gradient) {
    const bool first = ga_comm_rank(v->c->c.comm) == 0;
    const char *name = file->name;
    char path[SCRATCH + NAME];
    ga_note notes[GA_SAVED_SUMS];
    double sums[GA_SAVED_SUMS];
    ga_values_file f = {-1, path, !gradient || !v->c->c.overflows, 0};
    int code = GA_OK;
    memcpy(sums, v->s->sums, sizeof sums);
    if (gradient) GA_TRY(ga_comm_broadcast(v->c->c.comm, sums, sizeof sums, of, v->e));
    const int note_count = notes_of(&v->c->c, file, gradient ? sums : NULL, notes);
    path_of(v, name, path);
    if (first) code = f.fd = create_file(v, name);
    if (f.fd >= 0)
        code = ga_safetensors_begin(f.fd, path, file->arrays, file->count, notes, note_count, &f.at, v->e);
    code = ga_comm_agree(v->c->c.comm, code, v->e);
    if (code == GA_OK) code = ga_shard_put(v->c->c.comm, f, file->arrays, file->count, of, v->e);
    if (f.fd >= 0) code = finish_file(v, f.fd, name, code);
    return ga_comm_agree(v->c->c.comm, code, v->e);
}

/* Lists a file that other ranks have written, read back from the folder. */
static int list_written(save *v, const char *name) {
    int64_t bytes;
    int fd = openat(v->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return fail_at(v, name, "cannot be opened");
    int code = ga_folder_checksum(fd, name, v->c->checksums, v->c->blocks, &bytes, v->e);
    close(fd);
    if (code == GA_OK) list_file(v, name, bytes);
    return code;
}

static int write_manifest(save *v) {
    ga_text *t = &v->manifest;
    ga_manifest_end(t);
    if (t->full)
        return ga_fail(v->e, GA_BUG, "checkpoint: the manifest needs more than %zu bytes", t->size);
    int fd =
        openat(v->fd, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return fail_at(v, "manifest.json", "cannot be created");
    errno = ga_write_all(fd, t->base, t->used);
    return finish_file(v, fd, "manifest.json",
                       errno ? fail_at(v, "manifest.json", "writing failed") : GA_OK);
}

static int open_temporary(save *v) {
    v->fd = openat(v->c->folder, v->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return v->fd < 0 ? fail_at(v, "", "cannot be opened") : GA_OK;
}

/* Rank 0 makes the folder, and in it the files that the others write to. Its own part goes first: hosts that share a
 * folder may write back whole pages, and so the old bytes beside their own. */
static int begin(save *v) {
    const ga_ckpt_config *c = &v->c->c;
    if (mkdirat(v->c->folder, v->temporary, 0777)) return fail_at(v, "", "cannot be made");
    GA_TRY(open_temporary(v));
    v->manifest = (ga_text){.base = v->c->manifest, .size = v->c->manifest_bytes};
    ga_manifest_begin(&v->manifest, v->s, c->program, v->c->run, v->c->model, ga_comm_size(c->comm));
    for (int i = 0; i < c->file_count && v->c->shared; i++)
        if (is_divided(&c->files[i])) GA_TRY(write_file(v, &c->files[i], false));
    return GA_OK;
}

/* Writes this rank's gradient, the file of a list that it is the first of, and its part of each file that rank 0 has
 * begun. */
static int write_own(save *v) {
    const ga_ckpt_config *c = &v->c->c;
    const int rank = ga_comm_rank(c->comm);
    char name[NAME];
    if (v->fd < 0) GA_TRY(open_temporary(v));
    const ga_ckpt_file gradient = gradient_file(c, ga_ckpt_gradient_name(rank, ga_comm_size(c->comm), name));
    if (v->s->r > 0) GA_TRY(write_file(v, &gradient, true));
    for (int i = 0; i < c->file_count; i++)
        if (ga_ckpt_list_named(c->files[i].name) && ga_ckpt_list_of(c->comm, c->files[i].name).writer == rank)
            GA_TRY(write_file(v, &c->files[i], false));
    for (int i = 0; i < c->file_count && rank > 0; i++)
        if (is_divided(&c->files[i])) GA_TRY(write_part(v, &c->files[i]));
    return GA_OK;
}

/* The same files by rank 0, in a folder that the others do not see. Collective. */
static int gather_all(save *v) {
    const ga_ckpt_config *c = &v->c->c;
    const int world = ga_comm_size(c->comm);
    char name[NAME];
    for (int of = 0; of < world && v->s->r > 0; of++) {
        const ga_ckpt_file gradient = gradient_file(c, ga_ckpt_gradient_name(of, world, name));
        GA_TRY(gather_file(v, &gradient, of, true));
    }
    for (int i = 0; i < c->file_count; i++) {
        const ga_ckpt_list list = ga_ckpt_list_of(c->comm, c->files[i].name);
        if (is_shared(&c->files[i]))
            GA_TRY(gather_file(v, &c->files[i], list.group > 0 ? list.writer : GA_ALL_RANKS, false));
    }
    return GA_OK;
}

static int write_files(save *v) {
    const ga_ckpt_config *c = &v->c->c;
    if (v->s->r > 0 && !c->gradient)
        return ga_fail(v->e, GA_BUG, "checkpoint inside a cycle without a gradient");
    GA_TRY(v->c->shared ? write_own(v) : gather_all(v));
    for (int i = 0; i < c->file_count && ga_comm_rank(c->comm) == 0; i++)
        if (!is_shared(&c->files[i])) GA_TRY(write_file(v, &c->files[i], false));
    return GA_OK;
}

/* For a file system that cannot exchange folders: renames the replaced checkpoint to NAME-old, still a
 * checkpoint's name, so that a complete one exists at every moment. */
static int move_away(save *v) {
    int at = v->c->folder;
    snprintf(v->old, sizeof v->old, "%s-old", v->final);
    if (renameat(at, v->final, at, v->old) == 0 || errno == ENOENT) return GA_OK;
    if (errno != EEXIST && errno != ENOTEMPTY) return fail_at(v, "", "rename failed");
    errno = ga_folder_sync(at); /* of a killed run; the later checkpoint must survive */
    if (errno) return fail_folder(v, "sync failed");
    errno = ga_folder_remove(at, v->old);
    if (errno || renameat(at, v->final, at, v->old)) return fail_at(v, "", "rename failed");
    return GA_OK;
}

/* Gives the folder its final name; an existing folder of that name is exchanged in one step. */
static int rename_folder(save *v) {
    int at = v->c->folder;
    if (renameat2(at, v->temporary, at, v->final, RENAME_NOREPLACE) == 0 ||
        (errno == EEXIST && renameat2(at, v->temporary, at, v->final, RENAME_EXCHANGE) == 0))
        return GA_OK;
    if (errno != EINVAL && errno != ENOSYS) return fail_at(v, "", "rename failed");
    GA_TRY(move_away(v));
    if (renameat(at, v->temporary, at, v->final) == 0) return GA_OK;
    int code = fail_at(v, "", "rename failed");
    renameat(at, v->old, at, v->final);
    return code;
}

/* Rank 0 finishes a save: manifest, syncs, final name; then it deletes older checkpoints. */
static int publish(save *v) {
    const ga_ckpt_config *c = &v->c->c;
    char name[NAME];
    for (int i = 0; i < c->file_count; i++)
        if (is_shared(&c->files[i])) GA_TRY(list_written(v, c->files[i].name));
    for (int rank = 0; v->s->r > 0 && rank < ga_comm_size(c->comm); rank++)
        GA_TRY(list_written(v, ga_ckpt_gradient_name(rank, ga_comm_size(c->comm), name)));
    GA_TRY(write_manifest(v));
    errno = ga_folder_sync(v->fd);
    if (errno) return fail_at(v, "", "sync failed");
    GA_TRY(rename_folder(v));
    v->renamed = true;
    errno = ga_folder_sync(v->c->folder);
    if (errno) return fail_folder(v, "sync failed");
    ga_folder_remove(v->c->folder, v->temporary); /* the replaced one, if exchanged */
    if (*v->old) ga_folder_remove(v->c->folder, v->old);
    ga_ckpt_retain(&(ga_ckpt_kept){v->c->folder, c->folder, v->final, c->keep, c->keep_best ? v->s->best.cycle : -1},
                   &v->c->warned);
    return GA_OK;
}

/* Opens the folder again if somebody has deleted it in mid-run. */
static int restore_folder(ga_ckpt *c, ga_err *e) {
    struct stat st;
    int64_t gone = fstat(c->folder, &st) != 0 || st.st_nlink == 0; /* what rank 0 sees counts */
    GA_TRY(ga_comm_broadcast(c->c.comm, &gone, sizeof gone, 0, e));
    if (!gone) return GA_OK;
    if (ga_comm_rank(c->c.comm) == 0) ga_say("%s: was deleted, and is made again", c->c.folder);
    ga_ckpt_close(c);
    return open_folder(c, e);
}

static int save_all(ga_ckpt *c, const ga_ckpt_state *s, char path[GA_PATH_MAX], ga_err *e) {
    GA_TRY(restore_folder(c, e));
    save v = {.c = c, .s = s, .fd = -1, .e = e};
    ga_comm *comm = c->c.comm;
    bool first = ga_comm_rank(comm) == 0;
    ga_ckpt_name(s->cycle, s->r, v.final);
    snprintf(v.temporary, sizeof v.temporary, ".tmp-%09lld-%s", (long long)s->cycle, c->run);
    int code = ga_comm_agree(comm, first ? begin(&v) : GA_OK, e);
    if (code == GA_OK) code = ga_comm_agree(comm, write_files(&v), e);
    if (code == GA_OK) code = ga_comm_agree(comm, first ? publish(&v) : GA_OK, e);
    if (v.fd >= 0) close(v.fd);
    if (first && code < 0 && !v.renamed) ga_folder_remove(c->folder, v.temporary);
    snprintf(path, GA_PATH_MAX, "%s/%s", c->c.folder, v.final);
    return code;
}

int ga_ckpt_save(ga_ckpt *c, const ga_ckpt_state *s, char *path, ga_err *e) {
    char own[GA_PATH_MAX];
    if (!path) path = own;
    ga_comm_says(c->c.comm, GA_SAVES, s->cycle);
    const int code = save_all(c, s, path, e);
    if (code >= 0) ga_comm_saved(c->c.comm, path);
    ga_comm_says(c->c.comm, GA_COMPUTES, s->cycle + 1);
    return code;
}
