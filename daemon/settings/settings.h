// SPDX-License-Identifier: Apache-2.0
// Settings of the daemon: defaults, overridden by a YAML file, overridden by options. One table
// defines the settings for file and options.
#ifndef CPATTN_DAEMON_SETTINGS_SETTINGS_H
#define CPATTN_DAEMON_SETTINGS_SETTINGS_H

#include <limits.h>
#include <stdint.h>

#include "common/log.h"
#include "common/status.h"
#include "daemon/settings/choices.h"
#include "daemon/settings/guests.h"
#include "daemon/settings/host_list.h"
#include "daemon/settings/listen.h"
#include "daemon/settings/metrics_address.h"
#include "daemon/settings/provider_list.h"
#include "daemon/settings/rank_user.h"
#include "daemon/settings/user_list.h"

// Each has a context of its own, which takes memory of the GPU.
#define RANKS_PER_GPU_MAX 16

enum spares_choice { SPARES_AUTO, SPARES_ON, SPARES_OFF };

struct settings {
    char socket[PATH_MAX];
    struct listen_config listen; // in addition to the socket
    struct hosts_config hosts;   // for ranks on others
    struct metrics_address metrics;
    // Paths of cpattn-rank and cpattn-rank-cuda, absolute or relative to the working directory. The
    // second need not exist.
    char rank_program[PATH_MAX], cuda_rank_program[PATH_MAX];
    enum backend_choice backend;
    struct device_choice devices;
    int ranks_per_gpu; // 1..RANKS_PER_GPU_MAX, of one pool where there are too few GPUs
    enum spares_choice spares;
    int queue_max;                         // 1..JOBS_MAX
    int user_queue_max;                    // of one user, 1..JOBS_MAX; 0: half of queue_max
    int user_running_max;                  // 1..JOBS_MAX; 0: limited by devices only
    uint64_t user_time_ns, user_window_ns; // device time of one user in a window; 0: not limited
    uint64_t timeout_max_ns;               // 1..TIMEOUT_MAX_NS
    struct user_list allowed;              // empty: every user who can open the socket
    struct user_list administrators;       // in addition to root and the daemon's user
    struct provider_list providers;
    uint64_t client_timeout_ns; // of a greeting and of a request; a reply has half; > 0
    uint64_t idle_timeout_ns;   // 0: pools are never stopped for idleness
    int64_t memory_bytes;       // of one case over all ranks; 0: what the backend has
    struct rank_user rank_user;
    int64_t rank_memory_bytes; // of one rank; 0: not limited
    enum filter_choice rank_filter;
    uint64_t start_timeout_ns; // of a pool; 0: the default of the backend
    uint64_t kill_timeout_ns;  // of a rank, until its devices are out of use; > 0
    struct guests guests;
    enum log_level log_level;
    // The command line, for settings_reread(); borrowed.
    int argc;
    char **argv;
};

// Reads defaults, configuration file and command line. Handles --help and --version. Like argp,
// ends the process with status 64 and a sentence if an option is wrong. Fails with place and
// sentence if the configuration file is wrong.
enum status settings_read(struct settings *config, int argc, char **argv,
                          struct error *error) MUST_CHECK;

// Reads the same again with the current configuration file. Fails as settings_read() if the file is
// wrong or missing.
enum status settings_reread(const struct settings *old, struct settings *config,
                            struct error *error) MUST_CHECK;

// Returns the name of a setting that differs and that a running daemon cannot change; NULL: none.
const char *settings_fixed_difference(const struct settings *a, const struct settings *b);

#endif
