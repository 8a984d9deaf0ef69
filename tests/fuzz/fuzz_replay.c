// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on the files of its corpus, so that every `make check` repeats the inputs that
// a fuzzer has found. Replaces libFuzzer. The corpus of fuzz_NAME is tests/fuzz/corpus/NAME. The
// target must accept the files that tests/fuzz/accepted lists, as patterns NAME/FILE, and refuse
// all others. Files on the command line replace the corpus; whether they are accepted is printed.
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz_target.h"

#define INPUT_MAX    (4 << 20)
#define PATTERNS_MAX 256
#define PATTERN_MAX  128

static int number;

static struct {
    int count;
    char texts[PATTERNS_MAX][PATTERN_MAX];
    bool matched[PATTERNS_MAX];
} patterns; // of the accepted files of the target

static void patterns_read(const char *top, const char *target)
{
    char path[512], line[PATTERN_MAX];
    size_t length = strlen(target);
    snprintf(path, sizeof(path), "%s/tests/fuzz/accepted", top);
    FILE *file = fopen(path, "r");
    while (file && patterns.count < PATTERNS_MAX && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, target, length) == 0 && line[length] == '/')
            strcpy(patterns.texts[patterns.count++], line + length + 1);
    }
    if (file)
        fclose(file);
    else
        printf("not ok %d - %s: %s\n", ++number, path, strerror(errno));
}

static bool is_listed(const char *name)
{
    bool listed = false;
    for (int i = 0; i < patterns.count; i++)
        if (fnmatch(patterns.texts[i], name, 0) == 0)
            listed = patterns.matched[i] = true;
    return listed;
}

// Each pattern is of a file that exists.
static void patterns_check(void)
{
    for (int i = 0; i < patterns.count; i++)
        if (!patterns.matched[i])
            printf("not ok %d - no file of the corpus is '%s'\n", ++number, patterns.texts[i]);
}

// An input that breaks the target ends the process. The driver then misses the plan. `listed`: it
// must be accepted; NULL: not known.
static void input_try(const char *path, const bool *listed)
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
        bool right = !listed || *listed == fuzz_accepted;
        printf("%s %d - %s is %s\n", right ? "ok" : "not ok", number, path,
               fuzz_accepted ? "accepted" : "refused");
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
    const char *given = getenv("top_srcdir"), *top = given ? given : ".";
    char folder[512], path[1024];
    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", top, target);
    patterns_read(top, target);
    struct dirent **entries;
    int count = scandir(folder, &entries, visible, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        bool listed = is_listed(entries[i]->d_name);
        input_try(path, &listed);
        free(entries[i]);
    }
    patterns_check();
    if (count >= 0)
        free(entries);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    for (int i = 1; i < argc; i++)
        input_try(argv[i], NULL);
    if (argc == 1)
        corpus_try(strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
    if (number == 0)
        printf("not ok %d - no corpus for %s\n", ++number, name);
    printf("1..%d\n", number);
    return 0;
}
