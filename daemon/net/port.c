// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/port.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/settings/plain_file.h"

// Size of the kernel's buffers of a connection; the largest request fits.
#define BUFFER_BYTES (256 * 1024)

// Only warns about an expired certificate, with which the daemon still serves its unix socket.
static void certificate_look(const char *file, const struct tls *tls)
{
    struct log_quoted path, text;
    const char *fault = tls_own_fault(tls);
    if (fault)
        log_warning("certificate file=%s error=%s", log_quote(&path, file),
                    log_quote(&text, fault));
}

static enum status files_read(const struct listen_config *listen, struct port *port,
                              struct error *error)
{
    enum status status = STATUS_OK;
    const struct tls_files files = {listen->tls_certificate, listen->tls_key, listen->tls_clients,
                                    listen->tls_13 ? TLS_VERSION_1_3 : TLS_VERSION_1_2};
    if (listen->token_file[0])
        status = token_read(listen->token_file, &port->token, error);
    if (status == STATUS_OK && listen->url.tls)
        status = tls_create(&files, &port->tls, error);
    if (status == STATUS_OK && listen->url.tls)
        certificate_look(listen->tls_certificate, port->tls);
    return status;
}

// Sets the options before listen(), so that accepted connections inherit them.
static void options_set(int fd, int family)
{
    const int on = 1, off = 0, bytes = BUFFER_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    if (family == AF_INET6) // [::] takes IPv4 as well
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

static enum status listen_on(const struct addrinfo *address, const char *url, int *fd,
                             struct error *error)
{
    int opened = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened >= 0)
        options_set(opened, address->ai_family);
    if (opened >= 0 && bind(opened, address->ai_addr, address->ai_addrlen) == 0 &&
        listen(opened, SOMAXCONN) == 0) {
        *fd = opened;
        return STATUS_OK;
    }
    enum status status = errno == EADDRINUSE ? STATUS_FAILED_PRECONDITION : STATUS_UNAVAILABLE;
    error_set(error, status, "cannot listen on %s: %s%s", url, strerror(errno),
              errno == EADDRINUSE || errno == EACCES ? "; choose another port with --listen"
              : errno == EADDRNOTAVAIL ? "; choose an address of this machine with --listen"
                                       : "");
    if (opened >= 0)
        close(opened);
    return status;
}

enum status port_open(const struct listen_config *listen, struct port *port, struct error *error)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    *port = (struct port){.fd = -1};
    if (!listen->text[0])
        return STATUS_OK;
    enum status status = files_read(listen, port, error);
    int result = status == STATUS_OK
                     ? getaddrinfo(listen->url.host, listen->url.port, &hints, &addresses)
                     : 0;
    if (result != 0)
        status = error_set(error, STATUS_UNAVAILABLE, "listen: %s: cannot look up %s: %s",
                           listen->text, listen->url.host, gai_strerror(result));
    if (status == STATUS_OK)
        status = listen_on(addresses, listen->text, &port->fd, error);
    if (addresses)
        freeaddrinfo(addresses);
    if (status != STATUS_OK)
        port_fini(port);
    return status;
}

static enum status files_check(const struct listen_config *listen, struct error *error)
{
    enum status status = plain_file_check("tls-certificate", listen->tls_certificate, error);
    if (status == STATUS_OK)
        status = plain_file_check("tls-key", listen->tls_key, error);
    return status == STATUS_OK ? plain_file_check("tls-clients", listen->tls_clients, error)
                               : status;
}

enum status port_reread(const struct listen_config *listen, struct port *read, struct error *error)
{
    *read = (struct port){.fd = -1};
    enum status status = files_check(listen, error);
    if (status == STATUS_OK)
        status = files_read(listen, read, error);
    if (status != STATUS_OK)
        port_fini(read);
    return status;
}

void port_renew(struct port *port, struct port *read)
{
    tls_release(port->tls);
    port->tls = read->tls;
    port->token = read->token;
    read->tls = NULL;
    port_fini(read);
}

void port_fini(struct port *port)
{
    if (port->fd >= 0)
        close(port->fd);
    tls_release(port->tls);
    token_wipe(&port->token);
    port->tls = NULL;
    port->fd = -1;
}
