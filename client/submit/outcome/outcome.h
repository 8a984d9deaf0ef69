// SPDX-License-Identifier: Apache-2.0
// The outcome of a case: the facts that tables, reports and exit statuses need. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_OUTCOME_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cpattn.h"
#include "common/status.h"

enum outcome_kind {
    OUTCOME_NOT_RUN, // not submitted: interrupted, or stopped after a failure
    OUTCOME_PASS,
    OUTCOME_FAIL,       // completed; a tensor broke a rule
    OUTCOME_ERROR,      // not completed
    OUTCOME_EXCLUDED,   // by the matrix file
    OUTCOME_UNVERIFIED, // completed; not compared, as requested
    OUTCOME_KINDS,
};

#define OUTCOME_WORD_MAX     12
#define OUTCOME_SENTENCE_MAX 640
// An error that uses this part of its limit counts as near to it.
#define OUTCOME_NEAR         0.9

struct outcome {
    enum outcome_kind kind;
    enum status status;               // OUTCOME_ERROR: why
    double used;                      // the largest error, divided by its limit
    char tensor[OUTCOME_WORD_MAX];    // its tensor; "" if there are no figures
    char rule[OUTCOME_WORD_MAX];      // its rule; "" if there are no figures
    uint64_t forward_ns, backward_ns; // of the slowest rank
    uint64_t wait_ns, run_ns;         // waiting for a turn and for processes; ranks at work
    int64_t te_mismatches;            // elements outside TransformerEngine's own rule
    bool sampled;                     // not every element was compared
    bool remarked;                    // a tensor has a remark
    bool was_wrong;                   // a pass: the result of an earlier try was wrong
    bool blind;          // case_blind(): a feature cannot show in the verdict. Set by the caller
    uint64_t timeout_ns; // of the request, for a retry; 0: the default. Set by the caller
    const char *command; // that runs it again; NULL: that of its case. Set by the caller
    char *sentence;      // owned; why it failed, was excluded or could not run; NULL for a pass
    char *first;         // owned; message of an earlier try, if a later one passed; or NULL
    char *diagnosis;     // owned; of a fail, the diagnosis that explains most; or NULL
    char *detail;        // owned; the cause in words, or NULL
};

// "pass", "fail", "error", "excluded", "unverified", "not run".
const char *outcome_name(enum outcome_kind kind);

// Summarizes an answer. `result` may be NULL. RESOURCE_EXHAUSTED: out of memory.
enum status outcome_init(struct outcome *outcome, enum cpattn_status status,
                         const struct cpattn_result *result, const char *text) MUST_CHECK;
void outcome_fini(struct outcome *outcome);

// True for a pass and for a completed run without a comparison.
bool outcome_is_good(const struct outcome *outcome);

// Digests of a case that is run several times.
struct outcome_digest {
    int runs; // compared so far
    uint64_t first;
};

// Turns the outcome of a cancelled case into OUTCOME_NOT_RUN, with `why` as its sentence.
// RESOURCE_EXHAUSTED: out of memory.
enum status outcome_not_run(struct outcome *outcome, const char *why) MUST_CHECK;

// Compares a run with the first one: if it completed with other bits, its outcome becomes a fail,
// whether it was verified or not. RESOURCE_EXHAUSTED: out of memory.
enum status outcome_compare(struct outcome *outcome, const struct cpattn_result *result,
                            struct outcome_digest *digest) MUST_CHECK;

// The rules with their names; a NULL name ends the table.
struct outcome_rule {
    uint32_t bit; // CPATTN_RULE_*
    const char *name;
};
extern const struct outcome_rule outcome_rules[];

// Returns the largest error of the figures divided by its limit; infinite if an exact rule is
// broken or an error is no number. *rule is the rule of that limit, a broken one if there is one.
double outcome_used(const struct cpattn_figures *figures, const char **rule);

// value / limit; infinite if one of them is no number.
double outcome_part(double value, double limit);

// Converts an error relative to the reference to units of the twin's error; unchanged without a
// twin.
double outcome_in_twins(const struct cpattn_figures *figures, double relative);

// True for figures of logarithms (LSE, largest logits): their errors are absolute, and the element
// rule alone decides.
bool outcome_is_logarithm(const struct cpattn_figures *figures);

// "1.02", "182", "3e+05"; "68%", "12.3x", "> 99x". Both return `text`.
#define OUTCOME_NUMBER_MAX 16
const char *outcome_number(double value, char text[OUTCOME_NUMBER_MAX]);
const char *outcome_percent(double part, char text[OUTCOME_NUMBER_MAX]);

// Lists the names of the tensors with figures, in the order of the figures; returns their number.
#define OUTCOME_TENSORS_MAX 16
int outcome_tensors(const struct cpattn_result *result, const char *names[OUTCOME_TENSORS_MAX]);

// Finds the worst figures of a tensor and their rank: broken ones first, then by error divided by
// limit. `tensor` is one of the names above.
const struct cpattn_figures *outcome_worst_of(const struct cpattn_result *result,
                                              const char *tensor, int *rank);

// The same for the decisive tensor: the first that broke a rule, else the one nearest to a limit.
// NULL if there are no figures.
const struct cpattn_figures *outcome_worst(const struct cpattn_result *result, int *rank);

// The remarks, each with the text that follows the name of a tensor. A NULL name ends the table.
struct outcome_remark {
    enum cpattn_remark remark;
    const char *name, *text;
};
extern const struct outcome_remark outcome_remarks[];

// True if figures of a tensor have the remark.
bool outcome_remarked(const struct cpattn_result *result, const char *tensor,
                      enum cpattn_remark remark);

// Describes the broken rules: "dq of rank 1, chunk 0: RMS error 21 times the twin's, allowed 1.50".
void outcome_explain(const struct cpattn_figures *figures, int rank, char *text, size_t size);

// Describes place and value of the first bad element; "" if there is none.
void outcome_first_bad(const struct cpattn_figures *figures, char *text, size_t size);

// "the scale is missing; it explains 97 % of the error of dq on rank 1"; "" if the rank has none.
void outcome_diagnosis(const struct cpattn_rank *rank, char *text, size_t size);

// Returns the rank whose diagnosis comes first: one of the decisive tensor if there is one; of
// several the one that explains most, in whole per cent; then the lowest. NULL: there is none.
const struct cpattn_rank *outcome_diagnosed(const struct cpattn_result *result);

#endif
