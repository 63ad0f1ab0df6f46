# build.mk: makes `check` in the folder of an emitted program.
#   SOURCE    this folder
#   LIBRARY   libruntime.a of the same sources as the program's
#   OPTIONS   what the case needs, after CFLAGS
# and what the program's own Makefile says the compiler is to be told
FLAGS = $(shell sed -n '/^FLAGS = /,/[^\\]$$/{s/^FLAGS = //; s/\\$$//; p;}' Makefile) -Werror -I$(SOURCE) -I$(SOURCE)/../include \
        $(CFLAGS) $(OPTIONS)

check: check_model.o check_main.o check_differences.o check_drive.o
	$(CC) $(FLAGS) $(LDFLAGS) -o $@ $^ $(LIBRARY) -ljansson -lz -lm

check_model.o: model.c
	$(CC) $(FLAGS) -c -o $@ $<

check_%.o: $(SOURCE)/%.c
	$(CC) $(FLAGS) -c -o $@ $<
