/* lua_tests.h: tests written in Lua, as tests of cmocka. */
#ifndef GA_LUA_TESTS_H
#define GA_LUA_TESTS_H

#include "workers.h"

#include <stdbool.h>

/* Adds the entries { name, function(t) } of tests/lua/test_*.lua whose "test_file: name" is wanted, a few of one file
 * per task. Each runs in a fresh state of gagen's host. tests/lua/t.lua documents t. */
void ga_lua_tasks(ga_tasks *list, bool (*wanted)(const char *name));

#endif
