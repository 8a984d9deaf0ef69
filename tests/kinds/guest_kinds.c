// SPDX-License-Identifier: Apache-2.0
// A simple guest for collectives and linear layers: every rank gets the data of all ranks and
// computes its own results from that. The first argument names a deliberate mistake ("none": right
// results). The second names a file that gets the number of each rank that is called. The guest
// supports fp32 and int32; sums, averages and minima; layers of one matrix.
#include <cpattn_guest.h>

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS_MAX 64

static const char *mistake = "";
static const char *tally;      // a file that gets a line with the rank for each call; NULL: none
static int sockets[RANKS_MAX]; // on rank 0 one to each rank, on the others [0] to rank 0
static int calls;

static bool makes(const char *name)
{
    return strcmp(mistake, name) == 0;
}

// ---- between ranks ------------------------------------------------------------------------------

static void put(int fd, const void *data, size_t bytes)
{
    for (ssize_t done; bytes > 0; bytes -= (size_t)done, data = (const char *)data + done)
        if ((done = send(fd, data, bytes, MSG_NOSIGNAL)) <= 0)
            exit(3);
}

static void get(int fd, void *data, size_t bytes)
{
    for (ssize_t done; bytes > 0; bytes -= (size_t)done, data = (char *)data + done)
        if ((done = recv(fd, data, bytes, 0)) <= 0)
            exit(3);
}

static int start(const struct cpattn_guest_place *place, char *text, size_t size, void *context)
{
    (void)context;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)place->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 1, rank; place->rank == 0 && i < place->world_size; i++) {
        int fd = accept(place->listener, NULL, NULL);
        get(fd, &rank, sizeof(rank));
        sockets[rank] = fd;
    }
    if (place->rank == 0)
        return 0;
    sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sockets[0], (struct sockaddr *)&address, sizeof(address)) != 0) {
        snprintf(text, size, "rank 0 does not answer");
        return 1;
    }
    put(sockets[0], &place->rank, sizeof(place->rank));
    return 0;
}

// The data of all ranks for one tensor.
struct gathered {
    char *data[RANKS_MAX];
    size_t bytes[RANKS_MAX];
};

static void block_pass(const struct cpattn_guest_place *place, struct gathered *all, int rank)
{
    bool root = place->rank == 0, mine = place->rank == rank;
    if (root && !mine)
        get(sockets[rank], &all->bytes[rank], sizeof(size_t));
    if (!root && mine)
        put(sockets[0], &all->bytes[rank], sizeof(size_t));
    if (!mine && root)
        all->data[rank] = calloc(all->bytes[rank] + 1, 1);
    if (root && !mine)
        get(sockets[rank], all->data[rank], all->bytes[rank]);
    if (!root && mine)
        put(sockets[0], all->data[rank], all->bytes[rank]);
    for (int to = 1; root && to < place->world_size; to++)
        if (to != rank) {
            put(sockets[to], &all->bytes[rank], sizeof(size_t));
            put(sockets[to], all->data[rank], all->bytes[rank]);
        }
    if (!root && !mine) {
        get(sockets[0], &all->bytes[rank], sizeof(size_t));
        all->data[rank] = calloc(all->bytes[rank] + 1, 1);
        get(sockets[0], all->data[rank], all->bytes[rank]);
    }
}

// memcpy() that accepts NULL for 0 bytes: a rank without a part may have no memory for it.
static void bytes_put(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static void gather(const struct cpattn_guest_place *place, const void *data, size_t bytes,
                   struct gathered *all)
{
    memset(all, 0, sizeof(*all));
    all->data[place->rank] = calloc(bytes + 1, 1);
    bytes_put(all->data[place->rank], data, bytes);
    all->bytes[place->rank] = bytes;
    for (int rank = 0; rank < place->world_size; rank++)
        block_pass(place, all, rank);
}

static void gathered_free(struct gathered *all)
{
    for (int rank = 0; rank < RANKS_MAX; rank++)
        free(all->data[rank]);
}

static void call_count(const struct cpattn_guest_job *job)
{
    FILE *file = tally ? fopen(tally, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%d\n", cpattn_guest_place(job)->rank);
    fclose(file);
}

// ---- collectives --------------------------------------------------------------------------------

static bool field_is(const struct cpattn_guest_job *job, const char *name, const char *value)
{
    char text[64];
    return cpattn_guest_field(job, name, text, sizeof(text)) >= 0 && strcmp(text, value) == 0;
}

static int field_int(const struct cpattn_guest_job *job, const char *name)
{
    char text[64] = "";
    cpattn_guest_field(job, name, text, sizeof(text));
    return atoi(text);
}

// How often a sum contains the data of a rank.
static int times_of(int rank)
{
    return rank == 1 && makes("missing") ? 0 : rank == 1 && makes("twice") ? 2 : 1;
}

// The minimum as fmin() defines it. The guest `compares` uses a comparison instead: it returns a
// NaN that follows the minimum.
static float least(float a, float b)
{
    if (makes("compares"))
        return a < b ? a : b;
    return a != a || b < a ? b : a;
}

static float real_of(const struct cpattn_guest_job *job, const float *const *ranks, int size,
                     int64_t i)
{
    bool backwards = makes("unequal") && calls % 2 == 1;
    float sum = 0, smallest = ranks[0][i];
    for (int n = 0; n < size; n++) {
        int rank = backwards ? size - 1 - n : n;
        for (int twice = 0; twice < times_of(rank); twice++)
            sum += ranks[rank][i];
        smallest = least(smallest, ranks[rank][i]);
    }
    if (field_is(job, "reduction", "min"))
        return smallest;
    return field_is(job, "reduction", "avg") && !makes("undivided") ? sum / (float)size : sum;
}

static int32_t whole_of(const struct cpattn_guest_job *job, const int32_t *const *ranks, int size,
                        int64_t i)
{
    uint32_t sum = 0;
    int32_t smallest = ranks[0][i];
    for (int rank = 0; rank < size; rank++) {
        sum += (uint32_t)times_of(rank) * (uint32_t)ranks[rank][i];
        smallest = ranks[rank][i] < smallest ? ranks[rank][i] : smallest;
    }
    if (field_is(job, "reduction", "min"))
        return smallest;
    return field_is(job, "reduction", "avg") && !makes("undivided") ? (int32_t)sum / size
                                                                    : (int32_t)sum;
}

static void reduce(const struct cpattn_guest_job *job, const struct gathered *all, int64_t first,
                   const struct cpattn_guest_tensor *to)
{
    int size = cpattn_guest_place(job)->world_size, factor = makes("factor") ? size : 1;
    const float *reals[RANKS_MAX];
    const int32_t *wholes[RANKS_MAX];
    assert(size >= 1 && size <= RANKS_MAX);
    for (int rank = 0; rank < size; rank++) {
        reals[rank] = (const float *)(void *)all->data[rank] + first;
        wholes[rank] = (const int32_t *)(void *)all->data[rank] + first;
    }
    for (int64_t i = 0; i < to->shape[0]; i++) {
        if (to->dtype == CPATTN_GUEST_FP32)
            ((float *)to->data)[i] = (float)factor * real_of(job, reals, size, i);
        else
            ((int32_t *)to->data)[i] = factor * whole_of(job, wholes, size, i);
    }
}

static void blocks_put(const struct cpattn_guest_job *job, const struct gathered *all,
                       const struct cpattn_guest_tensor *to)
{
    int rank = cpattn_guest_place(job)->rank, size = cpattn_guest_place(job)->world_size;
    char *at = to->data;
    for (int n = 0; n < size; n++) {
        int from = makes("swapped") && n < 2 ? 1 - n : n;
        size_t before = 0, bytes = all->bytes[from];
        for (int block = 0; block < rank && cpattn_guest_message(job, from, block) >= 0; block++)
            before += 4 * (size_t)cpattn_guest_message(job, from, block);
        if (cpattn_guest_message(job, from, rank) >= 0)
            bytes = 4 * (size_t)cpattn_guest_message(job, from, rank);
        bytes_put(at, all->data[from] + before, bytes);
        at += bytes;
    }
}

static bool collective_do(const struct cpattn_guest_job *job, const struct gathered *all,
                          const struct cpattn_guest_tensor *to)
{
    int rank = cpattn_guest_place(job)->rank, root = field_int(job, "root");
    if (field_is(job, "operation", "all_reduce"))
        reduce(job, all, 0, to);
    else if (field_is(job, "operation", "reduce_scatter"))
        reduce(job, all, rank * to->shape[0], to);
    else if (field_is(job, "operation", "broadcast"))
        bytes_put(to->data, all->data[root], to->bytes);
    else if (field_is(job, "operation", "all_gather") || cpattn_guest_message(job, 0, 0) >= 0)
        blocks_put(job, all, to);
    else
        return false;
    return true;
}

static int collective(struct cpattn_guest_job *job, void *context)
{
    struct cpattn_guest_tensor from, to, none;
    struct gathered all;
    (void)context;
    bool known =
        cpattn_guest_tensor(job, "send", &from) && cpattn_guest_tensor(job, "receive", &to);
    if (!known || cpattn_guest_tensor(job, "q", &none) ||
        strcmp(cpattn_guest_kind(job), "collective") != 0)
        return 1;
    if (from.dtype != CPATTN_GUEST_FP32 && from.dtype != CPATTN_GUEST_INT32) {
        cpattn_guest_fail(job, true, "knows fp32 and int32 alone");
        return 1;
    }
    if (makes("waits") || (makes("spins") && cpattn_guest_place(job)->rank != 1))
        pause();
    while (makes("spins"))
        calls++;
    for (int line = 0; makes("talks") && line < 20; line++)
        fprintf(stderr, "line %d: %0120d\n", line, line);
    if (makes("talks"))
        exit(9);
    if (makes("fails") && cpattn_guest_place(job)->rank == 1) {
        cpattn_guest_fail(job, false, "the ring is broken");
        return 1;
    }
    calls++;
    call_count(job);
    gather(cpattn_guest_place(job), from.data, from.bytes, &all);
    bool done = makes("nothing") || collective_do(job, &all, &to);
    gathered_free(&all);
    if (!done)
        cpattn_guest_fail(job, true, "does not know this operation");
    if (makes("outside") && to.bytes > 0)
        ((char *)to.data)[to.bytes] ^= 1;
    if (makes("send") && from.bytes > 0)
        ((char *)from.data)[0] ^= 1;
    return !done;
}

// ---- linear layers ------------------------------------------------------------------------------

struct matrix {
    float *data;
    int64_t rows, columns;
};

static struct matrix matrix_of(const struct cpattn_guest_job *job, const char *name)
{
    struct cpattn_guest_tensor t;
    if (!cpattn_guest_tensor(job, name, &t))
        return (struct matrix){NULL, 0, 0};
    return (struct matrix){t.data, t.dims == 2 ? t.shape[0] : 1, t.shape[t.dims - 1]};
}

// c = a b. a_turned, b_turned: this factor is transposed.
static void product(struct matrix a, bool a_turned, struct matrix b, bool b_turned, struct matrix c)
{
    int64_t inner = a_turned ? a.rows : a.columns;
    for (int64_t i = 0; i < c.rows; i++)
        for (int64_t k = 0; k < c.columns; k++) {
            double sum = 0;
            for (int64_t n = 0; n < inner; n++)
                sum += (double)a.data[a_turned ? n * a.columns + i : i * a.columns + n] *
                       (double)b.data[b_turned ? k * b.columns + n : n * b.columns + k];
            c.data[i * c.columns + k] = (float)sum;
        }
}

static void bias_add(struct matrix y, struct matrix b, double factor)
{
    for (int64_t i = 0; b.data && i < y.rows * y.columns; i++)
        y.data[i] += (float)factor * b.data[i % y.columns];
}

// Replaces a matrix by the sum of all ranks' matrices, added in the order of ranks.
static void sum_ranks(const struct cpattn_guest_job *job, struct matrix m)
{
    struct gathered all;
    int64_t count = m.rows * m.columns;
    gather(cpattn_guest_place(job), m.data, (size_t)count * sizeof(float), &all);
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int rank = 0; rank < cpattn_guest_place(job)->world_size; rank++)
            sum += (float)times_of(rank) * ((const float *)(void *)all.data[rank])[i];
        m.data[i] = makes("factor") ? sum * (float)cpattn_guest_place(job)->world_size : sum;
    }
    gathered_free(&all);
}

static int linear(struct cpattn_guest_job *job, void *context)
{
    bool row = field_is(job, "layer", "row");
    call_count(job);
    struct matrix x = matrix_of(job, "x"), w = matrix_of(job, "w"), b = matrix_of(job, "b");
    struct matrix y = matrix_of(job, "y"), dy = matrix_of(job, "dy"), dx = matrix_of(job, "dx");
    struct matrix dw = matrix_of(job, "dw"), db = matrix_of(job, "db");
    (void)context;
    if (field_is(job, "layer", "mlp") || !field_is(job, "dtype", "fp32") ||
        !field_is(job, "sequence_parallel", "false")) {
        cpattn_guest_fail(job, true, "knows single layers in fp32 without sequence parallelism");
        return 1;
    }
    product(x, false, w, true, y);
    if (row && makes("bias of all"))
        bias_add(y, b, 1);
    if (row)
        sum_ranks(job, y);
    if (!row || !makes("bias of all"))
        bias_add(y, b, 1);
    else
        bias_add(y, b, 0);
    if (field_is(job, "training", "false"))
        return 0;
    cpattn_guest_backward(job);
    product(dy, false, w, false, dx);
    if (!row)
        sum_ranks(job, dx);
    product(dy, true, x, false, dw);
    for (int64_t k = 0; db.data && k < db.columns; k++) {
        double sum = 0;
        for (int64_t i = 0; i < dy.rows; i++)
            sum += (double)dy.data[i * dy.columns + k];
        db.data[k] = (float)sum;
    }
    if (makes("outside") && y.data)
        y.data[y.rows * y.columns] = 1;
    if (makes("send") && x.data)
        x.data[0] = 1;
    struct matrix same = row ? y : dx;
    if (makes("unlike") && same.data && cpattn_guest_place(job)->rank == 1)
        ((uint32_t *)(void *)same.data)[0] ^= 1;
    return 0;
}

int main(int argc, char **argv)
{
    mistake = argc > 1 ? argv[1] : "";
    tally = argc > 2 ? argv[2] : NULL;
    if (!makes("attention alone") &&
        (!cpattn_guest_add("collective", collective, NULL) ||
         !cpattn_guest_add("linear", linear, NULL) || cpattn_guest_add("linear", linear, NULL) ||
         cpattn_guest_add("attention", linear, NULL) || cpattn_guest_add("sum", linear, NULL)))
        return 2;
    return cpattn_guest_main(&(struct cpattn_guest){.start = start});
}
