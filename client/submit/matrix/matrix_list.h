// SPDX-License-Identifier: Apache-2.0
// The cases of a matrix: the product of its axes, without those that the command line leaves out.
// Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_LIST_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_LIST_H

#include "client/submit/matrix/matrix.h"
#include "client/submit/outcome/record.h"

// Combinations before exclusion; a list of them is about 40 MiB.
#define MATRIX_CASES_MAX 100000

// The choices of the command line.
struct matrix_choice {
    const char *const *sets; // "FIELD=VALUE", applied in this order after everything in the file
    int set_count;
    const char *const *filters; // filter.h; a case has to match all
    int filter_count;
    const char *subset; // NULL: the whole matrix
    int shard, shards;  // part `shard`, from 1, of `shards`; 0 of 0: everything
    // Only the cases that did not pass there; `met` is set of each that the matrix has. NULL: all.
    struct record *last_failed;
    bool unskip;      // rules of KIND_BACKEND exclude nothing
    int seqlen_scale; // shrink.h, applied last, to attention only; 0 and 1: unchanged
};

enum matrix_fate {
    MATRIX_RUNS,
    MATRIX_EXCLUDED, // by a rule of the file
    MATRIX_REFUSED,  // by the check of its kind
    MATRIX_FATES,
};

struct matrix_case {
    const struct job_kind *kind_of_job;
    void *packed; // the spec without the unused bytes at its end: matrix_case_load()
    size_t packed_bytes;
    char *id; // "cp_1_0/bf16/w2": the labels of its values, in the order of the axes
    int32_t value[MATRIX_AXES_MAX]; // index of its value on each axis
    enum matrix_fate fate;
    enum matrix_kind kind; // MATRIX_EXCLUDED
    enum status status;    // MATRIX_REFUSED: why; else STATUS_OK
    const char *reason;    // MATRIX_EXCLUDED and MATRIX_REFUSED; else NULL
};

struct matrix_list {
    struct matrix_case *cases;
    int count;
    int fate_count[MATRIX_FATES];             // their sum is `count`
    int left_out;                             // by filters, subset, shard and --last-failed
    struct matrix_axis axes[MATRIX_AXES_MAX]; // those of the matrix after --set
    int axis_count;
    struct matrix_value set_values[MATRIX_AXES_MAX]; // of axes that --set reduces to one value
    char **sets;                                     // field, NUL, value of each --set
    int set_count;
};

// Builds the list; the last axis changes fastest. --set of a field that is an axis reduces the axis
// to this value; of any other field it overrides the file in every case. INVALID_ARGUMENT: a choice
// names something unknown; RESOURCE_EXHAUSTED: too many cases. The list borrows from the matrix.
enum status matrix_list_create(const struct matrix *matrix, const struct matrix_choice *choice,
                               struct matrix_list **list, struct error *error) MUST_CHECK;
void matrix_list_destroy(struct matrix_list *list); // accepts NULL and half-built objects

void matrix_case_load(const struct matrix_case *made, struct job_spec *spec);

#endif
