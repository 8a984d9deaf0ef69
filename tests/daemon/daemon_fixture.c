// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/daemon_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nng/protocol/reqrep0/req.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/children.h"
#include "tests/support/runner.h"

// Much longer than any wait of a passing test.
#define PATIENCE_MS  60000
#define CHILDREN_MAX 512

extern char **environ;

static void pause_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

// ---- life --------------------------------------------------------------------------------------

void daemon_init(struct daemon *d)
{
    memset(d, 0, sizeof(*d));
    d->program = "cpattnd";
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    strcpy(d->folder, "/tmp/cpattnd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(d->folder));
    snprintf(d->socket, sizeof(d->socket), "%s/socket", d->folder);
    snprintf(d->log, sizeof(d->log), "%s/log", d->folder);
}

static pid_t daemon_spawn(const char *name, const char *const *arguments, const char *socket,
                          int stderr_fd)
{
    char program[4096];
    char *argv[DAEMON_ARGUMENTS_MAX + 6] = {runner_build(program, sizeof(program), name) ? program
                                                                                         : NULL};
    int count = 1;
    pid_t pid;
    // Later arguments may override these.
    argv[count++] = (char *)(uintptr_t) "--backend";
    argv[count++] = (char *)(uintptr_t) "cpu";
    if (socket) {
        argv[count++] = (char *)(uintptr_t) "--socket";
        argv[count++] = (char *)(uintptr_t)socket;
    }
    for (int i = 0; arguments && arguments[i]; i++) {
        ck_assert_int_lt(i, DAEMON_ARGUMENTS_MAX);
        argv[count++] = (char *)(uintptr_t)arguments[i];
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, stderr_fd, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    int result = posix_spawn(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_msg(result == 0, "cannot start %s: %s", program, strerror(result));
    return pid;
}

static bool file_holds(const char *path, const char *text)
{
    char line[9000];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

bool daemon_logged(const struct daemon *d, const char *text)
{
    return file_holds(d->log, text);
}

static void client_open(struct daemon *d)
{
    char url[128];
    snprintf(url, sizeof(url), "ipc://%s", d->socket);
    ck_assert_int_eq(nng_req0_open(&d->client), 0);
    nng_socket_set_ms(d->client, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    ck_assert_int_eq(nng_dial(d->client, url, NULL, 0), 0);
    d->connected = true;
}

static void client_close(struct daemon *d)
{
    if (d->connected)
        nng_close(d->client);
    d->connected = false;
}

void daemon_start(struct daemon *d, const char *const *arguments)
{
    int log = open(d->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(log, 0);
    d->pid = daemon_spawn(d->program, arguments, d->socket, log);
    close(log);
    for (int waited = 0; !daemon_logged(d, "ready "); waited += 10) {
        ck_assert_int_lt(waited, PATIENCE_MS);
        ck_assert_msg(waitpid(d->pid, NULL, WNOHANG) == 0, "the daemon has ended");
        pause_ms(10);
    }
    client_open(d);
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// When the daemon ends, its children become children of this process. They must be dead by then, or
// end with the daemon. The kernel may need a moment for that.
static void children_assert_gone(void)
{
    int status;
    pid_t pid = 0;
    for (int waited = 0; waited < PATIENCE_MS && (pid = waitpid(-1, &status, WNOHANG)) >= 0;
         waited += 10)
        pause_ms(pid == 0 ? 10 : 0);
    ck_assert_msg(pid < 0 && errno == ECHILD, "a process was left behind");
}

int daemon_wait(struct daemon *d)
{
    int status;
    client_close(d);
    ck_assert_int_eq(waitpid(d->pid, &status, 0), d->pid);
    d->pid = 0;
    children_assert_gone();
    if (WIFEXITED(status)) {
        char lock[128];
        snprintf(lock, sizeof(lock), "%s.lock", d->socket);
        ck_assert_msg(access(d->socket, F_OK) != 0, "%s was left behind", d->socket);
        ck_assert_msg(access(lock, F_OK) != 0, "%s was left behind", lock);
    }
    return status_of(status);
}

int daemon_stop(struct daemon *d)
{
    client_close(d);
    ck_assert_int_gt(d->pid, 0);
    kill(d->pid, SIGTERM);
    return daemon_wait(d);
}

static void log_print(const struct daemon *d)
{
    char line[9000];
    FILE *file = fopen(d->log, "re");
    while (file && fgets(line, sizeof(line), file))
        printf("# %s", line);
    if (file)
        fclose(file);
}

void daemon_fini(struct daemon *d)
{
    if (getenv("CPATTN_TEST_LOG"))
        log_print(d);
    if (d->pid)
        ck_assert_int_eq(daemon_stop(d), 0);
    unlink(d->log);
    ck_assert_msg(rmdir(d->folder) == 0, "%s is not empty", d->folder);
}

int daemon_run(const char *const *arguments, char *text, size_t size)
{
    int ends[2], status;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = daemon_spawn("cpattnd", arguments, NULL, ends[1]);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status_of(status);
}

void daemon_refuses(const char *const *arguments, const char *text)
{
    char output[4096];
    ck_assert_int_eq(daemon_run(arguments, output, sizeof(output)), 64);
    expect_text(output, text);
}

// ---- requests ----------------------------------------------------------------------------------

struct wire_request daemon_request(enum wire_method method)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = method};
    ck_assert_int_eq(getrandom(request.id.bytes, sizeof(request.id.bytes), 0), 16);
    if (method == METHOD_RUN) {
        case_init(&request.run);
        request.run.batch = 1;
        request.run.heads = request.run.kv_heads = 1;
        request.run.head_dim_qk = request.run.head_dim_v = 16;
        request.run.seqlen_q = request.run.seqlen_kv = 32;
        memcpy(&request.run.seed, request.id.bytes, sizeof(request.run.seed));
    }
    return request;
}

struct wire_request daemon_request_long(int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    request.run.batch = 2;
    request.run.heads = request.run.kv_heads = 16;
    request.run.head_dim_qk = request.run.head_dim_v = 128;
    request.run.seqlen_q = request.run.seqlen_kv = 8192;
    return request;
}

struct wire_request daemon_request_labelled(const char *label, int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    snprintf(request.run.model, sizeof(request.run.model), "%s", label);
    request.run.world_size = world_size;
    return request;
}

void daemon_request_encode(const struct wire_request *request, uint8_t *bytes, size_t *size)
{
    struct error error;
    void *data;
    ck_assert_int_eq(wire_encode_request(request, &data, size, &error), STATUS_OK);
    ck_assert_uint_le(*size, REQUEST_BYTES_MAX);
    memcpy(bytes, data, *size);
    free(data);
}

struct call daemon_call_begin(struct daemon *d, const struct wire_request *request)
{
    struct call call;
    struct error error;
    void *data;
    size_t size;
    nng_msg *message;
    ck_assert_msg(wire_encode_request(request, &data, &size, &error) == STATUS_OK, "%s",
                  error.text);
    ck_assert_int_eq(nng_ctx_open(&call.context, d->client), 0);
    ck_assert_int_eq(nng_aio_alloc(&call.aio, NULL, NULL), 0);
    ck_assert_int_eq(nng_msg_alloc(&message, 0), 0);
    nng_msg_append(message, data, size);
    free(data);
    nng_aio_set_timeout(call.aio, PATIENCE_MS);
    nng_aio_set_msg(call.aio, message);
    nng_ctx_send(call.context, call.aio);
    nng_aio_wait(call.aio);
    ck_assert_int_eq(nng_aio_result(call.aio), 0);
    nng_ctx_recv(call.context, call.aio);
    return call;
}

struct wire_reply daemon_call_end(struct call *call)
{
    struct wire_reply reply;
    struct error error;
    nng_aio_wait(call->aio);
    int result = nng_aio_result(call->aio);
    ck_assert_msg(result == 0, "no answer: %s", nng_strerror(result));
    nng_msg *message = nng_aio_get_msg(call->aio);
    ck_assert_msg(wire_decode_reply(nng_msg_body(message), nng_msg_len(message), &reply, &error) ==
                      STATUS_OK,
                  "%s", error.text);
    nng_msg_free(message);
    nng_aio_free(call->aio);
    nng_ctx_close(call->context);
    return reply;
}

struct wire_reply daemon_call(struct daemon *d, const struct wire_request *request)
{
    struct call call = daemon_call_begin(d, request);
    return daemon_call_end(&call);
}

int daemon_connect_bare(const struct daemon *d)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", d->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

int daemon_connect(const struct daemon *d)
{
    int fd = daemon_connect_bare(d);
    ck_assert_int_eq(send(fd, "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL), 8);
    return fd;
}

void daemon_send(int fd, uint32_t number, const struct wire_request *request)
{
    struct error error;
    void *data;
    size_t size;
    ck_assert_int_eq(wire_encode_request(request, &data, &size, &error), STATUS_OK);
    uint8_t head[13] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
    for (int i = 0; i < 4; i++) {
        head[8 - i] = (uint8_t)((size + 4) >> (8 * i));
        head[12 - i] |= (uint8_t)(number >> (8 * i));
    }
    ck_assert_int_eq(send(fd, head, sizeof(head), MSG_NOSIGNAL), (ssize_t)sizeof(head));
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
    free(data);
}

struct wire_reply daemon_receive(int fd)
{
    static uint8_t bytes[REPLY_BYTES_MAX];
    uint8_t head[13];
    struct wire_reply reply;
    struct error error;
    size_t size = 0;
    ck_assert_int_eq(recv(fd, head, sizeof(head), MSG_WAITALL), sizeof(head));
    for (int i = 1; i <= 8; i++)
        size = size << 8 | head[i];
    size -= 4;
    ck_assert_uint_le(size, sizeof(bytes));
    ck_assert_int_eq(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
    ck_assert_int_eq(wire_decode_reply(bytes, size, &reply, &error), STATUS_OK);
    return reply;
}

void daemon_ping_fresh(const struct daemon *d)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = {0};
    struct error error;
    nng_socket client;
    char url[128];
    void *data;
    size_t size;
    snprintf(url, sizeof(url), "ipc://%s", d->socket);
    ck_assert_int_eq(nng_req0_open(&client), 0);
    nng_socket_set_ms(client, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    nng_socket_set_ms(client, NNG_OPT_RECVTIMEO, 15000);
    nng_socket_set_ms(client, NNG_OPT_SENDTIMEO, 15000);
    int result = nng_dial(client, url, NULL, 0);
    ck_assert_int_eq(wire_encode_request(&request, &data, &size, &error), STATUS_OK);
    if (result == 0)
        result = nng_send(client, data, size, 0);
    free(data);
    if (result == 0)
        result = nng_recv(client, &data, &size, NNG_FLAG_ALLOC);
    if (result == 0) {
        ck_assert_int_eq(wire_decode_reply(data, size, &reply, &error), STATUS_OK);
        ck_assert_int_eq(reply.status, STATUS_OK);
        wire_reply_fini(&reply);
        nng_free(data, size);
    }
    nng_close(client);
    ck_assert_msg(result == 0, "a fresh client is not served: %s", nng_strerror(result));
}

struct wire_status daemon_status(struct daemon *d)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(d, &request);
    ck_assert_int_eq(reply.status, STATUS_OK);
    struct wire_status status = reply.pools;
    status.pools = NULL;
    wire_reply_fini(&reply);
    return status;
}

void daemon_await_running(struct daemon *d, int running)
{
    for (int waited = 0; daemon_status(d).running != running; waited += 2) {
        ck_assert_int_lt(waited, PATIENCE_MS);
        pause_ms(2);
    }
}

void daemon_await_queued(struct daemon *d, int queued)
{
    for (int waited = 0; daemon_status(d).queued != queued; waited += 2) {
        ck_assert_int_lt(waited, PATIENCE_MS);
        pause_ms(2);
    }
}

void expect_status(const struct wire_reply *reply, enum status status)
{
    ck_assert_msg(reply->status == status, "%s instead of %s: %s", status_name(reply->status),
                  status_name(status), reply->message);
}

void expect_pass(struct wire_reply *reply)
{
    expect_status(reply, STATUS_OK);
    ck_assert_int_eq(reply->method, METHOD_RUN);
    ck_assert_int_eq(reply->result.verdict, VERDICT_PASS);
    wire_reply_fini(reply);
}

void run_and_pass(struct daemon *d, int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    struct wire_reply reply = daemon_call(d, &request);
    expect_pass(&reply);
}

pid_t daemon_signal_rank(const struct daemon *d, int world_size, int rank, int number)
{
    pid_t pid = daemon_rank_pid(d, world_size, rank);
    ck_assert_msg(pid > 0, "there is no rank %d of %d to send signal %d to", rank, world_size,
                  number);
    ck_assert_int_eq(kill(pid, number), 0);
    return pid;
}

pid_t daemon_hold(struct daemon *d, int world_size)
{
    run_and_pass(d, world_size);
    return daemon_signal_rank(d, world_size, 0, SIGSTOP);
}

void daemon_release(pid_t rank)
{
    ck_assert_int_eq(kill(rank, SIGCONT), 0);
}

void run_and_expect(struct daemon *d, const struct wire_request *request, enum status status,
                    const char *part)
{
    struct wire_reply reply = daemon_call(d, request);
    expect_status(&reply, status);
    expect_text(reply.message, part);
    wire_reply_fini(&reply);
}

// ---- seen from outside -------------------------------------------------------------------------

// Reads the arguments of a process, each ended by a NUL. Returns their size; 0 for a zombie.
static size_t command_read(pid_t pid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

static bool command_is_rank(const char *text, size_t length, int *rank, int *world_size)
{
    const char *end = text + length, *arguments = text + strlen(text) + 1;
    if (strcmp(text, "cpattn-rank") != 0 || arguments >= end)
        return false;
    *rank = atoi(arguments);
    *world_size = atoi(arguments + strlen(arguments) + 1);
    return true;
}

// Visits the ranks of the daemon in the order of their start, and counts them. Stores the first
// `max` processes of this rank and returns their number.
static int ranks_walk(const struct daemon *d, int world_size, int rank, pid_t *pids, int max,
                      int *count)
{
    char path[96], text[256];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)d->pid, (int)d->pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    for (int pid, r, w; fscanf(file, "%d", &pid) == 1;) {
        size_t length = command_read(pid, text, sizeof(text));
        if (!length || !command_is_rank(text, length, &r, &w))
            continue;
        *count += 1;
        if (r == rank && w == world_size && found < max)
            pids[found++] = pid;
    }
    fclose(file);
    return found;
}

pid_t daemon_rank_pid(const struct daemon *d, int world_size, int rank)
{
    pid_t pid = 0;
    daemon_rank_pids(d, world_size, rank, &pid, 1);
    return pid;
}

int daemon_rank_pids(const struct daemon *d, int world_size, int rank, pid_t *pids, int max)
{
    int count = 0;
    return ranks_walk(d, world_size, rank, pids, max, &count);
}

int daemon_rank_count(const struct daemon *d)
{
    int count = 0;
    ranks_walk(d, -1, -1, NULL, 0, &count);
    return count;
}

int daemon_child_count(const struct daemon *d)
{
    pid_t pids[CHILDREN_MAX];
    return children_of(d->pid, pids, CHILDREN_MAX);
}

static int entries_count(const struct daemon *d, const char *name)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)d->pid, name);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

int daemon_descriptors(const struct daemon *d)
{
    return entries_count(d, "fd");
}

int daemon_threads(const struct daemon *d)
{
    return entries_count(d, "task");
}

int daemon_mapped(const struct daemon *d)
{
    char path[64], line[4400];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)d->pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, "/memfd:cpattn") != NULL;
    fclose(file);
    return count;
}

long daemon_resident_kib(const struct daemon *d)
{
    char path[64], line[128];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) && sscanf(line, "VmRSS: %ld", &kib) != 1)
        ;
    fclose(file);
    return kib;
}
