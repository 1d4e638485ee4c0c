"""transformers and its hub without messages and progress bars, for the length of a call."""

import contextlib
from collections.abc import Iterator

from rerank.utils.progress import quiet


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Within the block transformers, sentence-transformers and the hub log errors alone and draw no progress bars."""
    import transformers
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    bars, hub_bars = transformers.utils.logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers.utils.logging.disable_progress_bar()
    disable_progress_bars()
    try:
        with quiet("transformers", "sentence_transformers", "huggingface_hub"):
            yield
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()  # and the hub's
        if hub_bars:
            enable_progress_bars()
        else:
            disable_progress_bars()
