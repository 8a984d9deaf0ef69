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
#include "plan/members.h"
#include "rank/process.h"

// ---- the process --------------------------------------------------------------------------------

#define EXIT_USAGE 64
// Maximum count of numbers in CPATTN_GUEST: RANK WORLD GENERATION PARENT_PID [DEVICE].
#define NUMBERS    5

// Children of this process must not keep the sockets of the daemon and of other ranks open.
static int descriptors; // number of these sockets; their descriptors begin at CHANNEL_FD

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

// The variant of this library with the CUDA engine, preferably in the folder of this library.
#define GPU_LIBRARY "libcpattn-guest-cuda.so.0"

typedef int main_function(const struct cpattn_guest *guest);
typedef bool add_function(const char *kind, int (*run)(struct cpattn_guest_job *job, void *context),
                          void *context);

// Registers the functions of cpattn_guest_add() in the other library, which has its own table.
static void functions_pass(void *library);

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
    if (!library)
        return NULL;
    functions_pass(library);
    return (main_function *)dlsym(library, "cpattn_guest_main");
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

// ---- functions of other kinds -------------------------------------------------------------------

#define FUNCTIONS_MAX 8
static struct guest_function functions[FUNCTIONS_MAX];
static int function_count;

static void functions_pass(void *library)
{
    add_function *add = (add_function *)dlsym(library, "cpattn_guest_add");
    for (int i = 0; add && i < function_count; i++)
        add(functions[i].kind, functions[i].run, functions[i].context);
}

struct guest_function guest_function_of(const char *kind)
{
    if (strcmp(kind, job_kind_attention.name) == 0)
        return (struct guest_function){kind, guest_program->attend, guest_program->context};
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].kind, kind) == 0)
            return functions[i];
    return (struct guest_function){.kind = kind};
}

bool cpattn_guest_add(const char *name, int (*run)(struct cpattn_guest_job *job, void *context),
                      void *context)
{
    const struct job_kind *kind = job_kind_find(name);
    if (!kind || kind->tensor_count == 0 || function_count == FUNCTIONS_MAX)
        return false;
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].kind, name) == 0)
            return false;
    functions[function_count++] = (struct guest_function){kind->name, run, context};
    return true;
}

// ---- the case -----------------------------------------------------------------------------------

const struct cpattn_guest_place *cpattn_guest_place(const struct cpattn_guest_job *job)
{
    return job->place;
}

static const struct job_kind *kind_of(const struct cpattn_guest_job *job)
{
    return job->run ? job->run->kind : &job_kind_attention;
}

const char *cpattn_guest_kind(const struct cpattn_guest_job *job)
{
    return kind_of(job)->name;
}

int cpattn_guest_field(const struct cpattn_guest_job *job, const char *name, char *text,
                       size_t size)
{
    const struct case_field *field = job_kind_field(kind_of(job), name);
    if (!field)
        return -1;
    return job->run ? members_get(job->run->spec, field, text, size)
                    : case_get(job->j->c, field, text, size);
}

static const char *name_of(const struct case_field *field, int i)
{
    for (int at = 0; field->name && at != i; at++)
        field++;
    return field->name;
}

const char *cpattn_guest_field_name(int i)
{
    return name_of(case_fields(), i);
}

const char *cpattn_guest_job_field_name(const struct cpattn_guest_job *job, int i)
{
    return name_of(job_kind_fields(kind_of(job)), i);
}

int64_t cpattn_guest_message(const struct cpattn_guest_job *job, int from, int to)
{
    int size = job->place->world_size;
    bool known = from >= 0 && from < size && to >= 0 && to < size;
    return known && job->run && job->run->kind->message
               ? job->run->kind->message(job->run->spec, from, to)
               : -1;
}

bool cpattn_guest_token(const struct cpattn_guest_job *job, bool keys, int64_t row,
                        int32_t *sequence, int64_t *position)
{
    const struct job *j = job->j;
    enum shard_side side = keys ? SIDE_KV : SIDE_Q;
    int64_t step = j ? shard_row_step(j->c) : 1;
    if (!j)
        return false;
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

// ---- calls of the guest's function --------------------------------------------------------------

int64_t cpattn_guest_time_left(const struct cpattn_guest_job *job)
{
    uint64_t now_ns = clock_now_ns();
    if (job->limit_ns == 0)
        return INT64_MAX;
    return job->limit_ns > now_ns ? (int64_t)(job->limit_ns - now_ns) : 0;
}

void cpattn_guest_has_lse(struct cpattn_guest_job *job)
{
    job->has_lse = true;
}

void guest_phase(const struct cpattn_guest_job *job, enum report_phase phase)
{
    progress_store(
        job->progress,
        (struct progress_view){.job = (uint32_t)job->number, .phase = phase, .waiting_for = -1});
}

void cpattn_guest_backward(struct cpattn_guest_job *job)
{
    struct engine *engine = job->engine;
    struct error told_later;
    if (engine->ops->wait && engine->ops->wait(engine, false, &told_later) != STATUS_OK)
        return;
    job->backward_ns = clock_now_ns();
    guest_phase(job, REPORT_BACKWARD);
}

void cpattn_guest_fail(struct cpattn_guest_job *job, bool unsupported, const char *text)
{
    job->unsupported = unsupported;
    snprintf(job->text, sizeof(job->text), "%s", text);
}
