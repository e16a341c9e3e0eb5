from nodrop.model import errors
from nodrop.protocol.errors import TABLE, Document, document, from_document


def test_every_error_has_a_row_and_a_code_of_its_own() -> None:
    assert set(TABLE) == set(errors.ALL)
    assert len(errors.BY_CODE) == len(errors.ALL)


def test_every_error_says_what_to_do_next() -> None:
    assert all(error.title and error.next.endswith(".") for error in errors.ALL)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    assert all(error.__name__ in drawn for error in errors.ALL)


def test_a_problem_survives_the_wire() -> None:
    problem = errors.Problem(path="payload.depth", message="is not an integer")
    sent = errors.PayloadInvalidError("no", errors=(problem,), next_step="Fix it.")
    got = from_document(document(sent))
    assert type(got) is errors.PayloadInvalidError
    assert (got.detail, got.next_step, got.errors) == ("no", "Fix it.", (problem,))


def test_a_code_of_a_later_relay_keeps_its_words() -> None:
    got = from_document(Document(code="from_the_future", detail="later", retryable=True))
    assert isinstance(got, errors.UnavailableError)
    assert got.detail == "later"


def test_json_rpc_knows_whose_fault_it_is() -> None:
    codes = {error.code: TABLE[error].jsonrpc for error in errors.ALL}
    assert codes["invalid_request"] == codes["not_found"] == codes["too_large"] == -32602
    assert codes["relay_fault"] == -32603
    assert set(codes.values()) == {-32602, -32603, -32000}
