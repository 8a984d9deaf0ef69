// SPDX-License-Identifier: Apache-2.0
// A collective in one process: the plans of all ranks, their memory, and their execution.
#ifndef CPATTN_TESTS_RANK_COLLECTIVE_SCENE_H
#define CPATTN_TESTS_RANK_COLLECTIVE_SCENE_H

#include "judge/collective.h"
#include "plan/plan.h"

#define SCENE_BUFFERS_MAX 8
// The initial bytes of send and receive. Scratch memory has bytes 0xff.
#define SCENE_MEMORY      0xa5

struct scene {
    struct collective c;
    struct plan *plans[WORLD_SIZE_MAX];
    char *memory[WORLD_SIZE_MAX][SCENE_BUFFERS_MAX];
    void *buffers[WORLD_SIZE_MAX][SCENE_BUFFERS_MAX];
    char *send[WORLD_SIZE_MAX], *receive[WORLD_SIZE_MAX];
    int twice; // a rank that does its first reduction twice, or -1
};

// The default collective with 37 elements, on two ranks.
struct collective scene_usual(void);

// True if the check of the kind admits it.
bool scene_is_possible(const struct collective *c);

// One line of text that identifies the collective.
const char *scene_text(const struct collective *c);

// Makes plans, memory and elements. A test may change the plans before scene_execute().
struct scene *scene_create(const struct collective *c);
void scene_destroy(struct scene *s);
void scene_execute(struct scene *s);

// The broken rules of all ranks, a bit mask.
int scene_broken(const struct scene *s);

#endif
