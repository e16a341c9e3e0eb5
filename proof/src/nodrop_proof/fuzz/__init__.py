"""Bad input in bulk: requests made from the OpenAPI document, and bytes for the decoders.

    nodrop prove fuzz http --requests 10000 --seed 7
    nodrop prove fuzz decoders --runs 1000000 --seed 7

The first needs schemathesis, the second atheris; neither is needed to run a relay. What must never
happen: an answer of 5xx, an answer that is not what the document says, or a decoder that raises
anything but a refusal.
"""
