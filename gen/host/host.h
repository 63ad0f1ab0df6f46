/* host.h: the C host of gagen: the Lua state it runs in and the table `host` it offers gagen's Lua.
 *
 * Functions of the Lua table `host`. The ones that touch the system return nil, message on failure;
 * wrong argument types raise an error, which is a defect of the caller.
 *   arguments              array of the command line, without --dev DIR
 *   version, lua_release   texts
 *   environment(name)      text or nil
 *   read(path [, limit])   text; regular files only, at most `limit` bytes (default 64 MiB)
 *   exists(path)           "file", "folder", "other" or false
 *   folder(path)           makes the folder and its parents; true
 *   list(path)             array of names, sorted by byte
 *   disk_size(path)        bytes that a file or a folder with all below it takes on disk; links are not followed
 *   absolute(path)         text; need not exist
 *   remove(path)           true: removed, false: was not there; a file, link or empty folder
 *   write(folder, name, text)   "written" or "unchanged"; name is x or runtime/folder/x;
 *                          through a temporary name and rename; never follows a link
 *   link(target, path)     "written" or "unchanged"; replaces only a symbolic link
 *   lock(path)             the file, made if it is not there, as an object: take("shared") or take("alone") locks it
 *                          for this process: true; false, holder if another process has it. release() gives the lock
 *                          back until the next take(), close() for good, as does the end of the process; so does, by
 *                          the rules of POSIX, whatever else opens and closes the file in this process
 *   lock_holder(path)      the process that keeps others from having the file alone, or false: { process = its
 *                          number, name = of its program, or nil, alone = boolean }
 *   pause(seconds)         waits
 *   sha256(text)           64 hexadecimal digits
 *   json(value)            text, keys sorted, two spaces; a table with [1] is an array, an empty one is an object
 *                          unless its metatable has array = true; numbers that are not finite become "nan", "inf",
 *                          "-inf"
 *   parse_json(text)       the value: objects and arrays are tables, null is nil
 *   temporary()            a new folder below $TMPDIR or /tmp, for this user alone
 *   embedded(name)         content of gen/..., templates/..., runtime/... or specs/...; raises if unknown.
 *                          Lua and templates are compiled chunks, texts under --dev
 *   embedded_names(prefix) sorted array of the names that start with prefix
 *   evaluate { path=, text=, words= }   events, or nil, diagnostic (format: gen/spec/record.lua)
 *   csv_line(path)         array of the cells of the first line, each of 255 bytes at most
 *   csv_columns { files=, header=, columns=, rows=, numbers=, categories=, fold=, of=, seed=, eval_rows= }
 *                          of each of the `columns`, over the training rows: { mean=, std=, low=, high= } where
 *                          `numbers` has true, { values= in the order of their appearance, others= { { text=, file=
 *                          (from 1), line= } } of the other rows } where `categories` has; rows beyond `rows` and
 *                          those of the split (runtime/data/data.h) are others
 *   data_scan { kind=, files=, targets=, real=, target=, columns=, inputs=, categories=, own=, header=, real_target=,
 *               scale=, allowed= }
 *                          reads and checks data files whole: { count = of each file, bytes = what a program takes
 *                          for them, fields = { { name=, ids=, shape=, low=, high=, largest_negative=, element= } },
 *                          vocabulary = the bytes of a text }. A real target of csv has odd=, its first value that is
 *                          no class number, odd_file= (from 1) and odd_line=. kind: a word of `data`; targets: files
 *                          of idx and npy; real: "f32" or "f64"; target: column of csv from 1, one of `columns`;
 *                          inputs: place of each column in a row, from 0, or -1, without it all but the target;
 *                          categories: true for columns of text; own: the number of the field, from 1, that a
 *                          category is, or 0; real_target: targets of csv are no classes, even if all are whole;
 *                          scale: of csv; allowed: bytes that a text may hold
 *   byte_pairs(bytes, merges)   the tokenizer of GPT-2: a function from text, UTF-8, to ids of 16 bits, packed. bytes:
 *                          ids of the 256 bytes; merges: left, right, joined id in learned order, packed, 32 bits each
 *   word_pieces(list, unknown)  the tokenizer of BERT's uncased models: a function from text, UTF-8, to
 *                          ids of 32 bits, packed. list: the texts of ids 0, 1, ...; unknown: an id
 *   division(buckets, starts, ranks)   of each bucket { offset, n, "element" | "tensor" | "bucket" } the ranks + 1
 *                          cuts, from its beginning; starts: first elements of tensors (runtime/ranks/shard.h)
 *   distance(type, x, at_x, y, at_y, count)   the largest |x - y| of `count` elements, "F32" or "F64", that lie in two
 *                          texts from bytes at_x and at_y on (from 1), NaN if one is; the largest |y| that is no NaN
 *   floats, transposed, checksums   of tensors and their files (numbers.h)
 *   run { argv..., cwd=, quiet= }   exit status (128 + n for signal n) and, if quiet, what it
 *                          printed; nil, message if it could not be started; no shell. While it
 *                          runs, SIGINT is the program's alone and SIGTERM and SIGHUP go to it
 *   together { { argv..., set = { "NAME=VALUE", ... } }, ..., below= }   runs at most 256 commands at once; all end
 *                          with this process: exit status (128 + n for signal n) of the first failure, else 75
 *                          if one stopped on request, else 0; whether a stop was requested. nil, message: not
 *                          started. SIGINT, SIGTERM and SIGHUP reach them as SIGUSR1, a second SIGINT ends them, and
 *                          so do 5 s after a failure. below: name of the ranks below commands that are launchers
 *   free_port()            number of a port of this machine that nobody listens at; nil, message
 *   cpu()                  array of feature names of this CPU: "avx2", "fma", ... or "aarch64"
 *   terminal(fd)           columns of the terminal that fd 0, 1 or 2 is, 80 if it does not say; else false
 */
#ifndef GA_HOST_H
#define GA_HOST_H

#include <stddef.h>
#include <stdio.h>
#include <lua.h>
#include <lauxlib.h>

#define GA_VERSION "0.1.0"

/* exit codes of gagen */
enum { GA_EXIT_DONE = 0, GA_EXIT_USER = 1, GA_EXIT_BUG = 2, GA_EXIT_ENVIRONMENT = 3 };

typedef struct {
    const char *dev; /* folder that replaces the embedded files, or NULL */
    int argc;        /* arguments without the program's name */
    char **argv;
} ga_host;

/* A state with the libraries, `host`, the searcher for gagen's modules and strict globals; NULL: no
 * memory. `host` must outlive the state. */
lua_State *ga_host_open(const ga_host *host);

/* The ga_host the state was opened with. */
const ga_host *ga_host_of(lua_State *L);

/* Message handler for lua_pcall: adds a traceback to everything but diagnostics. */
int ga_host_handler(lua_State *L);

/* Prints the error value on top of the stack to `out`, pops it and returns the exit code for it. */
int ga_host_report(lua_State *L, FILE *out);

/* Runs gagen: require "gagen", called with host.arguments; returns the exit code. */
int ga_host_main(lua_State *L);

/* Pushes an embedded file (or the text of the file under --dev) and returns 1, or pushes nothing and returns 0. An
 * embedded file of gen is a compiled chunk. */
int ga_embedded_push(lua_State *L, const char *name);

/* Pushes the sorted array of names that start with `prefix`. */
void ga_embedded_names(lua_State *L, const char *prefix);

/* The searcher behind `require`: "passes.memory" is gen/passes/memory.lua. */
int ga_embedded_searcher(lua_State *L);

/* Pushes nil and a message made as by printf; returns 2. */
int ga_host_refuse(lua_State *L, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Functions of `host` by file; each takes and returns Lua values as the list above says. */
int ga_files_read(lua_State *L);
int ga_files_exists(lua_State *L);
int ga_files_folder(lua_State *L);
int ga_files_list(lua_State *L);
int ga_files_disk_size(lua_State *L);
int ga_files_absolute(lua_State *L);
int ga_files_remove(lua_State *L);
int ga_write_file(lua_State *L);
int ga_write_link(lua_State *L);
int ga_lock_open(lua_State *L);
int ga_lock_holder(lua_State *L);
int ga_lock_pause(lua_State *L);
int ga_sha256_hex(lua_State *L);
int ga_files_temporary(lua_State *L);
int ga_json_encode(lua_State *L);
int ga_json_decode(lua_State *L);
int ga_process_host(lua_State *L);
int ga_together(lua_State *L);
int ga_free_port(lua_State *L);
int ga_cpu_features(lua_State *L);
int ga_data_scan_host(lua_State *L);
int ga_csv_line(lua_State *L);
int ga_csv_columns(lua_State *L);
int ga_byte_pairs(lua_State *L);
int ga_word_pieces(lua_State *L);
int ga_division_host(lua_State *L);
int ga_box_evaluate(lua_State *L);

#endif
