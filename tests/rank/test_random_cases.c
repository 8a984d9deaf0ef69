// SPDX-License-Identifier: Apache-2.0
// Random cases: they pass, and every legal order gives the same bits. By itself or under Check: see
// usage_text.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rank/random_cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"
#include "tests/support/world.h"

#define SLICES           4
#define ORDERS           50
// First seed of the cases that run in many orders. The seeds of other cases begin at 0.
#define ORDERS_SEED      UINT64_C(1000000)
// Cases of --matrix: the largest world size, and the default of LONGEST.
#define MATRIX_WORLD_MAX 8
#define MATRIX_LONGEST   72

static const char usage_text[] =
    "Usage: test_random_cases [--seed N | --cases N | --orders N | --matrix N [LONGEST] | --help]\n"
    "Random cases of up to 8 ranks, over everything that a case can be asked for.\n"
    "\n"
    "  (no option)  the cases of seeds 0 and on, as many as CPATTN_RANDOM_CASES says, 200 unless\n"
    "               set; and cases in 50 orders each, as many as CPATTN_RANDOM_ORDERS says, 12\n"
    "               unless set\n"
    "  --seed N     runs the case of one seed and prints its command line\n"
    "  --cases N    runs N cases; a dot for each hundred\n"
    "  --orders N   runs N cases in 50 explored orders each, and compares the bits\n"
    "  --matrix N [LONGEST]   prints N cases as a file for `cpattn-submit matrix`, so that any\n"
    "               daemon can run them; sequences have up to LONGEST tokens [72]\n"
    "\n"
    "A case that fails is made smaller for as long as it fails; what is left is printed as the\n"
    "command line that runs it again.\n";

// ---- one case ----

// NULL, or the error of the case, reduced, with the command to repeat it.
static const char *complaint(uint64_t seed, struct cp_case *c, const char *what)
{
    static char text[2 * CASE_COMMAND_MAX + 128], large[CASE_COMMAND_MAX], small[CASE_COMMAND_MAX];
    case_command(c, large, sizeof large);
    int tried = random_minimize(c, small);
    snprintf(text, sizeof text, "seed %" PRIu64 ": %s; small (after %d tries):\n  %s\nfrom:\n  %s",
             seed, what, tried, small, large);
    return text;
}

static const char *case_complaint(uint64_t seed)
{
    struct cp_case c;
    random_case(seed, &c);
    enum random_end end = random_run(&c);
    if (end == RANDOM_PASSES)
        return NULL;
    return complaint(seed, &c, end == RANDOM_FAILS ? "fails" : "is broken off");
}

static const char *orders_complaint(uint64_t seed)
{
    struct cp_case c;
    random_case(seed, &c);
    c.explore_seed = 0;
    uint64_t digest = random_digest(&c);
    if (digest == 0)
        return complaint(seed, &c, "is broken off");
    while (++c.explore_seed <= ORDERS)
        if (random_digest(&c) != digest)
            return complaint(seed, &c, "differs in an explored order");
    return NULL;
}

// ---- under Check ----

static uint64_t count_wanted(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);
    char *end;
    if (!text)
        return usual;
    errno = 0;
    uint64_t count = strtoull(text, &end, 10);
    ck_assert_msg(text[0] >= '0' && text[0] <= '9' && !*end && !errno, "%s: \"%s\" is no number",
                  variable, text);
    return count;
}

START_TEST(random_cases_pass)
{
    uint64_t count = count_wanted("CPATTN_RANDOM_CASES", 200);
    for (uint64_t seed = (uint64_t)_i; seed < count; seed += SLICES) {
        const char *why = case_complaint(seed);
        ck_assert_msg(!why, "%s", why);
    }
    world_close_all();
}
END_TEST

// Right results that a judge easily refuses.
START_TEST(cases_refused_once_pass)
{
    static const struct {
        uint64_t seed;
        int world_max, seqlen_max; // of generate_case()
    } cases[] = {
        // dsink: one or two queries see the sink, and the products of a delta cancel.
        {UINT64_C(9394355866606290543), 3, 64},
        {UINT64_C(5161009726842947417), 3, 64},
        {UINT64_C(12330460718821169278), 3, 64},
        {UINT64_C(3331534120005060738), 1, 3},
        // dq, dk, dbias in fp32: the products of a dP cancel.
        {UINT64_C(14044111595425435431), 3, 64},
        {UINT64_C(15006186618385460436), 1, 3},
        {UINT64_C(1707871971345231303), 1, 3},
        // dbias: all terms cancel, and the saturated softcap makes dq zero.
        {UINT64_C(8066827553706838006), 3, 64},
        {UINT64_C(15825334522424934388), 1, 3},
        {UINT64_C(9996296482127689029), 1, 3},
        {UINT64_C(14634271244293731945), 1, 3},
        {UINT64_C(17409064624345457210), 1, 3},
        // out: similar rows, all rounded in the same direction.
        {UINT64_C(9637902534558134776), 3, 64},
    };
    struct cp_case c;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        generate_case(cases[i].seed, cases[i].world_max, cases[i].seqlen_max, &c);
        ck_assert_int_eq(random_run(&c), RANDOM_PASSES);
    }
    world_close_all();
}
END_TEST

START_TEST(every_order_gives_the_same_bits)
{
    uint64_t count = count_wanted("CPATTN_RANDOM_ORDERS", 12);
    for (uint64_t seed = (uint64_t)_i; seed < count; seed += SLICES) {
        const char *why = orders_complaint(ORDERS_SEED + seed);
        ck_assert_msg(!why, "%s", why);
    }
    world_close_all();
}
END_TEST

static int run_checks(void)
{
    Suite *suite = suite_create("random_cases");
    TCase *c = tcase_create("cases");
    tcase_set_timeout(c, 0);
    tcase_add_loop_test(c, random_cases_pass, 0, SLICES);
    tcase_add_test(c, cases_refused_once_pass);
    tcase_add_loop_test(c, every_order_gives_the_same_bits, 0, SLICES);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

// ---- by itself ----

static int run_seed(uint64_t seed)
{
    static char text[CASE_COMMAND_MAX];
    struct cp_case c;
    random_case(seed, &c);
    case_command(&c, text, sizeof text);
    puts(text);
    const char *why = case_complaint(seed);
    puts(why ? why : "passes");
    return why != NULL;
}

static int run_many(uint64_t count, bool orders)
{
    uint64_t failing = 0;
    for (uint64_t seed = 0; seed < count; seed++) {
        const char *why = orders ? orders_complaint(ORDERS_SEED + seed) : case_complaint(seed);
        failing += why != NULL;
        if (why)
            printf("%s\n", why);
        if (orders || seed % 100 == 99)
            putchar('.');
        fflush(stdout);
    }
    printf("\n%" PRIu64 " cases%s, %" PRIu64 " failing\n", count,
           orders ? " in 50 orders each" : "", failing);
    return failing > 0;
}

// Prints a case as a model of a matrix: every field that differs from case_init().
static void print_model(uint64_t seed, const struct cp_case *c)
{
    struct cp_case usual;
    case_init(&usual);
    const char *separator = "";
    printf("  seed-%" PRIu64 ": {", seed);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char value[CASE_VALUE_MAX], usual_value[CASE_VALUE_MAX];
        case_get(c, field, value, sizeof value);
        case_get(&usual, field, usual_value, sizeof usual_value);
        if (strcmp(value, usual_value) == 0)
            continue;
        printf(field->kind == FIELD_LIST ? "%s%s: [%s]" : "%s%s: '%s'", separator, field->name,
               value);
        separator = ", ";
    }
    printf("}\n");
}

static int print_matrix(uint64_t count, uint64_t longest)
{
    printf("title: %" PRIu64 " random cases of up to %" PRIu64 " tokens a sequence\nmodels:\n",
           count, longest);
    for (uint64_t seed = 0; seed < count; seed++) {
        struct cp_case c;
        generate_case(seed, MATRIX_WORLD_MAX, (int64_t)longest, &c);
        print_model(seed, &c);
    }
    return 0;
}

// Returns false if the text is not a number up to `most`.
static bool read_number(const char *option, const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && !errno && *number <= most)
        return true;
    fprintf(stderr, "%s: \"%s\" is not a number up to %" PRIu64 "\n", option, text, most);
    return false;
}

static bool is(const char *option, const char *name)
{
    return strcmp(option, name) == 0;
}

static int run_option(const char *option, const char *value, const char *longest_text)
{
    uint64_t number, longest = MATRIX_LONGEST;
    bool matrix = is(option, "--matrix"), many = is(option, "--cases") || is(option, "--orders");
    if ((!matrix && !many && !is(option, "--seed")) || (longest_text && !matrix)) {
        fputs(usage_text, stderr);
        return 2;
    }
    if (!read_number(option, value, UINT64_MAX, &number) ||
        (longest_text && !read_number(option, longest_text, SEQLEN_MAX / 2, &longest)))
        return 2;
    if (matrix)
        return print_matrix(number, longest);
    int result = many ? run_many(number, is(option, "--orders")) : run_seed(number);
    world_close_all();
    return result;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return run_checks();
    if (argc == 3 || argc == 4)
        return run_option(argv[1], argv[2], argc == 4 ? argv[3] : NULL);
    bool help = strcmp(argv[1], "--help") == 0;
    fputs(usage_text, help ? stdout : stderr);
    return help ? 0 : 2;
}
