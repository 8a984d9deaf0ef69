// SPDX-License-Identifier: Apache-2.0
// The process of a rank: started by the daemon with the channel on descriptor 3, the pool's
// progress words on 4 and a stream socket to rank j on 5 + j.
//
// Serves cases until the daemon sends STOP or the channel ends. A failure of a case is reported at
// once. The ranks of the pool are then out of step, and this rank waits to be killed with the
// others: if it exited, they would also report a lost peer.
#ifndef CPATTN_RANK_PROCESS_H
#define CPATTN_RANK_PROCESS_H

#include "rank/engine.h"

// The main function of a rank program: PROGRAM RANK WORLD GENERATION PARENT_PID, then the arguments
// of its engine. Call it before anything opens a descriptor or starts a thread.
int process_main(int argc, char **argv, const struct engine_kind *kind);

#endif
