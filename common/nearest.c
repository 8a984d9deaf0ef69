// SPDX-License-Identifier: Apache-2.0
#include "common/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int letter(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int min2(int a, int b)
{
    return a < b ? a : b;
}

// Least number of edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
// Stores only the last three rows of the table.
static int edit_distance(const char *a, int a_len, const char *b, int b_len)
{
    int rows[3][NEAREST_WORD_MAX + 1];
    for (int j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (int i = 1; i <= a_len; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *swap = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= b_len; j++) {
            int same = letter(a[i - 1]) == letter(b[j - 1]);
            now[j] = min2(min2(before[j], now[j - 1]) + 1, before[j - 1] + !same);
            if (i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]))
                now[j] = min2(now[j], swap[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

static int begins_with(const char *name, const char *word, int word_len)
{
    for (int i = 0; i < word_len; i++)
        if (letter(name[i]) != letter(word[i])) // a shorter name ends the loop at its NUL
            return 0;
    return 1;
}

void nearest_init(struct nearest *n, const char *word)
{
    int len = (int)strnlen(word, NEAREST_WORD_MAX);
    n->word = word;
    n->name = NULL;
    n->distance = len < 3 ? 1 : (len + 1) / 3;
}

void nearest_offer(struct nearest *n, const char *name)
{
    int word_len = (int)strnlen(n->word, NEAREST_WORD_MAX);
    int name_len = (int)strnlen(name, NEAREST_WORD_MAX);
    int distance = edit_distance(n->word, word_len, name, name_len);
    if (distance > 1 && word_len >= 3 && begins_with(name, n->word, word_len))
        distance = 1;
    if (distance > n->distance || (n->name && distance == n->distance))
        return;
    // A name that differs in every letter is not similar.
    if (distance >= word_len)
        return;
    n->distance = distance;
    n->name = name;
}

void nearest_offer_other(struct nearest *n, const char *other, const char *name)
{
    size_t length = strlen(other);
    if (strlen(n->word) != length || !begins_with(other, n->word, (int)length))
        return;
    n->distance = 0;
    n->name = name;
}

const char *nearest_hint(const struct nearest *n, char *text, size_t size)
{
    if (n->name)
        snprintf(text, size, " (did you mean '%s'?)", n->name);
    else if (size > 0)
        text[0] = '\0';
    return text;
}
