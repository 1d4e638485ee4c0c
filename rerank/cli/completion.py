"""`rerank --install-completion`: completion of commands and flags in the shell."""

from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion import ShellDetectionError, detect_shell

from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, atomic_write, check_output, output_target
from rerank.utils.parameters import OptionalOutputPath

SHELLS = ("bash", "zsh", "fish")


def install_completion(
    *,
    shell: Literal["bash", "zsh", "fish"] | None = None,
    out: Annotated[OptionalOutputPath, Parameter(show_default=False)] = None,
) -> None:
    """Writes the completion script, and loads it from ~/.bashrc or ~/.zshrc.

    Parameters
    ----------
    shell
        The shell; default: the one that runs this command.
    out
        The file to write, - for standard output; default: where the shell looks for it.
    """
    from rerank.cli.app import app

    if out:
        check_output(out)
    found = shell or _running_shell()
    if out is None:
        out = app.install_completion(shell=found)
    else:
        with atomic_write(out) as tmp:
            tmp.write_text(app.generate_completion(shell=found), encoding="utf-8")
    if output_target(out) != STANDARD_OUTPUT:
        print(f"{out.absolute()}: written; open a new {found} to use it")


def _running_shell() -> Literal["bash", "zsh", "fish"]:
    try:
        name = detect_shell()
    except ShellDetectionError as error:
        raise UserError(f"--install-completion: unknown shell; expected --shell {', '.join(SHELLS)}") from error
    if name == "powershell":
        raise UserError(f"--install-completion: {name} has no completion; expected --shell {', '.join(SHELLS)}")
    shell: Literal["bash", "zsh", "fish"] = name
    return shell
