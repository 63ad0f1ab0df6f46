/* The limits of the sandbox, tried from inside, and the reader of its report with damaged reports. */
#define _GNU_SOURCE
#include "box.h"
#include "box_wire.h"
#include "host.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int try_nothing(void) { return 0; }
static int try_open(void) { return open("/etc/passwd", O_RDONLY); }
static int try_fork(void) { return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static int try_socket(void) { return (int)syscall(SYS_socket, 2, 1, 0); }
static int try_exec(void) { return execl("/bin/true", "true", NULL); }
static int try_kill(void) { return kill(getppid(), 0); }
static int try_code(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
           != MAP_FAILED;
}
static int try_memory(void) {
    void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED || munmap(p, 1 << 20) != 0;
}

/* Exit status of a limited and filtered process that runs `act`; -1: the system has no filters. */
static int inside(int (*act)(void)) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (!ga_box_limit(ends[1])) _exit(90);
        if (!ga_box_filter()) _exit(91);
        _exit(act() != 0);
    }
    close(ends[0]);
    close(ends[1]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 91 ? -1 : status;
}

static void filter(void **state) {
    (void)state;
    int (*const forbidden[])(
        void) = { try_open, try_fork, try_socket, try_exec, try_kill, try_code };
    int status = inside(try_nothing);
    if (status == -1) {
        printf("NOT RUN: filter: this system refuses system-call filters\n");
        skip();
    }
    assert_int_equal(status, 0);
    assert_int_equal(inside(try_memory), 0);
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        status = inside(forbidden[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSYS);
    }
}

static int count_descriptors(void) {
    int open_ones = 0;
    for (int fd = 0; fd < 256; fd++) open_ones += fcntl(fd, F_GETFD) >= 0;
    return open_ones != 1;
}

static void descriptors(void **state) {
    (void)state;
    int ends[2], status, extra = open("/dev/null", O_RDONLY);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) _exit(ga_box_limit(ends[1]) ? count_descriptors() : 90);
    close(ends[0]);
    close(ends[1]);
    close(extra);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* The kernel ends code without Lua hooks at the time limit, with a signal for that reason. */
static void processor_time(void **state) {
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (!ga_box_limit(ends[1])) _exit(90);
        for (;;) __asm__ volatile("");
    }
    close(ends[0]);
    close(ends[1]);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGXCPU);
}

static const char good[] = "e4:word4:data2;[1;0;1;s3:csv5:scaled0x1p-4;]"
                           "e5:layer1;6:linear+3:fc1-3;[1;0;0;i64;]-"
                           "e11:model_begin4;[0;0;0;]"
                           "e5:field5:input-1;4;"
                           "e5:apply1;1;1;2;5;"
                           "e2:op3:add2;t2;d0x1p+0;3;6;"
                           "e9:model_endt3;.";

static const char *read_report(lua_State *L, const char *text, size_t size) {
    lua_settop(L, 0);
    lua_newtable(L);
    const struct {
        const char *name;
        int bits;
    } names[] = {
        { "data", GA_NAME_CONFIG },
        { "linear", GA_NAME_LAYER },
        { "add", GA_NAME_POINTWISE },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lua_pushinteger(L, names[i].bits);
        lua_setfield(L, -2, names[i].name);
    }
    return ga_wire_read(L, text, size, 1, 9);
}

static void whole_report(void **state) {
    (void)state;
    lua_State *L = luaL_newstate();
    assert_null(read_report(L, good, sizeof good - 1));
    assert_int_equal(lua_rawlen(L, -1), 7);
    lua_rawgeti(L, -1, 1);
    lua_getfield(L, -1, "args");
    lua_getfield(L, -1, "scale");
    assert_true(lua_tonumber(L, -1) == 0.0625);
    lua_close(L);
}

static void refused_reports(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "e",
        "x",
        "e4:word",
        "..",
        "e4:nope.",
        "e4:word4:wrap1;[0;0;0;].",
        "e4:word4:data0;[0;0;0;].",
        "e4:word4:data10;[0;0;0;].",
        "e4:word4:data1;i1;.",
        "e4:word4:data1;[1;0;0;l1;].",
        "e4:word4:data1;[1;0;0;t1;].",
        "e4:word4:data1;[1;0;0;dinf;].",
        "e4:word4:data1;[1;0;0;dnan;].",
        "e4:word4:data1;[0;0;2;1:ay1:ay].",
        "e4:word4:data1;[99999;0;0;].",
        "e4:word4:data1;[1;0;0;s3:a\033c].",
        "e4:word4:data1;[1;0;0;s99:abc].",
        "e4:word4:data1;[1;0;0;i99999999999999999999;].",
        "e4:word4:data1;[1;0;0;i-;].",
        "e5:layer2;6:linear--1;[0;0;0;]-.",
        "e5:layer1;4:data--1;[0;0;0;]-.",
        "e5:layer1;6:linear?-1;[0;0;0;]-.",
        "e2:op3:add1;i1;1;1;.",
        "e11:model_begin1;[0;0;0;].",
        "e9:model_endi1;.",
        "e11:model_begin1;[0;0;0;]e4:word4:data1;[0;0;0;]e9:model_endi1;.",
        "e11:model_begin1;[0;0;0;]e8:loss_endi1;.",
        "e11:model_begin1;[0;0;0;]e5:field1:a-2;1;e9:model_endi1;.",
    };
    lua_State *L = luaL_newstate();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!read_report(L, bad[i], strlen(bad[i]))) fail_msg("accepted: %s", bad[i]);
        assert_int_equal(lua_gettop(L), 1);
    }
    char deep[300] = "e4:word4:data1;";
    for (int i = 0; i < 40; i++) strcat(deep, "[1;0;0;");
    assert_string_equal(read_report(L, deep, strlen(deep)), "tables nested too deep");
    lua_close(L);
}

/* No damage crashes the reader, and a truncated report is always refused. Each report is a separate block
 * of memory, so that AddressSanitizer finds reads outside it. */
static void damaged_reports(void **state) {
    (void)state;
    lua_State *L = luaL_newstate();
    size_t size = sizeof good - 1;
    for (size_t cut = 0; cut < size; cut++) {
        char *text = malloc(cut + 1);
        memcpy(text, good, cut);
        if (!read_report(L, text, cut)) fail_msg("accepted after a cut at byte %zu", cut);
        free(text);
    }
    for (size_t at = 0; at < size; at++) {
        for (int byte = 0; byte < 256; byte += 3) {
            char *text = malloc(size);
            memcpy(text, good, size);
            text[at] = (char)byte;
            read_report(L, text, size);
            free(text);
        }
    }
    lua_close(L);
}

static void bitwise(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int line;
    } cases[] = {
        { "x = 1 & 2", 1 },
        { "\n\nx = a | b", 3 },
        { "x = ~1", 1 },
        { "x = 1 << 2", 1 },
        { "x = 1 >> 2", 1 },
        { "x = a ~ b", 1 },
        { "x = a ~= b", 0 },
        { "x = a < b", 0 },
        { "x = a <= b", 0 },
        { "'&' \"|\"", 0 },
        { "'\\'&'", 0 },
        { "-- & |\n", 0 },
        { "--[[ & \n | ]] & ", 2 },
        { "--[==[ & ]] ]==]", 0 },
        { "[[ & ]]", 0 },
        { "[=[ & ]] ]=] | 1", 1 },
        { "a[b[1]] & 1", 1 },
        { "-- x\n&", 2 },
        { "", 0 },
        { "'", 0 },
        { "--[[", 0 },
        { "'\\", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int line = ga_bits_line(cases[i].text, strlen(cases[i].text));
        if (line != cases[i].line) fail_msg("%s: line %d", cases[i].text, line);
    }
}

int test_box(void);
int test_box(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter),          cmocka_unit_test(descriptors),
        cmocka_unit_test(processor_time),  cmocka_unit_test(whole_report),
        cmocka_unit_test(refused_reports), cmocka_unit_test(damaged_reports),
        cmocka_unit_test(bitwise),
    };
    return cmocka_run_group_tests_name("box", tests, NULL, NULL);
}
