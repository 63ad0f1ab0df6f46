/* program.c: a program's three files as one, for the tests. */
#include "main.c"
#include "model.c"
#include "step.c"
