// SPDX-License-Identifier: Apache-2.0
// One condition of a filter: a value of a case, and tests, one of which must hold for it. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_CONDITION_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_CONDITION_H

#include <stdbool.h>

#include "plan/kind.h"

#define CONDITION_FACTORS_MAX 8 // of a product

// Named values that are no fields of a job: the models, and the axes whose values set several
// fields. Borrowed by the conditions made with it.
struct condition_names {
    const char *name;
    const char *const *labels;
    int label_count;
};

// The case for which a condition is evaluated.
struct condition_subject {
    const struct job_spec *spec;
    const char *const *labels; // the case's label for each of the names given to condition_aim()
    const char *id;
};

// A field's value as a number. Integers, flags and choices set both members; reals set `real` and
// leave `integer` 0.
struct condition_number {
    int64_t integer;
    double real;
};

enum condition_test_part {
    TEST_EQUAL = 1,
    TEST_PATTERN = 2,
    TEST_MIN = 4,
    TEST_MAX = 8,
    TEST_MULTIPLE = 16,
    TEST_FIELD = 32,
};

struct condition_test {
    unsigned parts; // TEST_* bits: all of them have to hold
    struct condition_number equal;
    char *pattern; // owned
    double min, max;
    int64_t multiple;
    const struct case_field *other;
};

// What a condition compares.
enum condition_target { TARGET_FIELD, TARGET_PAIR, TARGET_PRODUCT, TARGET_LABEL, TARGET_ID };

// Begins as zeros with `kind` set.
struct condition {
    const struct job_kind *kind;
    enum condition_target target;
    bool joined;                                             // by "or" to the condition before it
    const struct case_field *field;                          // TARGET_FIELD; TARGET_PAIR: the first
    const struct case_field *second;                         // TARGET_PAIR: the second
    const struct case_field *factors[CONDITION_FACTORS_MAX]; // TARGET_PRODUCT
    int factor_count;
    int label; // TARGET_LABEL: index in the names
    const struct condition_names *names;
    bool negated;
    struct condition_test *tests; // any of them has to hold
    int count;
};

void condition_fini(struct condition *condition);

// Sets the target that `key` names: a name with labels, a field of the job, a pair of fields, or a
// product of fields. INVALID_ARGUMENT if it is none of these.
enum status condition_aim(struct condition *condition, const char *key,
                          const struct condition_names *names, int name_count,
                          struct error *error) MUST_CHECK;

// Adds an empty test and returns it; NULL: out of memory.
struct condition_test *condition_add_test(struct condition *condition,
                                          struct error *error) MUST_CHECK;

// Adds a test for a value, as text. INVALID_ARGUMENT for a value that the field does not take and a
// label that does not exist.
enum status condition_add_value(struct condition *condition, const char *value,
                                struct error *error) MUST_CHECK;

// Adds a test with a shell pattern (copied).
enum status condition_add_pattern(struct condition *condition, const char *pattern,
                                  struct error *error) MUST_CHECK;

// True if minimum, maximum and multiple have a meaning.
bool condition_is_numeric(const struct condition *condition);

// True for texts and lists, whose text is compared with shell patterns.
bool condition_is_text(const struct case_field *field);

bool condition_holds(const struct condition *condition, const struct condition_subject *subject);

// Sets `error` and returns its status.
enum status condition_no_memory(struct error *error);

#endif
