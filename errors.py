"""The one error root: what a person can mend, in one line that says what, where and what to do."""

from __future__ import annotations


class WhyboundError(Exception):
    """Shown as it stands, without a traceback; `exit_code` is the command's exit code."""

    exit_code = 1


class UsageError(WhyboundError):
    """The request itself is malformed."""

    exit_code = 2
