// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/standard_fds.h"
#include "daemon/app.h"
#include "daemon/settings/settings.h"

enum { EXIT_USAGE = 64 };

static int complain(const struct error *error, int status)
{
    fprintf(stderr, "cpattnd: %s\n", error->text);
    return status;
}

int main(int argc, char **argv)
{
    struct settings config;
    struct app *app;
    struct error error;

    standard_fds_fill();
    if (settings_read(&config, argc, argv, &error) != STATUS_OK)
        return complain(&error, EXIT_USAGE);
    log_init(config.log_level);
    if (app_create(&config, &app, &error) != STATUS_OK)
        return complain(&error, EXIT_FAILURE);
    int status = app_run(app);
    app_destroy(app);
    return status;
}
