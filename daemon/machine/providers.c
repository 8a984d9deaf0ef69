// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/providers.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/log.h"
#include "daemon/process/probe.h"

// The parsed output of the program; its keywords are those of rank/provider_probe.h.
struct finding {
    bool loads, opens;
    char text[ERROR_TEXT_MAX]; // the rest of the last line that begins with a keyword
};

static bool word_take(const char *line, const char *word, const char **rest)
{
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0 || line[length] != ' ')
        return false;
    *rest = line + length + 1;
    return true;
}

// Parses the output. Removes the file name at the beginning of the loader's message, because the
// file is shown separately.
static void out_read(char *out, const char *file, struct finding *f)
{
    char *rest;
    size_t length = strlen(file);
    for (char *line = strtok_r(out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *text = NULL;
        probe_clean(line);
        f->loads = f->loads || word_take(line, "loads", &text);
        f->opens = f->opens || word_take(line, "opens", &text);
        if (text || word_take(line, "fails", &text) || word_take(line, "unusable", &text))
            snprintf(f->text, sizeof(f->text), "%.500s", text);
    }
    if (strncmp(f->text, file, length) == 0 && strncmp(f->text + length, ": ", 2) == 0)
        memmove(f->text, f->text + length + 2, strlen(f->text + length + 2) + 1);
}

// Writes why the program ended before open() was done.
static void end_tell(struct probe *p, struct finding *f)
{
    const char *at = f->loads ? "open()" : "loading it";
    if (!p->in_time)
        snprintf(f->text, sizeof(f->text), "%s did not end in time", at);
    else if (WIFSIGNALED(p->status))
        snprintf(f->text, sizeof(f->text), "%s ended the process by signal %d (%s)", at,
                 WTERMSIG(p->status), strsignal(WTERMSIG(p->status)));
    else if (!f->text[0])
        snprintf(f->text, sizeof(f->text), "%s ended the process%s%.400s", at,
                 p->err[0] ? ": " : "", probe_line(p->err));
}

static enum status provider_try(const struct provider_entry *entry, const struct backend *b,
                                int limit_ms, struct finding *finding, struct error *error)
{
    char program[] = "cpattn-rank", option[] = "--probe-provider", device[16];
    char copy[PROVIDER_NAME_MAX];
    char *const arguments[] = {program, option, copy, b->gpu_count > 0 ? device : NULL, NULL};
    struct probe p;
    *finding = (struct finding){.loads = false};
    memcpy(copy, entry->name, sizeof(copy));
    snprintf(device, sizeof(device), "%d", b->gpus[0].index);
    enum status status = probe_program(b->program, arguments, &b->confinement, limit_ms, &p, error);
    if (status != STATUS_OK)
        return status;
    out_read(p.out, entry->file, finding);
    if (!finding->opens)
        end_tell(&p, finding);
    return STATUS_OK;
}

static void log_provider(const struct wire_provider *provider)
{
    struct log_quoted file, about, trouble;
    if (provider->trouble[0])
        log_warning("provider name=%s file=%s action=tried_again_by_cases trouble=%s",
                    provider->name, log_quote(&file, provider->file),
                    log_quote(&trouble, provider->trouble));
    else
        log_notice("provider name=%s file=%s about=%s", provider->name,
                   log_quote(&file, provider->file), log_quote(&about, provider->about));
}

enum status providers_try(const struct provider_list *list, const struct backend *backend,
                          int limit_ms, struct wire_description *description, struct error *error)
{
    description->provider_count = list->count;
    for (int i = 0; i < list->count; i++) {
        const struct provider_entry *entry = &list->entries[i];
        struct wire_provider *told = &description->providers[i];
        struct finding finding;
        enum status status = provider_try(entry, backend, limit_ms, &finding, error);
        if (status != STATUS_OK)
            return status;
        if (!finding.loads)
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "the provider %s (%.1000s) cannot be used: %.400s", entry->name,
                             entry->file, finding.text);
        memcpy(told->name, entry->name, sizeof(entry->name));
        snprintf(told->file, sizeof(told->file), "%.255s", entry->file);
        snprintf(finding.opens ? told->about : told->trouble, sizeof(told->about), "%.255s",
                 finding.text);
        log_provider(told);
    }
    return STATUS_OK;
}
