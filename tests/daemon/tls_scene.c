// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/tls_scene.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/port.h"
#include "tests/support/runner.h"

#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/tls/tls.h>

int port;
char url[64];
struct certificate ca, server, client, stranger, imposter;

void tls_setup(void)
{
    daemon_init(&d);
    port = port_free();
    snprintf(url, sizeof(url), "tls+tcp://127.0.0.1:%d", port);
    const struct certificate_kind authority = {.authority = true}, plain = {0};
    certificate_make(&ca, d.folder, "ca", "the one who signs", NULL, authority);
    certificate_make(&server, d.folder, "server", "127.0.0.1", &ca, plain);
    certificate_make(&client, d.folder, "client", "a client", &ca, plain);
    certificate_make(&stranger, d.folder, "stranger", "the one who signs", NULL, authority);
    certificate_make(&imposter, d.folder, "imposter", "127.0.0.1", &stranger, plain);
}

void tls_teardown(void)
{
    certificate_remove(&ca);
    certificate_remove(&server);
    certificate_remove(&client);
    certificate_remove(&stranger);
    certificate_remove(&imposter);
    net_file_remove(&d, "token");
    net_file_remove(&d, "settings");
    daemon_fini(&d);
}

void start_with(bool certificates, bool token, const char *client_timeout)
{
    const char *arguments[DAEMON_ARGUMENTS_MAX] = {"--listen",  url,         "--tls-certificate",
                                                   server.file, "--tls-key", server.key_file};
    int count = 6;
    if (certificates) {
        arguments[count++] = "--tls-clients";
        arguments[count++] = ca.file;
    }
    if (token) {
        arguments[count++] = "--token-file";
        arguments[count++] = net_file(&d, "token", NET_TOKEN);
    }
    if (client_timeout) {
        arguments[count++] = "--client-timeout";
        arguments[count++] = client_timeout;
    }
    daemon_start(&d, arguments);
}

void start(bool certificates, bool token)
{
    start_with(certificates, token, NULL);
}

const struct tls_client_options proper = {.trusted = &ca, .own = &client};

void open_greeted(struct tls_client *t, const struct tls_client_options *options)
{
    char greeting[8];
    ck_assert(tls_client_open(t, net_connect(port), options));
    ck_assert(tls_client_send(t, NET_GREETING, 8));
    ck_assert(tls_client_read(t, greeting, 8));
    ck_assert_mem_eq(greeting, "\0SP\0\0\x31\0\0", 8);
}

struct wire_reply answer(struct tls_client *t)
{
    static uint8_t bytes[REPLY_BYTES_MAX];
    uint64_t size;
    ck_assert(tls_client_read(t, &size, 8));
    size = be64toh(size);
    ck_assert_uint_le(size, sizeof(bytes));
    ck_assert(tls_client_read(t, bytes, size));
    return net_decode(bytes, size);
}

struct wire_reply ask(struct tls_client *t, const struct wire_request *request, const char *token)
{
    static uint8_t bytes[NET_MESSAGE_MAX];
    ck_assert(tls_client_send(t, bytes, net_frame(bytes, 1, request, token)));
    return answer(t);
}

void expect(const struct tls_client_options *options, const char *token, enum status status)
{
    struct tls_client t;
    struct wire_request request = daemon_request(METHOD_STATUS);
    open_greeted(&t, options);
    struct wire_reply reply = ask(&t, &request, token);
    expect_status(&reply, status);
    wire_reply_fini(&reply);
    tls_client_close(&t);
}

void expect_no_handshake(const struct tls_client_options *options, const char *logged)
{
    struct tls_client t;
    char greeting[8];
    ck_assert(!tls_client_open(&t, net_connect(port), options) ||
              !tls_client_read(&t, greeting, sizeof(greeting)));
    tls_client_close(&t);
    while (!daemon_logged(&d, logged))
        usleep(10000);
}

static char *file_read(const char *path)
{
    static char text[2][8192];
    static int next;
    char *read = text[next++ % 2];
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    read[fread(read, 1, sizeof(text[0]) - 1, file)] = '\0';
    fclose(file);
    return read;
}

int nng_try(const struct certificate *own, const struct certificate *key)
{
    nng_socket socket;
    nng_dialer dialer;
    nng_tls_config *config;
    ck_assert_int_eq(nng_tls_config_alloc(&config, NNG_TLS_MODE_CLIENT), 0);
    ck_assert_int_eq(nng_tls_config_ca_chain(config, file_read(ca.file), NULL), 0);
    ck_assert_int_eq(nng_tls_config_server_name(config, "127.0.0.1"), 0);
    ck_assert_int_eq(
        nng_tls_config_own_cert(config, file_read(own->file), file_read(key->key_file), NULL), 0);
    ck_assert_int_eq(nng_req0_open(&socket), 0);
    ck_assert_int_eq(nng_dialer_create(&dialer, socket, url), 0);
    ck_assert_int_eq(nng_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, config), 0);
    int result = nng_dialer_start(dialer, 0);
    nng_close(socket);
    nng_tls_config_free(config);
    return result;
}
