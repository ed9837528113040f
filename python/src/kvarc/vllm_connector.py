# SPDX-License-Identifier: BSD-3-Clause
"""vLLM: its offloading connector, which lets kvarc.vllm know the configuration of the model.

    "kv_connector": "KvarcConnector", "kv_connector_module_path": "kvarc.vllm_connector"

in place of OffloadingConnector: tiers of vLLM do not get the model's configuration, and with
--hf-overrides it is not the one of the model's files.
"""
from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from ._model_config import digest_of
from .vllm import CONFIG

__all__ = ["KvarcConnector"]


class KvarcConnector(OffloadingConnector):
    """See the module."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        model = vllm_config.model_config
        vllm_config.kv_transfer_config.kv_connector_extra_config[CONFIG] = digest_of(
            {**model.hf_config.to_dict(), "quantization": model.quantization})
        super().__init__(vllm_config, role, kv_cache_config)
