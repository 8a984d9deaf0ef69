// SPDX-License-Identifier: Apache-2.0
#include "rank/provider_probe.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/foreign.h"
#include "rank/providers.h"

#define EXIT_UNAVAILABLE 69 // of sysexits.h

// Prints a line and returns `status`.
static int say(FILE *out, const char *word, const char *text, int status)
{
    fprintf(out, "%s %s\n", word, text);
    fflush(out);
    return status;
}

// Returns a stream to the original stdout, and redirects stdout to stderr.
static FILE *out_take(void)
{
    int fd = dup(STDOUT_FILENO);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return out;
}

int provider_probe(const char *name, const struct backend_ops *ops)
{
    char file[PATH_MAX];
    struct error error;
    struct attention_provider *provider;
    FILE *out = out_take();
    if (!out)
        return EXIT_UNAVAILABLE;
    if (!providers_file(name, file))
        return say(out, "unusable", "there is no such provider", EXIT_UNAVAILABLE);
    if (foreign_look(file, ops, &error) != STATUS_OK)
        return say(out, "unusable", error.text, EXIT_UNAVAILABLE);
    say(out, "loads", "", 0);
    if (foreign_open(name, file, ops, NULL, &provider, &error) != STATUS_OK)
        return say(out, "fails", error.text, EXIT_UNAVAILABLE);
    say(out, "opens", foreign_about(provider), 0);
    foreign_close(provider);
    return EXIT_SUCCESS;
}
