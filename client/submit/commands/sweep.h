// SPDX-License-Identifier: Apache-2.0
// Fields with several values on the command line, as --seqlen 4k,16k: the points are their product,
// the last field changing fastest.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_SWEEP_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "plan/kind.h"

#define SWEEP_FIELDS_MAX 8
#define SWEEP_VALUES_MAX 64 // of a field
#define SWEEP_POINTS_MAX 4096

struct sweep_field {
    const char *name; // of a field or a pair; borrowed
    char *text;       // owned; the values, each ended by a NUL
    const char *values[SWEEP_VALUES_MAX];
    int count;
};

// Without fields: a sweep of one point.
struct sweep {
    const struct job_kind *kind;
    struct sweep_field fields[SWEEP_FIELDS_MAX];
    int count;
};
void sweep_fini(struct sweep *sweep);

// True if a value stands for several: it has commas, and the field is neither a list nor a text.
bool sweep_is_meant(const struct sweep *sweep, const char *name, const char *value);

// Adds a field. INVALID_ARGUMENT: a value that the field does not accept, a field that was already
// added, too many fields, values or points.
enum status sweep_add(struct sweep *sweep, const char *name, const char *value,
                      struct error *error) MUST_CHECK;

int sweep_points(const struct sweep *sweep); // at least 1

// Sets the fields of a point in a spec. The values were checked when they were added.
void sweep_apply(const struct sweep *sweep, int point, struct job_spec *spec);

// The value of a field at a point.
const char *sweep_value(const struct sweep *sweep, int point, int field);

#endif
