"""The command line: a thin layer over the library.

Commands import what they need when they run, so that `fastgcn --help` is quick.
"""

import contextlib
import errno
import os
import sys
import traceback

import typer

from fastgcn._version import __version__
from fastgcn.cli import about, apply, data, explain, export, report, serve, train, tune
from fastgcn.cli.ending import INPUT, INSIDE, Stopped, report_failure, signals
from fastgcn.cli.output import say, take_any_stream
from fastgcn.errors import ElsewhereError, FastGCNError
from fastgcn.progress import note, plain_lines

app = typer.Typer(
    name="fastgcn",
    help="Train graph convolutional networks by layer-wise importance sampling (FastGCN).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading rich would take as long as all the rest of `--help`
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("train", cls=train.GroupedHelp)(train.train)
app.command("tune", cls=train.GroupedHelp)(tune.tune)
app.command("evaluate")(apply.evaluate)
app.command("predict")(apply.predict)
app.command("embed")(apply.embed)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("serve")(serve.serve)
app.command("report")(report.report)
app.command("diagnose")(report.diagnose)
app.command("info")(data.info)
app.command("import")(data.import_)
app.command("generate")(data.generate)
app.command("shard")(data.shard)
app.command("settings")(about.settings)
app.command("doctor")(about.doctor)


def _version(show: bool) -> None:
    if show:
        print(f"fastgcn {__version__}")
        raise typer.Exit


_debug = False  # print the traceback of an error


@app.callback()
def _root(
    _: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Print the traceback of an error."),
) -> None:
    global _debug
    _debug = debug
    plain_lines()


def main(commands: typer.Typer = app) -> None:
    """Run the command; a mistake or a failure becomes one sentence on stderr and an exit code."""
    take_any_stream()
    try:
        with signals:
            commands()
    except ElsewhereError:
        sys.exit(INPUT)  # the process where it happened prints the message
    except FastGCNError as error:
        _fail(error, str(error))
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`); Python would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(INPUT)
    except MemoryError as error:
        _fail(
            error,
            f"out of memory: {error or 'an allocation failed'}; "
            "close other programs or lower the sizes",
        )
    except Stopped as stop:
        with contextlib.suppress(OSError):  # the terminal may be gone
            note(f"Stopped by {stop.name}; {stop.hint}")
        sys.exit(stop.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            where = f"{error.filename}: " if error.filename else ""
            _fail(error, f"{where}{error.strerror}")
        _fail(error, report_failure(error), INSIDE)


# Errors of files and disks for which the user's machine or input is the cause.
_OF_THE_MACHINE = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EROFS, errno.EISDIR,
    errno.ENOTDIR, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG,
)  # fmt: skip


def _fail(error: BaseException, message: str, code: int = INPUT) -> None:
    with contextlib.suppress(OSError):  # the log may be on the same full disk
        if _debug:
            traceback.print_exception(error)
        say("Error: " + " ".join(message.split()))
    sys.exit(code)
