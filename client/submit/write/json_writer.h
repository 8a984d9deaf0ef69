// SPDX-License-Identifier: Apache-2.0
// Objects of jansson under construction, and a line of them.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_JSON_WRITER_H
#define CPATTN_CLIENT_SUBMIT_WRITE_JSON_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// jansson's *_set_new() functions return -1 for a NULL value; `failed` collects all failures.
struct json_writer {
    bool failed;
};

// Adds a member; takes over the value.
void json_put(struct json_writer *w, json_t *object, const char *name, json_t *value);
void json_put_text(struct json_writer *w, json_t *object, const char *name, const char *text);
void json_put_int(struct json_writer *w, json_t *object, const char *name, int64_t value);

// Numbers that JSON does not have become texts: "nan", "inf", "-inf".
void json_put_real(struct json_writer *w, json_t *object, const char *name, double value);

// Adds 64 bits as 16 hexadecimal digits, as not every JSON reader takes such numbers.
void json_put_hex(struct json_writer *w, json_t *object, const char *name, uint64_t value);

// Writes the object as one line and releases it; false: memory is short or the stream failed.
bool json_write_line(const struct json_writer *w, FILE *out, json_t *object);

#endif
