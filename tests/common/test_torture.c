// SPDX-License-Identifier: Apache-2.0
// Allocations fail at every place: in the first run of a part its first allocation fails, then the
// second, and so on, including those of libraries. In each run the part must return
// RESOURCE_EXHAUSTED or continue without the memory, and must free everything. Daemon and client
// library have tests of their own.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/matrix.h"
#include "client/submit/matrix/matrix_list.h"
#include "daemon/core/core.h"
#include "plan/plan.h"
#include "tests/support/runner.h"
#include "tests/support/wire_samples.h"
#include "yaml/yaml.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizer replaces the allocator itself.
int main(void)
{
    printf("1..0 # SKIP a sanitizer counts allocations itself\n");
    return 77;
}
#else

// ---- the allocator of this process -------------------------------------------------------------

// Exported, so that libraries use these functions, too.
#pragma GCC visibility push(default)
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *data, size_t size);
void *reallocarray(void *data, size_t count, size_t size);
void free(void *data);
#pragma GCC visibility pop

// The C library's allocator under its internal names.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *data, size_t size);
void __libc_free(void *data);

static long until_failure = -1; // -1: none fails
static long living;             // pieces that are allocated and not freed

static bool fails(void)
{
    if (until_failure < 0)
        return false;
    if (until_failure-- > 0)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *data)
{
    living += data != NULL;
    return data;
}

// The C library's headers have other names of parameters, which are reserved.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *data, size_t size)
{
    if (fails())
        return NULL;
    void *moved = __libc_realloc(data, size);
    return data ? moved : counted(moved);
}

void *reallocarray(void *data, size_t count, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(count, size, &bytes))
        return realloc(data, bytes);
    errno = ENOMEM;
    return NULL;
}

void free(void *data)
{
    living -= data != NULL;
    __libc_free(data);
}

// NOLINTEND(readability-inconsistent-declaration-parameter-name)

// ---- parts: each function creates, uses and destroys one ----------------------------------------

static struct error error;

static enum status live_yaml(void)
{
    static const char text[] =
        "a: 1\nb: [x, \"y\", 'z']\nc:\n  d: >\n    folded\n    text\n  e: {f: g}\n";
    struct yaml *yaml;
    enum status status = yaml_load_text("text", text, sizeof(text) - 1, &yaml, &error);
    if (status == STATUS_OK)
        yaml_destroy(yaml);
    return status;
}

static enum status live_matrix(void)
{
    char path[4096];
    struct yaml *yaml;
    struct matrix *matrix;
    struct matrix_list *list;
    struct matrix_choice choice = {0};
    runner_source(path, sizeof(path), "cases/demonstration.yaml");
    enum status status = yaml_load_file(path, &yaml, &error);
    if (status != STATUS_OK)
        return status;
    status = matrix_create(yaml, &matrix, &error);
    if (status == STATUS_OK) {
        status = matrix_list_create(matrix, &choice, &list, &error);
        if (status == STATUS_OK)
            matrix_list_destroy(list);
        matrix_destroy(matrix);
    }
    return status;
}

static enum status live_request(void)
{
    static struct wire_request request, decoded;
    struct sample sample = {7};
    void *data;
    size_t size;
    request = (struct wire_request){.version = WIRE_VERSION, .method = METHOD_RUN};
    sample_id(&sample, &request.id);
    sample_case(&sample, &request.run);
    enum status status = wire_encode_request(&request, &data, &size, &error);
    if (status != STATUS_OK)
        return status;
    status = wire_decode_request(data, size, &decoded, &error);
    free(data);
    return status;
}

static enum status live_reply(enum wire_method method, enum status answer)
{
    static struct wire_reply reply, decoded;
    struct sample sample = {11};
    void *data;
    size_t size;
    long until = until_failure;
    until_failure = -1;
    memset(&reply, 0, sizeof(reply));
    sample_reply(&sample, method, answer, &reply);
    until_failure = until;
    enum status status = wire_encode_reply(&reply, &data, &size, &error);
    if (status == STATUS_OK) {
        status = wire_decode_reply(data, size, &decoded, &error);
        if (status == STATUS_OK)
            wire_reply_fini(&decoded);
        free(data);
    }
    wire_reply_fini(&reply);
    return status;
}

static enum status live_result(void)
{
    return live_reply(METHOD_RUN, STATUS_OK);
}

static enum status live_failure(void)
{
    return live_reply(METHOD_RUN, STATUS_ABORTED);
}

static enum status live_status(void)
{
    return live_reply(METHOD_STATUS, STATUS_OK);
}

static enum status live_events(void)
{
    return live_reply(METHOD_WATCH, STATUS_OK);
}

static enum status live_core(void)
{
    const struct core_config config = {.host_count = 1,
                                       .hosts = {{.device_count = 2}},
                                       .ranks_per_device = 64,
                                       .queue_max = 8,
                                       .ranks_max = 16,
                                       .start_timeout_ns = 1,
                                       .peer_grace_ns = 1,
                                       .kill_timeout_ns = 1};
    struct core *core = core_create(&config);
    core_destroy(core);
    return core ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

static enum status live_plan(void)
{
    static struct cp_case c;
    struct plan *plan;
    case_init(&c);
    enum status status = plan_create(&c, 1, &plan, &error);
    if (status == STATUS_OK)
        plan_destroy(plan);
    return status;
}

static const struct {
    const char *name;
    enum status (*live)(void);
} lives[] = {
    {"yaml", live_yaml},     {"matrix", live_matrix},   {"request", live_request},
    {"reply", live_result},  {"failure", live_failure}, {"status", live_status},
    {"events", live_events}, {"core", live_core},       {"plan", live_plan},
};

START_TEST(test_life)
{
    ck_assert_int_eq(lives[_i].live(), STATUS_OK); // also makes allocations that libraries keep
    long failures = 0;
    for (long n = 0;; n++) {
        strcpy(error.text, "none");
        long before = living;
        until_failure = n;
        enum status status = lives[_i].live();
        long kept = living - before;
        bool over = until_failure >= 0;
        until_failure = -1;
        ck_assert_msg(kept == 0, "%s: %ld pieces are kept after failure %ld", lives[_i].name, kept,
                      n);
        ck_assert_msg(status == STATUS_OK || status == STATUS_RESOURCE_EXHAUSTED,
                      "%s: failure %ld: %s: %s", lives[_i].name, n, status_name(status),
                      error.text);
        failures += status != STATUS_OK;
        if (over) {
            ck_assert_int_eq(status, STATUS_OK);
            break;
        }
    }
    ck_assert_int_gt(failures, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("torture");
    TCase *tcase = tcase_create("torture");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_life, 0, sizeof(lives) / sizeof(lives[0]));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}

#endif
