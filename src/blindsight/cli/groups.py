"""Groups of commands that also accept short and older spellings."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from blindsight.errors import InvalidInput

__all__ = ["ConfigurationGroup", "Misuse", "TaskCommand", "TaskGroup"]

Misuse: type[Exception] = typer.BadParameter.__mro__[1]
"""An option or argument that is unknown, missing or invalid."""


class ConfigurationGroup(TyperGroup):
    """`blindsight train RUN.toml` is short for `blindsight train run RUN.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before the path of a RUN.toml."""
        is_command = bool(args) and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if is_command or not args else ["run", *args])


class TaskGroup(TyperGroup):
    """Options may come before the task: `blindsight inspect --epsilon 2 sanity handwriting`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the task first."""
        takes_value = {option for command in self.commands.values() for option in _options(command, flags=False)}
        for place, word in enumerate(args):
            if word in self.commands and (place == 0 or args[place - 1] not in takes_value):
                args = [word, *args[:place], *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


class TaskCommand(TyperCommand):
    """A task that, given an option of another task, says which task has it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the task that has the option."""
        try:
            return super().parse_args(ctx, args)
        except Misuse as error:
            option = getattr(error, "option_name", None)
            tasks = getattr(ctx.parent and ctx.parent.command, "commands", {})
            owners = [name for name, command in tasks.items() if option in _options(command)]
            if not owners or option in _options(self):
                raise
            tasks = " or ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
            raise InvalidInput(f"{option} is for blindsight inspect {tasks}: leave it out") from None


def _options(command: Any, *, flags: bool = True) -> set[str]:
    """The spellings of a command's options, with or without those that take no value."""
    return {
        spelling
        for parameter in command.params
        if flags or not getattr(parameter, "is_flag", False)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
        if spelling.startswith("-")
    }
