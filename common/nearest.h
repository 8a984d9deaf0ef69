// SPDX-License-Identifier: Apache-2.0
// "did you mean": finds the known name that is closest to an unknown word.
#ifndef CPATTN_COMMON_NEAREST_H
#define CPATTN_COMMON_NEAREST_H

#include <stddef.h>

// Longer words are compared by their first bytes.
#define NEAREST_WORD_MAX 63

struct nearest {
    const char *word; // borrowed
    const char *name; // the closest name offered so far (borrowed), or NULL when none is close
    int distance;     // of `name`, in edits; the largest that still counts as close when NULL
};

// Starts a search. A name is close if its distance is at most a third of the word's length, rounded
// to nearest.
void nearest_init(struct nearest *n, const char *word);

// Offers a name. Case, and '-' and '_', make no difference; two swapped letters are one edit; a
// name that begins with the word (of 3 letters or more) is one edit away. Of equally close names
// the first is kept.
void nearest_offer(struct nearest *n, const char *name);

// Offers `name` as the meaning of the word `other`: it is taken if the searched word is `other`.
void nearest_offer_other(struct nearest *n, const char *other, const char *name);

// Writes " (did you mean 'NAME'?)", or "" if no name is close. Returns `text`.
const char *nearest_hint(const struct nearest *n, char *text, size_t size);

#endif
