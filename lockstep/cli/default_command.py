"""A verb with a command of its own and more below it: `lockstep audit FLEET` beside `lockstep audit diff A B`."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

__all__ = ["NAME", "Own", "WithDefault"]

NAME: Final = "audit"
"""Under which the verb's own command is registered in its group; never typed, and never shown."""


class Own(TyperCommand):
    """The verb's own command: its usage line and its help are the verb's."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Without a name of its own, so that messages say the verb's."""
        return super().make_context("", args, parent=parent, **extra)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """``Usage: lockstep audit [OPTIONS] …``."""
        path = ctx.parent.command_path if ctx.parent is not None else ctx.command_path
        formatter.write_usage(path, " ".join(self.collect_usage_pieces(ctx)))


class WithDefault(TyperGroup):
    """Whatever is no command's name belongs to the verb's own command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the own command where none is named."""
        if not args or args[0] not in self.commands or args[0] == NAME:
            args = [NAME, *args]
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """The own command's help, for the generated reference."""
        own = self.commands[NAME]
        child = own.make_context(NAME, [], parent=ctx, resilient_parsing=True)
        child.terminal_width, child.max_content_width = ctx.terminal_width, ctx.max_content_width
        return own.get_help(child)
