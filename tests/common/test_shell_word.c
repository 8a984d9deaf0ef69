// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.h"

#include <string.h>

#include "common/shell_word.h"

static const struct {
    const char *word, *written;
} words[] = {{"a/b-c_1.5+x,", "a/b-c_1.5+x,"}, {"", "''"},     {"two words", "'two words'"},
             {"it's", "'it'\\''s'"},           {"$x", "'$x'"}, {"\xfc", "'\xfc'"}};

START_TEST(words_are_quoted_where_they_need_it)
{
    const char *written = words[_i].written;
    char text[32];
    ck_assert_uint_eq(shell_word(words[_i].word, NULL, 0), strlen(written));
    for (size_t size = 1; size < sizeof(text); size++) {
        memset(text, 'z', sizeof(text));
        ck_assert_uint_eq(shell_word(words[_i].word, text, size), strlen(written));
        size_t fits = strlen(written) < size ? strlen(written) : size - 1;
        ck_assert(strncmp(text, written, fits) == 0 && text[fits] == '\0');
        ck_assert(text[size] == 'z');
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shell_word");
    TCase *tcase = tcase_create("words");
    tcase_add_loop_test(tcase, words_are_quoted_where_they_need_it, 0,
                        (int)(sizeof(words) / sizeof(words[0])));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
