// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "daemon/config.h"
#include "daemon/io/shell.h"

enum { EXIT_USAGE = 64 };

static int complain(const struct error *error, int status)
{
    fprintf(stderr, "cpattnd: %s\n", error->text);
    return status;
}

int main(int argc, char **argv)
{
    struct config config;
    struct shell *shell;
    struct error error;

    if (config_read(&config, argc, argv, &error) != STATUS_OK)
        return complain(&error, EXIT_USAGE);
    log_init(config.log_level);
    if (shell_create(&config, &shell, &error) != STATUS_OK)
        return complain(&error, EXIT_FAILURE);
    int status = shell_run(shell);
    shell_destroy(shell);
    return status;
}
