// SPDX-License-Identifier: Apache-2.0
// A provider computes attention operations of a plan. For each operation, supports() is called
// first. prepare() is called before the case begins, then forward() or backward() any number of
// times.
#ifndef CPATTN_KERNELS_PROVIDER_H
#define CPATTN_KERNELS_PROVIDER_H

#include "kernels/backend.h"

struct prepared_op; // a provider's data of one prepared operation; NULL is allowed

struct attention_provider {
    const struct provider_ops *ops;
    const char *name; // reported in answers
};

struct provider_ops {
    // OK, or UNIMPLEMENTED with the reason as a sentence without a final stop.
    enum status (*supports)(struct attention_provider *p, const struct attention_op *op,
                            struct error *reason);
    // Does all work that grows with the number of slices, and sets *needs (zeroed before). The
    // operation's slices stay valid until discard(). UNIMPLEMENTED as for supports(), if only this
    // work reveals it; RESOURCE_EXHAUSTED: out of memory.
    enum status (*prepare)(struct attention_provider *p, const struct attention_op *op,
                           struct prepared_op **prepared, struct op_needs *needs,
                           struct error *error);
    // Writes the operation's table to `host`; the caller copies it to `device` before the operation
    // is launched. `zeros` are its zero_bytes on the device. Called once for each operation that
    // needs a table or zeros. NULL: no operation needs one.
    void (*place)(struct attention_provider *p, struct prepared_op *prepared, void *host,
                  const void *device, void *zeros);
    // Both follow kernels/attention.h: they merge into O and LSE, or add to gradients. A provider
    // whose kernels cannot merge uses the backend's generic operations. args->slices are those of
    // the operation. `scratch` is aligned to 256 bytes.
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
