// SPDX-License-Identifier: Apache-2.0
// A trial tests hypotheses about a mistake. It has rows of wrong results, the right values, and how
// well the best hypothesis of each kind explains the difference. The energy of a vector is the sum
// of its squares.
#ifndef CPATTN_JUDGE_DIAGNOSIS_TRIAL_H
#define CPATTN_JUDGE_DIAGNOSIS_TRIAL_H

#include "judge/diagnosis.h"
#include "judge/diagnosis/variant.h"

#define TRIAL_PANELS_MAX 6

// The best hypothesis of a kind.
struct hypothesis {
    double left;  // share of the error beyond rounding that it does not explain; at most 1
    double lse;   // the same of the LSE of rows of out
    double gone;  // energy that it explains
    double after; // energy that remains, rounding included
    bool partly;  // it is about some of the rows that the mistake changes
    char text[DIAGNOSIS_TEXT_MAX];
};

struct trial {
    const struct diagnosis_input *in;
    const struct cp_case *c;
    int panel_count;
    struct panel panels[TRIAL_PANELS_MAX];
    int panel_first[TRIAL_PANELS_MAX + 1]; // first row of each panel
    int row_of[DIAGNOSIS_ROWS_MAX];        // number of each row in the input
    int64_t positions[DIAGNOSIS_ROWS_MAX];
    int rows, dim;
    double *got, *right, *tried; // [rows][dim]
    double *moved;               // [rows][dim]: scratch of fits
    // LSE of rows of out and lse: as delivered (NAN: unknown), right, and of a variant.
    double lse_got[DIAGNOSIS_ROWS_MAX], lse_right[DIAGNOSIS_ROWS_MAX],
        lse_tried[DIAGNOSIS_ROWS_MAX];
    double error; // energy of got - right
    double got_energy;
    double noise; // energy that rounding explains
    // [rows]: noise of each row, by its share of the energy; at least the average.
    double *row_noise;
    bool finite;
    struct hypothesis best[DIAGNOSIS_KINDS];
    bool interrupted; // the caller ended the search
    bool partly;      // of the hypotheses that are offered now
    void *memory;
};

// Groups the rows into panels and computes their right values. False if that is too much work. The
// trial may have fewer rows than the input.
bool trial_init(struct trial *t, const struct diagnosis_input *in);
void trial_fini(struct trial *t);

// Like trial_init(), without panels. The caller fills got and right, then calls trial_weigh(),
// which computes the energies. `noise`: RMS error of a value in an honest result.
bool trial_init_values(struct trial *t, const struct diagnosis_input *in, int rows, int dim);
void trial_weigh(struct trial *t, double noise);

// What a sentence explains.
enum explains {
    EXPLAINS_NOTHING,
    EXPLAINS_PLACE, // where the error is, not the mistake
    EXPLAINS_MOST,  // of the error, or some of the rows that the mistake changes
    EXPLAINS_ALL
};

// Fills the sentence of the hypothesis that explains the error, if one does.
enum explains trial_decide(const struct trial *t, struct finding *result);

// Returns the variant for one panel; `with` is passed through from trial_evaluate().
typedef struct variant trial_variant(const struct panel *p, const void *with);

// Fills t->tried (and t->lse_tried) with the rows of a variant. Gradients have the right LSE and
// delta.
void trial_evaluate(struct trial *t, trial_variant *variant, const void *with);

// Fills `values` and `lse` with the rows of one panel of a variant. `first` is its first row.
void trial_evaluate_panel(struct trial *t, struct panel *p, const struct variant *variant,
                          int first, double *values, double *lse);

// Like trial_evaluate_panel() for the i-th panel, with another setup and without a mistake. LSE and
// delta of query rows are those of the setup if `consistent`, else the right ones. False if memory
// is short.
bool trial_evaluate_other(struct trial *t, int i, const struct panel_setup *setup, bool consistent,
                          double *values);

// True if a row of out comes with an LSE whose error is more than rounding.
bool trial_lse_is_wrong(const struct trial *t, int row);

// Rates a hypothesis: compares `values`, and lse_tried with rows of out and lse, with the delivered
// values. trial_keep_lse() sets lse_tried to the right values. The text is kept if the hypothesis
// is the best of its kind.
void trial_keep_lse(struct trial *t);
__attribute__((format(printf, 4, 5))) void trial_offer(struct trial *t, enum diagnosis_kind kind,
                                                       const double *values, const char *format,
                                                       ...);

// True if the caller wants the search to end. Call it before each long step.
bool trial_over(struct trial *t);

// True if a hypothesis explains the whole error, so that no other can be better.
bool trial_solved(const struct trial *t);

// The rows that a mistake concerns: those that it changes by more than rounding and that are nearer
// to it than to their right values.
struct some_rows {
    int wrong, shown;    // such rows; rows that the mistake changes by more than rounding
    int64_t first, last; // positions of the wrong rows
};

// True if the error of a row, or of its LSE, is more than rounding.
bool trial_row_is_wrong(const struct trial *t, int row);

// Replaces the rows of t->tried and t->lse_tried that are not wrong by the right ones.
struct some_rows trial_some_rows(struct trial *t);

// Fills in " in 3 of 5 examined rows that it changes, ..."; "" if all of them are wrong.
void some_rows_name(const struct some_rows *x, char *text, size_t size);

// Describes the rows of the trial that are bad, such as "in all 12 examined rows of sequence 2, the
// last one". False if the bad rows are neither these nor all.
bool trial_rows_name(const struct trial *t, const bool *bad, char *text, size_t size);

// "in the backward pass " for a gradient, else "": the beginning of a sentence.
const char *trial_pass(const struct trial *t);

// Energy of got - values.
double trial_energy(const struct trial *t, const double *values);

// Least squares: the factors of `count` components [rows][dim] whose sum is nearest to got - base
// (NULL: 0). False if they are not determined.
bool trial_fit(const struct trial *t, double *const *components, int count, const double *base,
               double *factors);

// True if rounding alone may explain how far a factor is from 1 (the rule slope, judge/rules.h).
bool trial_is_one(const struct trial *t, double factor);

// A row or dim is wrong if the energy of its error is more than this multiple of that of rounding.
#define TRIAL_WRONG 20

// Writes a factor with as many digits as are certain, at most 6: a fit of results that are rounded
// may give 1.0499 where it is 1.05.
#define TRIAL_FACTOR_MAX 16
void trial_factor_text(const struct trial *t, double factor, char text[TRIAL_FACTOR_MAX]);

// Names a factor, such as " (the scale of the softmax is missing)"; "" if it has no name.
void trial_factor_name(const struct trial *t, double factor, char *text, size_t size);

// Tries a factor of the contributions of the own rank, or of those of other ranks. `own`
// [rows][dim]: the contributions of the own rank; whose: "keys", "queries".
void trial_try_shares(struct trial *t, double *own, const char *whose);

// Solves a symmetric system of equations in place. False if it is singular.
bool trial_solve(double *matrix, double *right, int count);

// ---- hypotheses by subject ----

void try_plain(struct trial *t);        // without attention: factors, zeros, rows in wrong places
void try_filled(struct trial *t);       // rows that must be zero and are not
void try_plain_values(struct trial *t); // the part of try_plain() that needs no panels
void try_variants(struct trial *t);     // another scale, mask, window, sink, bias, softcap
void try_backward(struct trial *t);     // dq, dk: another LSE, another delta
void try_masks(struct trial *t);        // tiles at the edges of the mask
void try_heads(struct trial *t);        // other heads
void try_sources(struct trial *t);      // query rows: keys of other positions
void try_shifts(struct trial *t);       // rows of neighbouring tokens
void try_sequences(struct trial *t);    // rows and lengths of other sequences
void try_parts(struct trial *t);        // query rows: chunks of keys missing, twice, merged wrongly
void try_visible(struct trial *t);      // query rows: keys of other sequences, one key
void try_online(struct trial *t);       // query rows: a tile missing, sums of tiles not scaled
void try_roundings(struct trial *t);    // intermediate values rounded to a narrower dtype
void try_stored(struct trial *t);       // results with the precision of a narrower dtype
void try_owners(struct trial *t);       // key rows: contributions missing, twice, of other tokens

// ---- if no hypothesis explains the error ----

void cut_find(const struct trial *t, struct finding *result); // errors of half a unit on average
void try_general(struct trial *t); // a description, where no mistake is known
// Names the wrong rows and dims if the others are right, such as rows that two threads wrote.
// any_lse: the LSE of any row may be wrong, too.
void try_places(struct trial *t, bool any_lse);
void narrow_find(struct trial *t, struct finding *result);     // gradients summed in 16 bits
void narrow_lse_find(struct trial *t, struct finding *result); // weights rounded before their sum
void narrow_exp_find(struct trial *t, struct finding *result); // exponentials that are approximate

#endif
