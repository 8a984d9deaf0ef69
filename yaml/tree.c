// SPDX-License-Identifier: Apache-2.0
// Access to the tree, messages and typed values.
#include "yaml/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/duration.h"
#include "common/nearest.h"
#include "yaml/node.h"

uint32_t yaml_hash(const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

const struct yaml_node *yaml_root(const struct yaml *yaml)
{
    return yaml->root;
}

enum yaml_kind yaml_kind(const struct yaml_node *node)
{
    return node->kind;
}

int yaml_line(const struct yaml_node *node)
{
    return node->line;
}

int yaml_column(const struct yaml_node *node)
{
    return node->column;
}

const char *yaml_text(const struct yaml_node *node)
{
    return node->text;
}

const struct yaml_node *yaml_first(const struct yaml_node *node)
{
    return node->first;
}

const struct yaml_node *yaml_next(const struct yaml_node *node)
{
    return node->next;
}

int yaml_count(const struct yaml_node *node)
{
    return node->count;
}

const char *yaml_key(const struct yaml_node *node)
{
    return node->key;
}

const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key)
{
    if (map->kind != YAML_MAP)
        return NULL;
    uint32_t hash = yaml_hash(key);
    for (const struct yaml_node *n = map->first; n; n = n->next)
        if (n->key_hash == hash && strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

// ---- messages ---------------------------------------------------------------------------------

// True for U+0080 to U+009F, the control characters that have two bytes in UTF-8.
static bool is_wide_control(const char *c)
{
    return (unsigned char)c[0] == 0xc2 && (c[1] & 0xe0) == 0x80;
}

void yaml_disarm(struct error *error)
{
    if (!error)
        return;
    for (char *c = error->text; *c; c++) {
        bool wide = is_wide_control(c);
        if (wide)
            c[1] = '?';
        if (wide || iscntrl((unsigned char)*c))
            *c = '?';
    }
}

// True if the text contains a control character other than line feed and tab. Terminals interpret
// these, and XML does not permit them.
static bool is_armed(const char *text)
{
    for (const char *c = text; *c; c++)
        if (is_wide_control(c) || (iscntrl((unsigned char)*c) && *c != '\n' && *c != '\t'))
            return true;
    return false;
}

static enum status place_error(const struct yaml *yaml, int line, int column, struct error *error,
                               const char *text)
{
    enum status status =
        error_set(error, STATUS_INVALID_ARGUMENT, "%s:%d:%d: %s", yaml->name, line, column, text);
    yaml_disarm(error);
    return status;
}

enum status yaml_error(const struct yaml_node *node, struct error *error, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return place_error(node->yaml, node->line, node->column, error, text);
}

enum status yaml_error_key(const struct yaml_node *node, struct error *error, const char *format,
                           ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return place_error(node->yaml, node->key ? node->key_line : node->line,
                       node->key ? node->key_column : node->column, error, text);
}

// Writes "key 'x': ", "item 3 of key 'x': ", "item 3: ", or "" for the root.
static void subject(const struct yaml_node *node, char *text, size_t size)
{
    text[0] = '\0';
    if (node->key)
        snprintf(text, size, "key '%.80s': ", node->key);
    else if (node->parent && node->parent->key)
        snprintf(text, size, "item %d of key '%.80s': ", node->index + 1, node->parent->key);
    else if (node->parent)
        snprintf(text, size, "item %d: ", node->index + 1);
}

static void predicate(const struct yaml_node *node, char *text, size_t size)
{
    if (node->kind == YAML_LIST)
        snprintf(text, size, "a list");
    else if (node->kind == YAML_MAP)
        snprintf(text, size, "a map");
    else if (node->text[0] == '\0')
        snprintf(text, size, "no value");
    else
        snprintf(text, size, "value '%.100s'", node->text);
}

enum status yaml_expected(const struct yaml_node *node, struct error *error, const char *format,
                          ...)
{
    char expected[ERROR_TEXT_MAX / 2], who[128], what[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof(expected), format, arguments);
    va_end(arguments);
    subject(node, who, sizeof(who));
    predicate(node, what, sizeof(what));
    return yaml_error(node, error, "%s%s: expected %s", who, what, expected);
}

// ---- typed values -----------------------------------------------------------------------------

enum status yaml_is(const struct yaml_node *node, enum yaml_kind kind, struct error *error)
{
    static const char *const names[] = {
        [YAML_SCALAR] = "a single value", [YAML_LIST] = "a list", [YAML_MAP] = "a map"};
    return node->kind == kind ? STATUS_OK : yaml_expected(node, error, "%s", names[kind]);
}

enum status yaml_int(const struct yaml_node *node, int64_t min, int64_t max, int64_t *value,
                     struct error *error)
{
    const char *text = node->text;
    bool digits = text && isdigit((unsigned char)text[text[0] == '-']);
    char *end = NULL;
    errno = 0;
    long long number = digits ? strtoll(text, &end, 10) : 0;
    if (!digits || *end != '\0' || errno != 0 || number < min || number > max)
        return yaml_expected(node, error, "an integer from %" PRId64 " to %" PRId64, min, max);
    *value = number;
    return STATUS_OK;
}

enum status yaml_real(const struct yaml_node *node, double min, double max, double *value,
                      struct error *error)
{
    const char *text = node->text;
    bool number_like = text && text[0] && text[strspn(text, "0123456789.eE+-")] == '\0';
    char *end = NULL;
    double number = number_like ? strtod(text, &end) : 0;
    if (!number_like || *end != '\0' || !isfinite(number) || number < min || number > max)
        return yaml_expected(node, error, "a number from %g to %g", min, max);
    *value = number;
    return STATUS_OK;
}

enum status yaml_bool(const struct yaml_node *node, bool *value, struct error *error)
{
    bool yes = node->text && strcmp(node->text, "true") == 0;
    bool no = node->text && strcmp(node->text, "false") == 0;
    if (!yes && !no)
        return yaml_expected(node, error, "true or false");
    *value = yes;
    return STATUS_OK;
}

enum status yaml_duration(const struct yaml_node *node, uint64_t min_ns, uint64_t max_ns,
                          uint64_t *ns, struct error *error)
{
    uint64_t parsed;
    if (!node->text || !duration_parse(node->text, &parsed))
        return yaml_expected(node, error, "%s", DURATION_SYNTAX);
    if (parsed < min_ns || parsed > max_ns) {
        char low[DURATION_TEXT_MAX], high[DURATION_TEXT_MAX];
        return yaml_expected(node, error, "a time from %s to %s",
                             duration_format(min_ns, low, sizeof(low)),
                             duration_format(max_ns, high, sizeof(high)));
    }
    *ns = parsed;
    return STATUS_OK;
}

// Writes "a, b or c" from a list that ends with NULL; `last` separates the last two. "..." replaces
// the names that do not fit.
static void enumerate(const char *const *names, const char *last, char *text, size_t size)
{
    static const char more[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; names[i]; i++) {
        const char *separator = i == 0 ? "" : names[i + 1] ? ", " : last;
        size_t length = strlen(separator) + strlen(names[i]);
        if (used + length + (names[i + 1] ? sizeof(more) : 1) > size) {
            snprintf(text + used, size - used, "%s", more);
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", separator, names[i]);
    }
}

enum status yaml_choice(const struct yaml_node *node, const char *const *names, int *index,
                        struct error *error)
{
    for (int i = 0; node->text && names[i]; i++) {
        if (strcmp(node->text, names[i]) == 0) {
            *index = i;
            return STATUS_OK;
        }
    }
    char text[ERROR_TEXT_MAX / 2];
    enumerate(names, " or ", text, sizeof(text));
    return yaml_expected(node, error, "%s", text);
}

// ---- lookups ----------------------------------------------------------------------------------

enum status yaml_get(const struct yaml_node *map, const char *key, enum yaml_kind kind,
                     const struct yaml_node **node, struct error *error)
{
    const struct yaml_node *found = yaml_find(map, key);
    enum status status = found ? yaml_is(found, kind, error) : STATUS_OK;
    if (found && !status)
        *node = found;
    return status;
}

enum status yaml_get_text(const struct yaml_node *map, const char *key, const char **text,
                          struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    if (!node)
        return STATUS_OK;
    if (!node->text || node->text[0] == '\0')
        return yaml_expected(node, error, "a text");
    if (is_armed(node->text))
        return yaml_expected(node, error, "a text without control characters");
    *text = node->text;
    return STATUS_OK;
}

enum status yaml_get_int(const struct yaml_node *map, const char *key, int64_t min, int64_t max,
                         int64_t *value, struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    return node ? yaml_int(node, min, max, value, error) : STATUS_OK;
}

enum status yaml_get_real(const struct yaml_node *map, const char *key, double min, double max,
                          double *value, struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    return node ? yaml_real(node, min, max, value, error) : STATUS_OK;
}

enum status yaml_get_bool(const struct yaml_node *map, const char *key, bool *value,
                          struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    return node ? yaml_bool(node, value, error) : STATUS_OK;
}

enum status yaml_get_duration(const struct yaml_node *map, const char *key, uint64_t min_ns,
                              uint64_t max_ns, uint64_t *ns, struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    return node ? yaml_duration(node, min_ns, max_ns, ns, error) : STATUS_OK;
}

enum status yaml_get_choice(const struct yaml_node *map, const char *key, const char *const *names,
                            int *index, struct error *error)
{
    const struct yaml_node *node = yaml_find(map, key);
    return node ? yaml_choice(node, names, index, error) : STATUS_OK;
}

enum status yaml_require(const struct yaml_node *map, const char *key,
                         const struct yaml_node **node, struct error *error)
{
    const struct yaml_node *found = yaml_find(map, key);
    if (!found)
        return yaml_error(map, error, "key '%s' is missing", key);
    *node = found;
    return STATUS_OK;
}

static bool is_among(const char *key, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

enum status yaml_check_keys(const struct yaml_node *map, const char *const *names,
                            struct error *error)
{
    for (const struct yaml_node *n = map->first; n; n = n->next) {
        if (is_among(n->key, names))
            continue;
        char hint[NEAREST_WORD_MAX + 32], known[ERROR_TEXT_MAX / 2];
        struct nearest nearest;
        nearest_init(&nearest, n->key);
        for (int i = 0; names[i]; i++)
            nearest_offer(&nearest, names[i]);
        nearest_hint(&nearest, hint, sizeof(hint));
        enumerate(names, ", ", known, sizeof(known));
        return yaml_error_key(n, error, "unknown key '%.80s'%s; known: %s", n->key, hint, known);
    }
    return STATUS_OK;
}
