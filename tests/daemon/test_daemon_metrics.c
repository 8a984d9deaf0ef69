// SPDX-License-Identifier: Apache-2.0
// Metrics, liveness and readiness over HTTP. The text is strictly checked against the format of
// Prometheus. Only the loopback interface serves it. Invalid or endless requests disturb no other
// client.
#include "tests/support/runner.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/daemon/net_client.h"
#include "tests/support/port.h"

#define FAMILIES_MAX 64
#define SAMPLES_MAX  2048

static int port;
static char answer[512 * 1024];

static void setup(void)
{
    static char address[32];
    port = port_free();
    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    const char *const arguments[] = {"--devices", "2", "--metrics", address, NULL};
    daemon_init(&d);
    daemon_start(&d, arguments);
}

// ---- HTTP --------------------------------------------------------------------------------------

// Sends bytes and reads until the daemon closes. Returns the status code; 0: no answer.
static int ask(const char *request)
{
    int fd = net_connect(port), code = 0;
    size_t used = 0;
    ssize_t got;
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    while ((got = recv(fd, answer + used, sizeof(answer) - 1 - used, 0)) > 0)
        used += (size_t)got;
    answer[used] = '\0';
    close(fd);
    ck_assert_msg(used == 0 || sscanf(answer, "HTTP/1.1 %d ", &code) == 1, "%s", answer);
    return code;
}

static int get(const char *path)
{
    char request[256];
    snprintf(request, sizeof(request),
             "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    return ask(request);
}

static char *body(void)
{
    char *end = strstr(answer, "\r\n\r\n");
    ck_assert_ptr_nonnull(end);
    return end + 4;
}

// ---- the text format ---------------------------------------------------------------------------

struct family {
    char name[128], type[16];
};

static struct {
    struct family families[FAMILIES_MAX];
    int family_count;
    char samples[SAMPLES_MAX][256]; // names with labels, none of them twice
    double values[SAMPLES_MAX];
    int sample_count;
} page;

static size_t name_length(const char *text, bool colon)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_' ||
           (colon && text[length] == ':'))
        length++;
    ck_assert_msg(length > 0 && !isdigit((unsigned char)*text), "no name: %.40s", text);
    return length;
}

// Parses {name="value",...}; returns the rest.
static const char *labels_skip(const char *at)
{
    for (at++; *at != '}'; at += *at == ',') {
        at += name_length(at, false);
        ck_assert_msg(strncmp(at, "=\"", 2) == 0, "no value: %.40s", at);
        for (at += 2; *at != '"'; at++) {
            ck_assert(*at && *at != '\n');
            if (*at == '\\') {
                at++;
                ck_assert(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        at++;
        ck_assert_msg(*at == ',' || *at == '}', "no end: %.40s", at);
    }
    return at + 1;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t own = strlen(end);
    return length > own && strncmp(text + length - own, end, own) == 0;
}

// A sample belongs to the last announced family.
static void sample_take(const char *line)
{
    ck_assert_int_gt(page.family_count, 0);
    const struct family *family = &page.families[page.family_count - 1];
    size_t length = name_length(line, true), own = strlen(family->name);
    const char *at = line + length;
    bool histogram = strcmp(family->type, "histogram") == 0;
    ck_assert_msg(strncmp(line, family->name, own) == 0, "%s in the family %s", line, family->name);
    if (histogram)
        ck_assert(ends_with(line, length, "_bucket") || ends_with(line, length, "_sum") ||
                  ends_with(line, length, "_count"));
    else
        ck_assert_uint_eq(length, own);
    ck_assert_int_eq(strcmp(family->type, "counter") == 0, ends_with(line, length, "_total"));
    if (*at == '{')
        at = labels_skip(at);
    ck_assert_msg(*at == ' ', "%s", line);
    ck_assert_int_lt(page.sample_count, SAMPLES_MAX);
    snprintf(page.samples[page.sample_count], sizeof(page.samples[0]), "%.*s", (int)(at - line),
             line);
    for (int i = 0; i < page.sample_count; i++)
        ck_assert_str_ne(page.samples[i], page.samples[page.sample_count]);
    char *end;
    page.values[page.sample_count++] = strtod(at + 1, &end);
    ck_assert_msg(end > at + 1 && *end == '\0', "no number: %s", line);
}

// HELP and TYPE, once each, in this order.
static void comment_take(const char *line)
{
    char word[8], name[128];
    ck_assert_msg(sscanf(line, "# %7s %127s", word, name) == 2, "%s", line);
    if (strcmp(word, "HELP") == 0) {
        for (int i = 0; i < page.family_count; i++)
            ck_assert_str_ne(page.families[i].name, name);
        ck_assert_int_lt(page.family_count, FAMILIES_MAX);
        ck_assert(strncmp(name, "cpattnd_", 8) == 0);
        strcpy(page.families[page.family_count].name, name);
        page.families[page.family_count++].type[0] = '\0';
        return;
    }
    ck_assert_str_eq(word, "TYPE");
    ck_assert_int_gt(page.family_count, 0);
    struct family *last = &page.families[page.family_count - 1];
    ck_assert_str_eq(last->name, name);
    ck_assert_str_eq(last->type, "");
    ck_assert_int_eq(sscanf(line, "# TYPE %*s %15s", last->type), 1);
    ck_assert(strcmp(last->type, "counter") == 0 || strcmp(last->type, "gauge") == 0 ||
              strcmp(last->type, "histogram") == 0);
}

static double value(const char *sample)
{
    for (int i = 0; i < page.sample_count; i++)
        if (strcmp(page.samples[i], sample) == 0)
            return page.values[i];
    ck_abort_msg("there is no %s", sample);
}

// Counts of buckets do not decrease, and the last one counts all.
static void histogram_check(const char *name)
{
    char prefix[160];
    double before = 0, bound = -1;
    snprintf(prefix, sizeof(prefix), "%s_bucket{le=\"", name);
    for (int i = 0; i < page.sample_count; i++) {
        if (strncmp(page.samples[i], prefix, strlen(prefix)) != 0)
            continue;
        double le = strtod(page.samples[i] + strlen(prefix), NULL); // "+Inf", too
        ck_assert(le > bound && page.values[i] >= before);
        bound = le;
        before = page.values[i];
    }
    ck_assert(bound > 1e300);
    snprintf(prefix, sizeof(prefix), "%s_count", name);
    ck_assert_double_eq(value(prefix), before);
    snprintf(prefix, sizeof(prefix), "%s_sum", name);
    ck_assert_double_ge(value(prefix), 0);
}

static void page_get(void)
{
    ck_assert_int_eq(get("/metrics"), 200);
    expect_text(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    memset(&page, 0, sizeof(page));
    char *text = body();
    ck_assert(*text && text[strlen(text) - 1] == '\n');
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        (line[0] == '#' ? comment_take : sample_take)(line);
    for (int i = 0; i < page.family_count; i++)
        if (strcmp(page.families[i].type, "histogram") == 0)
            histogram_check(page.families[i].name);
        else
            ck_assert_str_ne(page.families[i].type, "");
}

// ---- tests -------------------------------------------------------------------------------------

#define POOL_STATE(state)                                                                          \
    "cpattnd_pool_state{implementation=\"cpattn\",world_size=\"2\",nodes=\"1\",instance=\"0\","    \
    "spare="                                                                                       \
    "\"false\",state=\"" state "\"}"

// Takes a device out of use, or allows it again. `out` devices must then be out of use.
static void devices_order(enum wire_order_kind kind, int device, uint64_t out)
{
    struct wire_request order = daemon_request(METHOD_ORDER);
    order.order = (struct wire_order){.kind = kind, .device = device};
    struct wire_reply reply = daemon_call(&d, &order);
    expect_status(&reply, STATUS_OK);
    ck_assert_uint_eq(reply.done, out);
    wire_reply_fini(&reply);
}

START_TEST(test_metrics_are_what_happened)
{
    page_get();
    ck_assert_double_eq(value("cpattnd_jobs_admitted_total"), 0);
    ck_assert_double_eq(value("cpattnd_devices{state=\"enabled\"}"), 2);
    run_and_pass(&d, 2);
    run_and_pass(&d, 2);
    struct wire_request slow = daemon_request_long(2), cancel = daemon_request(METHOD_CANCEL);
    struct call call = daemon_call_begin(&d, &slow);
    daemon_await_running(&d, 1);
    page_get();
    ck_assert_double_eq(value("cpattnd_jobs{state=\"running\"}"), 1);
    ck_assert_double_eq(value(POOL_STATE("running")), 1);
    ck_assert_double_eq(value(POOL_STATE("idle")), 0);
    cancel.cancel = slow.id;
    struct wire_reply reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    devices_order(ORDER_DRAIN_DEVICE, 1, 1);
    page_get();
    ck_assert_double_eq(value("cpattnd_jobs_admitted_total"), 3);
    ck_assert_double_eq(value("cpattnd_jobs_total{outcome=\"pass\"}"), 2);
    ck_assert_double_eq(value("cpattnd_jobs_total{outcome=\"fail\"}"), 0);
    ck_assert_double_eq(value("cpattnd_jobs_total{outcome=\"cancelled\"}"), 1);
    ck_assert_double_eq(value("cpattnd_jobs{state=\"running\"}"), 0);
    ck_assert_double_eq(value("cpattnd_job_duration_seconds_count"), 3);
    ck_assert_double_gt(value("cpattnd_job_run_seconds_sum"), 0);
    ck_assert_double_eq(value("cpattnd_devices{state=\"drained\"}"), 1);
    ck_assert_double_eq(value("cpattnd_devices{state=\"enabled\"}"), 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_liveness_and_readiness)
{
    ck_assert_int_eq(get("/healthz"), 200);
    ck_assert_str_eq(body(), "ok\n");
    ck_assert_int_eq(get("/readyz"), 200);
    ck_assert_str_eq(body(), "ready\n");
    devices_order(ORDER_DRAIN_DEVICE, 0, 1);
    ck_assert_int_eq(get("/readyz"), 200); // a device is left
    devices_order(ORDER_DRAIN_DEVICE, 1, 2);
    ck_assert_int_eq(get("/readyz"), 503);
    ck_assert_str_eq(body(), "no device is in use\n");
    devices_order(ORDER_ENABLE_DEVICE, 0, 1);
    devices_order(ORDER_ENABLE_DEVICE, 1, 0);
    ck_assert_int_eq(get("/readyz"), 200);
    struct wire_request slow = daemon_request_long(2);
    struct call call = daemon_call_begin(&d, &slow);
    daemon_await_running(&d, 1);
    kill(d.pid, SIGTERM);
    while (get("/readyz") == 200)
        usleep(1000);
    ck_assert_int_eq(get("/readyz"), 503);
    ck_assert_str_eq(body(), "draining\n");
    ck_assert_int_eq(get("/healthz"), 200);
    kill(d.pid, SIGTERM); // at once
    struct wire_reply reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_UNAVAILABLE);
    wire_reply_fini(&reply);
    ck_assert_int_ne(daemon_wait(&d), -SIGKILL);
}
END_TEST

START_TEST(test_what_is_not_served)
{
    ck_assert_int_eq(get("/"), 404);
    expect_text(body(), "/metrics");
    ck_assert_int_eq(get("/metrics/../healthz"), 404);
    ck_assert_int_eq(ask("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                         "Content-Length: 5\r\n\r\nhello"),
                     405);
    expect_text(answer, "Allow: GET, HEAD\r\n");
    ck_assert_int_eq(ask("HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 200);
    ck_assert_str_eq(body(), "");
    ck_assert_int_eq(ask("nonsense\r\n\r\n"), 0);
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Silent connections, and one with endless requests.
START_TEST(test_bad_requests_disturb_no_other)
{
    int silent[8], descriptors = daemon_descriptors(&d);
    const char *request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    int flood = net_connect(port);
    for (int i = 0; i < 8; i++)
        silent[i] = net_connect(port);
    for (int i = 0; i < 200; i++)
        if (send(flood, request, strlen(request), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
    run_and_pass(&d, 2);
    close(flood);
    for (int i = 0; i < 8; i++)
        close(silent[i]);
    ck_assert_int_eq(get("/healthz"), 200);
    run_and_pass(&d, 2);
    while (daemon_descriptors(&d) > descriptors + 16) // channels and pidfds of two ranks
        usleep(1000);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_only_the_loopback_interface)
{
    static const char *const refused[] = {
        "0.0.0.0:9464",     "192.0.2.1:9464",  "9464",      "127.0.0.1",
        "127.0.0.1:0",      "127.0.0.1:65536", "[::]:9464", "::1:9464",
        "example.com:9464", "127.0.0.1:80x",   "",          "localhost:"};
    char text[4096];
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *const arguments[] = {"--metrics", refused[i], NULL};
        ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 64);
        expect_text(text, "an address of this machine's loopback interface");
    }
    char taken[32], other[160];
    snprintf(taken, sizeof(taken), "127.0.0.1:%d", port);
    snprintf(other, sizeof(other), "%s/other", d.folder);
    const char *const again[] = {"--metrics", taken, "--socket", other, "--backend", "cpu", NULL};
    ck_assert_int_eq(daemon_run(again, text, sizeof(text)), 1);
    expect_text(text, "metrics: cannot listen on 127.0.0.1:");
    expect_text(text, "choose another port with --metrics");
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_metrics");
    TCase *tcase = tcase_create("metrics");
    tcase_add_checked_fixture(tcase, setup, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_metrics_are_what_happened);
    tcase_add_test(tcase, test_liveness_and_readiness);
    tcase_add_test(tcase, test_what_is_not_served);
    tcase_add_test(tcase, test_bad_requests_disturb_no_other);
    tcase_add_test(tcase, test_only_the_loopback_interface);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
