// SPDX-License-Identifier: Apache-2.0
// Implements cpattn_attend() and cpattn_case_tensor().
#include <string.h>

#include "client/client.h"
#include "client/request.h"

// Converts the struct of any version of the header to that of this version. UNIMPLEMENTED: a member
// that this version does not know is set.
static enum status tensors_read(const struct cpattn_tensors *given, struct cpattn_tensors *tensors,
                                struct error *error)
{
    *tensors = (struct cpattn_tensors)CPATTN_TENSORS_INIT;
    if (given->size < sizeof(given->size))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensors.size is %zu; begin with CPATTN_TENSORS_INIT", given->size);
    for (size_t i = sizeof(*tensors); i < given->size; i++)
        if (((const char *)given)[i] != 0)
            return error_set(error, STATUS_UNIMPLEMENTED,
                             "a tensor is set that this version of the library does not know");
    memcpy(tensors, given, given->size < sizeof(*tensors) ? given->size : sizeof(*tensors));
    return STATUS_OK;
}

static enum status inputs_complete(const struct cp_case *c, const struct attend_tensors *tensors,
                                   struct error *error)
{
    struct whole_shape shape;
    for (int i = 0; i < WHOLE_INPUTS; i++)
        if (!tensors->given[i] && whole_shape(c, (enum whole_tensor)i, &shape))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s is missing, which the case has as an input",
                             whole_name((enum whole_tensor)i));
    return STATUS_OK;
}

enum cpattn_status cpattn_attend(struct cpattn_client *client, const struct cpattn_case *c,
                                 const struct cpattn_tensors *tensors, uint64_t timeout_ns,
                                 struct cpattn_result **result, struct cpattn_error *error)
{
    struct cpattn_tensors t = CPATTN_TENSORS_INIT;
    struct error inner = {.status = STATUS_OK};
    struct cpattn_request *request = NULL;
    *result = NULL;
    enum status status = client_check_pid(client->pid, &inner);
    if (status == STATUS_OK)
        status = tensors_read(tensors, &t, &inner);
    const struct attend_tensors inside = {
        .given = {[WHOLE_Q] = t.q,
                  [WHOLE_K] = t.k,
                  [WHOLE_V] = t.v,
                  [WHOLE_DO] = t.d_out,
                  [WHOLE_BIAS] = t.bias,
                  [WHOLE_SINK] = t.sink},
        .wanted = {[WHOLE_OUT] = t.out,
                   [WHOLE_LSE] = t.lse,
                   [WHOLE_DQ] = t.dq,
                   [WHOLE_DK] = t.dk,
                   [WHOLE_DV] = t.dv,
                   [WHOLE_DBIAS] = t.dbias,
                   [WHOLE_DSINK] = t.dsink,
                   [WHOLE_MAX_LOGIT] = t.max_logit},
    };
    if (status == STATUS_OK && c->is_job)
        status = error_set(&inner, STATUS_INVALID_ARGUMENT,
                           "a job of the kind '%s' has no tensors; accepted is a case of attention",
                           c->job.kind);
    if (status == STATUS_OK)
        status = case_check(&c->plain, &inner);
    if (status == STATUS_OK)
        status = inputs_complete(&c->plain, &inside, &inner);
    if (status == STATUS_OK)
        status = request_attend(client, c, &inside, timeout_ns, &request, &inner);
    if (status != STATUS_OK)
        return client_status(status, &inner, error);
    cpattn_wait(request, UINT64_MAX);
    enum cpattn_status collected = cpattn_collect(request, result, error);
    cpattn_request_destroy(request);
    return collected;
}

int64_t cpattn_case_tensor(const struct cpattn_case *c, const char *name, int64_t shape[4],
                           int *dims, const char **dtype)
{
    struct whole_shape found;
    struct error ignored;
    if (c->is_job || case_check(&c->plain, &ignored) != STATUS_OK)
        return -1;
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        if (strcmp(whole_name((enum whole_tensor)i), name) != 0 ||
            !whole_shape(&c->plain, (enum whole_tensor)i, &found))
            continue;
        for (int dim = 0; dim < 4; dim++)
            shape[dim] = dim < found.dims ? found.size[dim] : 1;
        *dims = found.dims;
        *dtype = case_choice_name(case_dtype_choices, (int)found.dtype);
        return whole_bytes(&c->plain, (enum whole_tensor)i);
    }
    return -1;
}
