// SPDX-License-Identifier: Apache-2.0
// Builds the tree from libyaml's events. A stack holds the lists and maps that have not ended.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yaml.h>

#include "yaml/node.h"

#define BLOCK_BYTES (64 * 1024)

struct yaml_block {
    struct yaml_block *next;
    size_t used, size;
    _Alignas(max_align_t) char bytes[];
};

static void *block_reserve(struct yaml *yaml, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct yaml_block *block = yaml->blocks;
    if (!block || block->size - block->used < size) {
        size_t block_size = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = malloc(sizeof(*block) + block_size);
        if (!block)
            return NULL;
        *block = (struct yaml_block){.next = yaml->blocks, .size = block_size};
        yaml->blocks = block;
    }
    void *memory = block->bytes + block->used;
    block->used += size;
    return memory;
}

void yaml_destroy(struct yaml *yaml)
{
    if (!yaml)
        return;
    while (yaml->blocks) {
        struct yaml_block *next = yaml->blocks->next;
        free(yaml->blocks);
        yaml->blocks = next;
    }
    free(yaml->name);
    free(yaml);
}

// ---- reading a document -----------------------------------------------------------------------

struct reader {
    struct yaml *yaml;
    struct yaml_node *open[YAML_DEPTH_MAX]; // the stack, outermost first
    int depth;
    const char *key; // key of the next value in the innermost map; NULL: a key must come next
    yaml_mark_t key_mark;
    int documents;
    struct error *error;
};

static enum status refuse(struct reader *r, const yaml_mark_t *mark, const char *why)
{
    error_set(r->error, STATUS_INVALID_ARGUMENT, "%s:%zu:%zu: %s", r->yaml->name, mark->line + 1,
              mark->column + 1, why);
    yaml_disarm(r->error);
    return STATUS_INVALID_ARGUMENT;
}

static enum status no_memory(struct reader *r)
{
    return error_set(r->error, STATUS_RESOURCE_EXHAUSTED, "%s: not enough memory to read it",
                     r->yaml->name);
}

static enum status copy_text(struct reader *r, const yaml_event_t *event, const char **text)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (memchr(value, '\0', length))
        return refuse(r, &event->start_mark, "a text with a zero byte");
    char *copy = block_reserve(r->yaml, length + 1);
    if (!copy)
        return no_memory(r);
    memcpy(copy, value, length + 1);
    *text = copy;
    return STATUS_OK;
}

// Stores a scalar as the key of the next value in the innermost map.
static enum status read_key(struct reader *r, const yaml_event_t *event)
{
    const struct yaml_node *map = r->open[r->depth - 1];
    if (event->type != YAML_SCALAR_EVENT)
        return refuse(r, &event->start_mark, "a key must be a plain word, not a list or a map");
    if (map->count >= YAML_MAP_ENTRIES_MAX)
        return refuse(r, &event->start_mark, "a map with more than 4096 keys");
    enum status status = copy_text(r, event, &r->key);
    if (status)
        return status;
    r->key_mark = event->start_mark;
    const struct yaml_node *twin = yaml_find(map, r->key);
    if (!twin)
        return STATUS_OK;
    char why[160];
    snprintf(why, sizeof(why), "key '%.80s' occurs twice; first in line %d", r->key,
             twin->key_line);
    return refuse(r, &event->start_mark, why);
}

static void node_append(struct reader *r, struct yaml_node *node)
{
    if (r->depth == 0) {
        r->yaml->root = node;
        return;
    }
    struct yaml_node *parent = r->open[r->depth - 1];
    node->parent = parent;
    node->index = parent->count++;
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    if (parent->kind == YAML_MAP) {
        node->key = r->key;
        node->key_hash = yaml_hash(r->key);
        node->key_line = (int)r->key_mark.line + 1;
        node->key_column = (int)r->key_mark.column + 1;
        r->key = NULL;
    }
}

static enum status read_node(struct reader *r, const yaml_event_t *event, enum yaml_kind kind)
{
    if (r->depth > 0 && r->open[r->depth - 1]->kind == YAML_MAP && !r->key)
        return read_key(r, event);
    if (r->yaml->node_count >= YAML_NODES_MAX)
        return refuse(r, &event->start_mark, "more than 100000 values in one file");
    struct yaml_node *node = block_reserve(r->yaml, sizeof(*node));
    if (!node)
        return no_memory(r);
    *node = (struct yaml_node){.yaml = r->yaml,
                               .kind = kind,
                               .line = (int)event->start_mark.line + 1,
                               .column = (int)event->start_mark.column + 1};
    r->yaml->node_count++;
    if (kind == YAML_SCALAR) {
        enum status status = copy_text(r, event, &node->text);
        if (status)
            return status;
    }
    node_append(r, node);
    if (kind == YAML_SCALAR)
        return STATUS_OK;
    if (r->depth == YAML_DEPTH_MAX)
        return refuse(r, &event->start_mark, "more than 32 levels of lists and maps");
    r->open[r->depth++] = node;
    return STATUS_OK;
}

static bool has_tag(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag != NULL;
    default:
        return false;
    }
}

static enum status read_event(struct reader *r, const yaml_event_t *event)
{
    if (has_tag(event))
        return refuse(r, &event->start_mark, "tags such as !!int are not supported; leave it out");
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->documents++ == 0
                   ? STATUS_OK
                   : refuse(r, &event->start_mark, "a second document; one file holds one");
    case YAML_ALIAS_EVENT:
        return refuse(r, &event->start_mark,
                      "aliases (*name) are not supported; write the value out");
    case YAML_SCALAR_EVENT:
        return read_node(r, event, YAML_SCALAR);
    case YAML_SEQUENCE_START_EVENT:
        return read_node(r, event, YAML_LIST);
    case YAML_MAPPING_START_EVENT:
        return read_node(r, event, YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

// Returns the line and column of a byte. libyaml's errors of decoding characters have an offset
// instead of a mark.
static yaml_mark_t mark_of_byte(const char *text, size_t size, size_t offset)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset && i < size; i++) {
        bool newline = text[i] == '\n', continues = ((unsigned char)text[i] & 0xc0) == 0x80;
        mark.column = newline ? 0 : mark.column + !continues;
        mark.line += newline;
    }
    return mark;
}

// Returns the byte at a line and column, or 0.
static char byte_at(const char *text, size_t size, const yaml_mark_t *mark)
{
    yaml_mark_t here = {0};
    for (size_t i = 0; i < size; i++) {
        bool newline = text[i] == '\n', continues = ((unsigned char)text[i] & 0xc0) == 0x80;
        if (here.line == mark->line && here.column == mark->column && !continues)
            return text[i];
        here.column = newline ? 0 : here.column + !continues;
        here.line += newline;
    }
    return 0;
}

// Returns advice for a character in the wrong place. NULL: libyaml's message is enough.
static const char *advice_on(const char *problem, char byte)
{
    bool starts = strstr(problem, "cannot start any token") != NULL;
    if (byte == '\t' && (starts || strstr(problem, "tab character")))
        return "a tab; indent with spaces";
    return starts ? "a value that begins with @, ` or %; put it in quotes" : NULL;
}

static enum status parser_error(struct reader *r, const yaml_parser_t *p, const char *text,
                                size_t size)
{
    char why[256];
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(r);
    const char *problem = p->problem ? p->problem : "it is malformed";
    if (p->error == YAML_READER_ERROR) {
        yaml_mark_t mark = mark_of_byte(text, size, p->problem_offset);
        snprintf(why, sizeof(why), "not readable as YAML: %s", problem);
        return refuse(r, &mark, why);
    }
    const char *advice = advice_on(problem, byte_at(text, size, &p->problem_mark));
    if (advice)
        snprintf(why, sizeof(why), "not readable as YAML: %s", advice);
    else if (p->context)
        snprintf(why, sizeof(why), "not readable as YAML: %s (%s that begins in line %zu)", problem,
                 p->context, p->context_mark.line + 1);
    else
        snprintf(why, sizeof(why), "not readable as YAML: %s", problem);
    return refuse(r, &p->problem_mark, why);
}

static enum status read_document(struct reader *r, const char *text, size_t size)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return no_memory(r);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    enum status status = STATUS_OK;
    for (bool more = true; more && !status;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            status = parser_error(r, &parser, text, size);
            break;
        }
        status = read_event(r, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

// Makes the root of an empty file an empty map.
static enum status root_complete(struct reader *r)
{
    struct yaml_node *root = r->yaml->root;
    if (root && !(root->kind == YAML_SCALAR && root->text[0] == '\0'))
        return STATUS_OK;
    root = block_reserve(r->yaml, sizeof(*root));
    if (!root)
        return no_memory(r);
    *root = (struct yaml_node){.yaml = r->yaml, .kind = YAML_MAP, .line = 1, .column = 1};
    r->yaml->root = root;
    return STATUS_OK;
}

enum status yaml_load_text(const char *name, const char *text, size_t size, struct yaml **yaml,
                           struct error *error)
{
    if (size > YAML_FILE_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: larger than %d bytes", name,
                         YAML_FILE_BYTES_MAX);
    struct reader reader = {.yaml = calloc(1, sizeof(struct yaml)), .error = error};
    if (reader.yaml)
        reader.yaml->name = strdup(name);
    if (!reader.yaml || !reader.yaml->name) {
        yaml_destroy(reader.yaml);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: not enough memory to read it",
                         name);
    }
    enum status status = read_document(&reader, text, size);
    if (!status)
        status = root_complete(&reader);
    if (status)
        yaml_destroy(reader.yaml);
    else
        *yaml = reader.yaml;
    return status;
}

// ---- files ------------------------------------------------------------------------------------

static enum status file_error(const char *path, int number, struct error *error)
{
    enum status status = number == ENOENT || number == ENOTDIR ? STATUS_NOT_FOUND
                         : number == EACCES || number == EPERM ? STATUS_PERMISSION_DENIED
                         : number == ENOMEM                    ? STATUS_RESOURCE_EXHAUSTED
                                                               : STATUS_INVALID_ARGUMENT;
    return error_set(error, status, "%s: cannot be read: %s", path, strerror(number));
}

// Reads up to `size` bytes. Returns 0 or an errno. To detect a file that is too large, the caller
// passes one byte more than it accepts.
static int read_all(int fd, char *buffer, size_t size, size_t *used)
{
    *used = 0;
    while (*used < size) {
        ssize_t n = read(fd, buffer + *used, size - *used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : 0;
        *used += (size_t)n;
    }
    return 0;
}

enum status yaml_load_file(const char *path, struct yaml **yaml, struct error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return file_error(path, errno, error);
    size_t size = YAML_FILE_BYTES_MAX + 1, used;
    char *buffer = malloc(size);
    int number = buffer ? read_all(fd, buffer, size, &used) : ENOMEM;
    close(fd);
    enum status status =
        number ? file_error(path, number, error) : yaml_load_text(path, buffer, used, yaml, error);
    free(buffer);
    return status;
}
