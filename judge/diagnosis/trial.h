// SPDX-License-Identifier: Apache-2.0
// The rows of a diagnosis, with what they should be, and the suspicions that have been tried.
#ifndef CPATTN_JUDGE_DIAGNOSIS_TRIAL_H
#define CPATTN_JUDGE_DIAGNOSIS_TRIAL_H

#include "judge/diagnosis.h"
#include "judge/diagnosis/twist.h"

#define TRIAL_PANELS_MAX 6

// What is left of the error with the best suspicion of a kind.
struct suspicion {
    double left;  // share of the error that it leaves, beyond rounding; 1 at most
    double gone;  // energy that it takes away
    double after; // energy that stays, rounding included
    char text[DIAGNOSIS_TEXT_MAX];
};

struct trial {
    const struct diagnosis_input *in;
    const struct cp_case *c;
    int panel_count;
    struct panel panels[TRIAL_PANELS_MAX];
    int panel_first[TRIAL_PANELS_MAX + 1]; // of the rows
    int row_of[DIAGNOSIS_ROWS_MAX];        // the input's row, by row here
    int64_t positions[DIAGNOSIS_ROWS_MAX];
    int rows, dim;
    double *got, *right, *tried; // [rows][dim]
    double *moved;               // the same, for who fits something
    // Of out and lse: as delivered (NAN where unknown), as they should be, and as tried.
    double lse_got[DIAGNOSIS_ROWS_MAX], lse_right[DIAGNOSIS_ROWS_MAX],
        lse_tried[DIAGNOSIS_ROWS_MAX];
    double error; // energy of got - right
    double got_energy;
    double noise; // energy that rounding explains
    bool finite;
    struct suspicion best[DIAGNOSIS_KINDS];
    bool broken_off;
    void *memory;
};

// Groups the rows by panels and computes what they should be. False where that is too much. Rows
// may be fewer than those of the input.
bool trial_init(struct trial *t, const struct diagnosis_input *in);
void trial_fini(struct trial *t);

// The same without panels, for values that the caller fills in: got, right, and then the energies
// by trial_weigh() with the noise of an honest result in each value.
bool trial_init_values(struct trial *t, const struct diagnosis_input *in, int rows, int dim);
void trial_weigh(struct trial *t, double noise);

// The sentence that the suspicions agree on, or none.
void trial_decide(const struct trial *t, struct finding *result);

// A twist of one panel, from what belongs to the suspicion.
typedef struct twist trial_twist(const struct panel *p, const void *with);

// Fills t->tried (and t->lse_tried) with the rows under a twist. Those of gradients have the true
// LSE and delta.
void trial_evaluate(struct trial *t, trial_twist *twist, const void *with);

// Rows of one panel under a twist, at t->tried + first row * dim.
void trial_evaluate_panel(struct trial *t, struct panel *p, const struct twist *twist, int first,
                          double *values, double *lse);

// The same of the i-th panel made in another way, without a twist. LSE and delta are those of the
// other inputs where `consistent`, else the true ones. False where memory is short.
bool trial_evaluate_other(struct trial *t, int i, const struct panel_setup *setup, bool consistent,
                          double *values);

// Weighs `values` against what was delivered; for rows of out and lse with lse_tried, which
// trial_keep_lse() sets to the right ones. The text is kept where the suspicion is the best of its
// kind.
void trial_keep_lse(struct trial *t);
__attribute__((format(printf, 4, 5))) void trial_offer(struct trial *t, enum diagnosis_kind kind,
                                                       const double *values, const char *format,
                                                       ...);

// Whether the caller has had enough. Asked before whatever takes long.
bool trial_over(struct trial *t);

// Whether a suspicion explains all, so that no other one can be better.
bool trial_solved(const struct trial *t);

// Energy of got - values.
double trial_energy(const struct trial *t, const double *values);

// Energy that rounding explains in a row: in proportion to the row, and never less than in a row of
// average size.
double trial_row_noise(const struct trial *t, int row);

// Least squares: the factors of `count` components [rows][dim] whose sum comes nearest to got -
// base (NULL: 0). False where they are not determined.
bool trial_fit(const struct trial *t, double *const *components, int count, const double *base,
               double *factors);

// Whether a factor is so near to 1 that rounding may make it (the rule of slopes, judge/rules.h).
bool trial_is_one(const struct trial *t, double factor);

// Solves a symmetric system of equations in place. False where it is singular.
bool trial_solve(double *matrix, double *right, int count);

// "keys 96 to 143 (rank 1)" of a chunk of a panel's key or query side, with what it is on its way.
void trial_chunk_name(const struct trial *t, const struct chunks *chunks, int chunk,
                      const char *what, char *text, size_t size);

// ---- the suspicions, by subject; each offers its own ----

void suspect_plain(struct trial *t);  // what needs no attention: factors, zeros, rows that moved
void suspect_filled(struct trial *t); // rows that must be zero and are not
void suspect_plain_values(struct trial *t); // the part of it that needs no rows
void suspect_twists(struct trial *t);       // another scale, mask, window, sink, bias, softcap, LSE
void suspect_heads(struct trial *t);        // query rows: other heads
void suspect_sources(struct trial *t);      // query rows: keys of another place
void suspect_shifts(struct trial *t);       // rows of the tokens beside them
void suspect_parts(struct trial *t);  // query rows: chunks of keys missing, twice, merged wrongly
void suspect_owners(struct trial *t); // key rows: contributions missing, twice, of others

// ---- where no suspicion explains the error ----

void narrow_find(struct trial *t, struct finding *result); // gradients summed in 16 bits

#endif
