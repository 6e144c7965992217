"""The command line: a thin layer over the library.

Commands import what they need when they run, so that `fastgcn --help` is quick.
"""

import errno
import os
import sys

import typer

from fastgcn._version import __version__
from fastgcn.cli import apply, data, report, train
from fastgcn.cli.output import say, take_any_stream
from fastgcn.errors import ElsewhereError, FastGCNError
from fastgcn.progress import plain_lines

app = typer.Typer(
    name="fastgcn",
    help="Train graph convolutional networks by layer-wise importance sampling (FastGCN).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading rich would take as long as all the rest of `--help`
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("train", cls=train.GroupedHelp)(train.train)
app.command("evaluate")(apply.evaluate)
app.command("predict")(apply.predict)
app.command("embed")(apply.embed)
app.command("report")(report.report)
app.command("diagnose")(report.diagnose)
app.command("info")(data.info)
app.command("import")(data.import_)
app.command("generate")(data.generate)
app.command("shard")(data.shard)


def _version(show: bool) -> None:
    if show:
        print(f"fastgcn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    plain_lines()


def main(commands: typer.Typer = app) -> None:
    """Run the command; a user's mistake becomes one sentence on stderr and exit code 1."""
    take_any_stream()
    try:
        commands()
    except ElsewhereError:
        sys.exit(1)  # the process where it happened prints the message
    except FastGCNError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`); Python would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError as error:
        _fail(
            f"out of memory: {error or 'an allocation failed'}; "
            "close other programs or lower the sizes"
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EROFS,
                           errno.EISDIR, errno.ENOTDIR, errno.EDQUOT, errno.EFBIG, errno.EIO,
                           errno.ENAMETOOLONG):  # fmt: skip
            where = f"{error.filename}: " if error.filename else ""
            _fail(f"{where}{error.strerror}")
        raise
    except KeyboardInterrupt:
        say("Interrupted.")
        sys.exit(130)


def _fail(message: str) -> None:
    say("Error: " + " ".join(message.split()))
    sys.exit(1)
