"""Every shape of an answer by the name that `protocol.operations` gives it."""

from typing import Final

from nodrop.protocol import chain_views, views
from nodrop.protocol.coordination import outlet_requests, talk_views, trigger_views
from nodrop.protocol.view import View

ANSWERS: Final[dict[str, type[View]]] = {
    **views.ANSWERS,
    **chain_views.ANSWERS,
    **talk_views.ANSWERS,
    **trigger_views.ANSWERS,
    **outlet_requests.ANSWERS,
}
