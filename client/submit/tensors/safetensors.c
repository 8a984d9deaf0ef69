// SPDX-License-Identifier: Apache-2.0
#include "client/submit/tensors/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/submit/write/plain_file.h"

#define LENGTH_BYTES 8
#define ALIGNMENT    8
// Maximum number of bytes of one system call.
#define PIECE_BYTES  ((size_t)1 << 30)

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"BF16", 2}, {"F16", 2}, {"F32", 4},  {"F64", 8},     {"BOOL", 1},   {"U8", 1},
              {"I8", 1},   {"U16", 2}, {"I16", 2},  {"U32", 4},     {"I32", 4},    {"U64", 8},
              {"I64", 8},  {"C64", 8}, {"E8M0", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

// Returns the table's own text, which outlives the file; NULL: no such dtype.
static const char *dtype_find(const char *name, int *bytes)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *bytes = dtypes[i].bytes;
            return dtypes[i].name;
        }
    }
    return NULL;
}

int safetensors_element_bytes(const char *dtype)
{
    int bytes = 0;
    return dtype_find(dtype, &bytes) ? bytes : 0;
}

const char *safetensors_describe(const struct safetensors_tensor *t,
                                 char text[SAFETENSORS_TEXT_MAX])
{
    int length = snprintf(text, SAFETENSORS_TEXT_MAX, "%s [", t->dtype);
    for (int i = 0; i < t->dims; i++)
        length += snprintf(text + length, (size_t)(SAFETENSORS_TEXT_MAX - length), "%s%" PRId64,
                           i > 0 ? ", " : "", t->shape[i]);
    snprintf(text + length, (size_t)(SAFETENSORS_TEXT_MAX - length), "]");
    return text;
}

// ---- the header --------------------------------------------------------------------------------

#define NAME_SHOWN_MAX 80
// A name without control characters, shortened if it is long.
static const char *name_show(const char *name, char text[NAME_SHOWN_MAX])
{
    size_t length = 0;
    for (; length < NAME_SHOWN_MAX - 1 && name[length]; length++)
        text[length] = name[length] >= ' ' && name[length] <= '~' ? name[length] : '?';
    text[length] = '\0';
    return text;
}

static enum status wrong(const char *name, const char *what, struct error *error)
{
    char shown[NAME_SHOWN_MAX];
    return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%s\": %s", name_show(name, shown),
                     what);
}

static enum status shape_read(const json_t *shape, struct safetensors_tensor *t, uint64_t *bytes,
                              struct error *error)
{
    size_t index;
    json_t *size;
    *bytes = (uint64_t)t->element_bytes;
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS_MAX)
        return wrong(t->name, "shape is no list of up to 8 sizes", error);
    json_array_foreach(shape, index, size)
    {
        json_int_t value = json_integer_value(size);
        if (!json_is_integer(size) || value < 0)
            return wrong(t->name, "a size of the shape is no number from 0 up", error);
        if (__builtin_mul_overflow(*bytes, (uint64_t)value, bytes) || *bytes > INT64_MAX)
            return wrong(t->name, "the shape has more bytes than there can be", error);
        t->shape[t->dims++] = value;
    }
    return STATUS_OK;
}

static enum status offsets_read(const json_t *offsets, uint64_t data_bytes,
                                struct safetensors_tensor *t, struct error *error)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return wrong(t->name, "data_offsets are no two numbers", error);
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > data_bytes)
        return wrong(t->name, "data_offsets lie outside of the file", error);
    t->begin = (uint64_t)from;
    t->bytes = (uint64_t)(to - from);
    return STATUS_OK;
}

static enum status tensor_read(const char *name, const json_t *value, uint64_t data_bytes,
                               struct safetensors_tensor *t, struct error *error)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    uint64_t bytes = 0;
    t->name = strdup(name);
    if (!t->name)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the tensors' names");
    t->dtype = dtype ? dtype_find(dtype, &t->element_bytes) : NULL;
    if (!t->dtype)
        return wrong(name, "dtype is none of those that safetensors has", error);
    enum status status = shape_read(json_object_get(value, "shape"), t, &bytes, error);
    if (status == STATUS_OK)
        status = offsets_read(json_object_get(value, "data_offsets"), data_bytes, t, error);
    if (status == STATUS_OK && bytes != t->bytes)
        status = wrong(name, "shape and dtype do not fit the bytes of data_offsets", error);
    return status;
}

static int by_begin(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

// The format allows neither gaps nor overlaps.
static enum status tiling_check(const struct safetensors *s, uint64_t data_bytes,
                                struct error *error)
{
    uint64_t end = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->tensors[i].begin != end)
            return wrong(s->tensors[i].name, "its bytes do not follow those of the one before",
                         error);
        end += s->tensors[i].bytes;
    }
    if (end != data_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the tensors have %" PRIu64 " bytes, the file has %" PRIu64 " for them",
                         end, data_bytes);
    return STATUS_OK;
}

static enum status root_read(json_t *root, uint64_t data_bytes, struct safetensors *s,
                             struct error *error)
{
    const char *name;
    json_t *value;
    size_t count = json_object_size(root);
    if (!json_is_object(root) || count > SAFETENSORS_COUNT_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the header is no JSON object of up to %d tensors", SAFETENSORS_COUNT_MAX);
    s->tensors = calloc(count + 1, sizeof(*s->tensors));
    if (!s->tensors)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu tensors", count);
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        enum status status = tensor_read(name, value, data_bytes, &s->tensors[s->count++], error);
        if (status != STATUS_OK)
            return status;
    }
    qsort(s->tensors, (size_t)s->count, sizeof(*s->tensors), by_begin);
    return tiling_check(s, data_bytes, error);
}

enum status safetensors_parse(const char *header, size_t bytes, uint64_t data_bytes,
                              struct safetensors *s, struct error *error)
{
    json_error_t fault;
    *s = (struct safetensors){.fd = -1};
    json_t *root = json_loadb(header, bytes, JSON_REJECT_DUPLICATES, &fault);
    if (!root)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the header is no JSON: something is wrong at byte %d", fault.position);
    enum status status = root_read(root, data_bytes, s, error);
    json_decref(root);
    if (status != STATUS_OK)
        safetensors_fini(s);
    return status;
}

void safetensors_fini(struct safetensors *s)
{
    bool opened = s->tensors && s->fd >= 0;
    for (int i = 0; i < s->count; i++)
        free(s->tensors[i].name);
    free(s->tensors);
    if (opened)
        close(s->fd);
    *s = (struct safetensors){.fd = -1};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

// ---- reading -----------------------------------------------------------------------------------

static bool read_all(int fd, void *data, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        ssize_t got = pread(fd, (char *)data + done, left < PIECE_BYTES ? left : PIECE_BYTES,
                            (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (uint64_t)got;
    }
    return true;
}

static uint64_t length_decode(const unsigned char bytes[LENGTH_BYTES])
{
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    return length;
}

static enum status header_read(int fd, uint64_t file_bytes, struct safetensors *s,
                               struct error *error)
{
    unsigned char prefix[LENGTH_BYTES];
    if (file_bytes < LENGTH_BYTES || !read_all(fd, prefix, sizeof(prefix), 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "no safetensors file: it has %" PRIu64
                         " bytes, and the length of the header alone has %d",
                         file_bytes, LENGTH_BYTES);
    uint64_t length = length_decode(prefix);
    if (length > SAFETENSORS_HEADER_MAX || length > file_bytes - LENGTH_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "no safetensors file: the header announces %" PRIu64
                         " bytes; accepted are up to %d that are in the file",
                         length, SAFETENSORS_HEADER_MAX);
    char *header = malloc(length + 1);
    if (!header)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the header");
    enum status status =
        read_all(fd, header, length, LENGTH_BYTES)
            ? safetensors_parse(header, length, file_bytes - LENGTH_BYTES - length, s, error)
            : error_set(error, STATUS_DATA_LOSS, "the header cannot be read");
    free(header);
    s->data_begin = LENGTH_BYTES + length;
    return status;
}

static enum status open_failed(int number, struct error *error)
{
    enum status status = number == ENOENT   ? STATUS_NOT_FOUND
                         : number == EACCES ? STATUS_PERMISSION_DENIED
                                            : STATUS_INVALID_ARGUMENT;
    return error_set(error, status, "cannot be read: %s", strerror(number));
}

enum status safetensors_open(const char *path, struct safetensors *s, struct error *error)
{
    struct safetensors opened = {.fd = -1};
    struct stat stat;
    // O_NONBLOCK: open() of a pipe would wait for its writer.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status = STATUS_OK;
    if (fd < 0 || fstat(fd, &stat) != 0)
        status = open_failed(errno, error);
    else if (!S_ISREG(stat.st_mode))
        status = error_set(error, STATUS_INVALID_ARGUMENT, "cannot be read: it is %s",
                           S_ISDIR(stat.st_mode) ? "a directory" : "no regular file");
    if (status == STATUS_OK)
        status = header_read(fd, (uint64_t)stat.st_size, &opened, error);
    if (status != STATUS_OK) {
        if (fd >= 0)
            close(fd);
        error_prefix(error, "%s", path);
        return status;
    }
    opened.fd = fd;
    *s = opened;
    return STATUS_OK;
}

enum status safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
                             void *data, struct error *error)
{
    if (read_all(s->fd, data, t->bytes, s->data_begin + t->begin))
        return STATUS_OK;
    char shown[NAME_SHOWN_MAX];
    return error_set(error, STATUS_DATA_LOSS,
                     "tensor \"%s\": its elements cannot be read; has the file changed?",
                     name_show(t->name, shown));
}

// ---- writing -----------------------------------------------------------------------------------

static json_t *tensor_describe(const struct safetensors_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->dims; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    json_int_t begin = (json_int_t)t->begin, bytes = (json_int_t)t->bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets",
                     begin, begin + bytes);
}

static char *header_make(struct safetensors_tensor *tensors, int count, const char *const *metadata)
{
    json_t *root = json_object();
    uint64_t at = 0;
    if (metadata) {
        json_t *texts = json_object();
        for (; metadata[0]; metadata += 2)
            json_object_set_new(texts, metadata[0], json_string(metadata[1]));
        json_object_set_new(root, "__metadata__", texts);
    }
    for (int i = 0; i < count; i++) {
        struct safetensors_tensor *t = &tensors[i];
        t->begin = at;
        t->bytes = (uint64_t)t->element_bytes;
        for (int dim = 0; dim < t->dims; dim++)
            t->bytes *= (uint64_t)t->shape[dim];
        at += t->bytes;
        json_object_set_new(root, t->name, tensor_describe(t));
    }
    bool whole = json_object_size(root) == (size_t)count + (metadata != NULL);
    char *text = whole ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static bool write_all(int fd, const void *data, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        ssize_t put = write(fd, (const char *)data + done, left < PIECE_BYTES ? left : PIECE_BYTES);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        done += (uint64_t)put;
    }
    return true;
}

// Spaces after the JSON align the elements to 8 bytes.
static bool header_write(int fd, const char *text)
{
    static const char spaces[ALIGNMENT] = "        ";
    size_t length = strlen(text), fill = (ALIGNMENT - length % ALIGNMENT) % ALIGNMENT;
    unsigned char prefix[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        prefix[i] = (unsigned char)((length + fill) >> (8 * i));
    return write_all(fd, prefix, sizeof(prefix)) && write_all(fd, text, length) &&
           write_all(fd, spaces, fill);
}

static bool file_fill(int fd, const char *header, const struct safetensors_tensor *tensors,
                      int count)
{
    bool good = header_write(fd, header);
    for (int i = 0; i < count && good; i++)
        good = write_all(fd, tensors[i].data, tensors[i].bytes);
    return good;
}

enum status safetensors_write(const char *path, struct safetensors_tensor *tensors, int count,
                              const char *const *metadata, struct error *error)
{
    bool plain = plain_file(path);
    char *header = header_make(tensors, count, metadata), *beside = NULL;
    if (!header || asprintf(&beside, plain ? "%s.part" : "%s", path) < 0) {
        free(header);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the header of %s", path);
    }
    int flags = O_WRONLY | O_TRUNC | O_CLOEXEC | (plain ? O_CREAT | O_NOFOLLOW : 0);
    int fd = open(beside, flags, 0666);
    bool good = fd >= 0 && file_fill(fd, header, tensors, count);
    good = (fd < 0 || close(fd) == 0) && good && (!plain || rename(beside, path) == 0);
    enum status status = STATUS_OK;
    if (!good) {
        int number = errno;
        if (fd >= 0 && plain)
            unlink(beside);
        status =
            error_set(error, STATUS_DATA_LOSS, "%s cannot be written: %s", path, strerror(number));
    }
    free(header);
    free(beside);
    return status;
}
