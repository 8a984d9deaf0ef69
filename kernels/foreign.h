// SPDX-License-Identifier: Apache-2.0
// Adapts a provider in a shared object (kernels/cpattn_provider.h) to kernels/provider.h.
#ifndef CPATTN_KERNELS_FOREIGN_H
#define CPATTN_KERNELS_FOREIGN_H

#include "kernels/provider.h"

// Loads the object and checks that its table works with this backend; does not call the provider's
// open(). The object stays loaded. FAILED_PRECONDITION as for foreign_open().
enum status foreign_look(const char *file, const struct backend_ops *ops,
                         struct error *error) MUST_CHECK;

// Loads the object and opens its provider under the name `name`, for tensors of this backend.
// Borrows the backend. FAILED_PRECONDITION with the reason: the file cannot be loaded, is not a
// provider, has another version, or does not work with this backend.
enum status foreign_open(const char *name, const char *file, const struct backend_ops *ops,
                         struct attention_backend *backend, struct attention_provider **provider,
                         struct error *error) MUST_CHECK;
void foreign_close(struct attention_provider *provider); // takes NULL

// Human-readable description of an open provider; "": none.
const char *foreign_about(struct attention_provider *provider);

#endif
