// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/tls.h"

#include <stdlib.h>

const char *tls_library(void)
{
    return NULL;
}

static enum status refuse(struct error *error)
{
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "this cpattnd was built without TLS; build it where libssl-dev is "
                     "installed, or forward the unix socket with ssh");
}

enum status tls_create(const struct tls_files *files, struct tls **tls, struct error *error)
{
    (void)files;
    (void)tls;
    return refuse(error);
}

enum status tls_connect_create(const struct tls_connect_files *files, struct tls **tls,
                               struct error *error)
{
    (void)files;
    (void)tls;
    return refuse(error);
}

// There is never a struct tls, so there are no references and no sessions.

struct tls *tls_hold(struct tls *tls)
{
    return tls;
}

void tls_release(struct tls *tls)
{
    (void)tls;
}

const char *tls_own_fault(const struct tls *tls)
{
    (void)tls;
    return NULL;
}

struct tls_session *tls_session_create(struct tls *tls, const struct tls_pipe *pipe)
{
    (void)tls;
    (void)pipe;
    return NULL;
}

struct tls_session *tls_session_connect(struct tls *tls, const struct tls_pipe *pipe,
                                        const char *host)
{
    (void)host;
    return tls_session_create(tls, pipe);
}

void tls_session_destroy(struct tls_session *session)
{
    (void)session;
}

enum tls_result tls_session_shake(struct tls_session *session, const char **fault)
{
    (void)session;
    *fault = "there is no TLS";
    return TLS_BROKEN;
}

bool tls_session_subject(const struct tls_session *session, char *text, size_t size)
{
    (void)session;
    (void)text;
    (void)size;
    return false;
}

enum tls_result tls_session_read(struct tls_session *session, void *data, size_t size, size_t *got,
                                 const char **fault)
{
    (void)data;
    (void)size;
    (void)got;
    return tls_session_shake(session, fault);
}

bool tls_session_has_more(const struct tls_session *session)
{
    (void)session;
    return false;
}

bool tls_session_write(struct tls_session *session, const void *data, size_t size)
{
    (void)session;
    (void)data;
    (void)size;
    return false;
}
