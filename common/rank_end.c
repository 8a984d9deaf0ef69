// SPDX-License-Identifier: Apache-2.0
#include "common/rank_end.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

struct rank_end rank_end_of(int wait_status)
{
    if (WIFEXITED(wait_status))
        return (struct rank_end){RANK_EXITED, WEXITSTATUS(wait_status)};
    return (struct rank_end){RANK_SIGNALLED, WTERMSIG(wait_status)};
}

bool rank_end_is_from_outside(const struct rank_end *end)
{
    int number = end->number;
    return end->kind == RANK_SIGNALLED &&
           (number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP);
}

static const char *text_write(const struct rank_end *end, const char *was, char *text)
{
    const char *name = end->kind == RANK_SIGNALLED ? sigabbrev_np(end->number) : NULL;
    text[0] = '\0';
    if (end->kind == RANK_EXITED)
        snprintf(text, RANK_END_TEXT_MAX, "exited with %d", end->number);
    else if (end->kind == RANK_SIGNALLED)
        snprintf(text, RANK_END_TEXT_MAX, "%skilled by signal %d (SIG%s)", was, end->number,
                 name ? name : "?");
    else if (end->kind == RANK_VANISHED)
        snprintf(text, RANK_END_TEXT_MAX, "vanished");
    return text;
}

const char *rank_end_text(const struct rank_end *end, char text[RANK_END_TEXT_MAX])
{
    return text_write(end, "", text);
}

const char *rank_end_said(const struct rank_end *end, char text[RANK_END_TEXT_MAX])
{
    return text_write(end, "was ", text);
}
