// SPDX-License-Identifier: Apache-2.0
// What became of a case, in the few facts that a table, a report and an exit status need. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_OUTCOME_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cpattn.h"
#include "common/status.h"

enum outcome_kind {
    OUTCOME_NOT_RUN, // not submitted: interrupted, or stopped after a failure
    OUTCOME_PASS,
    OUTCOME_FAIL,       // ran to its end, and a tensor broke a rule
    OUTCOME_ERROR,      // could not be brought to its end
    OUTCOME_EXCLUDED,   // by the matrix file
    OUTCOME_UNVERIFIED, // ran to its end, and was compared with nothing, as it asked
    OUTCOME_KINDS,
};

#define OUTCOME_WORD_MAX     12
#define OUTCOME_SENTENCE_MAX 640
// The part of a limit from which an error is near it.
#define OUTCOME_NEAR         0.9

struct outcome {
    enum outcome_kind kind;
    enum status status;            // OUTCOME_ERROR: why
    double used;                   // the largest part of a limit that an error took; 1 is the limit
    char tensor[OUTCOME_WORD_MAX]; // of which tensor; "" where there are no figures
    char rule[OUTCOME_WORD_MAX];   // and which rule's limit; "" where there are no figures
    uint64_t forward_ns, backward_ns; // of the slowest rank
    uint64_t wait_ns, run_ns;         // for its turn and for processes; at work
    int64_t te_mismatches;            // elements outside TransformerEngine's own rule
    bool sampled;                     // not every element was judged
    bool remarked;                    // a tensor has a remark
    bool blind;          // case_blind(): the case asks for what cannot show; the caller's
    uint64_t timeout_ns; // that the request was given, to ask again; 0: the usual; the caller's
    char *sentence;      // owned; why it failed, was excluded or could not run; NULL for a pass
    char *first;         // owned; what the first try said, of a pass that took another; or NULL
    char *diagnosis;     // owned; of a fail, the one that explains most; or NULL
    char *detail;        // owned; what there is to say of its cause, or NULL
};

// "pass", "fail", "error", "excluded", "unverified", "not run".
const char *outcome_name(enum outcome_kind kind);

// Sums an answer up. `result` may be NULL. RESOURCE_EXHAUSTED when memory is short.
enum status outcome_init(struct outcome *outcome, enum cpattn_status status,
                         const struct cpattn_result *result, const char *text) MUST_CHECK;
void outcome_fini(struct outcome *outcome);

// Whether nothing was found wrong: a pass, or a run that was compared with nothing.
bool outcome_is_good(const struct outcome *outcome);

// The results of a case that is run several times.
struct outcome_digest {
    int runs; // compared so far
    uint64_t first;
};

// Compares one more run with the first: where it came to its end and its bits are not the same, it
// is a fail, whether it was verified or not. RESOURCE_EXHAUSTED when memory is short.
enum status outcome_compare(struct outcome *outcome, const struct cpattn_result *result,
                            struct outcome_digest *digest) MUST_CHECK;

// The rules by name, ended by a NULL.
struct outcome_rule {
    uint32_t bit; // CPATTN_RULE_*
    const char *name;
};
extern const struct outcome_rule outcome_rules[];

// Which part of its limits these figures use; infinite where something has to hold exactly and does
// not, or is no number. *rule is the rule whose limit that is: of those broken, where there are
// any.
double outcome_used(const struct cpattn_figures *figures, const char **rule);

// value / limit; infinite where one of them is no number.
double outcome_part(double value, double limit);

// An error relative to the reference in units of the twin's; as it is where there is no twin.
double outcome_in_twins(const struct cpattn_figures *figures, double relative);

// Whether these are figures of a logarithm, whose errors are absolute: LSE or largest logits. There
// the rule of elements says all.
bool outcome_is_logarithm(const struct cpattn_figures *figures);

// "1.02", "182", "3e+05"; "68%", "12.3x", "> 99x". Both return `text`.
#define OUTCOME_NUMBER_MAX 16
const char *outcome_number(double value, char text[OUTCOME_NUMBER_MAX]);
const char *outcome_percent(double part, char text[OUTCOME_NUMBER_MAX]);

// The names of the tensors that there are figures of, in the order of the figures; returns how
// many.
#define OUTCOME_TENSORS_MAX 16
int outcome_tensors(const struct cpattn_result *result, const char *names[OUTCOME_TENSORS_MAX]);

// The worst figures of a tensor and the rank they are from: broken before sound, then by what they
// use of their limits. `tensor` is one of the names above.
const struct cpattn_figures *outcome_worst_of(const struct cpattn_result *result,
                                              const char *tensor, int *rank);

// The same of the tensor that tells best how the case went: the first that broke a rule, else the
// one that uses most of its limits. NULL where there are no figures.
const struct cpattn_figures *outcome_worst(const struct cpattn_result *result, int *rank);

// Whether figures of a tensor have a remark.
bool outcome_remarked(const struct cpattn_result *result, const char *tensor);

// Says which rules the figures broke: "dq of rank 1, chunk 0: error 21 times the twin's, allowed
// 1.50".
void outcome_explain(const struct cpattn_figures *figures, int rank, char *text, size_t size);

// Where the first bad element lies and what it holds; "" where there is none.
void outcome_first_bad(const struct cpattn_figures *figures, char *text, size_t size);

// "the scale is missing; it explains 97 % of the error of dq on rank 1"; "" where a rank has none.
void outcome_diagnosis(const struct cpattn_rank *rank, char *text, size_t size);

#endif
