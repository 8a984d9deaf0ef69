// SPDX-License-Identifier: Apache-2.0
// The providers that a rank may load. The daemon names them in CPATTN_PROVIDERS, one NAME=FILE a
// line; an object is loaded when the first case names it, and stays.
#ifndef CPATTN_RANK_PROVIDERS_H
#define CPATTN_RANK_PROVIDERS_H

#include "common/limits.h"
#include "kernels/provider.h"

struct providers {
    const struct backend_ops *ops;
    struct attention_backend *backend;
    struct attention_provider *open[PROVIDERS_MAX];
    int count;
};

// Borrows the backend until providers_fini(), which takes what is all zeros, too.
void providers_init(struct providers *p, const struct backend_ops *ops,
                    struct attention_backend *backend);
void providers_fini(struct providers *p);

// The provider of that name; NULL for "". FAILED_PRECONDITION: there is none, or it cannot be used.
enum status providers_find(struct providers *p, const char *name,
                           struct attention_provider **provider, struct error *error) MUST_CHECK;

#endif
