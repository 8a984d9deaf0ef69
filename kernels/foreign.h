// SPDX-License-Identifier: Apache-2.0
// A provider in a shared object (kernels/cpattn_provider.h) behind the contract of
// kernels/provider.h.
#ifndef CPATTN_KERNELS_FOREIGN_H
#define CPATTN_KERNELS_FOREIGN_H

#include "kernels/provider.h"

// Loads the object, whose provider is called `name` from then on, for tensors of that backend,
// which it borrows. FAILED_PRECONDITION with the reason: the file cannot be loaded, is no provider,
// is of another version, or does not work with this backend.
enum status foreign_open(const char *name, const char *file, const struct backend_ops *ops,
                         struct attention_backend *backend, struct attention_provider **provider,
                         struct error *error) MUST_CHECK;
void foreign_close(struct attention_provider *provider); // takes NULL

#endif
