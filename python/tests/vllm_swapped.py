# SPDX-License-Identifier: BSD-3-Clause
"""A plug-in of pytest: vLLM's own tests of its file tier, with KvarcTier instead of it.

    python -m pytest -p vllm_swapped VLLM/tests/v1/kv_offload/tiering/test_fs_tier.py

The tests look at files of the tier, at its look-ups and its events: these are given the names that
they ask for. Tests of what only vLLM's own class has are left out, and named with the reason.
"""
import hashlib
import os

import pytest
from vllm.v1.kv_offload.tiering.fs import manager

from kvarc.vllm import KvarcTier

INSIDES = "asks for the insides of vLLM's class: "
# Part of a test's name, and why it is not for another class.
LEFT_OUT = {
    "test_store_accepts_block_published_by_another_writer": INSIDES + "its os.replace",
    "test_factory_forwards_locality_to_fs_tier": INSIDES + "the factory's own name for it",
    "test_shutdown_discards_pending_tasks": INSIDES + "the queues of its threads",
    "test_store_load_roundtrip_without_o_direct": INSIDES + "O_DIRECT",
    "test_mixed_job_results_emit_event_only_for_successful_job": INSIDES + "batch_store_block",
    "test_partially_failed_store_emits_no_event": INSIDES + "batch_store_block",
    "test_batched_load_first_block_fails_marks_whole_batch":
        "vLLM's class ends a batch at the first bad block; KvarcTier continues",
    "test_wait_idle_blocks_until_tasks_complete": INSIDES + "the queues of its threads",
    "test_batch_lookup_c_extension": INSIDES + "its extension in C",
    "test_fs_tier_cross_tp_round_trip":
        "pages of latents, equal for all tensor parallelisms: KvarcTier's names have its size",
    # each runs twice, with vLLM's extension in C and without: once is enough
    "[True]": INSIDES + "its extension in C",
    "-True]": INSIDES + "its extension in C",
}


class _Files:
    """Names of the files of blocks."""

    def __init__(self, tier, root):
        self._tier, self._root = tier, root
        self.base_path = tier._names.base_path

    def get_file_name(self, key):
        name = hashlib.sha256(self._tier._key(key).encode()).hexdigest()
        return os.path.join(self._root, "blocks", name[:2], name + ".kva")


class SwappedTier(KvarcTier):
    """KvarcTier with the parameters and members of vLLM's FileSystemTierManager."""

    def __init__(self, offloading_spec, primary_kv_view, tier_type, root_dir, n_read_threads=4,
                 n_write_threads=4, **options):
        super().__init__(offloading_spec, primary_kv_view, tier_type, root_dir,
                         n_threads=n_read_threads, **options)
        self.file_mapper = _Files(self, root_dir)
        self._lookup_manager = self._lookups
        self._store_job_keys = {}

    @property
    def events(self):
        return self._events


manager.FileSystemTierManager = SwappedTier


def pytest_collection_modifyitems(items):
    for item in items:
        for part, why in LEFT_OUT.items():
            if part in item.name:
                item.add_marker(pytest.mark.skip(reason=why))
                break
