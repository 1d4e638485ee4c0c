"""Configuration: the settings of an experiment with their defaults and bounds."""

from rerank.config.functions import replace_setting, sections, validate
from rerank.config.settings import (
    CollectionSettings,
    Config,
    EncoderSettings,
    FirstStageSettings,
    ListsSettings,
    LossSettings,
    NetworkSettings,
    OutputSettings,
    TrainingSettings,
)

__all__ = ["CollectionSettings", "Config", "EncoderSettings", "FirstStageSettings"]
__all__ += ["ListsSettings", "LossSettings", "NetworkSettings", "OutputSettings"]
__all__ += ["TrainingSettings", "replace_setting", "sections", "validate"]
