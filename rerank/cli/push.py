"""`rerank push`: a checkpoint on huggingface.co."""

from rerank.utils.parameters import FilePath


def push(checkpoint: FilePath, name: str, *, private: bool = False, dry_run: bool = False) -> None:
    """Uploads a checkpoint to huggingface.co.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or a folder that `rerank pretrain` wrote.
    name
        The name of the model there: user/name.
    private
        Makes a new model private.
    dry_run
        Prints the files and their sizes and uploads nothing.
    """
    from rerank.jobs.push import push_checkpoint

    print(push_checkpoint(checkpoint, name, private=private, dry_run=dry_run))
