"""The matrix as a table: printed, and written to `docs/interop.md` when every cell was run."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from troupe import CALLERS, EVERYONE, PARKING, TARGETS, THREADED

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
ASPECTS = {
    "result": "the result comes back",
    "correlation": "both handoffs share one correlation id, and name each other",
    "trace": "a tool of the second agent sees the trace id that the first handoff came with",
    "deadline": "it sees what is left of the first one's deadline",
    "contract": "a payload or a result that does not fit is refused, with the code that says so",
    "failure": "a failure is an answer, with its reason",
    "cancel": "cancelling the first cancels the second",
    "help": "a question of the second reaches whoever began, and the answer goes back",
}
FEATS = {
    "killed": "killed (-9) in the middle: another process went on, one outcome",
    "parked": "parked with a question, all its processes killed, answered, resumed by a new one",
    "held": "died while it held a question, ran again, and did not ask again",
    "stopped": "cancelled in the middle: its own run was stopped",
    "six": "six handoffs at once on one object: none heard another",
    "fenced": "its thread outlived the cancel, and could do nothing any more",
    "late": "its thread had a result after the cancel, and nobody took it",
}
TRIED = {
    "killed": TARGETS,
    "parked": PARKING,
    "held": THREADED,
    "stopped": [agent for agent in TARGETS if agent not in THREADED],
    "six": EVERYONE,
    "fenced": THREADED,
    "late": THREADED,
}
"""Of whom each feat is expected."""
PACKAGES = [
    *("langgraph", "autogen-agentchat", "crewai", "openai-agents", "pydantic-ai-slim"),
    *("google-adk", "agent-framework-core", "llama-index-workflows", "smolagents", "a2a-sdk"),
]


@dataclass
class Report:
    """What was seen of each pair."""

    cells: dict[tuple[str, str], dict[str, bool]] = field(default_factory=dict)
    alone: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Whether each feat was seen of an agent by itself: by feat and agent."""

    def add(self, caller: str, target: str, cell: dict[str, bool]) -> None:
        self.cells[caller, target] = cell

    @contextmanager
    def showing(self, feat: str, agent: str) -> Generator[None]:
        """Note that an agent was seen to do something, if the block comes to its end."""
        self.alone[feat, agent] = False
        yield
        self.alone[feat, agent] = True

    @property
    def complete(self) -> bool:
        """Whether nothing was left out, however it went."""
        tried = all((feat, agent) in self.alone for feat, all_ in TRIED.items() for agent in all_)
        return tried and all((c, target) in self.cells for c in CALLERS for target in TARGETS)

    def table(self) -> str:
        """A row for whoever hands off, a column for whoever works; what is amiss is named."""
        lines = [
            "| hands off ↓ works → | " + " | ".join(TARGETS) + " |",
            "|---" * (len(TARGETS) + 1) + "|",
        ]
        for caller in CALLERS:
            cells = [self._shown(caller, target) for target in TARGETS]
            lines.append(f"| **{caller}** | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def feats(self) -> str:
        """A row for each feat; of whom it was expected and not seen is named."""
        return "\n".join(
            f"- **{meaning}**: {self._agents(feat)}" for feat, meaning in FEATS.items()
        )

    def _agents(self, feat: str) -> str:
        seen = [agent for agent in TRIED[feat] if self.alone.get((feat, agent))]
        amiss = [agent for agent in TRIED[feat] if agent not in seen]
        return ", ".join(seen) + (f"; amiss: {', '.join(amiss)}" if amiss else "")

    def page(self, seconds: float) -> str:
        versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
        aspects = "\n".join(f"- **{name}**: {meaning}" for name, meaning in ASPECTS.items())
        held = sum(sum(cell.values()) for cell in self.cells.values())
        asked = len(self.cells) * len(ASPECTS)
        return (
            "# Every framework with every other\n\n"
            "Written by `make test-frameworks`; do not edit. One relay process, a process for "
            "each framework, models scripted, no network but loopback.\n\n"
            f"{held} of {asked} hold: {len(CALLERS)} that hand off × {len(TARGETS)} "
            f"kinds of agent that work × {len(ASPECTS)} aspects. With all that `make "
            f"test-frameworks` runs, it took {seconds:.0f} s.\n\n"
            f"{self.table()}\n\nA cell is the number of aspects that hold, and names those that do "
            f"not:\n\n{aspects}\n\nEach by itself, in the same run:\n\n{self.feats()}\n\n"
            f"Ran with {versions}.\n"
        )

    def _shown(self, caller: str, target: str) -> str:
        cell = self.cells.get((caller, target))
        if cell is None:
            return "–"
        amiss = [aspect for aspect in ASPECTS if not cell.get(aspect)]
        return " ".join([f"{len(ASPECTS) - len(amiss)}/{len(ASPECTS)}", *amiss])
