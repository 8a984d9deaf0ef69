// SPDX-License-Identifier: Apache-2.0
#include "client/submit/tensors/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"

void compare_elements(const struct cp_case *c, enum whole_tensor tensor, const void *ours,
                      const void *theirs, struct comparison *result)
{
    struct whole_shape shape;
    double squares = 0, own_squares = 0;
    *result = (struct comparison){.twin_rel = result->twin_rel};
    if (!whole_shape(c, tensor, &shape))
        return;
    result->elements = whole_bytes(c, tensor) / whole_element_bytes(shape.dtype);
    for (int64_t i = 0; i < result->elements; i++) {
        double a = (double)tensors_element(c, tensor, ours, i);
        double b = (double)tensors_element(c, tensor, theirs, i);
        if (!isfinite(a) || !isfinite(b)) {
            bool same = (isnan(a) && isnan(b)) || (isinf(a) && isinf(b) && (a > 0) == (b > 0));
            result->differing += !same;
            result->nonfinite += !same;
            continue;
        }
        double difference = fabs(a - b);
        double limit = COMPARE_LSE_ABSOLUTE + COMPARE_LSE_RELATIVE * fabs(a);
        result->differing += difference > 0;
        result->lse_apart += tensor == WHOLE_LSE && difference > limit;
        squares += difference * difference;
        own_squares += a * a;
        result->max_abs = difference > result->max_abs ? difference : result->max_abs;
    }
    result->rms_rel = own_squares > 0 ? sqrt(squares / own_squares) : squares > 0 ? INFINITY : 0;
}

bool compare_agrees(const struct comparison *comparison)
{
    bool near = comparison->twin_rel == 0 ||
                comparison->rms_rel <= COMPARE_TWINS_MAX * comparison->twin_rel;
    return comparison->nonfinite == 0 && comparison->lse_apart == 0 && near;
}

// The largest error of the twin in any chunk; 0: unknown.
static double twin_of(const struct cpattn_result *result, const char *tensor)
{
    double twin = 0;
    for (int rank = 0; result && rank < result->world_size; rank++) {
        const struct cpattn_figures *f;
        for (int i = 0; (f = cpattn_result_figures(result, rank, i)) != NULL; i++)
            if (strcmp(f->tensor, tensor) == 0 && f->twin_rel > twin)
                twin = f->twin_rel;
    }
    return twin;
}

static void comparison_print(const char *name, const struct comparison *x, FILE *out)
{
    if (x->differing == 0) {
        fprintf(out, "%-10s the same in all %" PRId64 " element%s\n", name, x->elements,
                plural(x->elements));
        return;
    }
    fprintf(out, "%-10s differs in %" PRId64 " of %" PRId64 " elements: RMS %.3g of the tensor",
            name, x->differing, x->elements, x->rms_rel);
    if (x->twin_rel > 0)
        fprintf(out, ", %.3g times an honest kernel's error (two honest ones differ by up to %.3g)",
                x->rms_rel / x->twin_rel, COMPARE_TWINS_MAX);
    fprintf(out, "; largest %.3g", x->max_abs);
    if (x->nonfinite > 0)
        fprintf(out, "; %" PRId64 " are finite in one of the two only", x->nonfinite);
    if (x->lse_apart > 0)
        fprintf(out, "; %" PRId64 " differ by more than %g + %g of the value", x->lse_apart,
                COMPARE_LSE_ABSOLUTE, COMPARE_LSE_RELATIVE);
    fputs(compare_agrees(x) ? "\n" : "  DIFFERS\n", out);
}

static enum status tensor_compare(const struct safetensors *file,
                                  const struct safetensors_tensor *found, const struct cp_case *c,
                                  enum whole_tensor tensor, const void *ours,
                                  struct comparison *result, struct error *error)
{
    enum status status = tensors_check(found, c, tensor, error);
    if (status != STATUS_OK)
        return status;
    void *theirs = malloc((size_t)whole_bytes(c, tensor) + 1);
    if (!theirs)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for %s", found->name);
    status = safetensors_read(file, found, theirs, error);
    if (status == STATUS_OK)
        compare_elements(c, tensor, ours, theirs, result);
    free(theirs);
    return status;
}

enum status compare_file(const struct safetensors *file, const struct cp_case *c,
                         const struct tensors *t, const struct cpattn_result *result, FILE *out,
                         bool *agree, struct error *error)
{
    enum status status = STATUS_OK;
    int compared = 0;
    *agree = true;
    for (int i = WHOLE_INPUTS; i < WHOLE_TENSORS && status == STATUS_OK; i++) {
        const char *name = whole_name((enum whole_tensor)i);
        const struct safetensors_tensor *found = safetensors_find(file, name);
        struct comparison x = {.twin_rel = twin_of(result, name)};
        if (!found || !t->at.wanted[i])
            continue;
        status = tensor_compare(file, found, c, (enum whole_tensor)i, t->at.wanted[i], &x, error);
        if (status != STATUS_OK)
            break;
        comparison_print(name, &x, out);
        *agree = *agree && compare_agrees(&x);
        compared++;
    }
    if (status == STATUS_OK && compared == 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "the file has none of the case's results: out, lse, dq, dk, dv, dbias, "
                           "dsink, max_logit");
    return status;
}
