// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/agent_settings.h"

#include <argp.h>
#include <arpa/inet.h>
#include <config.h> // the build's, not the one beside this file
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/help_parse.h"
#include "common/option_names.h"
#include "daemon/settings/choices.h"
#include "daemon/settings/host_list.h"
#include "daemon/settings/rank_programs.h"
#include "daemon/settings/values.h"

#define USAGE_STATUS 64

static bool daemon_set(struct agent_settings *s, const char *text)
{
    if (strlen(text) >= sizeof(s->daemon_text) || !net_url_parse(text, &s->daemon))
        return false;
    strcpy(s->daemon_text, text);
    return true;
}

static bool name_set(struct agent_settings *s, const char *text)
{
    if (!host_name_ok(text))
        return false;
    strcpy(s->name, text);
    return true;
}

static bool token_file_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->token_file, text);
}

static bool tls_ca_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->tls_ca, text);
}

static bool tls_certificate_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->tls_certificate, text);
}

static bool tls_key_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->tls_key, text);
}

static bool mesh_address_set(struct agent_settings *s, const char *text)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    if (strlen(text) >= sizeof(s->mesh_address) ||
        (inet_pton(AF_INET, text, bytes) != 1 && inet_pton(AF_INET6, text, bytes) != 1))
        return false;
    strcpy(s->mesh_address, text);
    return true;
}

static bool mesh_port_set(struct agent_settings *s, const char *text)
{
    return int_parse(text, 1, UINT16_MAX, &s->mesh_port);
}

static bool backend_set(struct agent_settings *s, const char *text)
{
    return backend_parse(text, &s->host.backend);
}

static bool devices_set(struct agent_settings *s, const char *text)
{
    return devices_parse(text, &s->host.devices);
}

static bool rank_user_set(struct agent_settings *s, const char *text)
{
    return rank_user_parse(text, &s->host.rank_user);
}

static bool rank_filter_set(struct agent_settings *s, const char *text)
{
    return filter_parse(text, &s->host.rank_filter);
}

static bool rank_memory_set(struct agent_settings *s, const char *text)
{
    return rank_memory_parse(text, &s->host.rank_memory_bytes);
}

static bool rank_program_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->host.rank_program, text);
}

static bool cuda_rank_program_set(struct agent_settings *s, const char *text)
{
    return path_parse(s->host.cuda_rank_program, text);
}

static bool log_level_set(struct agent_settings *s, const char *text)
{
    return log_level_parse(text, &s->host.log_level);
}

static const struct agent_option {
    const char *name, *value, *help;
    bool (*set)(struct agent_settings *s, const char *text);
    const char *expected;
} options[] = {
    {"daemon", "URL",
     "The agents-listen of the daemon, tcp://HOST:PORT or, with TLS, tls+tcp://HOST:PORT; required",
     daemon_set, NET_URL_SYNTAX},
    {"name", "NAME", "The name of this host in the daemon's hosts [its host name]", name_set,
     "letters, digits, -, _ and ."},
    {"token-file", "PATH", "File with the token of agents; required", token_file_set, "a path"},
    {"tls-ca", "PATH",
     "Authorities that may have signed the daemon's certificate, PEM; required with tls+tcp://",
     tls_ca_set, "a path"},
    {"tls-certificate", "PATH", "The certificate of this host, for a daemon with tls-clients, PEM",
     tls_certificate_set, "a path"},
    {"tls-key", "PATH", "The key of tls-certificate, PEM", tls_key_set, "a path"},
    {"mesh-address", "ADDRESS",
     "Address of this host for connections from ranks of other hosts [that of the connection to "
     "the daemon]",
     mesh_address_set, "a numeric address"},
    {"mesh-port", "PORT", "TCP port for these connections [any free port]", mesh_port_set,
     "a port from 1 to 65535"},
    {"backend", "NAME",
     "Hardware of the ranks: cpu, cuda, or auto for the GPUs if there are any [auto]", backend_set,
     "auto, cpu or cuda"},
    {"devices", "LIST",
     "Devices of this host: a number of GPUs or cores, or a list of GPUs, such as 0,2-3 [all]",
     devices_set, "a count, or GPUs such as 0,2-3"},
    {"rank-user", "USER", "Run ranks as this user, as cpattnd does [the agent's own]",
     rank_user_set, "a user of this machine or a number, and not root"},
    {"rank-filter", "WHEN",
     "Filter system calls that ranks do not need: on, off, or auto (on with the CPU backend if the "
     "kernel supports it) [auto]",
     rank_filter_set, "auto, on or off"},
    {"rank-memory", "SIZE", "Limit the data memory of each rank; on the CPU only [not limited]",
     rank_memory_set, "a size of at least 256M, such as 2G"},
    {"rank-program", "PATH", "The rank program [cpattn-rank beside the agent, or as installed]",
     rank_program_set, "a path"},
    {"cuda-rank-program", "PATH",
     "The rank program for GPUs [cpattn-rank-cuda beside the agent, or as installed]",
     cuda_rank_program_set, "a path"},
    {"log-level", "LEVEL", "error, warning, notice, info or debug [info]", log_level_set,
     "error, warning, notice, info or debug"},
};
enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

#define KEY_FIRST 0x100

static error_t option_take(int key, char *value, struct argp_state *state)
{
    struct agent_settings *settings = state->input;
    if (key >= KEY_FIRST && key < KEY_FIRST + OPTIONS) {
        const struct agent_option *o = &options[key - KEY_FIRST];
        if (!o->set(settings, value))
            argp_error(state, "--%s: value '%.100s': expected %s", o->name, value, o->expected);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", value);
    return ARGP_ERR_UNKNOWN;
}

static void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "cpattn-agent %s\n", PACKAGE_VERSION);
}

static enum status tls_check(const struct agent_settings *s, struct error *error)
{
    bool given = s->tls_ca[0] || s->tls_certificate[0] || s->tls_key[0];
    if (given && !s->daemon.tls)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: there is TLS only with --daemon tls+tcp://HOST:PORT",
                         s->tls_ca[0]            ? "--tls-ca"
                         : s->tls_certificate[0] ? "--tls-certificate"
                                                 : "--tls-key");
    if (s->daemon.tls && !s->tls_ca[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--tls-ca: name the file with who has signed the daemon's certificate");
    if (!s->tls_certificate[0] != !s->tls_key[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--tls-certificate and --tls-key go together");
    return STATUS_OK;
}

enum status agent_settings_read(struct agent_settings *s, int argc, char **argv,
                                struct error *error)
{
    struct argp_option table[OPTIONS + 1] = {0};
    for (int i = 0; i < OPTIONS; i++)
        table[i] = (struct argp_option){.name = options[i].name,
                                        .key = KEY_FIRST + i,
                                        .arg = options[i].value,
                                        .doc = options[i].help};
    const struct argp argp = {
        .options = table,
        .parser = option_take,
        .doc =
            "Runs ranks of a cpattnd on another host. Stays in the foreground; its ranks end with "
            "it, and with the connection to the daemon."};
    memset(s, 0, sizeof(*s));
    s->host.log_level = LOG_LEVEL_INFO;
    if (gethostname(s->name, sizeof(s->name) - 1) != 0 || !host_name_ok(s->name))
        s->name[0] = '\0';
    argp_program_version_hook = version_print;
    argp_err_exit_status = USAGE_STATUS;
    enum status status =
        option_names_check(&(struct option_names){&argp, "cpattn-agent", NULL}, argc, argv, error);
    if (status != STATUS_OK)
        return status;
    help_parse("cpattn-agent", EXIT_FAILURE, &argp, argc, argv, s);
    if (!s->daemon_text[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--daemon: name the daemon's agents-listen, tcp://HOST:PORT or "
                         "tls+tcp://HOST:PORT");
    if (!s->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--token-file: name the file with the token of agents");
    if (!s->name[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--name: name this host as the daemon's hosts have it");
    status = tls_check(s, error);
    return status == STATUS_OK
               ? rank_programs_find(s->host.rank_program, s->host.cuda_rank_program, error)
               : status;
}
