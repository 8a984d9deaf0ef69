// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/guests.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wordexp.h>

#include "common/duration.h"
#include "yaml/yaml.h"

// Default start timeout of a pool: importing PyTorch and initializing the devices takes seconds.
#define START_TIMEOUT_NS (UINT64_C(120) * 1000000000)
#define NAME_SYNTAX                                                                                \
    "a name of up to 31 letters, digits, '_', '-' and '.', other than cpattn, which is the "       \
    "daemon's "                                                                                    \
    "own"
#define SIZES_SYNTAX "numbers of ranks from 1 to 64, such as 1,2,4 or 2-8"
#define WORDS_SYNTAX "a command: up to 64 words, 4 KiB together"

// ---- parts of a guest --------------------------------------------------------------------------

static bool name_set(struct guest *guest, const char *name, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (length == 0 || length >= sizeof(guest->name) || strspn(name, letters) < length)
        return false;
    memset(guest->name, 0, sizeof(guest->name));
    memcpy(guest->name, name, length);
    return strcmp(guest->name, "cpattn") != 0;
}

static bool word_add(struct guest *guest, int *count, const char *word)
{
    size_t size = strlen(word) + 1;
    if (*count == GUEST_WORDS_MAX || size > sizeof(guest->command) - guest->command_bytes ||
        (*count == 0 && size == 1))
        return false;
    memcpy(guest->command + guest->command_bytes, word, size);
    guest->command_bytes += size;
    ++*count;
    return true;
}

static bool command_split(struct guest *guest, const char *text)
{
    wordexp_t words;
    int count = 0;
    guest->command_bytes = 0;
    if (wordexp(text, &words, WRDE_NOCMD) != 0)
        return false;
    bool good = words.we_wordc > 0;
    for (size_t i = 0; i < words.we_wordc && good; i++)
        good = word_add(guest, &count, words.we_wordv[i]);
    wordfree(&words);
    return good;
}

static bool size_take(const char **text, int *size)
{
    char *end;
    long value = strtol(*text, &end, 10);
    bool good = end > *text && value >= 1 && value <= WORLD_SIZE_MAX;
    *text = end;
    *size = (int)value;
    return good;
}

// Parses world sizes such as "1,2,4-8".
static bool sizes_parse(const char *text, uint64_t *sizes)
{
    uint64_t bits = 0;
    for (int first, last;; text++) {
        if (!size_take(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !size_take(&text, &last)))
            return false;
        for (int w = first; w <= last; w++)
            bits |= UINT64_C(1) << (w - 1);
        if (last < first || (*text && *text != ','))
            return false;
        if (!*text)
            break;
    }
    *sizes = bits;
    return true;
}

static bool supports_set(struct guest *guest, const char *text)
{
    size_t length = strlen(text);
    if (length >= sizeof(guest->supports))
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(guest->supports, text, length + 1);
    return true;
}

// ---- the list ----------------------------------------------------------------------------------

static enum status guest_put(struct guests *guests, const struct guest *guest, struct error *error)
{
    int at = 0;
    while (at < guests->count && strcmp(guests->list[at].name, guest->name) != 0)
        at++;
    if (at == GUESTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "guest '%s' is one too many; a daemon has up to %d", guest->name,
                         GUESTS_MAX);
    guests->list[at] = *guest;
    guests->count += at == guests->count;
    return STATUS_OK;
}

static void guest_init(struct guest *guest)
{
    memset(guest, 0, sizeof(*guest)); // including padding
    guest->world_sizes = UINT64_MAX;
    guest->start_timeout_ns = START_TIMEOUT_NS;
}

static bool guest_same(const struct guest *a, const struct guest *b)
{
    return strcmp(a->name, b->name) == 0 && a->command_bytes == b->command_bytes &&
           memcmp(a->command, b->command, a->command_bytes) == 0 &&
           a->world_sizes == b->world_sizes && a->start_timeout_ns == b->start_timeout_ns &&
           strcmp(a->supports, b->supports) == 0;
}

bool guests_same(const struct guests *a, const struct guests *b)
{
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = guest_same(&a->list[i], &b->list[i]);
    return same;
}

enum status guests_add_text(struct guests *guests, const char *text, struct error *error)
{
    struct guest guest;
    const char *equals = strchr(text, '=');
    guest_init(&guest);
    if (!equals || !name_set(&guest, text, (size_t)(equals - text)))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--guest: value '%.100s': expected NAME=COMMAND with " NAME_SYNTAX, text);
    if (!command_split(&guest, equals + 1))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--guest: value '%.100s': expected NAME=COMMAND with " WORDS_SYNTAX, text);
    return guest_put(guests, &guest, error);
}

static enum status command_read(struct guest *guest, const struct yaml_node *node,
                                struct error *error)
{
    int count = 0;
    bool good = true;
    if (yaml_text(node))
        return command_split(guest, yaml_text(node)) ? STATUS_OK
                                                     : yaml_expected(node, error, WORDS_SYNTAX);
    for (const struct yaml_node *word = yaml_first(node); word && good; word = yaml_next(word))
        good = yaml_text(word) && word_add(guest, &count, yaml_text(word));
    return good && count > 0 && yaml_kind(node) == YAML_LIST
               ? STATUS_OK
               : yaml_expected(node, error, WORDS_SYNTAX);
}

// Reads world sizes from a list of numbers or a text.
static enum status sizes_read(struct guest *guest, const struct yaml_node *node,
                              struct error *error)
{
    enum status status = STATUS_OK;
    if (yaml_text(node))
        return sizes_parse(yaml_text(node), &guest->world_sizes)
                   ? STATUS_OK
                   : yaml_expected(node, error, SIZES_SYNTAX);
    if (yaml_kind(node) != YAML_LIST || yaml_count(node) == 0)
        return yaml_expected(node, error, SIZES_SYNTAX);
    guest->world_sizes = 0;
    for (const struct yaml_node *n = yaml_first(node); n && status == STATUS_OK; n = yaml_next(n)) {
        int64_t size = 1;
        status = yaml_int(n, 1, WORLD_SIZE_MAX, &size, error);
        guest->world_sizes |= UINT64_C(1) << (size - 1);
    }
    return status;
}

static enum status guest_read(struct guest *guest, const struct yaml_node *node,
                              struct error *error)
{
    static const char *const keys[] = {"command", "world-sizes", "start-timeout", "supports", NULL};
    enum status status = yaml_is(node, YAML_MAP, error);
    guest_init(guest);
    if (status == STATUS_OK && !name_set(guest, yaml_key(node), strlen(yaml_key(node))))
        status =
            yaml_error_key(node, error, "guest '%.40s': expected " NAME_SYNTAX, yaml_key(node));
    if (status == STATUS_OK)
        status = yaml_check_keys(node, keys, error);
    const struct yaml_node *found = yaml_find(node, "command");
    if (status == STATUS_OK)
        status = found ? command_read(guest, found, error)
                       : yaml_error_key(node, error, "guest '%s' has no command", guest->name);
    if (status == STATUS_OK && (found = yaml_find(node, "world-sizes")))
        status = sizes_read(guest, found, error);
    if (status == STATUS_OK && (found = yaml_find(node, "start-timeout")) &&
        (!yaml_text(found) || !duration_parse(yaml_text(found), &guest->start_timeout_ns) ||
         guest->start_timeout_ns == 0))
        status = yaml_expected(found, error, "%s, more than 0", DURATION_SYNTAX);
    if (status == STATUS_OK && (found = yaml_find(node, "supports")) &&
        (!yaml_text(found) || !supports_set(guest, yaml_text(found))))
        status = yaml_expected(found, error, "up to %d printable ASCII characters",
                               GUEST_SUPPORTS_MAX - 1);
    return status;
}

enum status guests_add_map(struct guests *guests, const struct yaml_node *node, struct error *error)
{
    enum status status = yaml_is(node, YAML_MAP, error);
    for (const struct yaml_node *n = yaml_first(node); n && status == STATUS_OK; n = yaml_next(n)) {
        struct guest guest;
        status = guest_read(&guest, n, error);
        if (status == STATUS_OK)
            status = guest_put(guests, &guest, error);
    }
    return status;
}

// ---- programs ----------------------------------------------------------------------------------

static bool program_search(const char *name, char path[PATH_MAX])
{
    const char *at = getenv("PATH");
    for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        int printed = snprintf(path, PATH_MAX, "%.*s/%s", (int)length, at, name);
        if (length > 0 && printed < PATH_MAX && access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

// Replaces the first word of the command by the path; false: the command becomes too long.
static bool program_set(struct guest *guest, const char *path)
{
    size_t old = strlen(guest->command) + 1, size = strlen(path) + 1;
    if (guest->command_bytes - old + size > sizeof(guest->command))
        return false;
    memmove(guest->command + size, guest->command + old, guest->command_bytes - old);
    memcpy(guest->command, path, size);
    guest->command_bytes += size - old;
    return true;
}

enum status guests_find_programs(struct guests *guests, struct error *error)
{
    for (int i = 0; i < guests->count; i++) {
        struct guest *guest = &guests->list[i];
        char path[PATH_MAX];
        bool found = strchr(guest->command, '/')
                         ? access(guest->command, X_OK) == 0
                         : program_search(guest->command, path) && program_set(guest, path);
        if (!found)
            return error_set(
                error, STATUS_FAILED_PRECONDITION,
                "guest '%s': cannot execute %.200s; its command begins with a path, or "
                "the name of a program in PATH",
                guest->name, guest->command);
    }
    return STATUS_OK;
}

const char *guests_name(const struct guests *guests, int implementation)
{
    return implementation > 0 ? guests->list[implementation - 1].name : "cpattn";
}

void guest_words(const struct guest *guest, char *words[GUEST_WORDS_MAX + 1])
{
    int count = 0;
    for (size_t at = 0; at < guest->command_bytes; at += strlen(guest->command + at) + 1)
        words[count++] = (char *)guest->command + at;
    words[count] = NULL;
}
