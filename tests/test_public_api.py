"""What `nodrop` promises to have. A name that goes is a breaking change."""

import subprocess
import sys

import nodrop

PROMISED = [
    "Agent",
    "AgentShown",
    "AlreadyFinishedError",
    "BlockingClient",
    "BlockingHandoff",
    "BlockingTask",
    "CallerError",
    "Client",
    "ConflictError",
    "Contract",
    "ContractMismatchError",
    "Cursor",
    "CursorUnknownError",
    "DeadLetter",
    "Fail",
    "ForbiddenError",
    "Handoff",
    "HandoffFailed",
    "IdempotencyConflictError",
    "InvalidRequestError",
    "Item",
    "NoMatchError",
    "NodropError",
    "NotFoundError",
    "Outcome",
    "PayloadInvalidError",
    "Receipt",
    "Reject",
    "ResultInvalidError",
    "SignatureInvalidError",
    "SignatureRequiredError",
    "StaleAttemptError",
    "StoreInUseError",
    "Task",
    "TooLargeError",
    "Transport",
    "UnansweredError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnreachableError",
    "WaitElapsed",
    "__version__",
    "connect",
    "connect_sync",
    "join",
    "serve",
]

SERVER_PARTS = ["nodrop.app", "nodrop.relay", "nodrop.log", "nodrop.servers", "apsw", "uvicorn"]
NETWORK = ["aiohttp", "starlette"]


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(nodrop.__all__) == PROMISED
    assert all(hasattr(nodrop, name) for name in PROMISED)


def test_the_version_is_that_of_the_package() -> None:
    assert nodrop.__version__.split(".")[0].isdigit()


def test_importing_loads_neither_a_relay_nor_a_network_library() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import nodrop, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    assert "nodrop.client" in loaded
    assert set(loaded).isdisjoint([*SERVER_PARTS, *NETWORK])
