// SPDX-License-Identifier: Apache-2.0
// Upper bound of the memory of a case, from the buffers of the algorithms and of the verification.
#include "plan/bias.h"
#include "plan/plan.h"
#include "plan/team_order.h"

// Upper bound of the sum of a rank's buffers. Far beyond any machine, so that sums cannot overflow.
#define MEMORY_BYTES_MAX (INT64_C(1) << 50)

// a * b, limited so that sums of a few products cannot overflow.
static int64_t product(int64_t a, int64_t b)
{
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result) || result > MEMORY_BYTES_MAX)
        return MEMORY_BYTES_MAX;
    return result;
}

// Rows of one side: maximum over ranks, maximum over teams, sum over all ranks.
struct row_counts {
    int64_t rank, team, all;
};

static struct row_counts row_counts_of(const struct cp_case *c, enum shard_side side, int size)
{
    struct row_counts rows = {0, 0, 0};
    int64_t team = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t own = shard_rows(c, side, rank);
        team = own + (rank % size > 0 ? team : 0);
        rows.rank = own > rows.rank ? own : rows.rank;
        rows.team = team > rows.team ? team : rows.team;
        rows.all += own;
    }
    return rows;
}

static int64_t dims(const struct cp_case *c)
{
    return c->head_dim_qk + c->head_dim_v;
}

// Inputs and outputs of a rank: each tensor with its gradient; LSE.
static int64_t tensors_memory(const struct cp_case *c, int64_t q_rows, int64_t kv_rows)
{
    int64_t each = dims(c) * 2 * case_element_bytes(c);
    return product(product(q_rows, c->heads), each + 4) +
           product(product(kv_rows, c->kv_heads), each);
}

// Accumulators of `rows` queries: O, dQ and D, all in fp32.
static int64_t sums_memory(const struct cp_case *c, int64_t rows, int64_t heads)
{
    return product(product(rows, heads), dims(c) * 4 + 4);
}

// K and V, or their gradients, of `rows` keys.
static int64_t keys_memory(const struct cp_case *c, int64_t rows, int64_t heads, int element)
{
    return product(product(rows, heads), dims(c) * element);
}

// Ring: two slots for K and V of other teams, two fp32 sums of dK and dV, and a received sum.
static int64_t ring_memory(const struct cp_case *c, int64_t rows, int64_t heads)
{
    return keys_memory(c, rows, heads, 2 * case_element_bytes(c) + 3 * 4);
}

static int64_t p2p_memory(const struct cp_case *c, struct row_counts q, struct row_counts kv)
{
    return sums_memory(c, q.rank, c->heads) + ring_memory(c, kv.rank, c->kv_heads);
}

// All-gather: the keys of all ranks are kept. Gradients of the own keys arrive from every rank;
// those for other ranks are sent from two buffers.
static int64_t gather_memory(const struct cp_case *c, struct row_counts q, struct row_counts kv)
{
    return sums_memory(c, q.rank, c->heads) +
           keys_memory(c, kv.all, c->kv_heads, case_element_bytes(c)) +
           product(keys_memory(c, kv.rank, c->kv_heads, 4), c->world_size + 2);
}

// Memory after a head exchange: some heads of all tokens of the team.
static int64_t team_memory(const struct cp_case *c, int size, struct row_counts q,
                           struct row_counts kv)
{
    int element = case_element_bytes(c), group = c->heads / c->kv_heads;
    int64_t heads = (c->heads + size - 1) / size, kv_heads = (heads + group - 2) / group + 1;
    if (kv_heads > c->kv_heads)
        kv_heads = c->kv_heads;
    // Of the team: Q, dO, O and dQ in dtype, LSE and accumulators; the keys, and a ring among
    // teams. Of the own keys: gradients from each member that computed them, and their sum.
    return product(product(q.team, heads), dims(c) * 2 * element + 4) +
           sums_memory(c, q.team, heads) + keys_memory(c, kv.team, kv_heads, element) +
           ring_memory(c, kv.team, kv_heads) + keys_memory(c, kv.rank, c->kv_heads + size, 4) +
           keys_memory(c, kv.rank, c->kv_heads, 4);
}

static int64_t comm_memory(const struct cp_case *c, struct row_counts q, struct row_counts kv)
{
    switch (team_comm(c)) {
    case COMM_AUTO:
    case COMM_P2P:
        break;
    case COMM_ALL_GATHER:
        return gather_memory(c, q, kv);
    case COMM_A2A:
    case COMM_A2A_P2P:
        return team_memory(c, team_size(c), q, kv);
    }
    return p2p_memory(c, q, kv);
}

// Inputs and outputs of one number per head, the rank's part of them, and the parts of all ranks.
static int64_t heads_memory(const struct cp_case *c)
{
    return product(product(c->heads, c->world_size + 3), 2 * 4);
}

// A bias with a gradient that is summed over all ranks: the bias, the sum, a share of the sum, and
// all ranks' parts of the share.
static int64_t bias_whole_memory(const struct cp_case *c, int64_t head)
{
    int64_t all = product(head, bias_has_heads(c) ? c->heads : 1);
    int64_t share = all / c->world_size + 1;
    int element = case_element_bytes(c);
    return product(all, element + 4) + product(share, element + 4 * (c->world_size + 1));
}

// Memory of a bias. With a gradient that is not summed over all ranks: the bias of the team with
// its gradient, both in dtype; the fp32 sum; the gradient of the own queries, with the parts of all
// members that share a head.
static int64_t bias_memory(const struct cp_case *c, struct row_counts q)
{
    int element = case_element_bytes(c), size = team_size(c);
    int64_t heads = bias_has_heads(c) ? c->heads : 1, held = (heads + size - 1) / size;
    int64_t sequences = bias_has_batch(c) ? 1 : c->batch; // sequences that share a row
    if (c->bias == BIAS_NONE)
        return 0;
    if (bias_is_whole(c))
        return bias_whole_memory(c, product(bias_rows(c, (struct team){0, 1}), c->seqlen_kv));
    int64_t team = product(product(q.team / sequences, c->seqlen_kv), held);
    int64_t own = product(product(q.rank / sequences, c->seqlen_kv), heads);
    return product(team, 2 * element + 4) + product(own, element + 4 * (size + 1));
}

// Memory of the reference: some expected rows with LSE, deltas and terms; the errors of all tensors
// of one side, queries or keys; for keys, LSE and two deltas of every query in fp64, and an ordered
// copy of these for the query heads of one key head; the list of judged tiles.
static int64_t reference_memory(const struct cp_case *c, struct row_counts q, struct row_counts kv)
{
    int64_t most = q.rank > kv.rank ? q.rank : kv.rank;
    int64_t q_vectors = product(q.rank, c->heads), kv_vectors = product(kv.rank, c->kv_heads);
    int64_t vectors = q_vectors > kv_vectors ? q_vectors : kv_vectors;
    return product(most, dims(c) * 12 + 5 * 8) + product(vectors, dims(c) * 4 + 2 * 4) +
           product(q_vectors, 2 * 4) + product(product(q.all, c->heads), 3 * 8) +
           product(product(c->seqlen_q, c->heads / c->kv_heads), 3 * 8) +
           product(most / 64 + 4 * (int64_t)c->batch, 2 * 24);
}

// Memory of the reference for sums over all queries: five numbers per head of each rank; the
// gradient of the bias in fp64 before it is summed over the ranks, that of the twin, the parts of
// all ranks, and the errors.
static int64_t reference_sums_memory(const struct cp_case *c, struct row_counts q)
{
    int64_t sum = product(c->heads, 5 * 8 * (int64_t)c->world_size);
    if (c->bias == BIAS_NONE)
        return sum;
    bool whole = bias_is_whole(c);
    int64_t sequences = bias_has_batch(c) ? 1 : c->batch; // sequences that share a row
    int64_t rows = whole ? bias_rows(c, (struct team){0, 1}) : q.rank / sequences;
    int64_t lines = product(rows, bias_has_heads(c) ? c->heads : 1);
    int64_t elements = product(lines, c->seqlen_kv);
    return sum + product(elements, (whole ? 4 * 8 : 2 * 8) + 4) + product(lines, 4) +
           product(c->seqlen_kv, 5 * 4) + 16 * c->world_size + 8;
}

// Slices for every team's keys, forward and backward; and every span of queries, for the gradient
// of a sink.
int64_t plan_slices_bound(const struct cp_case *c)
{
    int size = team_size(c), teams = c->world_size / size;
    int64_t count = team_slices_bound(c, size) * teams * (c->training ? 2 : 1);
    if (c->softmax == SOFTMAX_LEARNABLE)
        count += (int64_t)size * shard_spans_max(c);
    return count * team_groups(c);
}

enum status case_memory(const struct cp_case *c, int64_t *bytes, struct error *error)
{
    struct row_counts q = row_counts_of(c, SIDE_Q, team_size(c)),
                      kv = row_counts_of(c, SIDE_KV, team_size(c));
    int64_t sum =
        tensors_memory(c, q.rank, kv.rank) + comm_memory(c, q, kv) + reference_memory(c, q, kv);
    // Slices are held twice: in the plan, whose array grows while it is built, and in the part that
    // is being planned.
    sum += product(plan_slices_bound(c), 4 * (int64_t)sizeof(struct slice));
    sum += heads_memory(c) + bias_memory(c, q) + reference_sums_memory(c, q);
    if (sum >= MEMORY_BYTES_MAX)
        return error_set(
            error, STATUS_RESOURCE_EXHAUSTED,
            "batch %d x seqlen %lld/%lld x heads %d/%d x head_dim %d/%d needs more than "
            "1 PiB of memory per rank (world_size %d)",
            c->batch, (long long)c->seqlen_q, (long long)c->seqlen_kv, c->heads, c->kv_heads,
            c->head_dim_qk, c->head_dim_v, c->world_size);
    *bytes = sum;
    return STATUS_OK;
}
