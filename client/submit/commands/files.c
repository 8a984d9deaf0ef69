// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/files.h"

#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/write/plain_file.h"

static bool name_is_fine(const struct files_entry *file)
{
    if (file->path[0] && strcmp(file->path, "-") != 0)
        return true;
    command_complain("%s is '%s'; accepted is the name of a file, such as /dev/stdout or ./-",
                     file->option, file->path);
    return false;
}

// True if none of the listed files is the output file.
static bool is_alone(const struct files_entry *output, const struct files_entry *list)
{
    for (; list->option; list++) {
        if (list == output || !list->path || !plain_file_is_same(output->path, list->path))
            continue;
        command_complain("%s and %s are the same file, '%s'; accepted is another file for %s",
                         output->option, list->option, output->path, output->option);
        return false;
    }
    return true;
}

int files_check(const struct files_entry *files)
{
    const struct cpattn_options *access = command_access_options();
    const struct files_entry of_access[] = {{"--token-file", access->token_file, false},
                                            {"--tls-ca", access->tls_ca, false},
                                            {"--tls-certificate", access->tls_certificate, false},
                                            {"--tls-key", access->tls_key, false},
                                            {.option = NULL}};
    for (const struct files_entry *file = files; file->option; file++)
        if (file->path && file->written &&
            !(name_is_fine(file) && is_alone(file, files) && is_alone(file, of_access)))
            return COMMAND_USAGE;
    return COMMAND_PASS;
}
