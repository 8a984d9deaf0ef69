// SPDX-License-Identifier: Apache-2.0
// Descriptors 0, 1 and 2 of a program.
#ifndef CPATTN_COMMON_STANDARD_FDS_H
#define CPATTN_COMMON_STANDARD_FDS_H

// Opens /dev/null for reading in place of those that are closed. Otherwise a file or socket that is
// opened later would get one of these numbers and receive the program's output. Reading returns end
// of file; writing fails with EBADF. Call before anything else is opened.
void standard_fds_fill(void);

#endif
