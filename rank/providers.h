// SPDX-License-Identifier: Apache-2.0
// The providers that a rank may load. CPATTN_PROVIDERS, set by the daemon, has one NAME=FILE per
// line. An object is loaded when the first case names it, and stays loaded.
#ifndef CPATTN_RANK_PROVIDERS_H
#define CPATTN_RANK_PROVIDERS_H

#include <limits.h>

#include "common/limits.h"
#include "kernels/provider.h"
#include "rank/job.h"

struct providers {
    const struct backend_ops *ops;
    struct attention_backend *backend;
    struct attention_provider *open[PROVIDERS_MAX];
    int count;
};

// Borrows the backend until providers_fini(), which also accepts a zeroed struct.
void providers_init(struct providers *p, const struct backend_ops *ops,
                    struct attention_backend *backend);
void providers_fini(struct providers *p);

// Looks up the file of a provider in CPATTN_PROVIDERS; false: no such name.
bool providers_file(const char *name, char file[PATH_MAX]);

// Creates the job's attends, with `own` and the provider that the case names. No effect if the job
// has attends already. FAILED_PRECONDITION: there is no such provider, or it cannot be used; other
// errors are those of attends_create().
enum status providers_choose(struct providers *p, struct own_provider *own, struct job *j,
                             struct error *error) MUST_CHECK;

#endif
