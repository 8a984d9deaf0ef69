# SPDX-License-Identifier: Apache-2.0
"""Judge attention, collectives and linear layers that your own code has computed.

    import cpattn

    case = cpattn.Case(world_size=4, heads=32, kv_heads=8, seqlen=8192, dtype="bf16", mask="causal")
    check = cpattn.Check(case, rank=rank)
    q, k, v, do = check.inputs()
    ...                                        # your kernel, your ring
    verdict = check.verify(out=out, dq=dq, dk=dk, dv=dv)
    print(verdict)                             # errors, limits, diagnosis
    assert verdict

Tensors are numpy arrays, PyTorch tensors, or other objects with DLPack. Verification does not copy
tensors in host memory. numpy has no bf16: its arrays hold the bits as uint16. Importing this
package needs neither numpy nor PyTorch.

The judge is the library libcpattn-check. The package searches for its libraries in its own folder,
then in the folders of $CPATTN_LIBRARY_PATH (separated by ":"), then in the library path of the
system.
"""
from cpattn._library import CpattnError, Status
from cpattn.case import Case, Job
from cpattn.client import Answer, Client, Event, Request
from cpattn.check import Check, Diagnosis, Figures, Verdict, VerdictError
from cpattn.job_check import JobCheck

__all__ = [
    "Answer",
    "Case",
    "Check",
    "Client",
    "CpattnError",
    "Diagnosis",
    "Event",
    "Figures",
    "Job",
    "JobCheck",
    "Request",
    "Status",
    "Verdict",
    "VerdictError",
]
