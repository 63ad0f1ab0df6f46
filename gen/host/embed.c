/* embed: writes text files as one C file, the table of embedded.h.
 * usage: embed FILE... > embedded_files.c    (names sorted by byte; written as given) */
#include <stdio.h>

static int print_file(const char *name, int number) {
    FILE *f = fopen(name, "rb");
    if (!f) {
        perror(name);
        return 1;
    }
    printf("static const unsigned char file_%d[] = {", number);
    int n = 0;
    for (int c; (c = getc(f)) != EOF; n++) printf("%s%d,", n % 24 ? "" : "\n", c);
    printf("\n0};\n");
    int failed = ferror(f);
    fclose(f);
    return failed;
}

int main(int argc, char **argv) {
    printf("/* Made by gen/host/embed.c. */\n#include \"embedded.h\"\n");
    for (int i = 1; i < argc; i++) {
        if (print_file(argv[i], i)) return 1;
    }
    printf("const ga_embedded ga_embedded_files[] = {\n");
    for (int i = 1; i < argc; i++) {
        printf("    {\"%s\", file_%d, sizeof file_%d - 1},\n", argv[i], i, i);
    }
    printf("    {0, 0, 0}\n};\n");
    return fflush(stdout) != 0 || ferror(stdout);
}
