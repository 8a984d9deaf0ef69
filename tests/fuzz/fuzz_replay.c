// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on the files of its corpus, so that every `make check` repeats the inputs that
// a fuzzer has found. Replaces libFuzzer. The corpus of fuzz_NAME is tests/fuzz/corpus/NAME. Files
// on the command line replace it.
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX (4 << 20)

static int number;

// An input that breaks the target ends the process. The driver then misses the plan.
static void input_try(const char *path)
{
    static uint8_t data[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(data, 1, sizeof(data), file) : 0;
    number++;
    if (!file || ferror(file)) {
        printf("not ok %d - %s: %s\n", number, path, strerror(errno));
    } else {
        // On the heap and of the exact size, so that a sanitizer sees a read past the end.
        uint8_t *exact = malloc(size ? size : 1);
        if (!exact)
            abort();
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        printf("ok %d - %s\n", number, path);
    }
    fflush(stdout);
    if (file)
        fclose(file);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void corpus_try(const char *target)
{
    const char *top = getenv("top_srcdir");
    char folder[512], path[1024];
    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", top ? top : ".", target);
    struct dirent **entries;
    int count = scandir(folder, &entries, visible, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        input_try(path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    for (int i = 1; i < argc; i++)
        input_try(argv[i]);
    if (argc == 1)
        corpus_try(strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
    if (number == 0)
        printf("not ok %d - no corpus for %s\n", ++number, name);
    printf("1..%d\n", number);
    return 0;
}
