// SPDX-License-Identifier: Apache-2.0
#include "rank/untouched.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/plural.h"

#define GUARD_BYTES_MAX (GUARD_BYTES + COLLECTIVE_OFFSET_MAX * 8)

// Appends to a list of items in a text of DIAGNOSIS_TEXT_MAX bytes.
__attribute__((format(printf, 2, 3))) static void list_add(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    if (used > 0)
        used += (size_t)snprintf(text + used, DIAGNOSIS_TEXT_MAX - used, ", ");
    if (used >= DIAGNOSIS_TEXT_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text + used, DIAGNOSIS_TEXT_MAX - used, format, arguments);
    va_end(arguments);
}

// ---- names ----

// Name of the tensor at the begin of a buffer, or at its end.
static const char *name_of(const struct plan_buffer *b, bool end)
{
    switch (b->role) {
    case BUFFER_INPUT_KV:
        return end ? "v" : "k";
    case BUFFER_INPUT_DO:
        return "do";
    case BUFFER_DKV:
        return end ? "dv" : "dk";
    case BUFFER_SHARED:
        return "send and receive";
    default:
        return b->name;
    }
}

// ---- guards ----

// Counts the changed bytes of one side of a buffer, and appends them to the sentence.
static enum status side_judge(const struct untouched *u, int32_t buffer, bool end,
                              struct figures *guards, char *text, struct error *error)
{
    const struct plan_buffer *b = &u->plan->buffers[buffer];
    const char *data = u->buffers[buffer];
    int64_t bytes = end ? b->after : b->before;
    unsigned char got[GUARD_BYTES_MAX];
    if (bytes == 0)
        return STATUS_OK;
    enum status status =
        u->memory->read(u->queue, end ? data + b->bytes : data - bytes, (size_t)bytes, got, error);
    if (status != STATUS_OK)
        return status;
    int64_t changed = guard_changed(got, bytes);
    guards->elements += bytes;
    guards->mismatches += changed;
    if (changed > 0)
        list_add(text, "%lld byte%s %s %s", (long long)changed, plural(changed),
                 end ? "behind" : "before", name_of(b, end));
    return status;
}

static enum status guards_judge(const struct untouched *u, struct figures *guards, char *text,
                                struct error *error)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < u->plan->buffer_count && status == STATUS_OK; i++) {
        status = side_judge(u, i, false, guards, text, error);
        if (status == STATUS_OK)
            status = side_judge(u, i, true, guards, text, error);
    }
    guards->broken = guards->mismatches > 0 ? RULE_PADDING : 0;
    return status;
}

// ---- inputs ----

static enum status digest_of(const struct untouched *u, const struct untouched_input *input,
                             uint64_t *digest, struct error *error)
{
    return u->memory->digest(u->queue, input->data, (size_t)input->bytes, NULL, digest, error);
}

static void input_add(struct untouched *u, const char *name, const char *data, int64_t bytes)
{
    u->inputs[u->count++] = (struct untouched_input){.name = name, .data = data, .bytes = bytes};
}

static bool is_input(enum buffer_role role)
{
    return role == BUFFER_INPUT_Q || role == BUFFER_INPUT_DO || role == BUFFER_INPUT_BIAS ||
           role == BUFFER_INPUT_SINK || (role >= BUFFER_LINEAR && role < BUFFER_LINEAR + LINEAR_Y);
}

enum status untouched_begin(struct untouched *u, struct error *error)
{
    enum status status = STATUS_OK;
    u->count = 0;
    for (int32_t i = 0; i < u->plan->buffer_count; i++) {
        const struct plan_buffer *b = &u->plan->buffers[i];
        const char *data = u->buffers[i];
        // Digests need data that is aligned to 8 bytes.
        if (b->role == BUFFER_INPUT_KV && u->key_bytes % 8 == 0) {
            input_add(u, "k", data, u->key_bytes);
            input_add(u, "v", data + u->key_bytes, b->bytes - u->key_bytes);
        } else if (b->role == BUFFER_INPUT_KV) {
            input_add(u, "k or v", data, b->bytes);
        } else if (is_input(b->role)) {
            input_add(u, name_of(b, false), data, b->bytes);
        }
    }
    for (int i = 0; i < u->count && status == STATUS_OK; i++)
        status = digest_of(u, &u->inputs[i], &u->inputs[i].digest, error);
    return status;
}

static enum status inputs_judge(const struct untouched *u, struct figures *inputs, char *text,
                                struct error *error)
{
    enum status status = STATUS_OK;
    inputs->elements = u->count;
    for (int i = 0; i < u->count && status == STATUS_OK; i++) {
        uint64_t digest = 0;
        status = digest_of(u, &u->inputs[i], &digest, error);
        if (status != STATUS_OK || digest == u->inputs[i].digest)
            continue;
        inputs->mismatches++;
        list_add(text, "%s", u->inputs[i].name);
    }
    inputs->broken = inputs->mismatches > 0 && !u->may_change ? RULE_PADDING : 0;
    return status;
}

// ---- the report ----

// Puts a sentence before the diagnosis. A diagnosis that leaves no room for it stays alone.
static void tell(struct diagnosis *d, const char *name, const char *sentence)
{
    size_t length = strlen(sentence) + strlen("; "), rest = strlen(d->text) + 1;
    if (!d->text[0]) {
        snprintf(d->name, sizeof(d->name), "%s", name);
        d->explained = 1;
        snprintf(d->text, sizeof(d->text), "%s", sentence);
    } else if (length + rest <= sizeof(d->text)) {
        memmove(d->text + length, d->text, rest);
        memcpy(d->text, sentence, length - strlen("; "));
        memcpy(d->text + length - strlen("; "), "; ", strlen("; "));
    }
}

static struct figures *figures_add(struct rank_report *report, const char *name)
{
    struct figures *f = report_figures_add(report, name);
    f->chunk = CHUNK_PADDING;
    return f;
}

enum status untouched_judge(const struct untouched *u, struct rank_report *report,
                            struct error *error)
{
    char around[DIAGNOSIS_TEXT_MAX] = "", changed[DIAGNOSIS_TEXT_MAX] = "";
    char text[DIAGNOSIS_TEXT_MAX];
    struct figures *guards = figures_add(report, "guards");
    struct figures *inputs = u->count > 0 ? figures_add(report, "inputs") : NULL;
    enum status status = guards_judge(u, guards, around, error);
    if (status == STATUS_OK && inputs)
        status = inputs_judge(u, inputs, changed, error);
    if (status != STATUS_OK)
        return status;
    guards->judged = guards->elements;
    if (inputs)
        inputs->judged = inputs->elements;
    report->pass = report->pass && !guards->broken && !(inputs && inputs->broken);
    snprintf(text, sizeof(text), "rank %d has changed its input%s %.150s%s", report->rank,
             inputs ? plural(inputs->mismatches) : "", changed,
             u->may_change ? ", which a guest may do" : "");
    if (changed[0] && (!u->may_change || !report->diagnosis.text[0]))
        tell(&report->diagnosis, "inputs", text);
    snprintf(text, sizeof(text), "bytes outside of the tensors of rank %d have changed: %.150s",
             report->rank, around);
    if (around[0])
        tell(&report->diagnosis, "guards", text);
    return STATUS_OK;
}
