// SPDX-License-Identifier: Apache-2.0
// Collectives as a kind of job.
#include <string.h>

#include "plan/collective.h"
#include "plan/members.h"
#include "plan/support.h"

static const struct case_choice operations[] = {{"all_reduce", COLLECTIVE_ALL_REDUCE},
                                                {"all_gather", COLLECTIVE_ALL_GATHER},
                                                {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER},
                                                {"all_to_all", COLLECTIVE_ALL_TO_ALL},
                                                {"all_to_allv", COLLECTIVE_ALL_TO_ALLV},
                                                {"broadcast", COLLECTIVE_BROADCAST},
                                                {"reduce", COLLECTIVE_REDUCE},
                                                {"send_receive", COLLECTIVE_SEND_RECEIVE},
                                                {NULL, 0}};
// NCCL's spelling.
static const struct case_choice operation_aliases[] = {
    {"allreduce", COLLECTIVE_ALL_REDUCE},         {"allgather", COLLECTIVE_ALL_GATHER},
    {"reducescatter", COLLECTIVE_REDUCE_SCATTER}, {"alltoall", COLLECTIVE_ALL_TO_ALL},
    {"sendrecv", COLLECTIVE_SEND_RECEIVE},        {NULL, 0}};
static const struct case_choice reductions[] = {{"sum", REDUCTION_SUM}, {"prod", REDUCTION_PROD},
                                                {"min", REDUCTION_MIN}, {"max", REDUCTION_MAX},
                                                {"avg", REDUCTION_AVG}, {NULL, 0}};
static const struct case_choice elements[] = {{"fp32", ELEMENT_FP32},
                                              {"fp16", ELEMENT_FP16},
                                              {"bf16", ELEMENT_BF16},
                                              {"int32", ELEMENT_INT32},
                                              {"int64", ELEMENT_INT64},
                                              {"uint8", ELEMENT_UINT8},
                                              {NULL, 0}};
static const struct case_choice element_aliases[] = {
    {"float32", ELEMENT_FP32}, {"float16", ELEMENT_FP16}, {"bfloat16", ELEMENT_BF16}, {NULL, 0}};
static const struct case_choice algorithms[] = {{"auto", ALGORITHM_AUTO},
                                                {"ring", ALGORITHM_RING},
                                                {"tree", ALGORITHM_TREE},
                                                {"halving", ALGORITHM_HALVING},
                                                {"direct", ALGORITHM_DIRECT},
                                                {"nccl", ALGORITHM_NCCL},
                                                {NULL, 0}};

#define S struct collective
static const struct case_field fields[] = {
    MEMBER_FIELD(S, operation, FIELD_CHOICE, .choices = operations, .aliases = operation_aliases,
                 .help = "the operation"),
    MEMBER_INT(S, world_size, 1, WORLD_SIZE_MAX, "ranks"),
    MEMBER_INT(S, count, 0, COLLECTIVE_COUNT_MAX,
               "number of elements; cpattn-submit(1) defines it"),
    MEMBER_INT(S, size, 0, COLLECTIVE_SIZE_MAX,
               "bytes in place of count, as in nccl-tests; 0: use count"),
    MEMBER_FIELD(S, dtype, FIELD_CHOICE, .choices = elements, .aliases = element_aliases,
                 .help = "element type"),
    MEMBER_CHOICE(S, reduction, reductions, "how all_reduce, reduce_scatter and reduce reduce"),
    MEMBER_CHOICE(S, algorithm, algorithms, "exchange pattern"),
    MEMBER_INT(S, root, 0, WORLD_SIZE_MAX - 1, "rank that broadcasts, or that gets the reduction"),
    MEMBER_BOOL(S, in_place, "send and receive are the same memory (true) or not (false)"),
    MEMBER_INT(S, offset, 0, COLLECTIVE_OFFSET_MAX, "shift of the arrays in memory, in elements"),
    MEMBER_INT(S, iterations, 1, COLLECTIVE_ITERATIONS_MAX,
               "consecutive runs; the time is their mean"),
    MEMBER_BOOL(S, verify, "compare the results (true) or only run and time (false)"),
    MEMBER_UINT(S, seed, "seed of the elements"),
    MEMBER_BOOL(S, specials,
                "real elements are also -0, infinities, NaN and denormals (true) or not (false)"),
    MEMBER_UINT(S, explore_seed, "0: plan order, else a legal order drawn from this seed"),
    MEMBER_BOOL(S, operation_times,
                "each rank reports when each operation of its last run started and ended"),
    MEMBERS_PLACE(S),
    {.name = NULL}};
#undef S

static void init(void *spec)
{
    *(struct collective *)spec = (struct collective){.world_size = 2,
                                                     .operation = COLLECTIVE_ALL_REDUCE,
                                                     .reduction = REDUCTION_SUM,
                                                     .dtype = ELEMENT_FP32,
                                                     .algorithm = ALGORITHM_AUTO,
                                                     .count = 1 << 20,
                                                     .iterations = 1,
                                                     .verify = true,
                                                     .seed = 1234};
}

// The count of a size.
static int64_t sized_count(const struct collective *c)
{
    struct collective of_one = *c;
    of_one.count = 1;
    return c->size / collective_size(&of_one);
}

static void finish(void *spec)
{
    struct collective *c = spec;
    if (c->size > 0)
        c->count = sized_count(c);
}

static const char *vain(const void *spec, const char *field)
{
    const struct collective *c = spec;
    bool rooted = c->operation == COLLECTIVE_BROADCAST || c->operation == COLLECTIVE_REDUCE;
    if (strcmp(field, "count") == 0 && c->size > 0 && c->count != sized_count(c))
        return "size is given, too, and sets the count";
    if (strcmp(field, "reduction") == 0 && c->reduction != REDUCTION_SUM && !collective_reduces(c))
        return "only all_reduce, reduce_scatter and reduce have one";
    if (strcmp(field, "root") == 0 && c->root != 0 && !rooted)
        return "only broadcast and reduce have one";
    return NULL;
}

static bool algorithm_fits(const struct collective *c)
{
    bool moves = c->operation == COLLECTIVE_ALL_TO_ALL || c->operation == COLLECTIVE_ALL_TO_ALLV;
    bool rooted = c->operation == COLLECTIVE_BROADCAST || c->operation == COLLECTIVE_REDUCE;
    switch (c->algorithm) {
    case ALGORITHM_NCCL:
        return !c->in_place || (!moves && c->operation != COLLECTIVE_SEND_RECEIVE);
    case ALGORITHM_RING:
        return c->operation != COLLECTIVE_SEND_RECEIVE;
    case ALGORITHM_TREE:
        return rooted || c->operation == COLLECTIVE_ALL_REDUCE;
    case ALGORITHM_HALVING:
        return !moves && !rooted && c->operation != COLLECTIVE_SEND_RECEIVE;
    default:
        return true;
    }
}

static enum status algorithm_check(const struct collective *c, struct error *error)
{
    const char *operation = case_choice_name(operations, (int)c->operation);
    if (!algorithm_fits(c))
        return error_set(
            error, STATUS_UNIMPLEMENTED,
            "algorithm is %s with %s%s; accepted is auto, or an algorithm that this operation has",
            case_choice_name(algorithms, (int)c->algorithm), operation,
            c->in_place ? " in place" : "");
    if (c->algorithm == ALGORITHM_HALVING && c->operation != COLLECTIVE_ALL_REDUCE &&
        !collective_halves(c->world_size))
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "algorithm is halving with %s on %d ranks; accepted is a power of 2",
                         operation, c->world_size);
    return STATUS_OK;
}

static enum status check(const void *spec, struct error *error)
{
    const struct collective *c = spec;
    if (c->root >= c->world_size)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "root is %d with %d ranks; accepted is 0 to %d", c->root, c->world_size,
                         c->world_size - 1);
    if (c->specials && !collective_is_real(c->dtype))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "specials is true with dtype %s; accepted is false there, or dtype fp32, "
                         "fp16 or bf16",
                         case_choice_name(elements, (int)c->dtype));
    if (c->in_place && c->operation == COLLECTIVE_ALL_TO_ALLV)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "in_place is true with all_to_allv, whose two sides are cut differently; "
                         "accepted is false");
    if (c->in_place && c->iterations > 1 && c->verify && collective_reduces(c))
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "iterations is %d in place, where each run reduces what the one before "
                         "left; accepted is 1, or verify false",
                         c->iterations);
    enum status status = support_place(c->world_size, c->nodes, c->ranks_per_node, error);
    if (status == STATUS_OK)
        status = support_guest(c->implementation, c->explore_seed, c->operation_times, error);
    return status == STATUS_OK ? algorithm_check(c, error) : status;
}

static void needs_fill(const void *spec, struct job_needs *needs)
{
    const struct collective *c = spec;
    needs->world_size = c->world_size;
    needs->nodes = c->nodes;
    needs->ranks_per_node = c->ranks_per_node;
    needs->implementation = c->implementation;
    needs->verdict = c->verify;
    for (int rank = 0; rank < c->world_size; rank++)
        needs->cost.drawn += (double)collective_send_count(c, rank);
}

// Upper bound of the elements of scratch memory of the plan.
static int64_t scratch_bound(const struct collective *c)
{
    int64_t world = c->world_size;
    enum collective_algorithm algorithm = collective_algorithm(c);
    switch (c->operation) {
    case COLLECTIVE_ALL_REDUCE:
    case COLLECTIVE_SEND_RECEIVE:
        return 2 * c->count + world;
    case COLLECTIVE_REDUCE_SCATTER:
        return (algorithm == ALGORITHM_RING     ? 2
                : algorithm == ALGORITHM_DIRECT ? world
                                                : 2 * world) *
               c->count;
    case COLLECTIVE_REDUCE:
        return (algorithm == ALGORITHM_DIRECT ? world : 3) * c->count;
    case COLLECTIVE_ALL_TO_ALL:
        return world * c->count;
    default:
        return 0;
    }
}

static enum status memory(const void *spec, int64_t *rank_bytes, struct error *error)
{
    const struct collective *c = spec;
    int64_t most = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t receive = collective_receive_count(c, rank);
        // A device copies an unaligned receive buffer before it computes the digest.
        int64_t own = collective_send_count(c, rank) + (c->offset > 0 ? 2 : 1) * receive;
        most = own > most ? own : most;
    }
    // Counts are below 2^33 and ranks up to 64, so sums stay far below 2^63.
    *rank_bytes =
        (most + scratch_bound(c) + 4 * COLLECTIVE_OFFSET_MAX) * collective_element_bytes(c->dtype) +
        65536;
    if (*rank_bytes <= INT64_C(1) << 50)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "a rank would need more than 1 PiB");
}

static bool tensor(const void *spec, int rank, int index, struct job_tensor *t)
{
    static const enum job_dtype dtypes[ELEMENTS] = {
        [ELEMENT_FP32] = JOB_FP32,   [ELEMENT_FP16] = JOB_FP16,   [ELEMENT_BF16] = JOB_BF16,
        [ELEMENT_INT32] = JOB_INT32, [ELEMENT_INT64] = JOB_INT64, [ELEMENT_UINT8] = JOB_UINT8};
    const struct collective *c = spec;
    bool sent = index == COLLECTIVE_SEND;
    *t = (struct job_tensor){
        .name = sent ? "send" : "receive",
        .dtype = dtypes[c->dtype],
        .is_result = !sent,
        .dims = 1,
        .shape = {sent ? collective_send_count(c, rank) : collective_receive_count(c, rank)}};
    return true;
}

static int64_t message(const void *spec, int from, int to)
{
    const struct collective *c = spec;
    bool moves = c->operation == COLLECTIVE_ALL_TO_ALL || c->operation == COLLECTIVE_ALL_TO_ALLV;
    return moves ? collective_message(c, from, to) : -1;
}

static enum status plan_build(const void *spec, int rank, struct plan **plan, struct error *error)
{
    return collective_plan(spec, rank, plan, error);
}

static int rates(const void *spec, struct job_rate rates[JOB_RATES_MAX])
{
    double bytes = (double)collective_size(spec);
    rates[0] = (struct job_rate){"ALGORITHM_GB/s", bytes, 1e9};
    rates[1] = (struct job_rate){"BUS_GB/s", bytes * collective_bus_factor(spec), 1e9};
    return 2;
}

const struct job_kind job_kind_collective = {
    .name = "collective",
    .about = "run one collective of the ranks",
    .argument = "operation",
    .spec_bytes = sizeof(struct collective),
    .fields = fields,
    .init = init,
    .finish = finish,
    .check = check,
    .vain = vain,
    .needs = needs_fill,
    .memory = memory,
    .plan = plan_build,
    .tensor_count = COLLECTIVE_TENSORS,
    .tensor = tensor,
    .message = message,
    .rates = rates,
};
_Static_assert(sizeof(struct collective) <= JOB_SPEC_BYTES, "the spec has room");
