#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test harness on the package cpattn, to be copied and changed.

    python3 harness.py [SEQLEN]  # the daemon is that of $CPATTN_SOCKET, else the one of this machine
"""
import collections
import sys

import cpattn


def show(answer):
    print("%-5s %s%s" % (answer.verdict or "error", answer.case,
                         ": " + answer.text if answer.text else ""), flush=True)
    for rank in answer.failures:
        print("      rank %d: %s in %s, step %d %s" % (rank.rank, rank.fate, rank.phase, rank.step,
                                                     rank.text),
              "(the cause)" if rank.culprit else "")
    if answer.verdict == "pass":
        rank, worst = max(answer.figures, key=lambda figures: figures[1].worst_element)
        print("      %s of rank %d: largest error %.2e, %.0f %% of what is allowed"
              % (worst.tensor, rank, worst.max_error, 100 * worst.worst_element))
        return
    for rank, figures in answer.figures:
        if figures.broken:
            print("      %s of rank %d, chunk %d: %d of %d elements, the first at %s"
                  % (figures.tensor, rank, figures.chunk, figures.mismatches, figures.elements,
                     figures.first_bad))
    if answer.diagnosis:
        print("      it looks like this:", answer.diagnosis)
    print("      again:", answer.case.command())


def main(seqlen=301):  # any length works
    cases = [{"world_size": world, "comm": comm, "mask": mask, "heads": 8, "kv_heads": 4,
              "head_dim": 64, "seqlen": seqlen}
             for world in (2, 4) for comm in ("p2p", "all_gather", "a2a")
             for mask in ("none", "causal")]
    verdicts = collections.Counter()
    try:
        with cpattn.Client(in_flight=16) as client:
            for answer in client.answers(cases):
                show(answer)
                verdicts[answer.verdict or "not run"] += 1
    except cpattn.CpattnError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print("%d cases: %d passed, %d failed, %d not run" % (
        len(cases), verdicts["pass"], verdicts["fail"],
        len(cases) - verdicts["pass"] - verdicts["fail"]))
    return 1 if verdicts["fail"] else 0 if verdicts["pass"] == len(cases) else 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
