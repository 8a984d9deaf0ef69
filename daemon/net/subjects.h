// SPDX-License-Identifier: Apache-2.0
// Assigns user numbers to certificate subjects. A subject keeps its number while the daemon runs.
#ifndef CPATTN_DAEMON_NET_SUBJECTS_H
#define CPATTN_DAEMON_NET_SUBJECTS_H

#include <sys/types.h>

#include "daemon/settings/subject_list.h"

#define SUBJECTS_MAX      4096
// Numbers from here on are subjects, or PEER_REMOTE_UID for network clients without a subject. None
// of them is a user of the machine.
#define SUBJECT_UID_FIRST ((uid_t)0xf0000000)

struct subjects {
    int count, room;
    char (*texts)[SUBJECT_TEXT_MAX]; // [room], of which `count` are filled
};

void subjects_fini(struct subjects *subjects); // accepts a zeroed struct

// Returns the number of a subject, SUBJECT_UID_FIRST or more. Returns `others` for a new subject if
// there are SUBJECTS_MAX already or memory is short.
uid_t subjects_uid(struct subjects *subjects, const char *text, uid_t others);

#endif
