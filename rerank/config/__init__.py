"""Configuration: the settings of an experiment, their defaults and bounds. Knows nothing of what they act on."""

from rerank.config.functions import replace_setting, sections, validate
from rerank.config.settings import (
    PRETRAINED,
    CollectionSettings,
    Config,
    EncoderSettings,
    FirstStageSettings,
    ListsSettings,
    LossSettings,
    NetworkSettings,
    OutputSettings,
    PretrainingSettings,
    TrainingSettings,
)

__all__ = ["PRETRAINED", "CollectionSettings", "Config", "EncoderSettings", "FirstStageSettings"]
__all__ += ["ListsSettings", "LossSettings", "NetworkSettings", "OutputSettings", "PretrainingSettings"]
__all__ += ["TrainingSettings", "replace_setting", "sections", "validate"]
