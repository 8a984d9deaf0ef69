// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/ask.h"

// How long a daemon may take to answer, without the time to connect.
#define ANSWER_NS (UINT64_C(1) * 1000000000)

static enum ask_answer answer_of(struct cpattn_client *client)
{
    struct cpattn_daemon_status *status;
    enum cpattn_status answer = cpattn_query_status(client, ANSWER_NS, &status, NULL);
    if (answer == CPATTN_UNAUTHENTICATED || answer == CPATTN_PERMISSION_DENIED)
        return ASK_ACCEPTS;
    if (answer != CPATTN_OK)
        return answer == CPATTN_DEADLINE_EXCEEDED ? ASK_SILENT : ASK_REFUSES;
    bool accepts = !status->draining;
    cpattn_daemon_status_destroy(status);
    return accepts ? ASK_ACCEPTS : ASK_REFUSES;
}

static void *run(void *argument)
{
    struct ask *ask = argument;
    atomic_store(&ask->answer, (int)answer_of(ask->client));
    return NULL;
}

void ask_begin(struct ask *ask)
{
    if (ask->under_way || atomic_load(&ask->answer) != ASK_NONE)
        return;
    ask->under_way = pthread_create(&ask->thread, NULL, run, ask) == 0;
    if (!ask->under_way)
        run(ask);
}

enum ask_answer ask_take(struct ask *ask)
{
    if (atomic_load(&ask->answer) == ASK_NONE)
        return ASK_NONE;
    if (ask->under_way)
        pthread_join(ask->thread, NULL);
    ask->under_way = false;
    return (enum ask_answer)atomic_exchange(&ask->answer, ASK_NONE);
}

void ask_fini(struct ask *ask)
{
    if (ask->under_way)
        pthread_join(ask->thread, NULL);
    ask->under_way = false;
    atomic_store(&ask->answer, ASK_NONE);
}
