// SPDX-License-Identifier: Apache-2.0
// System calls that ranks have no use for and the kernel need not carry out for them: what gets at
// other processes, at the system, or at parts of the kernel that few programs use. They fail with
// EPERM. A build without libseccomp has filter_none.c, where there is nothing to be had.
#ifndef CPATTN_DAEMON_PROCESS_FILTER_H
#define CPATTN_DAEMON_PROCESS_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>

#include "common/status.h"

#define FILTER_MAX 512

// As the kernel takes it. All zeros: none.
struct filter {
    unsigned short count;
    struct sock_filter code[FILTER_MAX];
};

// Whether this build and the kernel have filters.
bool filter_is_there(void);

// `sockets`: whether it may have other sockets than those of the unix kind. UNIMPLEMENTED: this
// build has no filters; UNAVAILABLE: it could not be made. To be called before there are threads.
enum status filter_create(bool sockets, struct filter *filter, struct error *error) MUST_CHECK;

// To be called in a child that is about to become the program, last. False with errno when the
// system refuses.
bool filter_load(const struct filter *filter);

#endif
