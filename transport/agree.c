// SPDX-License-Identifier: Apache-2.0
#include "transport/agree.h"

#include <string.h>

#include "common/limits.h"

// Tag of these exchanges on the control transport.
#define TAG_AGREE (UINT64_C(1) << 62)

enum status agree_swap(struct transport *control, const struct message *messages, int count,
                       struct error *error)
{
    int done = 0;
    enum status status = control->ops->start(control, TAG_AGREE, messages, count, error);
    while (status == STATUS_OK && !done)
        status = control->ops->progress(control, -1, &done, error);
    return status;
}

enum status agree_share(struct transport *control, const void *mine, char *theirs, size_t bytes,
                        struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    int count = 0;
    memcpy(theirs + (size_t)control->rank * bytes, mine, bytes);
    for (int peer = 0; peer < control->world_size; peer++)
        if (peer != control->rank)
            messages[count++] = (struct message){.peer = peer,
                                                 .send = mine,
                                                 .send_bytes = bytes,
                                                 .receive = theirs + (size_t)peer * bytes,
                                                 .receive_bytes = bytes};
    return agree_swap(control, messages, count, error);
}

enum status agree_all(struct transport *control, bool mine, bool *all, struct error *error)
{
    char own = mine, theirs[WORLD_SIZE_MAX];
    enum status status = agree_share(control, &own, theirs, 1, error);
    *all = status == STATUS_OK;
    for (int peer = 0; peer < control->world_size && status == STATUS_OK; peer++)
        *all = *all && theirs[peer];
    return status;
}
