// SPDX-License-Identifier: Apache-2.0
// Any text as the header of a safetensors file. The tensors divide the file's bytes, or the text is
// refused with a reason. The first two bytes are the number of bytes of elements after the header.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/tensors/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void require_refusal(enum status status, const struct error *error)
{
    require(status == STATUS_INVALID_ARGUMENT || status == STATUS_RESOURCE_EXHAUSTED);
    require(error->text[0] != '\0');
    // Printable ASCII only.
    for (const char *at = error->text; *at; at++)
        require((unsigned char)*at >= ' ' && (unsigned char)*at <= '~');
}

static void require_tensors(const struct safetensors *s, uint64_t data_bytes)
{
    char text[SAFETENSORS_TEXT_MAX];
    uint64_t end = 0;
    for (int i = 0; i < s->count; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        uint64_t bytes = (uint64_t)t->element_bytes;
        require(t->dims >= 0 && t->dims <= SAFETENSORS_DIMS_MAX);
        for (int dim = 0; dim < t->dims; dim++)
            bytes *= (uint64_t)t->shape[dim];
        require(bytes == t->bytes && t->begin == end);
        require(safetensors_find(s, t->name) == t);
        require(strlen(safetensors_describe(t, text)) < sizeof(text));
        end += bytes;
    }
    require(end == data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct error error = {.text = ""};
    fuzz_accepted = false;
    if (size < 2)
        return 0;
    uint64_t data_bytes = data[0] | (uint64_t)data[1] << 8;
    enum status status =
        safetensors_parse((const char *)data + 2, size - 2, data_bytes, &s, &error);
    if (status != STATUS_OK) {
        require_refusal(status, &error);
        return 0;
    }
    fuzz_accepted = true;
    require_tensors(&s, data_bytes);
    safetensors_fini(&s);
    return 0;
}
