// SPDX-License-Identifier: Apache-2.0
// A YAML file as a read-only tree. Each node has its line and column. Typed lookups report errors
// as "FILE:LINE:COLUMN: key 'x': value 'y': expected ...". Only this folder uses libyaml.
//
// Accepted: one document of scalars, lists and maps with scalar keys. Refused, with place and
// reason: aliases, tags, a second document, duplicate keys, and files that exceed the bounds below.
//
// A loaded tree never changes and may be read by several threads. Nodes and their texts belong to
// the tree and live until yaml_destroy().
#ifndef CPATTN_YAML_YAML_H
#define CPATTN_YAML_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

// For comparison: a matrix file of 1000 models has 100 KiB and 6 levels.
#define YAML_FILE_BYTES_MAX  (1024 * 1024)
#define YAML_DEPTH_MAX       32
#define YAML_NODES_MAX       100000
// The time to search for duplicate keys is quadratic in the entries of a map.
#define YAML_MAP_ENTRIES_MAX 4096

struct yaml;
struct yaml_node;

enum yaml_kind { YAML_SCALAR = 1, YAML_LIST, YAML_MAP };

// Reads a file. NOT_FOUND, PERMISSION_DENIED: the file cannot be opened; INVALID_ARGUMENT: refused
// content, or another error of the system; RESOURCE_EXHAUSTED: memory is short. The caller frees
// *yaml with yaml_destroy().
enum status yaml_load_file(const char *path, struct yaml **yaml, struct error *error) MUST_CHECK;

// Reads a text in memory. Messages contain `name` in place of the path. Both are copied.
enum status yaml_load_text(const char *name, const char *text, size_t size, struct yaml **yaml,
                           struct error *error) MUST_CHECK;
void yaml_destroy(struct yaml *yaml);

// ---- the tree ---------------------------------------------------------------------------------

// The root; an empty file is an empty map.
const struct yaml_node *yaml_root(const struct yaml *yaml);

enum yaml_kind yaml_kind(const struct yaml_node *node);
int yaml_line(const struct yaml_node *node);   // from 1
int yaml_column(const struct yaml_node *node); // from 1, in characters

// The text of a scalar without quotes, "" for an empty one; NULL for a list or a map.
const char *yaml_text(const struct yaml_node *node);

// Iterates over the items of a list or the values of a map, in the order of the file; NULL at the
// end and for a scalar.
//     for (const struct yaml_node *n = yaml_first(map); n; n = yaml_next(n)) ... yaml_key(n) ...
const struct yaml_node *yaml_first(const struct yaml_node *node);
const struct yaml_node *yaml_next(const struct yaml_node *node);
int yaml_count(const struct yaml_node *node);

// The key of a value in its map; NULL for the root and for an item of a list.
const char *yaml_key(const struct yaml_node *node);

// The value of a key; NULL if the map does not have the key, or if `map` is not a map.
const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key);

// ---- messages ---------------------------------------------------------------------------------
// These functions return INVALID_ARGUMENT. Control characters from the file are replaced by '?'.

// "FILE:LINE:COLUMN: ..." with the place of the node.
enum status yaml_error(const struct yaml_node *node, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The same with the place of the node's key, if it has one.
enum status yaml_error_key(const struct yaml_node *node, struct error *error, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));

// "FILE:LINE:COLUMN: key 'x': value 'y': expected ...". The format continues after "expected ".
enum status yaml_expected(const struct yaml_node *node, struct error *error, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));

// ---- typed values -----------------------------------------------------------------------------
// INVALID_ARGUMENT with the sentence of yaml_expected() if the node has another kind, or if the
// value is outside [min, max].

enum status yaml_is(const struct yaml_node *node, enum yaml_kind kind,
                    struct error *error) MUST_CHECK;
enum status yaml_int(const struct yaml_node *node, int64_t min, int64_t max, int64_t *value,
                     struct error *error) MUST_CHECK; // decimal
enum status yaml_real(const struct yaml_node *node, double min, double max, double *value,
                      struct error *error) MUST_CHECK; // finite
enum status yaml_bool(const struct yaml_node *node, bool *value, struct error *error) MUST_CHECK;
enum status yaml_duration(const struct yaml_node *node, uint64_t min_ns, uint64_t max_ns,
                          uint64_t *ns, struct error *error) MUST_CHECK; // common/duration.h

// One of `names`, a list that ends with NULL; *index is its index there.
enum status yaml_choice(const struct yaml_node *node, const char *const *names, int *index,
                        struct error *error) MUST_CHECK;

// The same for the value of a key. If the map does not have the key, the output stays unchanged and
// the result is OK; the caller stores the default there first.
enum status yaml_get(const struct yaml_node *map, const char *key, enum yaml_kind kind,
                     const struct yaml_node **node, struct error *error) MUST_CHECK;
enum status yaml_get_text(const struct yaml_node *map, const char *key, const char **text,
                          struct error *error) MUST_CHECK; // not empty, no control characters
enum status yaml_get_int(const struct yaml_node *map, const char *key, int64_t min, int64_t max,
                         int64_t *value, struct error *error) MUST_CHECK;
enum status yaml_get_real(const struct yaml_node *map, const char *key, double min, double max,
                          double *value, struct error *error) MUST_CHECK;
enum status yaml_get_bool(const struct yaml_node *map, const char *key, bool *value,
                          struct error *error) MUST_CHECK;
enum status yaml_get_duration(const struct yaml_node *map, const char *key, uint64_t min_ns,
                              uint64_t max_ns, uint64_t *ns, struct error *error) MUST_CHECK;
enum status yaml_get_choice(const struct yaml_node *map, const char *key, const char *const *names,
                            int *index, struct error *error) MUST_CHECK;

// The value of a required key; the message names the key and the place of the map.
enum status yaml_require(const struct yaml_node *map, const char *key,
                         const struct yaml_node **node, struct error *error) MUST_CHECK;

// Refuses the first key of a map that is not in `names`, a list that ends with NULL. The message
// names the most similar of them.
enum status yaml_check_keys(const struct yaml_node *map, const char *const *names,
                            struct error *error) MUST_CHECK;

#endif
