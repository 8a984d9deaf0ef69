// SPDX-License-Identifier: Apache-2.0
// Files of tensors: written files are read back; malformed files are refused with a reason. Maps of
// the errors of tensors.
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/submit/tensors/error_map.h"
#include "client/submit/tensors/safetensors.h"
#include "tests/support/runner.h"

static char folder[] = "/tmp/cpattn-safetensors-XXXXXX", path[64];

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/t", folder);
}

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); // no other file is left
}

static void file_write(const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
}

START_TEST(written_files_are_read)
{
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    static const unsigned short halves[2] = {0x3f80, 0x4000};
    static const char *const metadata[] = {"case", "a \"case\"", NULL};
    char q[] = "q", lse[] = "expected.lse";
    struct safetensors_tensor tensors[] = {{.name = q,
                                            .dtype = "BF16",
                                            .element_bytes = 2,
                                            .dims = 2,
                                            .shape = {1, 2},
                                            .data = halves},
                                           {.name = lse,
                                            .dtype = "F32",
                                            .element_bytes = 4,
                                            .dims = 3,
                                            .shape = {1, 2, 3},
                                            .data = numbers}};
    struct safetensors s;
    struct error error;
    unsigned short halves_read[2];
    float numbers_read[6];
    ck_assert_int_eq(safetensors_write(path, tensors, 2, metadata, &error), STATUS_OK);
    ck_assert_int_eq(safetensors_open(path, &s, &error), STATUS_OK);
    ck_assert_int_eq(s.count, 2);
    ck_assert_int_eq(s.data_begin % 8, 0);
    const struct safetensors_tensor *t = safetensors_find(&s, "expected.lse");
    ck_assert_ptr_nonnull(t);
    ck_assert_ptr_null(safetensors_find(&s, "k"));
    ck_assert_str_eq(t->dtype, "F32");
    ck_assert_int_eq(t->dims, 3);
    ck_assert_int_eq(t->shape[2], 3);
    ck_assert_int_eq(safetensors_read(&s, t, numbers_read, &error), STATUS_OK);
    ck_assert_mem_eq(numbers_read, numbers, sizeof(numbers));
    ck_assert_int_eq(safetensors_read(&s, safetensors_find(&s, "q"), halves_read, &error),
                     STATUS_OK);
    ck_assert_mem_eq(halves_read, halves, sizeof(halves));
    safetensors_fini(&s);
}
END_TEST

#define X1 "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"
static const struct {
    const char *header;
    unsigned data_bytes;
    const char *text; // part of the message; NULL: the header is accepted
} headers[] = {
    {"{\"x\":{" X1 "}}", 1, NULL},
    {"{\"__metadata__\":{\"a\":\"b\"},\"x\":{" X1 "}}   ", 1, NULL},
    {"{}", 0, NULL},
    {"", 0, "is no JSON"},
    {"[]", 0, "no JSON object"},
    {"{\"x\":{" X1 "}", 1, "is no JSON"},
    {"{\"x\":{" X1 "}}{", 1, "is no JSON"},
    {"{\"x\":{" X1 "},\"x\":{" X1 "}}", 1, "is no JSON"},
    {"{\"x\":{" X1 "}}", 2, "the tensors have 1 bytes, the file has 2"},
    {"{\"x\":{" X1 "}}", 0, "outside of the file"},
    {"{\"x\":3}", 1, "dtype is none"},
    {"{\"x\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is none"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "do not fit"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "no number from 0"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1, "no number from 0"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "no list of up to 8"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
     "no list of up to 8"},
    {"{\"x\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,4611686018427387904],"
     "\"data_offsets\":[0,8]}}",
     8, "more bytes than there can be"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, "outside of the file"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "no two numbers"},
    {"{\"x\":{" X1 "},\"y\":{" X1 "}}", 1, "do not follow"},
    {"{\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "do not follow"},
    {"{\"a\\u001b[2Jb\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a?[2Jb"},
};

START_TEST(malformed_headers_are_refused)
{
    struct safetensors s;
    struct error error = {.text = ""};
    const char *header = headers[_i].header;
    enum status status =
        safetensors_parse(header, strlen(header), headers[_i].data_bytes, &s, &error);
    ck_assert_int_eq(status, headers[_i].text ? STATUS_INVALID_ARGUMENT : STATUS_OK);
    if (headers[_i].text)
        ck_assert_msg(strstr(error.text, headers[_i].text), "%d: %s", _i, error.text);
    else
        safetensors_fini(&s);
}
END_TEST

static void expect_refusal(enum status expected, const char *text)
{
    struct safetensors s;
    struct error error = {.text = ""};
    ck_assert_int_eq(safetensors_open(path, &s, &error), expected);
    ck_assert_msg(strstr(error.text, text) && strstr(error.text, path), "%s", error.text);
}

START_TEST(malformed_files_are_refused)
{
    expect_refusal(STATUS_NOT_FOUND, "cannot be read: No such file");
    file_write("1234567", 7);
    expect_refusal(STATUS_INVALID_ARGUMENT,
                   "no safetensors file: it has 7 bytes, and the length of");
    file_write("\3\0\0\0\0\0\0\0{}", 10);
    expect_refusal(STATUS_INVALID_ARGUMENT, "no safetensors file: the header announces 3 bytes");
    file_write("\377\377\377\377\377\377\377\377{}", 10);
    expect_refusal(STATUS_INVALID_ARGUMENT, "announces 18446744073709551615 bytes");
    file_write("\2\0\0\0\0\0\0\0{}x", 11);
    expect_refusal(STATUS_INVALID_ARGUMENT, "the tensors have 0 bytes");
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_refusal(STATUS_INVALID_ARGUMENT, "cannot be read: it is no regular file");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refusal(STATUS_INVALID_ARGUMENT, "cannot be read: it is a directory");
    rmdir(path);
}
END_TEST

START_TEST(a_file_that_becomes_shorter_is_noticed)
{
    static const char file[] = "\100\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"U8\",\"shape\":[4],"
                               "\"data_offsets\":[0,4]}}           abcd";
    struct safetensors s;
    struct error error;
    char data[4];
    file_write(file, 8 + 0100 + 4);
    ck_assert_int_eq(safetensors_open(path, &s, &error), STATUS_OK);
    ck_assert_int_eq(safetensors_read(&s, &s.tensors[0], data, &error), STATUS_OK);
    ck_assert_mem_eq(data, "abcd", 4);
    ck_assert_int_eq(truncate(path, 8 + 0100 + 2), 0);
    ck_assert_int_eq(safetensors_read(&s, &s.tensors[0], data, &error), STATUS_DATA_LOSS);
    safetensors_fini(&s);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_told)
{
    char name[] = "x";
    struct safetensors_tensor tensor = {
        .name = name, .dtype = "U8", .element_bytes = 1, .dims = 1, .shape = {1}, .data = "a"};
    struct error error;
    ck_assert_int_eq(safetensors_write("/nowhere/x", &tensor, 1, NULL, &error), STATUS_DATA_LOSS);
    ck_assert_msg(strstr(error.text, "/nowhere/x cannot be written: No such"), "%s", error.text);
}
END_TEST

// The writer must not replace a special file: run as root, it would replace /dev/null.
START_TEST(a_pipe_stays_a_pipe)
{
    char name[] = "x", bytes[256];
    struct safetensors_tensor tensor = {
        .name = name, .dtype = "U8", .element_bytes = 1, .dims = 1, .shape = {1}, .data = "a"};
    struct error error;
    struct stat found;
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(safetensors_write(path, &tensor, 1, NULL, &error), STATUS_OK);
    ck_assert_int_eq(lstat(path, &found), 0);
    ck_assert(S_ISFIFO(found.st_mode));
    ssize_t got = read(fd, bytes, sizeof(bytes));
    ck_assert_int_gt(got, 8);
    ck_assert_int_eq(bytes[got - 1], 'a');
    close(fd);
}
END_TEST

// ---- maps of errors ----------------------------------------------------------------------------

static const struct {
    float got, expected;
    bool broken;
} elements[] = {{1, 1, false},       {INFINITY, INFINITY, false}, {-INFINITY, -INFINITY, false},
                {NAN, NAN, false},   {INFINITY, -INFINITY, true}, {-INFINITY, INFINITY, true},
                {INFINITY, 1, true}, {1, -INFINITY, true},        {NAN, 1, true},
                {1, NAN, true},      {NAN, INFINITY, true},       {-INFINITY, NAN, true}};

START_TEST(elements_that_are_not_finite_must_be_the_expected_ones)
{
    const float got[2] = {1, elements[_i].got}, expected[2] = {1, elements[_i].expected};
    struct error_map map;
    struct error error;
    struct cp_case c;
    case_init(&c);
    c.dtype = DTYPE_FP32;
    c.world_size = c.batch = c.heads = c.kv_heads = c.head_dim_qk = c.head_dim_v = 1;
    c.seqlen_q = c.seqlen_kv = 2;
    ck_assert_int_eq(error_map_init(&map, &c, WHOLE_OUT, got, expected, &error), STATUS_OK);
    ck_assert_int_eq(!isfinite(map.largest), elements[_i].broken);
    error_map_fini(&map);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("files");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, written_files_are_read);
    tcase_add_test(tcase, malformed_files_are_refused);
    tcase_add_test(tcase, a_file_that_becomes_shorter_is_noticed);
    tcase_add_test(tcase, a_file_that_cannot_be_written_is_told);
    tcase_add_test(tcase, a_pipe_stays_a_pipe);
    suite_add_tcase(suite, tcase);
    TCase *pure = tcase_create("headers");
    tcase_add_loop_test(pure, malformed_headers_are_refused, 0,
                        (int)(sizeof(headers) / sizeof(*headers)));
    suite_add_tcase(suite, pure);
    TCase *maps = tcase_create("maps");
    tcase_add_loop_test(maps, elements_that_are_not_finite_must_be_the_expected_ones, 0,
                        (int)(sizeof(elements) / sizeof(*elements)));
    suite_add_tcase(suite, maps);
    return runner_run(suite);
}
