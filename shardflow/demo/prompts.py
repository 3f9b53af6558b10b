"""What the demonstration asks: three raw texts to continue, and a dozen questions to a chat model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One prompt of the demonstration."""

    name: str
    text: str
    chat: bool

    def prompt(self) -> str | list[dict[str, str]]:
        """What the client sends: the text as it is, or a conversation of one message."""
        return [{"role": "user", "content": self.text}] if self.chat else self.text


RAW = (
    Question("raw-france", "The capital of France is", chat=False),
    Question("raw-index", "Explain what a database index is.", chat=False),
    Question("raw-list", "Write a Python function that reverses a linked list.", chat=False),
)

_PASSAGE_BRIDGE = (
    "The old stone bridge at Verlen was built in 1687 by the mason Anna Kreuz. A flood took its middle arch in 1804. "
    "The town replaced the arch with one of iron, because stone had become too dear."
)
_PASSAGE_BEES = (
    "A honey bee that has found food dances for the others. The angle of the dance shows the direction of the food "
    "against the sun, and the length of its straight part shows how far away it is."
)
_STORY_SHOP = (
    "Mira opened a small bicycle shop in spring. Few customers came at first. In summer she began to lend bicycles to "
    "visitors for a day, and word spread. By autumn she had hired two helpers and rented the house next door."
)
_STORY_HARBOUR = (
    "The harbour will be closed on Monday while divers inspect the northern wall. Ferries will leave from the fishing "
    "pier instead. Passengers should arrive half an hour early, since the pier has only one gate."
)

CHAT = (
    Question("talk-rain", "It has been raining here for a whole week. How do I cheer myself up?", chat=True),
    Question("talk-job", "I start a new job tomorrow and I am nervous. What should I do tonight?", chat=True),
    Question("translate-train", "Translate into French: The train to Lyon leaves at nine o'clock.", chat=True),
    Question("translate-garden", "Translate into Spanish: My grandmother grows tomatoes in her garden.", chat=True),
    Question("summarise-shop", f"Summarise in one sentence: {_STORY_SHOP}", chat=True),
    Question("summarise-harbour", f"Summarise in one sentence: {_STORY_HARBOUR}", chat=True),
    Question("answer-moon", "Why do we always see the same side of the moon?", chat=True),
    Question("answer-bread", "What makes bread dough rise?", chat=True),
    Question("sum-apples", "A box holds 12 apples. How many apples are in 7 boxes? Show the steps.", chat=True),
    Question(
        "sum-coins", "I have 50 coins and give away 18, then find 5. How many do I have? Show the steps.", chat=True
    ),
    Question("passage-bridge", f"{_PASSAGE_BRIDGE}\n\nWhy was the new arch made of iron?", chat=True),
    Question("passage-bees", f"{_PASSAGE_BEES}\n\nHow do the other bees learn the distance of the food?", chat=True),
)

LIVE_QUESTION = next(question for question in CHAT if question.name == "answer-moon")
