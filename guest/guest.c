// SPDX-License-Identifier: Apache-2.0
// The public functions: the guest's process, and queries for its function.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/clock.h"
#include "guest/state.h"
#include "rank/process.h"

// ---- the process --------------------------------------------------------------------------------

#define EXIT_USAGE 64
// RANK WORLD GENERATION PARENT_PID DEVICE
#define NUMBERS    5

// Forks of this process must not keep the sockets of the daemon and the other ranks open.
static int descriptors; // from CHANNEL_FD on

static void descriptors_drop(void)
{
    for (int fd = CHANNEL_FD; fd < CHANNEL_FD + descriptors; fd++)
        close(fd);
    close(channel_last_fd());
}

static int usage(void)
{
    fprintf(stderr, "this is a guest of cpattnd, which has to start it: name its command in the "
                    "settings (guests), or with cpattnd --guest NAME=COMMAND\n");
    return EXIT_USAGE;
}

// The library beside this one that has the same functions and the CUDA engine.
#define GPU_LIBRARY "libcpattn-guest-cuda.so.0"

typedef int main_function(const struct cpattn_guest *guest);

static main_function *gpu_main(void)
{
    char path[PATH_MAX];
    Dl_info own;
    void *library = NULL;
    if (dladdr(&descriptors, &own) != 0 && strrchr(own.dli_fname, '/')) {
        int folder = (int)(strrchr(own.dli_fname, '/') - own.dli_fname);
        snprintf(path, sizeof(path), "%.*s/%s", folder, own.dli_fname, GPU_LIBRARY);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library)
        library = dlopen(GPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "the daemon has GPUs, and a guest on them needs %s: %s\n", GPU_LIBRARY,
                dlerror());
    return library ? (main_function *)dlsym(library, "cpattn_guest_main") : NULL;
}

static int serve(int count, char **arguments, const struct cpattn_guest *guest,
                 const struct engine_kind *kind)
{
    unsetenv("CPATTN_GUEST"); // programs that the guest starts are not ranks
    descriptors = 2 + atoi(arguments[2]);
    pthread_atfork(NULL, NULL, descriptors_drop);
    guest_program = guest;
    return process_main(count, arguments, kind);
}

int cpattn_guest_main(const struct cpattn_guest *guest)
{
    char text[128], *at = text, *arguments[NUMBERS + 2] = {(char *)"guest"};
    const char *numbers = getenv("CPATTN_GUEST");
    int count = 1;
    if (!numbers || strlen(numbers) >= sizeof(text))
        return usage();
    strcpy(text, numbers);
    for (char *word; count <= NUMBERS && (word = strsep(&at, " "));)
        arguments[count++] = word;
    if (at || count < NUMBERS)
        return usage();
    if (count == NUMBERS)
        return serve(count, arguments, guest, &engine_guest_cpu);
    if (engine_guest_gpu)
        return serve(count, arguments, guest, engine_guest_gpu);
    main_function *main_of_gpu = gpu_main();
    return main_of_gpu ? main_of_gpu(guest) : EXIT_USAGE;
}

// ---- the case -----------------------------------------------------------------------------------

const struct cpattn_guest_place *cpattn_guest_place(const struct cpattn_guest_job *job)
{
    return job->place;
}

int cpattn_guest_field(const struct cpattn_guest_job *job, const char *name, char *text,
                       size_t size)
{
    const struct case_field *field = case_field_find(name);
    return field ? case_get(job->j->c, field, text, size) : -1;
}

const char *cpattn_guest_field_name(int i)
{
    const struct case_field *field = case_fields();
    while (field->name && i-- > 0)
        field++;
    return field->name;
}

bool cpattn_guest_token(const struct cpattn_guest_job *job, bool keys, int64_t row,
                        int32_t *sequence, int64_t *position)
{
    const struct job *j = job->j;
    enum shard_side side = keys ? SIDE_KV : SIDE_Q;
    int64_t step = shard_row_step(j->c);
    for (int padding = 0; padding < 2; padding++) {
        const struct span *spans = padding ? j->spans_of_others : j->spans[side];
        int count =
            padding ? shard_padding(j->c, side, j->rank, j->spans_of_others) : j->span_count[side];
        for (int i = 0; i < count; i++) {
            int64_t behind = row - spans[i].row;
            if (behind < 0 || behind % step != 0 || behind / step >= spans[i].len)
                continue;
            *sequence = spans[i].sequence;
            *position = spans[i].position + behind / step;
            return true;
        }
    }
    return false;
}

// ---- what the function says ---------------------------------------------------------------------

void cpattn_guest_has_lse(struct cpattn_guest_job *job)
{
    job->has_lse = true;
}

void cpattn_guest_backward(struct cpattn_guest_job *job)
{
    struct engine *engine = job->engine;
    struct error told_later;
    if (engine->ops->wait && engine->ops->wait(engine, false, &told_later) != STATUS_OK)
        return;
    job->backward_ns = clock_now_ns();
    job_phase(job->j, REPORT_BACKWARD);
}

void cpattn_guest_fail(struct cpattn_guest_job *job, bool unsupported, const char *text)
{
    job->unsupported = unsupported;
    snprintf(job->text, sizeof(job->text), "%s", text);
}
