# SPDX-License-Identifier: Apache-2.0
dist_man_MANS += doc/cpattn-submit.1
dist_man_MANS += doc/cpattn-matrix.5
dist_man_MANS += doc/cpattnd.8
dist_man_MANS += doc/cpattn-agent.8
dist_man_MANS += doc/cpattn.3
EXTRA_DIST += doc/RELIABILITY.md
dist_doc_DATA += SECURITY.md
dist_doc_DATA += doc/tutorial.md doc/operating.md doc/nodes.md doc/protocol.md doc/test-your-collective.md doc/test-your-kernel.md \
    doc/test-your-ring.md doc/when-a-case-fails.md
dist_man_MANS += doc/cpattn_check.3
dist_man_MANS += doc/cpattn_guest.3
