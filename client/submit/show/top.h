// SPDX-License-Identifier: Apache-2.0
// The picture of `top`: pools, running cases with the steps of their ranks, the queue, users,
// rates, recent verdicts. Independent of daemon and terminal.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_TOP_H
#define CPATTN_CLIENT_SUBMIT_SHOW_TOP_H

#include <stdint.h>

#include "client/cpattn_watch.h"
#include "client/submit/show/frame.h"

#define TOP_USER_MAX   64
#define TOP_RECENT_MAX 128
#define TOP_USERS_MAX  64
#define TOP_RATES_MAX  128

enum top_sort { TOP_BY_AGE, TOP_BY_USER, TOP_BY_RANKS };

// Counters of the cases of one user, from events.
struct top_user {
    char name[TOP_USER_MAX];
    uint64_t finished;
    uint64_t failed;     // verdict fail, or ended without a verdict; cancelled cases do not count
    int running, queued; // now
};

struct top {
    bool local; // the daemon is on this machine: uids can be shown as names
    char address[128];
    enum top_sort sort;
    bool paused;
    int scroll; // rows above the first that is shown; 0: sections are shortened to fit the frame
    struct {
        uint64_t time_ns, total_ns;
        char outcome[32], user[TOP_USER_MAX], what[160];
        enum terminal_paint paint;
    } recent[TOP_RECENT_MAX]; // ring; the last one at (recent_count - 1) % TOP_RECENT_MAX
    uint64_t recent_count;
    int user_count;
    struct top_user users[TOP_USERS_MAX];
    struct {
        uint64_t at_ns, done;
    } rates[TOP_RATES_MAX]; // ring; the last one at (rate_count - 1) % TOP_RATES_MAX
    uint64_t rate_count;
    char trouble[CPATTN_ERROR_TEXT_MAX]; // why the picture is not up to date, or ""
};

// Adds a FINISHED event; ignores others.
void top_event(struct top *t, const struct cpattn_event *event);

// Adds the counters of a status for the rates; `now_ns` is monotonic.
void top_rate(struct top *t, const struct cpattn_daemon_status *s, uint64_t now_ns);

// Draws into a frame that has begun. `s` may be NULL: nothing is known yet. `keys`: the last row
// tells the keys, and t->scroll counts; it is set to the largest possible value if it is larger.
void top_draw(struct top *t, const struct cpattn_daemon_status *s, bool keys, struct frame *f);

#endif
