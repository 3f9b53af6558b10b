"""A conversation in a terminal: questions from standard input, answers as they come, a line of figures behind each."""

import asyncio
import readline  # noqa: F401  # input() edits lines and remembers them once this is imported
from contextlib import aclosing

from rich.console import Console

from shardflow import paint
from shardflow.answering import show
from shardflow.client import Options, ShardflowClient
from shardflow.errors import ShardflowError

_HELP = "/reset forgets the conversation, /quit ends it, Ctrl-C stops an answer"


class Conversation:
    """What was said so far, and whom to ask."""

    def __init__(
        self, client: ShardflowClient, console: Console, system: str, timeout_s: float, options: Options
    ) -> None:
        """`system`: what the model is told before all else; empty: nothing."""
        self._client = client
        self._console = console
        self._system = system
        self._timeout_s = timeout_s
        self._options = options
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets everything that was said."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    async def ask(self, text: str) -> None:
        """Asks, shows the answer, and remembers both; an answer that fails or is stopped leaves no trace."""
        question = {"role": "user", "content": text}
        stream = self._client.generate([*self.messages, question], timeout=self._timeout_s, **self._options)
        async with aclosing(stream) as chunks:
            shown = await show(chunks, self._console)
        self.messages += [question, {"role": "assistant", "content": shown.text}]
        self._console.print(shown.summary(), style="dim", highlight=False)


def chat(address: str, system: str, timeout_s: float, options: Options, console: Console, errors: Console) -> None:
    """Reads and answers until /quit, the end of the input, or Ctrl-C at the prompt."""
    if console.is_terminal:
        console.print(paint.legend())
        paint.say(console, _HELP)
    with asyncio.Runner() as runner:
        client = runner.run(_connect(address))
        conversation = Conversation(client, console, system, timeout_s, options)
        try:
            while (line := _read(console)) != "/quit":
                if line == "/reset":
                    conversation.reset()
                elif line.startswith("/"):
                    paint.say(console, _HELP)
                elif line:
                    _answer(runner, conversation, line, errors)
        finally:
            runner.run(client.close())


def _answer(runner: asyncio.Runner, conversation: Conversation, line: str, errors: Console) -> None:
    try:
        runner.run(conversation.ask(line))
    except (ShardflowError, TimeoutError) as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        paint.say(errors, "\nstopped; neither question nor answer is remembered")


def _read(console: Console) -> str:
    """The next line; /quit at the end of the input."""
    try:
        return input("» " if console.is_terminal else "").strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return "/quit"


async def _connect(address: str) -> ShardflowClient:
    return ShardflowClient(address)  # which wants a running event loop
