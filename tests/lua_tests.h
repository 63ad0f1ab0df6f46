/* lua_tests.h: tests written in Lua, as tests of cmocka. */
#ifndef GA_LUA_TESTS_H
#define GA_LUA_TESTS_H

/* Runs every entry { name, function(t) } of tests/lua/test_*.lua as one test, each in a fresh state of gagen's
 * host; returns the number of failures. tests/lua/t.lua documents t. Of `count` processes that share the files
 * (whoever comes first takes the next one) this one is `number`, 1..count. */
int ga_lua_tests(int number, int count);

#endif
