// SPDX-License-Identifier: Apache-2.0
// Cases with a client's inputs on a device. If the drawn inputs of a case are given, digest and
// figures are those of the drawn case. Cases with other inputs pass, too.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rank/cuda/engine.h"
#include "rank/session.h"
#include "tests/cuda/harness.h"
#include "tests/support/generate.h"

static void insist(enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    abort();
}

static void hold(bool holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    abort();
}

// ---- memory of a client ----

struct client {
    struct places_frame frame;
    int64_t given_bytes, wanted_bytes;
    int given, wanted; // descriptors; -1: none
};

static int memory_make(int64_t bytes)
{
    int fd = memfd_create("tensors", MFD_CLOEXEC);
    hold(fd >= 0 && ftruncate(fd, bytes) == 0, "memory of tensors");
    return fd;
}

static void places_all(const struct cp_case *c, int64_t places[])
{
    for (int i = 0; i < WHOLE_INPUTS; i++)
        places[i] = whole_bytes(c, (enum whole_tensor)i) > 0 ? 0 : PLACE_NONE;
}

// Creates the memory of a client that gives all inputs of the case, or one that wants a copy of all
// inputs.
static struct client client_make(const struct cp_case *c, bool gives)
{
    struct client client = {.given = -1, .wanted = -1};
    places_init(&client.frame.places);
    places_all(c, gives ? client.frame.places.given : client.frame.places.wanted);
    places_lay_out(c, &client.frame.places, &client.given_bytes, &client.wanted_bytes);
    client.frame.has_given = gives;
    client.frame.has_wanted = !gives;
    if (gives)
        client.given = memory_make(client.given_bytes);
    else
        client.wanted = memory_make(client.wanted_bytes);
    return client;
}

static void given_store(const struct client *client, enum whole_tensor tensor, const void *data,
                        int64_t bytes)
{
    hold(pwrite(client->given, data, (size_t)bytes, client->frame.places.given[tensor]) == bytes,
         "given inputs");
}

// ---- a rank ----

static struct rank_report run(const struct cp_case *c, const struct client *client)
{
    int none[1] = {-1};
    char number[] = "0", *arguments[] = {number, NULL};
    struct transport *transport;
    struct progress progress = {0};
    struct session session;
    struct segments segments;
    struct rank_report report;
    struct error error;
    insist(transport_socket_create(0, 1, none, &transport, &error), &error);
    insist(session_init(&session, &engine_cuda, arguments, transport, &progress, &error), &error);
    int fds[2] = {client->given >= 0 ? dup(client->given) : -1,
                  client->wanted >= 0 ? dup(client->wanted) : -1};
    insist(segments_open(&segments, c, &client->frame, fds, &error), &error);
    insist(session_run(&session, c, 1, &segments, &report, &error), &error);
    segments_close(&segments);
    session_fini(&session);
    transport->ops->destroy(transport);
    return report;
}

// Figures of dbias vary in their last bits, because its reference is summed by atomics.
static bool is_near(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-6 * fabs(a);
}

// Describes the first difference between two reports of a case; "" if they agree.
static const char *difference(const struct cp_case *c, const struct rank_report *a,
                              const struct rank_report *b)
{
    static char text[200];
    text[0] = '\0';
    if (!a->pass || !b->pass)
        return a->pass ? "the drawn one fails" : "the given one fails";
    if (a->figures_count != b->figures_count || (c->deterministic && a->digest != b->digest))
        return a->figures_count != b->figures_count ? "numbers of figures" : "digests";
    for (int i = 0; i < a->figures_count && !text[0]; i++) {
        const struct figures *x = &a->figures[i], *y = &b->figures[i];
        bool near = is_near(x->rmse_rel, y->rmse_rel) && is_near(x->slope, y->slope);
        if (x->tensor != y->tensor || (c->deterministic && !near))
            snprintf(text, sizeof(text),
                     "figure %d: tensors %d and %d, RMSE %.17g and %.17g, slope %.17g and %.17g", i,
                     (int)x->tensor, (int)y->tensor, x->rmse_rel, y->rmse_rel, x->slope, y->slope);
    }
    return text;
}

static struct cp_case small_case(bool with_padding)
{
    struct cp_case c;
    do
        generate_case(harness_random(), 1, harness_small() ? 20 : 200, &c);
    while (c.seqlen_q == 0 || c.seqlen_kv == 0 || (!with_padding && c.format == FORMAT_THD));
    c.verify = VERIFY_FULL;
    return c;
}

// ---- tests ----

static void drawn_and_given_are_the_same(void)
{
    for (int i = 0; i < (harness_small() ? 2 : 12); i++) {
        struct cp_case c = small_case(true);
        struct client wants = client_make(&c, false), gives = client_make(&c, true);
        struct rank_report drawn = run(&c, &wants);
        for (int t = 0; t < WHOLE_INPUTS; t++) {
            int64_t bytes = whole_bytes(&c, (enum whole_tensor)t);
            char *data = malloc((size_t)bytes + 1);
            hold(data && (bytes == 0 || pread(wants.wanted, data, (size_t)bytes,
                                              wants.frame.places.wanted[t]) == bytes),
                 "inputs that were drawn");
            if (bytes > 0)
                given_store(&gives, (enum whole_tensor)t, data, bytes);
            free(data);
        }
        struct rank_report given = run(&c, &gives);
        char text[512];
        const char *differs = difference(&c, &given, &drawn);
        case_describe(&c, text, sizeof(text));
        EXPECT(!differs[0], "%s: %s", differs, text);
        close(wants.wanted);
        close(gives.given);
    }
}

static enum case_dtype dtype_of(const struct cp_case *c, enum whole_tensor tensor)
{
    struct whole_shape shape;
    hold(whole_shape(c, tensor, &shape), "a shape");
    return shape.dtype;
}

static void other_inputs_pass(void)
{
    for (int i = 0; i < (harness_small() ? 2 : 20); i++) {
        struct cp_case c = small_case(false);
        struct client gives = client_make(&c, true);
        for (int t = 0; t < WHOLE_INPUTS; t++) {
            int64_t bytes = whole_bytes(&c, (enum whole_tensor)t);
            if (bytes == 0)
                continue;
            struct twin twin = twin_create((size_t)bytes, 0);
            twin_fill_dtype(&twin, dtype_of(&c, (enum whole_tensor)t), 2);
            given_store(&gives, (enum whole_tensor)t, twin.host, bytes);
            twin_destroy(&twin);
        }
        struct rank_report given = run(&c, &gives);
        char text[512];
        case_describe(&c, text, sizeof(text));
        EXPECT(given.figures_count > 0 && given.pass, "fails: %s", text);
        close(gives.given);
    }
}

static const struct harness_test tests[] = {
    {"drawn_and_given_are_the_same", drawn_and_given_are_the_same},
    {"other_inputs_pass", other_inputs_pass},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
