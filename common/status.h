// SPDX-License-Identifier: Apache-2.0
// Status codes, one set for the wire, the library and exit codes; and a status with its sentence.
#ifndef CPATTN_COMMON_STATUS_H
#define CPATTN_COMMON_STATUS_H

// X(name, number, text). Numbers and meanings are those of gRPC and never change.
#define STATUS_LIST(X)                                                                             \
    X(OK, 0, "ok")                                                                                 \
    X(CANCELLED, 1, "cancelled")                                                                   \
    X(UNKNOWN, 2, "unknown")                                                                       \
    X(INVALID_ARGUMENT, 3, "invalid argument")                                                     \
    X(DEADLINE_EXCEEDED, 4, "deadline exceeded")                                                   \
    X(NOT_FOUND, 5, "not found")                                                                   \
    X(ALREADY_EXISTS, 6, "already exists")                                                         \
    X(PERMISSION_DENIED, 7, "permission denied")                                                   \
    X(RESOURCE_EXHAUSTED, 8, "resource exhausted")                                                 \
    X(FAILED_PRECONDITION, 9, "failed precondition")                                               \
    X(ABORTED, 10, "aborted")                                                                      \
    X(OUT_OF_RANGE, 11, "out of range")                                                            \
    X(UNIMPLEMENTED, 12, "unimplemented")                                                          \
    X(INTERNAL, 13, "internal error")                                                              \
    X(UNAVAILABLE, 14, "unavailable")                                                              \
    X(DATA_LOSS, 15, "data loss")                                                                  \
    X(UNAUTHENTICATED, 16, "unauthenticated")

enum status {
#define STATUS_ENUM(name, number, text) STATUS_##name = number,
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

#define STATUS_COUNT 17

// A failure, for a person. Owned by the caller; valid after a function has returned a status other
// than STATUS_OK. The text is one sentence that names the field, the value and what is accepted.
#define ERROR_TEXT_MAX 512
struct error {
    enum status status;
    char text[ERROR_TEXT_MAX];
};

// Short text of a code ("deadline exceeded"); "unknown" for a number outside the list.
const char *status_text(enum status status);

// Upper-case name of a code ("DEADLINE_EXCEEDED"); "UNKNOWN" for a number outside the list.
const char *status_name(enum status status);

// Fills `error` (may be NULL) and returns `status`, so that a caller can write
// `return error_set(error, STATUS_INVALID_ARGUMENT, "...")`. A text that does not fit ends in
// "...".
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
// The analyzer reads one file at a time; the macro shows it the value that error_set() returns.
#define error_set(error, status, ...) ((error_set)(error, status, __VA_ARGS__), (status))
#endif

// Puts "prefix: " before the text and returns the status of the error.
enum status error_prefix(struct error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
