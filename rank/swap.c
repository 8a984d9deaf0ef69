// SPDX-License-Identifier: Apache-2.0
#include "rank/swap.h"

static enum status swap_run(void *context, const struct message *messages, int count,
                            struct error *error)
{
    struct transport_swap *s = context;
    struct transport *t = s->transport;
    struct progress_view view = progress_load(s->progress);
    int done = 0;
    enum status status = t->ops->start(t, s->tag++, messages, count, error);
    while (status == STATUS_OK && !done) {
        view.waiting_for = t->ops->waiting_for(t);
        progress_store(s->progress, view);
        status = t->ops->progress(t, -1, &done, error);
    }
    return status;
}

struct swap transport_swap(struct transport_swap *t)
{
    return (struct swap){.run = swap_run, .context = t};
}
