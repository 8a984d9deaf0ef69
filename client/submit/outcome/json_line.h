// SPDX-License-Identifier: Apache-2.0
// A line of a file of JSON objects, and sentences about what is wrong with it. A sentence names the
// member, its value and what is accepted; the caller puts file and line before it.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_JSON_LINE_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_JSON_LINE_H

#include <jansson.h>

#include "common/status.h"

// Reads a line. INVALID_ARGUMENT: it is no JSON object; RESOURCE_EXHAUSTED: out of memory. The
// caller releases the object with json_decref().
enum status json_line_read(const char *line, size_t length, json_t **object,
                           struct error *error) MUST_CHECK;

// INVALID_ARGUMENT: one of the members is there and is no text. The last name is NULL.
enum status json_line_texts(const json_t *object, const char *const *names,
                            struct error *error) MUST_CHECK;

// Returns INVALID_ARGUMENT for a member with this value; `value` NULL: it is missing. `accepted` is
// the end of the sentence.
enum status json_line_refuse(const char *name, const json_t *value, const char *accepted,
                             struct error *error);

#endif
