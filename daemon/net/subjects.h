// SPDX-License-Identifier: Apache-2.0
// Numbers subjects of certificates as users. A subject keeps its number as long as the daemon runs.
#ifndef CPATTN_DAEMON_NET_SUBJECTS_H
#define CPATTN_DAEMON_NET_SUBJECTS_H

#include <sys/types.h>

#include "daemon/settings/subject_list.h"

#define SUBJECTS_MAX      4096
// Numbers from here on are subjects, or clients without one (PEER_REMOTE_UID); they are no users of
// the machine.
#define SUBJECT_UID_FIRST ((uid_t)0xf0000000)

struct subjects {
    int count, room;
    char (*texts)[SUBJECT_TEXT_MAX]; // [room], of which `count` are filled
};

void subjects_fini(struct subjects *subjects); // accepts a zeroed struct

// Returns SUBJECT_UID_FIRST or more; `others` if there are SUBJECTS_MAX subjects or memory is
// short.
uid_t subjects_uid(struct subjects *subjects, const char *text, uid_t others);

#endif
