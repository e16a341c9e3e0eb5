"""Every shape of an answer by the name that `wire.operations` gives it."""

from typing import Final

from nodrop.wire import chain_views, outlet_requests, talk_views, trigger_views, views
from nodrop.wire.view import View

ANSWERS: Final[dict[str, type[View]]] = {
    **views.ANSWERS,
    **chain_views.ANSWERS,
    **talk_views.ANSWERS,
    **trigger_views.ANSWERS,
    **outlet_requests.ANSWERS,
}
