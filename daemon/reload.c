// SPDX-License-Identifier: Apache-2.0
#include "daemon/reload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

// State of one reload, shared by thread and loop; the last of the two to use it frees it.
struct reading {
    struct settings old, read;
    enum status status;
    struct error error;
    pthread_mutex_t lock;  // protects the members below
    struct reload *reload; // NULL: detached
    bool done;
};

struct reload {
    struct ev_loop *loop;
    ev_async done;
    void (*finished)(void *context, const struct settings *settings, const struct error *error);
    void *context;
    struct reading *reading; // NULL: none is in progress
    bool again;              // another reload was requested meanwhile
};

static void reading_free(struct reading *r)
{
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static void *read_settings(void *argument)
{
    struct reading *r = argument;
    r->status = settings_reread(&r->old, &r->read, &r->error);
    pthread_mutex_lock(&r->lock);
    bool awaited = r->reload != NULL;
    r->done = true;
    if (awaited)
        ev_async_send(r->reload->loop, &r->reload->done);
    pthread_mutex_unlock(&r->lock);
    if (!awaited)
        reading_free(r);
    return NULL;
}

// Starts the thread, with all signals blocked; the loop handles signals.
static int thread_start(struct reading *r)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, old;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &detached, read_settings, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&detached);
    return error;
}

static void reading_begin(struct reload *reload, const struct settings *old)
{
    struct error error;
    struct reading *r = calloc(1, sizeof(*r));
    int failed = ENOMEM;
    if (r) {
        r->old = *old;
        r->reload = reload;
        pthread_mutex_init(&r->lock, NULL);
        reload->reading = r;
        failed = thread_start(r);
    }
    if (failed == 0)
        return;
    reload->reading = NULL;
    if (r)
        reading_free(r);
    error_set(&error, STATUS_RESOURCE_EXHAUSTED, "cannot begin to read the settings: %s",
              strerror(failed));
    reload->finished(reload->context, NULL, &error);
}

bool reload_begin(struct reload *reload, const struct settings *old)
{
    bool follows = reload->reading != NULL;
    if (!follows)
        reading_begin(reload, old);
    else
        log_notice("reload action=waits reason=\"the settings are still being read\"");
    reload->again = reload->again || follows;
    return follows;
}

static void on_done(struct ev_loop *loop, ev_async *watcher, int events)
{
    (void)loop;
    (void)events;
    struct reload *reload = watcher->data;
    struct reading *r = reload->reading;
    bool again = reload->again;
    pthread_mutex_lock(&r->lock); // waits until the thread has released the lock
    pthread_mutex_unlock(&r->lock);
    reload->reading = NULL;
    reload->again = false;
    reload->finished(reload->context, r->status == STATUS_OK ? &r->read : NULL, &r->error);
    if (again)
        reading_begin(reload, &r->old);
    reading_free(r);
}

enum status reload_create(struct ev_loop *loop,
                          void (*finished)(void *context, const struct settings *settings,
                                           const struct error *error),
                          void *context, struct reload **reload, struct error *error)
{
    struct reload *r = calloc(1, sizeof(*r));
    if (!r)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the daemon");
    r->loop = loop;
    r->finished = finished;
    r->context = context;
    ev_async_init(&r->done, on_done);
    r->done.data = r;
    ev_async_start(loop, &r->done);
    *reload = r;
    return STATUS_OK;
}

void reload_destroy(struct reload *reload)
{
    if (!reload)
        return;
    struct reading *r = reload->reading;
    bool done = false;
    if (r) {
        pthread_mutex_lock(&r->lock);
        done = r->done;
        r->reload = NULL;
        pthread_mutex_unlock(&r->lock);
    }
    if (done)
        reading_free(r);
    ev_async_stop(reload->loop, &reload->done);
    free(reload);
}
