// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/settings.h"

#include <argp.h>
#include <config.h> // the build's, not the one beside this file
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/duration.h"
#include "common/help_parse.h"
#include "common/limits.h"
#include "common/option_names.h"
#include "daemon/settings/plain_file.h"
#include "daemon/settings/rank_programs.h"
#include "daemon/settings/values.h"
#include "yaml/yaml.h"

#define QUEUE_MAX_DEFAULT         1024
#define IDLE_TIMEOUT_DEFAULT_NS   (UINT64_C(600) * 1000000000)
// Long enough for the kernel to free tens of GiB of memory of a killed rank.
#define KILL_TIMEOUT_DEFAULT_NS   (UINT64_C(10) * 1000000000)
#define CLIENT_TIMEOUT_DEFAULT_NS (UINT64_C(10) * 1000000000)
#define USAGE_STATUS              64

// ---- values ------------------------------------------------------------------------------------

static bool socket_set(struct settings *c, const char *text)
{
    return path_parse(c->socket, text);
}

static bool rank_program_set(struct settings *c, const char *text)
{
    return path_parse(c->rank_program, text);
}

static bool cuda_rank_program_set(struct settings *c, const char *text)
{
    return path_parse(c->cuda_rank_program, text);
}

static bool listen_set(struct settings *c, const char *text)
{
    return listen_parse(&c->listen, text);
}

static bool metrics_set(struct settings *c, const char *text)
{
    return metrics_address_parse(&c->metrics, text);
}

static bool token_file_set(struct settings *c, const char *text)
{
    return path_parse(c->listen.token_file, text);
}

static bool tls_certificate_set(struct settings *c, const char *text)
{
    return path_parse(c->listen.tls_certificate, text);
}

static bool tls_key_set(struct settings *c, const char *text)
{
    return path_parse(c->listen.tls_key, text);
}

static bool tls_clients_set(struct settings *c, const char *text)
{
    return path_parse(c->listen.tls_clients, text);
}

static bool tls_version_min_set(struct settings *c, const char *text)
{
    static const char *const names[] = {"1.2", "1.3"};
    int found = choice_find(text, names, 2);
    c->listen.tls_13 = found < 0 ? c->listen.tls_13 : found == 1;
    return found >= 0;
}

static bool backend_set(struct settings *c, const char *text)
{
    return backend_parse(text, &c->backend);
}

static bool spares_set(struct settings *c, const char *text)
{
    static const char *const names[] = {
        [SPARES_AUTO] = "auto", [SPARES_ON] = "on", [SPARES_OFF] = "off"};
    int found = choice_find(text, names, sizeof(names) / sizeof(names[0]));
    c->spares = found < 0 ? c->spares : (enum spares_choice)found;
    return found >= 0;
}

static bool devices_set(struct settings *c, const char *text)
{
    return devices_parse(text, &c->devices);
}

static bool hosts_set(struct settings *c, const char *text)
{
    return host_list_parse(text, &c->hosts.others);
}

static bool agents_listen_set(struct settings *c, const char *text)
{
    return agents_listen_parse(&c->hosts, text);
}

static bool agents_token_file_set(struct settings *c, const char *text)
{
    return path_parse(c->hosts.token_file, text);
}

static bool mesh_port_set(struct settings *c, const char *text)
{
    return int_parse(text, 1, UINT16_MAX, &c->hosts.mesh_port);
}

static bool ranks_per_gpu_set(struct settings *c, const char *text)
{
    return int_parse(text, 1, RANKS_PER_GPU_MAX, &c->ranks_per_gpu);
}

static bool queue_max_set(struct settings *c, const char *text)
{
    return int_parse(text, 1, JOBS_MAX, &c->queue_max);
}

static bool user_queue_max_set(struct settings *c, const char *text)
{
    return int_parse(text, 1, JOBS_MAX, &c->user_queue_max);
}

static bool user_running_max_set(struct settings *c, const char *text)
{
    return int_parse(text, 1, JOBS_MAX, &c->user_running_max);
}

static bool user_device_time_set(struct settings *c, const char *text)
{
    return time_in_window_parse(text, &c->user_time_ns, &c->user_window_ns);
}

static bool timeout_max_set(struct settings *c, const char *text)
{
    return timeout_parse(text, TIMEOUT_MAX_NS, &c->timeout_max_ns);
}

static bool allow_users_set(struct settings *c, const char *text)
{
    return user_list_parse(text, &c->allowed);
}

static bool allow_subjects_set(struct settings *c, const char *text)
{
    return subject_list_parse(text, &c->listen.subjects);
}

static bool admin_users_set(struct settings *c, const char *text)
{
    return user_list_parse(text, &c->administrators);
}

static bool idle_timeout_set(struct settings *c, const char *text)
{
    return duration_parse(text, &c->idle_timeout_ns);
}

static bool memory_set(struct settings *c, const char *text)
{
    return bytes_parse(text, &c->memory_bytes);
}

static bool rank_user_set(struct settings *c, const char *text)
{
    return rank_user_parse(text, &c->rank_user);
}

static bool rank_filter_set(struct settings *c, const char *text)
{
    return filter_parse(text, &c->rank_filter);
}

static bool rank_memory_set(struct settings *c, const char *text)
{
    return rank_memory_parse(text, &c->rank_memory_bytes);
}

static bool start_timeout_set(struct settings *c, const char *text)
{
    return timeout_parse(text, UINT64_MAX, &c->start_timeout_ns);
}

static bool kill_timeout_set(struct settings *c, const char *text)
{
    return timeout_parse(text, UINT64_MAX, &c->kill_timeout_ns);
}

static bool client_timeout_set(struct settings *c, const char *text)
{
    return timeout_parse(text, TIMEOUT_MAX_NS, &c->client_timeout_ns);
}

static bool provider_set(struct settings *c, const char *text)
{
    return provider_list_add(&c->providers, text);
}

static bool log_level_set(struct settings *c, const char *text)
{
    return log_level_parse(text, &c->log_level);
}

// ---- the table ---------------------------------------------------------------------------------

#define TEXT_OF(number)  TEXT_OF_(number)
#define TEXT_OF_(number) #number

static const struct setting {
    const char *name, *value, *help;
    bool (*set)(struct settings *c, const char *text);
    const char *expected;
} settings[] = {
    {"socket", "PATH", "Listen on this unix socket [" CPATTN_SOCKET_PATH "]", socket_set, "a path"},
    {"listen", "URL",
     "Also listen on a network, at tcp://HOST:PORT or, with TLS, tls+tcp://HOST:PORT [no network]",
     listen_set, NET_URL_SYNTAX},
    {"token-file", "PATH", "File with the token of network clients; required with tcp://",
     token_file_set, "a path"},
    {"tls-certificate", "PATH", "The daemon's certificate for tls+tcp://, PEM", tls_certificate_set,
     "a path"},
    {"tls-key", "PATH", "The key of tls-certificate, PEM", tls_key_set, "a path"},
    {"tls-clients", "PATH",
     "Require client certificates that one of these authorities has signed, PEM", tls_clients_set,
     "a path"},
    {"tls-version-min", "VERSION", "Oldest TLS version to accept: 1.2 or 1.3 [1.2]",
     tls_version_min_set, "1.2 or 1.3"},
    {"backend", "NAME",
     "Hardware of the ranks: cpu, cuda, or auto for the GPUs if there are any [auto]", backend_set,
     "auto, cpu or cuda"},
    {"devices", "LIST",
     "Devices that the pools share: a number of GPUs or cores, or a list of GPUs, such as 0,2-3 "
     "[all]",
     devices_set,
     "a count from 1 to " TEXT_OF(DEVICES_MAX) ", or GPUs such as 0,2-3, each once (2-2 is GPU 2)"},
    {"ranks-per-gpu", "N",
     "Maximum number of ranks of one pool that share a GPU where there are too few GPUs [1]",
     ranks_per_gpu_set, "a whole number from 1 to " TEXT_OF(RANKS_PER_GPU_MAX)},
    {"hosts", "LIST",
     "Run ranks on these hosts too, each with an agent, cpattn-agent(8): names and devices such as "
     "node2=8,node3=8 [none]",
     hosts_set,
     "hosts such as node2=8,node3=8, each once, with 1 to " TEXT_OF(DEVICES_MAX) " devices"},
    {"agents-listen", "URL",
     "Listen for the agents of hosts at tcp://HOST:PORT or, with TLS, tls+tcp://HOST:PORT "
     "[nowhere]",
     agents_listen_set, NET_URL_SYNTAX},
    {"agents-token-file", "PATH", "File with the token of agents; required with hosts",
     agents_token_file_set, "a path"},
    {"mesh-port", "PORT", "TCP port for connections from ranks of other hosts [any free port]",
     mesh_port_set, "a port from 1 to 65535"},
    {"spares", "WHEN",
     "Keep a spare of each pool ready: on, off, or auto (on if all GPUs have 32 GiB or more) "
     "[auto]",
     spares_set, "auto, on or off"},
    {"queue-max", "N",
     "Maximum number of queued and running cases; more are refused [" TEXT_OF(
         QUEUE_MAX_DEFAULT) "]",
     queue_max_set, "a whole number from 1 to " TEXT_OF(JOBS_MAX)},
    {"user-queue-max", "N",
     "Maximum number of queued and running cases of one user [half of queue-max]",
     user_queue_max_set, "a whole number from 1 to " TEXT_OF(JOBS_MAX)},
    {"user-running-max", "N",
     "Maximum number of running cases of one user; more wait [as many as there are devices for]",
     user_running_max_set, "a whole number from 1 to " TEXT_OF(JOBS_MAX)},
    {"user-device-time", "TIME/WINDOW",
     "Maximum device time of one user in any WINDOW, such as 2h/24h; then the user's cases wait "
     "[not limited]",
     user_device_time_set,
     "two lengths of time such as 2h/24h, each more than 0, the second up to 720h"},
    {"timeout-max", "TIME", "Refuse a request with a longer time limit [24h]", timeout_max_set,
     DURATION_SYNTAX ", more than 0 and up to 24h"},
    {"allow-users", "LIST",
     "Serve only these users (names or numbers such as alice,1002), root and the daemon's user "
     "[every user who can open the socket]",
     allow_users_set,
     "up to " TEXT_OF(USER_LIST_MAX) " users of this machine or numbers, with commas between them"},
    {"allow-subjects", "LIST",
     "Of the clients with certificates serve only these, such as 'CN=alice,O=Lab; CN=bob' "
     "[every subject that tls-clients have signed]",
     allow_subjects_set,
     "up to " TEXT_OF(SUBJECT_LIST_MAX) " subjects such as CN=alice,O=Lab, with semicolons between "
                                        "them"},
    {"admin-users", "LIST",
     "Administrators (names or numbers) besides root and the daemon's user; they may cancel "
     "requests of others, drain devices, lift POISON, reload [none]",
     admin_users_set,
     "up to " TEXT_OF(USER_LIST_MAX) " users of this machine or numbers, with commas between them"},
    {"client-timeout", "TIME",
     "Close a client's connection if its greeting or a begun request is not complete after this "
     "time, or if it does not read a reply for half of it [10s]",
     client_timeout_set, DURATION_SYNTAX ", more than 0 and up to 24h"},
    {"idle-timeout", "TIME", "Stop a pool that is idle for this long; 0: never [10m]",
     idle_timeout_set, DURATION_SYNTAX},
    {"memory", "SIZE",
     "Memory that running cases may take together; a case that needs more is refused [the memory "
     "of the GPUs; on the CPU half of what is available at the start]",
     memory_set, "a size such as 8G, 512MiB or 1073741824"},
    {"rank-user", "USER",
     "Run ranks as this user (a name or a number) with its groups; the daemon must be root or have "
     "CAP_SETUID, CAP_SETGID and CAP_KILL [the daemon's own]",
     rank_user_set,
     "a user of this machine or a number, in up to " TEXT_OF(
         RANK_GROUPS_MAX) " groups, and not root"},
    {"rank-filter", "WHEN",
     "Filter system calls that ranks do not need: on, off, or auto (on with the CPU backend if the "
     "kernel supports it) [auto]",
     rank_filter_set, "auto, on or off"},
    {"rank-memory", "SIZE", "Limit the data memory of each rank; on the CPU only [not limited]",
     rank_memory_set, "a size of at least 256M, such as 2G"},
    {"start-timeout", "TIME",
     "Kill a pool that is not ready after this time [10s on the CPU, 30s on GPUs]",
     start_timeout_set, DURATION_SYNTAX ", more than 0"},
    {"kill-timeout", "TIME",
     "If a killed rank has not ended after this time, take its devices out of use [10s]",
     kill_timeout_set, DURATION_SYNTAX ", more than 0"},
    {"rank-program", "PATH",
     "The rank program [cpattn-rank beside cpattnd, else " CPATTN_RANK_PROGRAM "]",
     rank_program_set, "a path"},
    {"cuda-rank-program", "PATH",
     "The rank program for GPUs [cpattn-rank-cuda beside cpattnd, "
     "else " CPATTN_CUDA_RANK_PROGRAM "]",
     cuda_rank_program_set, "a path"},
    {"provider", "NAME=FILE",
     "Attention kernels that a case may name, in a shared object (cpattn_provider.h); may be "
     "repeated [none]",
     provider_set,
     "NAME=FILE, up to " TEXT_OF(PROVIDERS_MAX) " of them, names of letters, digits, -, _ and ."},
    {"metrics", "ADDRESS",
     "Serve metrics for Prometheus over HTTP on the loopback interface, such as 127.0.0.1:9464 "
     "[off]",
     metrics_set, METRICS_ADDRESS_SYNTAX},
    {"log-level", "LEVEL", "error, warning, notice, info or debug [info]", log_level_set,
     "error, warning, notice, info or debug"},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

// ---- the command line --------------------------------------------------------------------------

#define KEY_FIRST  0x100
#define KEY_CONFIG (KEY_FIRST + SETTINGS)
#define KEY_GUEST  (KEY_CONFIG + 1)

// Maximum number of options on a command line.
#define OPTIONS_MAX 128

struct line {
    struct {
        int setting;
        const char *value;
    } given[OPTIONS_MAX]; // in the order of the command line
    int count;
    const char *file;
    const char *guests[GUESTS_MAX];
    int guest_count;
};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    struct line *line = state->input;
    bool is_setting = key >= KEY_FIRST && key < KEY_FIRST + SETTINGS;
    if (is_setting && line->count == OPTIONS_MAX)
        argp_error(state, "more than %d options", OPTIONS_MAX);
    else if (is_setting) {
        line->given[line->count].setting = key - KEY_FIRST;
        line->given[line->count++].value = value;
    } else if (key == KEY_CONFIG)
        line->file = value;
    else if (key == KEY_GUEST && line->guest_count < GUESTS_MAX)
        line->guests[line->guest_count++] = value;
    else if (key == KEY_GUEST)
        argp_error(state, "more than %d guests", GUESTS_MAX);
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", value);
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "cpattnd %s\nTLS for clients over a network: %s\n", PACKAGE_VERSION,
            HAVE_TLS ? "yes" : "no, built without");
}

static enum status line_read(struct line *line, int argc, char **argv, struct error *error)
{
    struct argp_option options[SETTINGS + 3] = {0};
    for (int i = 0; i < SETTINGS; i++)
        options[i] = (struct argp_option){.name = settings[i].name,
                                          .key = KEY_FIRST + i,
                                          .arg = settings[i].value,
                                          .doc = settings[i].help};
    options[SETTINGS] = (struct argp_option){
        .name = "config",
        .key = KEY_CONFIG,
        .arg = "FILE",
        .doc = "Read settings from a YAML file, whose keys are the options' names; "
               "options override it"};
    options[SETTINGS + 1] = (struct argp_option){
        .name = "guest",
        .key = KEY_GUEST,
        .arg = "NAME=COMMAND",
        .doc =
            "Run cases with `implementation: NAME` on processes of this command; may be repeated"};
    const struct argp argp = {
        .options = options,
        .parser = option_take,
        .doc = "Runs context-parallel attention cases on warm pools of rank processes and answers "
               "with verdicts. Stays in the foreground; SIGTERM finishes the admitted cases."};
    argp_program_version_hook = version_print;
    argp_err_exit_status = USAGE_STATUS;
    enum status status =
        option_names_check(&(struct option_names){&argp, "cpattnd", NULL}, argc, argv, error);
    if (status == STATUS_OK)
        help_parse("cpattnd", EXIT_FAILURE, &argp, argc, argv, line);
    return status;
}

static enum status line_apply(const struct line *line, struct settings *config, struct error *error)
{
    for (int i = 0; i < line->count; i++) {
        const struct setting *s = &settings[line->given[i].setting];
        if (!s->set(config, line->given[i].value))
            return error_set(error, STATUS_INVALID_ARGUMENT, "--%s: value '%.100s': expected %s",
                             s->name, line->given[i].value, s->expected);
    }
    enum status status = STATUS_OK;
    for (int i = 0; i < line->guest_count && status == STATUS_OK; i++)
        status = guests_add_text(&config->guests, line->guests[i], error);
    return status;
}

// ---- the file ----------------------------------------------------------------------------------

// True for an option that may be given several times; in the file it is a map with a plural name.
static bool setting_is_map(const struct setting *s)
{
    return s->set == provider_set;
}

static const char *setting_key(const struct setting *s)
{
    return setting_is_map(s) ? "providers" : s->name;
}

// Applies the entries of a map like repeated options.
static enum status map_apply(const struct yaml_node *map, const struct setting *s,
                             struct settings *config, struct error *error)
{
    char text[PATH_MAX + PROVIDER_NAME_MAX];
    enum status status = yaml_is(map, YAML_MAP, error);
    for (const struct yaml_node *n = yaml_first(map); n && status == STATUS_OK; n = yaml_next(n)) {
        const char *value = yaml_text(n);
        int length = snprintf(text, sizeof(text), "%s=%s", yaml_key(n), value ? value : "");
        if (!value || length >= (int)sizeof(text) || !s->set(config, text))
            status = yaml_expected(n, error, "%s", s->expected);
    }
    return status;
}

#define GUESTS_KEY "guests"

static enum status tree_apply(const struct yaml_node *root, struct settings *config,
                              struct error *error)
{
    const char *names[SETTINGS + 2] = {0};
    for (int i = 0; i < SETTINGS; i++)
        names[i] = setting_key(&settings[i]);
    names[SETTINGS] = GUESTS_KEY;
    enum status status = yaml_is(root, YAML_MAP, error);
    if (status == STATUS_OK)
        status = yaml_check_keys(root, names, error);
    for (int i = 0; status == STATUS_OK && i < SETTINGS; i++) {
        const struct yaml_node *node = yaml_find(root, names[i]);
        if (node && setting_is_map(&settings[i]))
            status = map_apply(node, &settings[i], config, error);
        else if (node && (!yaml_text(node) || !settings[i].set(config, yaml_text(node))))
            status = yaml_expected(node, error, "%s", settings[i].expected);
    }
    const struct yaml_node *guests = yaml_find(root, GUESTS_KEY);
    if (status == STATUS_OK && guests)
        status = guests_add_map(&config->guests, guests, error);
    return status;
}

static enum status file_apply(const char *path, struct settings *config, struct error *error)
{
    struct yaml *yaml;
    enum status status = yaml_load_file(path, &yaml, error);
    if (status != STATUS_OK)
        return status;
    status = tree_apply(yaml_root(yaml), config, error);
    yaml_destroy(yaml);
    return status;
}

// ---- the whole ----------------------------------------------------------------------------------

enum status settings_read(struct settings *config, int argc, char **argv, struct error *error)
{
    struct line line = {0};
    *config = (struct settings){.socket = CPATTN_SOCKET_PATH,
                                .backend = BACKEND_AUTO,
                                .ranks_per_gpu = 1,
                                .queue_max = QUEUE_MAX_DEFAULT,
                                .client_timeout_ns = CLIENT_TIMEOUT_DEFAULT_NS,
                                .idle_timeout_ns = IDLE_TIMEOUT_DEFAULT_NS,
                                .kill_timeout_ns = KILL_TIMEOUT_DEFAULT_NS,
                                .timeout_max_ns = TIMEOUT_MAX_NS,
                                .log_level = LOG_LEVEL_INFO,
                                .argc = argc,
                                .argv = argv};
    enum status status = line_read(&line, argc, argv, error);
    if (status == STATUS_OK && line.file)
        status = file_apply(line.file, config, error);
    if (status == STATUS_OK)
        status = line_apply(&line, config, error);
    if (status == STATUS_OK)
        status = listen_check(&config->listen,
                              config->hosts.listen.tls ? config->hosts.listen_text : NULL, error);
    if (status == STATUS_OK)
        status = hosts_check(&config->hosts, config->providers.count > 0, error);
    if (status == STATUS_OK)
        status = rank_programs_find(config->rank_program, config->cuda_rank_program, error);
    if (status == STATUS_OK)
        status = guests_find_programs(&config->guests, error);
    return status;
}

enum status settings_reread(const struct settings *old, struct settings *config,
                            struct error *error)
{
    struct line line = {0};
    enum status status = line_read(&line, old->argc, old->argv, error);
    if (status == STATUS_OK && line.file)
        status = plain_file_check("config", line.file, error);
    return status == STATUS_OK ? settings_read(config, old->argc, old->argv, error) : status;
}
