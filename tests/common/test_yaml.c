// SPDX-License-Identifier: Apache-2.0
// YAML trees: structure and places, every refusal with its line and column, limits, typed values.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "yaml/yaml.h"

static struct yaml *load(const char *text)
{
    struct yaml *yaml = NULL;
    struct error error = {0};
    ck_assert_msg(yaml_load_text("f", text, strlen(text), &yaml, &error) == STATUS_OK, "%s",
                  error.text);
    return yaml;
}

// ---- structure --------------------------------------------------------------------------------

START_TEST(tree_keeps_order_places_and_texts)
{
    struct yaml *yaml = load("b: 1\n"
                             "a: [x, 'y z', {k: \"v\"}]\n"
                             "c:\n"
                             "  d: |\n"
                             "    two\n"
                             "    lines\n");
    const struct yaml_node *b = yaml_first(yaml_root(yaml)), *a = yaml_next(b), *c = yaml_next(a);
    ck_assert_int_eq(yaml_count(yaml_root(yaml)), 3);
    ck_assert_ptr_null(yaml_next(c));
    ck_assert_str_eq(yaml_key(b), "b");
    ck_assert_str_eq(yaml_text(b), "1");
    ck_assert_int_eq(yaml_kind(a), YAML_LIST);
    ck_assert_int_eq(yaml_count(a), 3);
    ck_assert_ptr_null(yaml_text(a));
    const struct yaml_node *x = yaml_first(a), *yz = yaml_next(x), *map = yaml_next(yz);
    ck_assert_ptr_null(yaml_key(x));
    ck_assert_str_eq(yaml_text(yz), "y z");
    ck_assert_int_eq(yaml_line(yz), 2);
    ck_assert_int_eq(yaml_column(yz), 8);
    ck_assert_str_eq(yaml_text(yaml_find(map, "k")), "v");
    ck_assert_str_eq(yaml_text(yaml_find(c, "d")), "two\nlines\n");
    ck_assert_ptr_null(yaml_find(c, "e"));
    ck_assert_ptr_null(yaml_find(a, "x"));
    yaml_destroy(yaml);
    yaml_destroy(NULL);
}
END_TEST

START_TEST(an_empty_file_is_an_empty_map)
{
    static const char *const texts[] = {"", "\n", "# nothing but a comment\n", "---\n",
                                        "---\n...\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct yaml *yaml = load(texts[i]);
        ck_assert_int_eq(yaml_kind(yaml_root(yaml)), YAML_MAP);
        ck_assert_int_eq(yaml_count(yaml_root(yaml)), 0);
        yaml_destroy(yaml);
    }
}
END_TEST

// ---- refusals ---------------------------------------------------------------------------------

static const struct refusal {
    const char *text, *message;
} refusals[] = {
    {"a: 1\nb: [1, 2\nc: 3\n", "f:3:2: not readable as YAML: did not find expected ',' or ']' "
                               "(while parsing a flow sequence that begins in line 2)"},
    {"a: 1\n\tb: 2\n", "f:2:1: not readable as YAML: a tab; indent with spaces"},
    {"\xc3\xa9: 1\na:\n\tb: 2\n", "f:3:1: not readable as YAML: a tab; indent with spaces"},
    {"a: |\n\tb\n", "f:2:1: not readable as YAML: a tab; indent with spaces"},
    {"\xc3\xa9: @b\n", "f:1:4: not readable as YAML: a value that begins with @, ` or %; put it in "
                       "quotes"},
    {"a: 'x\n", "f:2:1: not readable as YAML: found unexpected end of stream "
                "(while scanning a quoted scalar that begins in line 1)"},
    {"a: b: c\n", "f:1:5: not readable as YAML: mapping values are not allowed in this context"},
    {"ab: x\n\xc3\xa9\xff", "f:2:2: not readable as YAML: invalid leading UTF-8 octet"},
    {"a: 1\nb: 2\na: 3\n", "f:3:1: key 'a' occurs twice; first in line 1"},
    {"\"\\e[2m\": 1\n\"\\e[2m\": 2\n", "f:2:1: key '?[2m' occurs twice; first in line 1"},
    {"\"\\x9b2m\": 1\n\"\\x9b2m\": 2\n", "f:2:1: key '??2m' occurs twice; first in line 1"},
    {"a: {x: 1, x: 2}\n", "f:1:11: key 'x' occurs twice; first in line 1"},
    {"a: &n 1\nb: *n\n", "f:2:4: aliases (*name) are not supported; write the value out"},
    {"a: !!int 1\n", "f:1:4: tags such as !!int are not supported; leave it out"},
    {"a: !x [1]\n", "f:1:4: tags such as !!int are not supported; leave it out"},
    {"a: !x {b: 1}\n", "f:1:4: tags such as !!int are not supported; leave it out"},
    {"a: 1\n---\nb: 2\n", "f:2:1: a second document; one file holds one"},
    {"? [a, b]\n: 1\n", "f:1:3: a key must be a plain word, not a list or a map"},
    {"a: \"x\\0y\"\n", "f:1:4: a text with a zero byte"},
};

START_TEST(every_refusal_names_its_place)
{
    struct yaml *yaml = NULL;
    struct error error;
    const struct refusal *r = &refusals[_i];
    ck_assert_int_eq(yaml_load_text("f", r->text, strlen(r->text), &yaml, &error),
                     STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, r->message);
    ck_assert_ptr_null(yaml);
}
END_TEST

static char *repeat(const char *text, int count, const char *end)
{
    size_t length = strlen(text), size = length * (size_t)count;
    char *all = malloc(size + strlen(end) + 1);
    for (int i = 0; i < count; i++)
        memcpy(all + length * (size_t)i, text, length);
    strcpy(all + size, end);
    return all;
}

// Loads `text` repeated `count` times and then `end`; returns the message, or "" if it is accepted.
static const char *load_repeated(const char *text, int count, const char *end)
{
    static struct error error;
    struct yaml *yaml = NULL;
    char *all = repeat(text, count, end);
    error.text[0] = '\0';
    if (!yaml_load_text("f", all, strlen(all), &yaml, &error))
        error.text[0] = '\0';
    yaml_destroy(yaml);
    free(all);
    return error.text;
}

START_TEST(depth_is_bounded)
{
    char *closing = repeat("]", YAML_DEPTH_MAX, "");
    ck_assert_str_eq(load_repeated("[", YAML_DEPTH_MAX, closing), "");
    free(closing);
    ck_assert_str_eq(load_repeated("[", YAML_DEPTH_MAX + 1, ""),
                     "f:1:33: more than 32 levels of lists and maps");
    ck_assert_str_eq(load_repeated("[", 100000, ""),
                     "f:1:33: more than 32 levels of lists and maps");
    ck_assert_str_eq(load_repeated("- ", 100000, ""),
                     "f:1:65: more than 32 levels of lists and maps");
}
END_TEST

START_TEST(nodes_and_bytes_are_bounded)
{
    ck_assert_str_eq(load_repeated("- a\n", YAML_NODES_MAX - 1, ""), "");
    ck_assert_str_eq(load_repeated("- a\n", YAML_NODES_MAX, ""),
                     "f:100000:3: more than 100000 values in one file");
    ck_assert_str_eq(load_repeated("#", YAML_FILE_BYTES_MAX, ""), "");
    ck_assert_str_eq(load_repeated("#", YAML_FILE_BYTES_MAX + 1, ""),
                     "f: larger than 1048576 bytes");
}
END_TEST

START_TEST(keys_of_a_map_are_bounded)
{
    for (int extra = 0; extra < 2; extra++) {
        static char text[YAML_MAP_ENTRIES_MAX * 16];
        struct yaml *yaml = NULL;
        struct error error;
        size_t used = 0;
        for (int i = 0; i < YAML_MAP_ENTRIES_MAX + extra; i++)
            used += (size_t)sprintf(text + used, "key%d: 1\n", i);
        enum status status = yaml_load_text("f", text, used, &yaml, &error);
        ck_assert_int_eq(status, extra ? STATUS_INVALID_ARGUMENT : STATUS_OK);
        if (extra)
            ck_assert_str_eq(error.text, "f:4097:1: a map with more than 4096 keys");
        yaml_destroy(yaml);
    }
}
END_TEST

START_TEST(files_are_read_and_refused)
{
    struct yaml *yaml = NULL;
    struct error error;
    ck_assert_int_eq(yaml_load_file("/nowhere/x.yaml", &yaml, &error), STATUS_NOT_FOUND);
    ck_assert_str_eq(error.text, "/nowhere/x.yaml: cannot be read: No such file or directory");
    ck_assert_int_eq(yaml_load_file("/", &yaml, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "/: cannot be read: Is a directory");
    char path[] = "/tmp/test_yaml.XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, "a: b\n", 5), 5);
    close(fd);
    ck_assert_int_eq(yaml_load_file(path, &yaml, &error), STATUS_OK);
    ck_assert_str_eq(yaml_text(yaml_find(yaml_root(yaml), "a")), "b");
    yaml_destroy(yaml);
    unlink(path);
    yaml = NULL;
    ck_assert_int_eq(yaml_load_file("/dev/zero", &yaml, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "/dev/zero: larger than 1048576 bytes");
}
END_TEST

// ---- typed values -----------------------------------------------------------------------------

START_TEST(values_are_read)
{
    static const char *const names[] = {"one", "two", NULL};
    struct yaml *yaml =
        load("i: -12\nr: 2.5e-3\nb: true\nd: 250ms\nc: two\nt: x\nl: [1]\nq: \"7\"\n");
    const struct yaml_node *map = yaml_root(yaml), *node = NULL;
    int64_t i = 0;
    double r = 0;
    bool b = false;
    uint64_t d = 0;
    int c = -1;
    const char *t = NULL;
    ck_assert_int_eq(yaml_get_int(map, "i", -12, 0, &i, NULL), STATUS_OK);
    ck_assert_int_eq(i, -12);
    ck_assert_int_eq(yaml_get_int(map, "q", 0, 7, &i, NULL), STATUS_OK);
    ck_assert_int_eq(i, 7);
    ck_assert_int_eq(yaml_get_real(map, "r", 0, 1, &r, NULL), STATUS_OK);
    ck_assert_double_eq(r, 2.5e-3);
    ck_assert_int_eq(yaml_get_bool(map, "b", &b, NULL), STATUS_OK);
    ck_assert(b);
    ck_assert_int_eq(yaml_get_duration(map, "d", 0, UINT64_MAX, &d, NULL), STATUS_OK);
    ck_assert_uint_eq(d, 250000000);
    ck_assert_int_eq(yaml_get_choice(map, "c", names, &c, NULL), STATUS_OK);
    ck_assert_int_eq(c, 1);
    ck_assert_int_eq(yaml_get_text(map, "t", &t, NULL), STATUS_OK);
    ck_assert_str_eq(t, "x");
    ck_assert_int_eq(yaml_get(map, "l", YAML_LIST, &node, NULL), STATUS_OK);
    ck_assert_int_eq(yaml_count(node), 1);
    yaml_destroy(yaml);
}
END_TEST

START_TEST(an_absent_key_leaves_the_default)
{
    struct yaml *yaml = load("a: 1\n");
    const struct yaml_node *map = yaml_root(yaml), *node = NULL;
    struct error error;
    int64_t i = 42;
    ck_assert_int_eq(yaml_get_int(map, "b", 0, 1, &i, &error), STATUS_OK);
    ck_assert_int_eq(i, 42);
    ck_assert_int_eq(yaml_require(map, "b", &node, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "f:1:1: key 'b' is missing");
    ck_assert_int_eq(yaml_require(map, "a", &node, &error), STATUS_OK);
    ck_assert_int_eq(yaml_line(node), 1);
    yaml_destroy(yaml);
}
END_TEST

// Readers of the value of key "k". They fail the test if a failed read changes the output.
static enum status read_int(const struct yaml_node *map, struct error *error)
{
    int64_t i = 42;
    enum status status = yaml_get_int(map, "k", 1, 64, &i, error);
    ck_assert_int_eq(i, 42);
    return status;
}

static enum status read_real(const struct yaml_node *map, struct error *error)
{
    double r = 42;
    enum status status = yaml_get_real(map, "k", 0, 1, &r, error);
    ck_assert_double_eq(r, 42);
    return status;
}

static enum status read_bool(const struct yaml_node *map, struct error *error)
{
    bool b = true;
    enum status status = yaml_get_bool(map, "k", &b, error);
    ck_assert(b);
    return status;
}

static enum status read_duration(const struct yaml_node *map, struct error *error)
{
    uint64_t d = 42;
    enum status status = yaml_get_duration(map, "k", 1000000000, 60000000000, &d, error);
    ck_assert_uint_eq(d, 42);
    return status;
}

static enum status read_choice(const struct yaml_node *map, struct error *error)
{
    static const char *const names[] = {"one", "two", "three", NULL};
    int c = 42;
    enum status status = yaml_get_choice(map, "k", names, &c, error);
    ck_assert_int_eq(c, 42);
    return status;
}

static enum status read_text(const struct yaml_node *map, struct error *error)
{
    const char *t = "x";
    enum status status = yaml_get_text(map, "k", &t, error);
    ck_assert_str_eq(t, "x");
    return status;
}

static enum status read_list(const struct yaml_node *map, struct error *error)
{
    const struct yaml_node *node = NULL;
    enum status status = yaml_get(map, "k", YAML_LIST, &node, error);
    ck_assert_ptr_null(node);
    return status;
}

static enum status read_items(const struct yaml_node *map, struct error *error)
{
    int64_t i = 0;
    enum status status = STATUS_OK;
    const struct yaml_node *n = yaml_first(yaml_find(map, "k"));
    for (; n && !status; n = yaml_next(n))
        status = yaml_int(n, 1, 8, &i, error);
    return status;
}

static enum status read_known_keys(const struct yaml_node *map, struct error *error)
{
    static const char *const names[] = {"seqlen_q", "heads", NULL};
    return yaml_check_keys(map, names, error);
}

static const struct mistake {
    enum status (*read)(const struct yaml_node *map, struct error *error);
    const char *text, *message;
} mistakes[] = {
    {read_int, "k: x", "f:1:4: key 'k': value 'x': expected an integer from 1 to 64"},
    {read_int, "a: 1\nk:   0", "f:2:6: key 'k': value '0': expected an integer from 1 to 64"},
    {read_int, "k: 65", "f:1:4: key 'k': value '65': expected an integer from 1 to 64"},
    {read_int, "k: 99999999999999999999",
     "f:1:4: key 'k': value '99999999999999999999': expected an integer from 1 to 64"},
    {read_int, "k: 0x10", "f:1:4: key 'k': value '0x10': expected an integer from 1 to 64"},
    {read_int, "k: 2.0", "f:1:4: key 'k': value '2.0': expected an integer from 1 to 64"},
    {read_int, "k: '-'", "f:1:4: key 'k': value '-': expected an integer from 1 to 64"},
    {read_int, "k:", "f:1:3: key 'k': no value: expected an integer from 1 to 64"},
    {read_int, "k: [1]", "f:1:4: key 'k': a list: expected an integer from 1 to 64"},
    {read_int, "k: {a: 1}", "f:1:4: key 'k': a map: expected an integer from 1 to 64"},
    {read_int, "k: \"\\e[1mx\"", "f:1:4: key 'k': value '?[1mx': expected an integer from 1 to 64"},
    {read_real, "k: nan", "f:1:4: key 'k': value 'nan': expected a number from 0 to 1"},
    {read_real, "k: 1e999", "f:1:4: key 'k': value '1e999': expected a number from 0 to 1"},
    {read_real, "k: 1.5", "f:1:4: key 'k': value '1.5': expected a number from 0 to 1"},
    {read_real, "k: 1.5.5", "f:1:4: key 'k': value '1.5.5': expected a number from 0 to 1"},
    {read_bool, "k: yes", "f:1:4: key 'k': value 'yes': expected true or false"},
    {read_duration, "k: 5 parsec",
     "f:1:4: key 'k': value '5 parsec': expected a length of time such as 90, 90s, 1.5s, 250ms, "
     "10us, 2m or 1h"},
    {read_duration, "k: 2m", "f:1:4: key 'k': value '2m': expected a time from 1.00 s to 60.0 s"},
    {read_choice, "k: four", "f:1:4: key 'k': value 'four': expected one, two or three"},
    {read_text, "k: \"a\\e[2Jb\"",
     "f:1:4: key 'k': value 'a?[2Jb': expected a text without control characters"},
    {read_text, "k: \"a\\x9bb\"",
     "f:1:4: key 'k': value 'a??b': expected a text without control characters"},
    {read_text, "k: \"a\\rb\"",
     "f:1:4: key 'k': value 'a?b': expected a text without control characters"},
    {read_text, "k: ''", "f:1:4: key 'k': no value: expected a text"},
    {read_list, "k: 3", "f:1:4: key 'k': value '3': expected a list"},
    {read_items, "k: [2, 4,\n    9]",
     "f:2:5: item 3 of key 'k': value '9': expected an integer from 1 to 8"},
    {read_known_keys, "heads: 1\nsequlen_q: 3",
     "f:2:1: unknown key 'sequlen_q' (did you mean 'seqlen_q'?); known: seqlen_q, heads"},
    {read_known_keys, "zzzzz: 1", "f:1:1: unknown key 'zzzzz'; known: seqlen_q, heads"},
};

START_TEST(every_mistake_names_key_value_and_what_is_expected)
{
    struct yaml *yaml = load(mistakes[_i].text);
    struct error error = {0};
    ck_assert_int_eq(mistakes[_i].read(yaml_root(yaml), &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, mistakes[_i].message);
    yaml_destroy(yaml);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("yaml");
    TCase *tree = tcase_create("tree"), *refused = tcase_create("refused"),
          *values = tcase_create("values");
    tcase_add_test(tree, tree_keeps_order_places_and_texts);
    tcase_add_test(tree, an_empty_file_is_an_empty_map);
    tcase_add_loop_test(refused, every_refusal_names_its_place, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(refused, depth_is_bounded);
    tcase_add_test(refused, nodes_and_bytes_are_bounded);
    tcase_add_test(refused, keys_of_a_map_are_bounded);
    tcase_add_test(refused, files_are_read_and_refused);
    tcase_add_test(values, values_are_read);
    tcase_add_test(values, an_absent_key_leaves_the_default);
    tcase_add_loop_test(values, every_mistake_names_key_value_and_what_is_expected, 0,
                        sizeof(mistakes) / sizeof(mistakes[0]));
    suite_add_tcase(suite, tree);
    suite_add_tcase(suite, refused);
    suite_add_tcase(suite, values);
    return runner_run(suite);
}
