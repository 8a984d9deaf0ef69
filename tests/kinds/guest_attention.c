// SPDX-License-Identifier: Apache-2.0
// A guest for attention: one rank, bshd, fp32, no mask, as many key heads as query heads. Its
// results are right. The argument names what it does besides: "behind" and "before" write one
// element outside of a result, "scales" multiplies q in place by the scale, "all" does all of it.
#include <cpattn_guest.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 256

static const char *deed = "none";

static bool does(const char *name)
{
    return strcmp(deed, name) == 0 || strcmp(deed, "all") == 0;
}

struct tensors {
    struct cpattn_guest_tensor q, k, v, d_out, out, dq, dk, dv;
    int64_t keys;
    double scale, q_scale; // of the logits; of q, if the guest has multiplied it
};

static float *vector(const struct cpattn_guest_tensor *t, int64_t batch, int64_t token,
                     int64_t head)
{
    return (float *)t->data + batch * t->strides[0] + token * t->strides[1] + head * t->strides[2];
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void add(float *to, double factor, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += (float)factor * from[i];
}

static void weights_make(const struct tensors *t, const float *q, int64_t b, int64_t h, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < t->keys; j++) {
        p[j] = t->scale * dot(q, vector(&t->k, b, j, h), t->q.shape[3]);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < t->keys; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < t->keys; j++)
        p[j] /= sum;
}

static void row_do(const struct tensors *t, int64_t b, int64_t i, int64_t h)
{
    const float *q = vector(&t->q, b, i, h), *d_out = vector(&t->d_out, b, i, h);
    float *out = vector(&t->out, b, i, h);
    double p[KEYS_MAX];
    int64_t wide = t->v.shape[3], d = t->q.shape[3];
    weights_make(t, q, b, h, p);
    for (int64_t j = 0; j < t->keys; j++)
        add(out, p[j], vector(&t->v, b, j, h), wide);
    double delta = dot(d_out, out, wide);
    for (int64_t j = 0; j < t->keys; j++) {
        double ds = t->scale * p[j] * (dot(d_out, vector(&t->v, b, j, h), wide) - delta);
        add(vector(&t->dv, b, j, h), p[j], d_out, wide);
        add(vector(&t->dq, b, i, h), ds * t->q_scale, vector(&t->k, b, j, h), d);
        add(vector(&t->dk, b, j, h), ds, q, d);
    }
}

static bool tensors_find(const struct cpattn_guest_job *job, struct tensors *t)
{
    const struct {
        const char *name;
        struct cpattn_guest_tensor *tensor;
    } list[] = {{"q", &t->q},     {"k", &t->k},   {"v", &t->v},   {"do", &t->d_out},
                {"out", &t->out}, {"dq", &t->dq}, {"dk", &t->dk}, {"dv", &t->dv}};
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (!cpattn_guest_tensor(job, list[i].name, list[i].tensor) ||
            list[i].tensor->dtype != CPATTN_GUEST_FP32)
            return false;
    t->keys = t->k.shape[1];
    t->scale = 1 / sqrt((double)t->q.shape[3]);
    t->q_scale = 1;
    return t->keys <= KEYS_MAX;
}

static void results_clear(const struct tensors *t)
{
    const struct cpattn_guest_tensor *results[] = {&t->out, &t->dq, &t->dk, &t->dv};
    for (int i = 0; i < 4; i++)
        memset(results[i]->data, 0, results[i]->bytes);
}

static int attend(struct cpattn_guest_job *job, void *context)
{
    struct tensors t;
    (void)context;
    if (!tensors_find(job, &t)) {
        cpattn_guest_fail(job, true, "knows fp32, training and up to 256 keys");
        return 1;
    }
    results_clear(&t);
    for (size_t i = 0; does("scales") && i < t.q.bytes / sizeof(float); i++)
        ((float *)t.q.data)[i] *= (float)t.scale;
    if (does("scales")) {
        t.q_scale = t.scale;
        t.scale = 1;
    }
    for (int64_t b = 0; b < t.q.shape[0]; b++)
        for (int64_t i = 0; i < t.q.shape[1]; i++)
            for (int64_t h = 0; h < t.q.shape[2]; h++)
                row_do(&t, b, i, h);
    if (does("behind"))
        ((float *)t.out.data)[t.out.bytes / sizeof(float)] = 0;
    if (does("before"))
        ((float *)t.dk.data)[-1] = 0;
    return 0;
}

int main(int argc, char **argv)
{
    deed = argc > 1 ? argv[1] : deed;
    return cpattn_guest_main(&(struct cpattn_guest){.attend = attend});
}
