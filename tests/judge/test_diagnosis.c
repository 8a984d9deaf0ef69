// SPDX-License-Identifier: Apache-2.0
// Diagnosis of wrong results. A deliberate error that a verdict notices gets its own diagnosis or
// none. Results with only rounding errors get none.
#include "tests/support/runner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "judge/cpu/reference.h"
#include "judge/dtype.h"
#include "judge/evidence.h"
#include "rank/engine.h"
#include "rank/job.h"
#include "tests/mutations/diagnoses.h"
#include "tests/mutations/expected.h"
#include "tests/mutations/mutations.h"
#include "tests/support/part.h"
#include "tests/support/world.h"

// Changes of the ranks' results before they are judged.
enum spoil {
    SPOIL_NOTHING,
    SPOIL_FACTOR,  // dq is 0.4 % too large
    SPOIL_ELEMENT, // one element of out is wrong
    SPOIL_SWAP,    // two rows of dv are exchanged
    SPOIL_NAN,     // a row of out is NaN
    SPOIL_NOISE,   // random errors of dk
    SPOIL_SHIFTED, // each row of dk is that of the token before
    SPOILS,
    SPOIL_BIAS, // one row of dbias is three times too large
    SPOIL_SINK  // one head of dsink is negated
};

// Ways to destroy the numbers of a tensor.
enum garbage {
    GARBAGE_NOTHING,
    GARBAGE_NOISE,  // errors of 5 % on each element
    GARBAGE_OTHERS, // every element is random
    GARBAGE_BLOCK,  // 16 dims of every other row are random
    GARBAGE_SIGNS,  // every other element has the wrong sign
    GARBAGE_WAYS
};

// In memory shared with the ranks.
static struct shared {
    struct finding findings[WORLD_SIZE_MAX];
    enum spoil spoil;
    enum garbage garbage;
    int garbled;     // enum report_tensor
    uint32_t insist; // bit 1 << tensor: mark as failed
    bool as_other;   // diagnose the results as results of the case `as`
    struct cp_case as;
} * shared;
static struct rank_report reports[WORLD_SIZE_MAX];

// ---- an engine that keeps the findings ----------------------------------------------------------

static struct engine_ops diagnosing_ops;
static enum status (*plain_verify)(struct engine *e, struct job *j, struct error *error);

// A pseudo-random number in [0, 1).
static double drawn(uint64_t i)
{
    i = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    i = (i ^ (i >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (double)((i ^ (i >> 32)) >> 11) * 0x1p-53;
}

static void multiply(const struct cp_case *c, void *data, int64_t count, double noise,
                     double factor)
{
    int bytes = case_element_bytes(c);
    for (int64_t i = 0; i < count; i++) {
        float value;
        char *at = (char *)data + i * bytes;
        dtype_read(c->dtype, at, 0, 1, &value);
        value *= (float)(factor + noise * (drawn((uint64_t)i) - 0.5));
        dtype_write(c->dtype, &value, 1, at);
    }
}

static void spoil(const struct job *j, const struct rank_results *r)
{
    const struct cp_case *c = j->c;
    int64_t row = c->head_dim_qk * case_element_bytes(c); // head_dim_v is the same
    int64_t elements = shard_rows(c, SIDE_Q, j->rank) * c->heads * c->head_dim_qk;
    int64_t keys = shard_rows(c, SIDE_KV, j->rank) * c->kv_heads;
    char *out = (char *)r->out, *dq = (char *)r->dq, *dk = (char *)r->dk, *dv = (char *)r->dv;
    char kept[1024];
    switch (shared->spoil) {
    case SPOIL_FACTOR:
        multiply(c, dq, elements, 0, 1.004);
        break;
    case SPOIL_ELEMENT:
        multiply(c, out + 77 * case_element_bytes(c), 1, 0, 40);
        break;
    case SPOIL_SWAP: // two tokens of one head
        memcpy(kept, dv, (size_t)row);
        memcpy(dv, dv + row * c->kv_heads, (size_t)row);
        memcpy(dv + row * c->kv_heads, kept, (size_t)row);
        break;
    case SPOIL_NAN:
        memset(out + 5 * row, 0xff, (size_t)row);
        break;
    case SPOIL_NOISE:
        multiply(c, dk, keys * c->head_dim_qk, 0.5, 1);
        break;
    case SPOIL_SHIFTED:
        memmove(dk + row * c->kv_heads, dk, (size_t)(row * (keys - c->kv_heads)));
        break;
    case SPOIL_BIAS:
        multiply(c, (char *)r->dbias + 2 * 500 * c->seqlen_kv, c->seqlen_kv, 0, 3); // row 500
        break;
    case SPOIL_SINK:
        ((float *)r->dsink)[2] *= -1;
        break;
    default:
        break;
    }
}

static float garbled(enum garbage way, int64_t i, int dim, float value)
{
    float random = (float)(drawn((uint64_t)i) - 0.5);
    switch (way) {
    case GARBAGE_NOISE:
        return value * (1 + 0.17F * random);
    case GARBAGE_OTHERS:
        return 4 * random;
    case GARBAGE_BLOCK:
        return i / dim % 2 == 0 && i % dim < 16 ? 4 * random : value;
    case GARBAGE_SIGNS:
        return i % 2 ? -value : value;
    default:
        return value;
    }
}

static void garble(const struct job *j, const struct rank_results *results)
{
    const struct cp_case *c = j->c;
    struct evidence_host host = {c, results};
    enum report_tensor tensor = (enum report_tensor)shared->garbled;
    bool keys = tensor == TENSOR_DK || tensor == TENSOR_DV;
    int64_t rows = shard_rows(c, keys ? SIDE_KV : SIDE_Q, j->rank);
    int dim = tensor == TENSOR_LSE ? 1 : c->head_dim_qk; // head_dim_v is the same
    int64_t count = rows * (keys ? c->kv_heads : c->heads) * dim;
    enum case_dtype dtype = tensor == TENSOR_LSE ? DTYPE_FP32 : c->dtype;
    for (int64_t i = 0; i < count && shared->garbage != GARBAGE_NOTHING; i++) {
        size_t bytes;
        float value;
        void *at = (void *)evidence_place(&host, tensor, i, 1, &bytes);
        evidence_convert(c, tensor, at, 1, &value);
        value = garbled(shared->garbage, i, dim, value);
        dtype_write(dtype, &value, 1, at);
    }
}

static enum status verify_and_diagnose(struct engine *e, struct job *j, struct error *error)
{
    struct rank_results results = job_results(j);
    spoil(j, &results);
    garble(j, &results);
    enum status status = plain_verify(e, j, error);
    const struct cp_case *c = shared->as_other ? &shared->as : j->c;
    struct evidence_host host = {c, &results};
    struct evidence evidence = {.c = c,
                                .rank = j->rank,
                                .spans = {j->spans[SIDE_Q], j->spans[SIDE_KV]},
                                .span_count = {j->span_count[SIDE_Q], j->span_count[SIDE_KV]},
                                .read = evidence_host_read,
                                .read_context = &host};
    struct rank_report report = *j->report;
    for (int i = 0; i < report.figures_count; i++)
        if (shared->insist >> report.figures[i].tensor & 1 &&
            report.figures[i].chunk != CHUNK_PADDING)
            report.figures[i].broken |= RULE_RMSE;
    if (status == STATUS_OK)
        evidence_diagnose(&evidence, &report, &shared->findings[j->rank]);
    return status;
}

static enum status diagnosing_create(const struct engine_setup *setup, struct engine **engine,
                                     struct error *error)
{
    enum status status = engine_cpu.create(setup, engine, error);
    if (status != STATUS_OK)
        return status;
    diagnosing_ops = *(*engine)->ops;
    plain_verify = diagnosing_ops.verify;
    diagnosing_ops.verify = verify_and_diagnose;
    (*engine)->ops = &diagnosing_ops;
    return STATUS_OK;
}

static const struct engine_kind engine_diagnosing = {
    .program = "cpattn-rank", .arguments = "", .create = diagnosing_create};

// ---- cases --------------------------------------------------------------------------------------

static void case_of(int variant, enum case_dtype dtype, struct cp_case *c)
{
    variant_case(variant, INPUTS_SHARP, c);
    c->dtype = dtype;
}

// ---- running ------------------------------------------------------------------------------------

// The next runs have this mutation (NULL: none) and no other mistake.
static void set_mutation(const struct mutation *mutation)
{
    shared->insist = 0;
    shared->as_other = false;
    shared->spoil = SPOIL_NOTHING;
    shared->garbage = GARBAGE_NOTHING;
    world_close_all(); // ranks keep the mutation that they were forked with
    mutation_set(mutation);
}

// Runs the case. Returns the finding that explains most; a client shows this one first.
static const struct finding *run(const struct cp_case *c)
{
    struct error error = {.text = ""};
    const struct finding *best = &shared->findings[0];
    memset(shared->findings, 0, sizeof(shared->findings));
    ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s: %s",
                  mutation_name(mutation_current()), error.text);
    for (int rank = 0; rank < c->world_size; rank++)
        if (shared->findings[rank].diagnosis.explained > best->diagnosis.explained)
            best = &shared->findings[rank];
    return best;
}

struct counts {
    int noticed, right, wrong;
    int reported; // by ranks
};

// The rank reports the same tensor, unless its time limit passed. It uses LSE and delta of its
// verdict, so the last digits of numbers in the text may differ.
static void report_check(const struct rank_report *report, const struct finding *found,
                         struct counts *counts)
{
    if (!report->diagnosis.tensor)
        return;
    ck_assert_str_ne(report->diagnosis.text, "");
    ck_assert_int_eq(report->diagnosis.tensor, found->diagnosis.tensor);
    counts->reported++;
}

// True if the sentence names no mistake, but says where and what the error is.
static bool describes(enum diagnosis_kind kind)
{
    return kind == DIAGNOSIS_ROW_FACTORS || kind == DIAGNOSIS_PART_FACTORS ||
           kind == DIAGNOSIS_PLACES;
}

static bool misleads(const char *mutation, const struct finding *f)
{
    return f->kind != DIAGNOSIS_NONE && !describes(f->kind) &&
           !diagnosis_expected(mutation, f->kind);
}

static void judge(const char *mutation, int variant, enum case_dtype dtype, struct counts *counts)
{
    struct cp_case c;
    case_of(variant, dtype, &c);
    const struct finding *f = run(&c);
    if (world_passed(reports, c.world_size))
        return;
    bool right = diagnosis_expected(mutation, f->kind);
    const char *said = right ? "right" : misleads(mutation, f) ? "WRONG" : "none";
    counts->noticed++;
    counts->right += right;
    counts->wrong += misleads(mutation, f);
    printf("# %-23s %d %-10s %-5s %-6s %-15s %.3f %s: %s\n", mutation, c.world_size,
           variant_name(variant), case_choice_name(case_dtype_choices, (int)dtype), said,
           diagnosis_kind_name(f->kind), f->diagnosis.explained,
           f->diagnosis.tensor ? report_tensor_name(f->diagnosis.tensor) : "", f->diagnosis.text);
    for (int rank = 0; rank < c.world_size; rank++)
        report_check(&reports[rank], &shared->findings[rank], counts);
    for (int rank = 0; rank < c.world_size; rank++)
        if (misleads(mutation, &shared->findings[rank])) {
            printf("#     but rank %d: %s\n", rank, shared->findings[rank].diagnosis.text);
            counts->wrong += right;
        }
}

// ---- tests --------------------------------------------------------------------------------------

START_TEST(errors_are_diagnosed)
{
    struct counts counts = {0};
    const int part = test_part();
    for (int i = 0; i < expectations_count; i++) {
        if (mutation_find(expectations[i].mutation)->noticed != BY_VERDICT)
            continue;
        set_mutation(mutation_find(expectations[i].mutation));
        for (int variant = 0; variant < VARIANTS; variant++)
            if (expectations[i].variants >> variant & 1 && (i + variant) % part == 0)
                judge(expectations[i].mutation, variant,
                      variant == SINGLE || (i + variant) % 3 == 2 ? DTYPE_FP32 : DTYPE_BF16,
                      &counts);
    }
    world_close_all();
    printf("# %d errors noticed, %d called by their name, %d by a wrong one\n", counts.noticed,
           counts.right, counts.wrong);
    ck_assert_int_gt(counts.reported, 0);
    ck_assert_int_eq(counts.wrong, 0);
    ck_assert_int_ge(counts.right * 100, counts.noticed * 85);
}
END_TEST

// Right results get no diagnosis, even if they are marked as failed.
START_TEST(rounding_has_no_diagnosis)
{
    static const enum case_dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};
    const int part = test_part();
    set_mutation(NULL);
    for (int rounds = 0; rounds < 2; rounds++) {
        world_close_all(); // ranks keep what they were forked with
        mutation_rounds = rounds == 1 ? ROUNDS_WEIGHTS : 0;
        for (int i = 0; i < 2 * VARIANTS; i++) {
            struct cp_case c;
            if ((i / 2 + i % 2 + rounds) % part != 0)
                continue;
            case_of(i / 2, dtypes[i / 2 % 3], &c);
            shared->insist = i % 2 ? UINT32_MAX : ~(1U << TENSOR_OUT | 1U << TENSOR_LSE);
            run(&c);
            ck_assert(world_passed(reports, c.world_size));
            for (int rank = 0; rank < c.world_size; rank++)
                ck_assert_msg(shared->findings[rank].kind == DIAGNOSIS_NONE, "%s: %s",
                              variant_name(i / 2), shared->findings[rank].diagnosis.text);
        }
    }
    mutation_rounds = 0;
    world_close_all();
}
END_TEST

// The window of later packed sequences is one key wider.
START_TEST(a_mistake_of_one_sequence_is_diagnosed)
{
    struct cp_case c;
    set_mutation(mutation_find("WINDOW_PACKED"));
    case_of(PACKED_WINDOW, DTYPE_BF16, &c);
    const struct finding *f = run(&c);
    ck_assert_str_eq(f->diagnosis.text,
                     "in sequence 1, not in sequence 0: the window is one key wider on the left");
    world_close_all();
}
END_TEST

// One row of dbias of hundreds, one head of dsink.
START_TEST(parts_of_sums_are_diagnosed)
{
    static const char *const says[] = {
        "in 1 of 8 examined rows (sequence 1, head 2, position 20): ",
        "dsink is wrong in 1 of 4 heads, such as head 2, where "};
    struct cp_case c;
    set_mutation(NULL);
    for (int i = 0; i < 2; i++) {
        case_of(i == 0 ? BIAS_OWN : SINKS, DTYPE_BF16, &c);
        c.batch = 2;
        shared->spoil = (enum spoil)(SPOIL_BIAS + i);
        ck_assert_msg(strstr(run(&c)->diagnosis.text, says[i]), "%d", i);
    }
    world_close_all();
}
END_TEST

START_TEST(changed_results_are_diagnosed)
{
    static const enum diagnosis_kind kinds[SPOILS] = {
        [SPOIL_FACTOR] = DIAGNOSIS_FACTOR,     [SPOIL_ELEMENT] = DIAGNOSIS_ELEMENT,
        [SPOIL_SWAP] = DIAGNOSIS_SHIFTED_ROWS, [SPOIL_NAN] = DIAGNOSIS_NOT_FINITE,
        [SPOIL_NOISE] = DIAGNOSIS_NONE,        [SPOIL_SHIFTED] = DIAGNOSIS_SHIFTED_ROWS,
    };
    static const enum report_tensor tensors[SPOILS] = {
        [SPOIL_FACTOR] = TENSOR_DQ, [SPOIL_ELEMENT] = TENSOR_OUT, [SPOIL_SWAP] = TENSOR_DV,
        [SPOIL_NAN] = TENSOR_OUT,   [SPOIL_NOISE] = TENSOR_DK,    [SPOIL_SHIFTED] = TENSOR_DK};
    struct cp_case c;
    set_mutation(NULL);
    case_of(PLAIN_CAUSAL, DTYPE_BF16, &c);
    for (int i = SPOIL_NOTHING + 1; i < SPOILS; i++) {
        shared->spoil = (enum spoil)i;
        shared->insist = UINT32_C(1) << tensors[i]; // some are below the limits of a verdict
        const struct finding *f = run(&c);
        printf("# %s: %s\n", diagnosis_kind_name(f->kind), f->diagnosis.text);
        ck_assert_msg(f->kind == kinds[i], "%d: %s: %s", i, diagnosis_kind_name(f->kind),
                      f->diagnosis.text);
        if (i == SPOIL_NAN)
            ck_assert_ptr_nonnull(strstr(f->diagnosis.text, "; memory contains NaN before a run"));
    }
    world_close_all();
}
END_TEST

// Returns the number of ranks with the diagnosis that dk or dv is summed in 16 bits. Fails the test
// if a rank has another diagnosis.
static int ranks_say_narrow(const struct cp_case *c)
{
    int said = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        const struct finding *f = &shared->findings[rank];
        ck_assert_msg(f->kind == DIAGNOSIS_NONE || f->kind == DIAGNOSIS_NARROW_SUM, "%s",
                      f->diagnosis.text);
        said += f->kind == DIAGNOSIS_NARROW_SUM;
    }
    return said;
}

// Sums of dk and dv that are rounded at every step of a ring, and sums that are not. Some ranks
// have too few errors for a diagnosis.
START_TEST(sums_in_16_bits_are_diagnosed)
{
    static const struct {
        enum case_dtype dtype;
        enum case_mask mask;
    } tries[] = {{DTYPE_BF16, MASK_CAUSAL}, {DTYPE_BF16, MASK_NONE}, {DTYPE_FP16, MASK_NONE}};
    const size_t part = (size_t)test_part();
    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i += part)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct cp_case c;
            set_mutation(NULL);
            mutation_rounds = ROUNDS_WEIGHTS | (narrow ? ROUNDS_SUMS : 0);
            shared->insist = UINT32_C(1) << TENSOR_DK | UINT32_C(1) << TENSOR_DV;
            case_of(PLAIN_CAUSAL, tries[i].dtype, &c);
            c.world_size = 8;
            c.mask = tries[i].mask;
            c.seqlen_q = c.seqlen_kv = 512;
            const struct finding *f = run(&c);
            int said = ranks_say_narrow(&c);
            printf("# %d of 8 ranks: %s\n", said, f->diagnosis.text);
            ck_assert(narrow ? said >= 3 : said == 0);
        }
    mutation_rounds = 0;
    world_close_all();
}
END_TEST

// Changes the case that the ranks run, with mistake i.
static void misread(struct cp_case *c, int i)
{
    const struct {
        double scale, softcap;
    } others[] = {{0.125 * 1.1, 0}, {1.0 / 64, 0}, {0, 8}};
    switch (i) {
    case 0:
    case 1:
        c->scale = others[i].scale;
        break;
    case 2:
        c->softcap = others[i].softcap;
        break;
    case 3:
        c->mask = MASK_NONE;
        break;
    case 4:
        c->window_left = WINDOW_UNBOUNDED;
        break;
    case 5:
        c->softmax = SOFTMAX_VANILLA;
        break;
    case 6:
        c->bias = BIAS_NONE;
        break;
    case 7:
        c->window_left++;
        break;
    default:
        break;
    }
}

START_TEST(results_of_other_cases_are_diagnosed)
{
    static const struct {
        int variant, misread;
        enum diagnosis_kind kind;
    } tries[] = {{PLAIN_FULL, 0, DIAGNOSIS_SCALE},  {PLAIN_CAUSAL_4, 1, DIAGNOSIS_SCALE},
                 {PLAIN_CAUSAL, 3, DIAGNOSIS_MASK}, {WINDOW, 4, DIAGNOSIS_WINDOW},
                 {SINKS_8, 5, DIAGNOSIS_SINK},      {BIAS_OWN, 6, DIAGNOSIS_BIAS},
                 {WINDOW, 7, DIAGNOSIS_WINDOW}};
    set_mutation(NULL);
    shared->insist = UINT32_MAX;
    shared->as_other = true;
    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
        struct cp_case c;
        case_of(tries[i].variant, DTYPE_FP16, &shared->as);
        shared->as.inputs = INPUTS_TE; // sharp inputs depend on the scale
        c = shared->as;
        misread(&c, tries[i].misread);
        const struct finding *f = run(&c);
        printf("# %s: %s\n", diagnosis_kind_name(f->kind), f->diagnosis.text);
        ck_assert_int_eq(f->kind, tries[i].kind);
    }
    world_close_all();
}
END_TEST

// Converts to bf16 by truncation.
static float truncated(float value)
{
    union {
        float value;
        uint32_t bits;
    } x = {value};
    x.bits &= 0xffff0000;
    return x.value;
}

// Rows that see one key need no rounding. With errors of 0.6 % truncation is a small part of the
// error.
START_TEST(truncation_is_diagnosed)
{
    enum { ROWS = 40, DIM = 64 };
    static double out[ROWS * DIM], lse[ROWS];
    static float got[ROWS * DIM];
    struct cp_case c;
    struct error error;
    struct diagnosis_row rows[ROWS];
    struct finding f;
    bool cut = _i % 2, rough = _i / 2 % 2;
    case_of(_i / 4 ? PLAIN_CAUSAL : PLAIN_FULL, DTYPE_BF16, &c);
    ck_assert_int_eq(reference_queries(&c, 0, 1, 0, ROWS, out, lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    for (int i = 0; i < ROWS * DIM; i++)
        got[i] = (float)(out[i] * (rough ? 1 + 2e-2 * (drawn((uint64_t)i) - 0.5) : 1));
    for (int i = 0; i < ROWS * DIM && cut; i++)
        got[i] = truncated(got[i]);
    if (!cut)
        dtype_round(c.dtype, got, (int64_t)ROWS * DIM);
    for (int i = 0; i < ROWS; i++)
        rows[i] = (struct diagnosis_row){
            .head = 1, .position = i, .got = got + (ptrdiff_t)i * DIM, .lse = lse[i]};
    struct diagnosis_input in = {
        .c = &c, .tensor = TENSOR_OUT, .rows = rows, .count = ROWS, .noise = rough ? 6e-3 : 1.6e-3};
    diagnosis_find(&in, &f);
    ck_assert_msg(f.kind == (cut ? DIAGNOSIS_TRUNCATED : DIAGNOSIS_NONE), "%s", f.diagnosis.text);
}
END_TEST

// Wrong results that no hypothesis explains have no diagnosis. For GARBAGE_BLOCK the diagnosis may
// name the place of the errors.
START_TEST(garbage_has_no_diagnosis)
{
    static const int cases[] = {PLAIN_CAUSAL, PLAIN_FULL_4, SINKS, BIAS_OWN, PACKED_WINDOW};
    const int part = test_part();
    set_mutation(NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (int way = GARBAGE_NOISE; way < GARBAGE_WAYS; way++)
            for (int tensor = TENSOR_OUT; tensor <= TENSOR_DV; tensor++) {
                struct cp_case c;
                if (((int)i + way + tensor) % part != 0)
                    continue;
                case_of(cases[i], (i + (size_t)way) % 2 ? DTYPE_FP32 : DTYPE_BF16, &c);
                shared->garbage = (enum garbage)way;
                shared->garbled = tensor;
                shared->insist = UINT32_C(1) << tensor;
                const struct finding *f = run(&c);
                bool block = way == GARBAGE_BLOCK && f->kind == DIAGNOSIS_PLACES;
                ck_assert_msg(f->kind == DIAGNOSIS_NONE || block, "%s %s %d: %s",
                              variant_name(cases[i]), report_tensor_name(tensor), way,
                              f->diagnosis.text);
            }
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("diagnosis");
    TCase *errors = tcase_create("errors"), *others = tcase_create("others");
    tcase_set_timeout(errors, 800);
    tcase_add_test(errors, errors_are_diagnosed);
    suite_add_tcase(s, errors);
    tcase_set_timeout(others, 400);
    tcase_add_test(others, rounding_has_no_diagnosis);
    tcase_add_test(others, a_mistake_of_one_sequence_is_diagnosed);
    tcase_add_test(others, parts_of_sums_are_diagnosed);
    tcase_add_test(others, changed_results_are_diagnosed);
    tcase_add_test(others, sums_in_16_bits_are_diagnosed);
    tcase_add_test(others, garbage_has_no_diagnosis);
    tcase_add_loop_test(others, truncation_is_diagnosed, 0, 8);
    tcase_add_test(others, results_of_other_cases_are_diagnosed);
    suite_add_tcase(s, others);
    return s;
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    world_engine(&engine_diagnosing);
    return runner_run(suite());
}
