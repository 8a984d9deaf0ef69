// SPDX-License-Identifier: Apache-2.0
// The tables of the codec, each for a message and a struct. Figures and Diagnosis name their tensor
// by number (attention) or by name (other kinds of job), with a table for each case.
#ifndef CPATTN_PROTO_SCHEMA_H
#define CPATTN_PROTO_SCHEMA_H

#include "plan/case.h"
#include "proto/map.h"

extern const struct map_field schema_rank_state[]; // RankState    | struct wire_rank_state
extern const struct map_field schema_result[];     // Result       | struct wire_result
extern const struct map_field schema_rank[];       // Rank         | struct rank_report
extern const struct map_field schema_timings[];    // Timings      | struct timings
extern const struct map_field schema_diagnosis[];  // Diagnosis    | struct diagnosis, and one of:
extern const struct map_field schema_diagnosis_tensor[]; //   the tensor's number
extern const struct map_field schema_diagnosis_name[];   //   the tensor's name
extern const struct map_field schema_use[];              // ProviderUse  | struct provider_use
extern const struct map_field schema_op_times[];         // OperationTimes | struct op_times
extern const struct map_field schema_figures[];     // Figures      | struct figures, and one of:
extern const struct map_field schema_tensor[];      //   the tensor's number
extern const struct map_field schema_tensor_name[]; //   the tensor's name
extern const struct map_field schema_element[];     // Element      | struct element
extern const struct map_field schema_device[];      // Device       | struct wire_device
extern const struct map_field schema_provider[];    // Provider     | struct wire_provider
extern const struct map_field schema_description[]; // Description  | struct wire_description
extern const struct map_field schema_guest[];       // Guest        | struct wire_guest
extern const struct map_field schema_status[];      // DaemonStatus | struct wire_status
extern const struct map_field schema_pool[];        // Pool         | struct wire_pool
extern const struct map_field schema_host[];        // Host         | struct wire_host
extern const struct map_field schema_open[];        // OpenRequest  | struct wire_open_request
extern const struct map_field schema_rank_phases;   // OpenRequest.rank_phases, enum + 1
extern const struct map_field schema_rank_steps;    // OpenRequest.rank_steps
extern const struct map_field schema_watch[];       // Watch        | struct wire_watch
extern const struct map_field schema_events[];      // Events       | struct wire_events
extern const struct map_field schema_event[];       // Event        | struct wire_event

// Returns the entry of a field of a case: Case | struct cp_case. Its range does not limit choices,
// which case_check() checks.
struct map_field schema_case_field(const struct case_field *field);

#endif
