# SPDX-License-Identifier: Apache-2.0
# Tensors in memory and in files.
submit_sources += client/submit/tensors/compare.c
submit_sources += client/submit/tensors/compare.h
submit_sources += client/submit/tensors/error_map.c
submit_sources += client/submit/tensors/error_map.h
submit_sources += client/submit/tensors/safetensors.c
submit_sources += client/submit/tensors/safetensors.h
submit_sources += client/submit/tensors/tensors.c
submit_sources += client/submit/tensors/tensors.h
