// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/json_writer.h"

#include <inttypes.h>
#include <math.h>

void json_put(struct json_writer *w, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        w->failed = true;
}

void json_put_text(struct json_writer *w, json_t *object, const char *name, const char *text)
{
    json_put(w, object, name, json_string(text));
}

void json_put_int(struct json_writer *w, json_t *object, const char *name, int64_t value)
{
    json_put(w, object, name, json_integer(value));
}

void json_put_real(struct json_writer *w, json_t *object, const char *name, double value)
{
    if (isfinite(value))
        json_put(w, object, name, json_real(value));
    else
        json_put_text(w, object, name, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

void json_put_hex(struct json_writer *w, json_t *object, const char *name, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, value);
    json_put_text(w, object, name, text);
}

bool json_write_line(const struct json_writer *w, FILE *out, json_t *object)
{
    bool fine = !w->failed && object && json_dumpf(object, out, JSON_COMPACT) == 0 &&
                fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(object);
    return fine;
}
