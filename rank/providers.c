// SPDX-License-Identifier: Apache-2.0
#include "rank/providers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/foreign.h"

void providers_init(struct providers *p, const struct backend_ops *ops,
                    struct attention_backend *backend)
{
    *p = (struct providers){.ops = ops, .backend = backend};
}

void providers_fini(struct providers *p)
{
    for (int i = 0; i < p->count; i++)
        foreign_close(p->open[i]);
    p->count = 0;
}

bool providers_file(const char *name, char file[PATH_MAX])
{
    const char *line = getenv("CPATTN_PROVIDERS");
    size_t length = strlen(name);
    while (line && *line) {
        const char *end = line + strcspn(line, "\n");
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            int wanted = snprintf(file, PATH_MAX, "%.*s", (int)(end - line - (long)length - 1),
                                  line + length + 1);
            return wanted < PATH_MAX;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

static enum status provider_load(struct providers *p, const char *name,
                                 struct attention_provider **provider, struct error *error)
{
    char file[PATH_MAX];
    struct error reason = {0};
    if (p->count == PROVIDERS_MAX || !providers_file(name, file))
        return error_set(error, STATUS_FAILED_PRECONDITION, "there is no provider '%s'", name);
    enum status status = foreign_open(name, file, p->ops, p->backend, provider, &reason);
    if (status != STATUS_OK)
        return error_set(error, status, "provider %s cannot be used: %.400s", name, reason.text);
    p->open[p->count++] = *provider;
    return STATUS_OK;
}

// Finds a loaded provider, or loads it. *provider is NULL if the name is "".
static enum status provider_find(struct providers *p, const char *name,
                                 struct attention_provider **provider, struct error *error)
{
    *provider = NULL;
    if (!name[0])
        return STATUS_OK;
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->open[i]->name, name) == 0) {
            *provider = p->open[i];
            return STATUS_OK;
        }
    return provider_load(p, name, provider, error);
}

enum status providers_choose(struct providers *p, struct own_provider *own, struct job *j,
                             struct error *error)
{
    struct attention_provider *wanted;
    if (j->attends)
        return STATUS_OK;
    enum status status = provider_find(p, j->c->provider, &wanted, error);
    return status == STATUS_OK
               ? attends_create(j->plan, own, wanted, j->c->provider_fallback, &j->attends, error)
               : status;
}
