// SPDX-License-Identifier: Apache-2.0
// A provider computes attention operations of a plan. It is asked for each operation whether it
// supports it. It prepares the operation before the case begins, and then launches it any number of
// times.
#ifndef CPATTN_KERNELS_PROVIDER_H
#define CPATTN_KERNELS_PROVIDER_H

#include "kernels/backend.h"

struct prepared_op; // a provider's data of one prepared operation; NULL is allowed

struct attention_provider {
    const struct provider_ops *ops;
    const char *name; // in answers
};

struct provider_ops {
    // OK, or UNIMPLEMENTED with the reason as a sentence without a final stop.
    enum status (*supports)(struct attention_provider *p, const struct attention_op *op,
                            struct error *reason);
    // Does all work that grows with the number of slices, and fills in *needs (zeroed before) with
    // the memory that the operation needs. The operation's slices stay valid until discard().
    // UNIMPLEMENTED as for supports(), if only this work reveals it; RESOURCE_EXHAUSTED.
    enum status (*prepare)(struct attention_provider *p, const struct attention_op *op,
                           struct prepared_op **prepared, struct op_needs *needs,
                           struct error *error);
    // Writes the operation's table to `host`; the caller copies it to `device` before the operation
    // is launched. Called once for each operation that needs a table or zeros. NULL: none does.
    void (*place)(struct attention_provider *p, struct prepared_op *prepared, void *host,
                  const void *device, void *zeros);
    // Both follow kernels/attention.h: merge into O and LSE, add to gradients. A provider whose
    // kernels cannot merge uses the backend's generic operations. The slices of the arguments are
    // those of the operation. `scratch` is aligned to 256 bytes.
    enum status (*forward)(struct attention_provider *p, const struct prepared_op *prepared,
                           const struct attention_forward *args, void *scratch,
                           struct error *error);
    enum status (*backward)(struct attention_provider *p, const struct prepared_op *prepared,
                            const struct attention_backward *args, void *scratch,
                            struct error *error);
    void (*discard)(struct attention_provider *p, struct prepared_op *prepared);
};

// The kernels of a backend as a provider. They support every operation.
#define PROVIDER_OWN_NAME "cpattn"
struct own_provider {
    struct attention_provider base;
    const struct backend_ops *ops;
    struct attention_backend *backend;
};

// Borrows the backend for the provider's life.
void own_provider_init(struct own_provider *own, const struct backend_ops *ops,
                       struct attention_backend *backend);

#endif
