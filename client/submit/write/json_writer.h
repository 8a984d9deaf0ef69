// SPDX-License-Identifier: Apache-2.0
// Objects of jansson under construction, and a line of them.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_JSON_WRITER_H
#define CPATTN_CLIENT_SUBMIT_WRITE_JSON_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Every *_set_new() of jansson takes a NULL value for a failure and returns -1; one flag gathers
// them.
struct json_writer {
    bool failed;
};

// Adds a member; takes the value over.
void json_put(struct json_writer *w, json_t *object, const char *name, json_t *value);
void json_put_text(struct json_writer *w, json_t *object, const char *name, const char *text);
void json_put_int(struct json_writer *w, json_t *object, const char *name, int64_t value);

// JSON has no number for what is none: "nan", "inf", "-inf".
void json_put_real(struct json_writer *w, json_t *object, const char *name, double value);

// 64 bits do not fit a number that every reader of JSON takes: as 16 hexadecimal digits.
void json_put_hex(struct json_writer *w, json_t *object, const char *name, uint64_t value);

// Writes the object as one line and releases it. Whether memory sufficed and the stream took it.
bool json_write_line(const struct json_writer *w, FILE *out, json_t *object);

#endif
