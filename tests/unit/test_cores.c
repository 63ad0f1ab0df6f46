/* The quota of control groups, version 2 and 1, from files as the kernel has them; the number of threads. */
#include "scratch.h"

#include "base/cores.h"

/* Writes a file below the scratch folder, and makes its folders. */
static void put(scratch *s, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path(s, name));
    for (char *at = strchr(path + strlen(s->path) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    put_file(path, text, strlen(text));
}

static void version_2(void **state) {
    scratch *s = *state;
    assert_int_equal(ga_cores_quota(s->path), GA_NO_QUOTA); /* no /proc */
    put(s, "proc/self/cgroup", "0::/a/b\n");
    assert_int_equal(ga_cores_quota(s->path), GA_NO_QUOTA); /* no limits */
    put(s, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(ga_cores_quota(s->path), GA_NO_QUOTA);
    put(s, "sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(ga_cores_quota(s->path), 3); /* rounded up */
    put(s, "sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    assert_int_equal(ga_cores_quota(s->path), 2); /* the group above has less */
    put(s, "sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
    assert_int_equal(ga_cores_quota(s->path), 1);
}

static void version_1(void **state) {
    scratch *s = *state;
    put(s, "proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/of/the/host\n1:name=systemd:/\n0::/\n");
    put(s, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put(s, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ga_cores_quota(s->path), GA_NO_QUOTA);
    put(s, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"); /* a container sees its own group as the root */
    assert_int_equal(ga_cores_quota(s->path), 4);
    put(s, "sys/fs/cgroup/cpu/of/cpu.cfs_quota_us", "50000\n");
    put(s, "sys/fs/cgroup/cpu/of/cpu.cfs_period_us", "20000\n");
    assert_int_equal(ga_cores_quota(s->path), 3);
    put(s, "proc/self/cgroup", "5:cpuset:/of\n4:cpuacct:/of\n"); /* other controllers have no quota */
    assert_int_equal(ga_cores_quota(s->path), GA_NO_QUOTA);
}

static void chosen(void **state) {
    (void)state;
    ga_threads n = ga_threads_choose(7, 5, 3, 1);
    assert_int_equal(n.count, 7);
    assert_string_equal(n.why, "--threads");
    n = ga_threads_choose(0, 5, 3, 1);
    assert_int_equal(n.count, 5);
    assert_string_equal(n.why, "target.threads");
    n = ga_threads_choose(0, 0, 1, 1);
    assert_int_equal(n.count, 1);
    assert_string_equal(n.why, "work");
    n = ga_threads_choose(0, 0, 8, 100000); /* more ranks than cores */
    assert_int_equal(n.count, 1);
    assert_string_equal(n.why, "cores");
}

int test_cores(void);
int test_cores(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(version_2, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(version_1, scratch_setup, scratch_teardown), cmocka_unit_test(chosen)};
    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
