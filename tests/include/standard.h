/* standard.h: the headers of the system that emitted programs include, for clang to read once (tests/lua/programs.lua). */
#define _GNU_SOURCE
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
