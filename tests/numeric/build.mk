# build.mk: makes `check` in the folder of an emitted program: the program and drive.c as one file.
#   SOURCE    this folder
#   OBJECTS   main.o and differences.o of this folder, libruntime.a of the same sources as the program's
#   OPTIONS   what the case needs, after CFLAGS
# and what the program's own Makefile says the compiler is to be told
FLAGS = $(shell sed -n '/^FLAGS = /,/[^\\]$$/{s/^FLAGS = //; s/\\$$//; p;}' Makefile) -Werror -I$(SOURCE) -I$(SOURCE)/../include \
        $(CFLAGS) $(OPTIONS)

check: $(SOURCE)/drive.c
	$(CC) $(FLAGS) $(LDFLAGS) -o $@ $< $(OBJECTS) -ljansson -lz -lm
