// SPDX-License-Identifier: Apache-2.0
// Settings of the daemon: defaults, overridden by a YAML file, overridden by options. One table
// defines the settings of both file and options.
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

// Upper bound of ranks-per-gpu: each rank has its own context, which takes GPU memory.
#define RANKS_PER_GPU_MAX 16

enum spares_choice { SPARES_AUTO, SPARES_ON, SPARES_OFF };

struct settings {
    char socket[PATH_MAX];
    struct listen_config listen; // for network clients
    struct hosts_config hosts;   // for ranks on other hosts
    struct metrics_address metrics;
    // Paths of cpattn-rank and cpattn-rank-cuda, absolute or relative to the working directory. The
    // second need not exist.
    char rank_program[PATH_MAX], cuda_rank_program[PATH_MAX];
    enum backend_choice backend;
    struct device_choice devices;
    int ranks_per_gpu; // 1..RANKS_PER_GPU_MAX; > 1 is used only if GPUs are too few for a pool
    enum spares_choice spares;
    int queue_max;                         // 1..JOBS_MAX
    int user_queue_max;                    // for one user, 1..JOBS_MAX; 0: half of queue_max
    int user_running_max;                  // for one user, 1..JOBS_MAX; 0: limited by devices only
    uint64_t user_time_ns, user_window_ns; // device time of one user in a window; 0: not limited
    uint64_t timeout_max_ns;               // 1..TIMEOUT_MAX_NS
    struct user_list allowed;              // empty: every user who can open the socket
    struct user_list administrators;       // in addition to root and the daemon's user
    struct provider_list providers;
    uint64_t client_timeout_ns; // for a greeting and for a request; a reply has half; > 0
    uint64_t idle_timeout_ns;   // 0: pools are never stopped for idleness
    int64_t memory_bytes;       // of all running cases over all ranks; 0: default of the backend
    struct rank_user rank_user;
    int64_t rank_memory_bytes; // data memory of one rank; 0: not limited
    enum filter_choice rank_filter;
    uint64_t start_timeout_ns; // of a pool; 0: the default of the backend
    uint64_t kill_timeout_ns;  // from SIGKILL of a rank until its device is out of use; > 0
    struct guests guests;
    enum log_level log_level;
    // The command line, for settings_reread(); borrowed.
    int argc;
    char **argv;
};

// Reads defaults, configuration file and command line. Handles --help and --version. Like argp,
// ends the process with status 64 and a message if the command line is malformed. Fails with a
// message if a value is wrong; in the configuration file the message names the place.
enum status settings_read(struct settings *config, int argc, char **argv,
                          struct error *error) MUST_CHECK;

// Reads the settings again, from the command line of `old` and the current configuration file.
// Fails as settings_read() if the file is wrong or missing, and if it is not a regular file.
enum status settings_reread(const struct settings *old, struct settings *config,
                            struct error *error) MUST_CHECK;

// Settings that need a restart to change.
#define SETTINGS_FIXED 21

// Returns the number of these settings that differ, and their names.
int settings_fixed_differences(const struct settings *a, const struct settings *b,
                               const char *names[SETTINGS_FIXED]);

#endif
