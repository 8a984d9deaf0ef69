// SPDX-License-Identifier: Apache-2.0
// A provider in a shared object (kernels/cpattn_provider.h) behind the contract of
// kernels/provider.h.
#ifndef CPATTN_KERNELS_FOREIGN_H
#define CPATTN_KERNELS_FOREIGN_H

#include "kernels/provider.h"

// Whether the object can be loaded and its table be used with that backend; it stays loaded then.
// FAILED_PRECONDITION as foreign_open(), which also calls the provider's open().
enum status foreign_look(const char *file, const struct backend_ops *ops,
                         struct error *error) MUST_CHECK;

// Loads the object, whose provider is called `name` from then on, for tensors of that backend,
// which it borrows. FAILED_PRECONDITION with the reason: the file cannot be loaded, is no provider,
// is of another version, or does not work with this backend.
enum status foreign_open(const char *name, const char *file, const struct backend_ops *ops,
                         struct attention_backend *backend, struct attention_provider **provider,
                         struct error *error) MUST_CHECK;
void foreign_close(struct attention_provider *provider); // takes NULL

// What an open provider says of itself, for people; "" where it says nothing.
const char *foreign_about(struct attention_provider *provider);

#endif
