"""TLS: whose certificates a client trusts, and the error for one that it does not."""

import ssl
from pathlib import Path

import aiohttp

from nodrop.model.errors import (
    CertificateUntrustedError,
    InvalidRequestError,
    Problem,
    UnreachableError,
)


def context(ca: Path | None) -> ssl.SSLContext | bool:
    """Return what aiohttp verifies certificates with: the CAs in `ca`, or the system's.

    Raises:
        InvalidRequestError: the file has no certificate.
    """
    if ca is None:
        return True
    try:
        made = ssl.create_default_context(cafile=ca)
    except OSError as error:  # `ssl.SSLError` is one
        why = error.strerror if isinstance(error, FileNotFoundError) else "no PEM certificate in it"
        problem = Problem(path="ca", message=f"cannot read {ca}: {why}")
        raise InvalidRequestError(
            problem.message,
            next_step="Name a file with the CA's certificate (PEM).",
            errors=(problem,),
        ) from error
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the relay's own certificate will do
    return made


def is_untrusted(error: BaseException) -> bool:
    """Whether a connection failed because of the certificate: trying again does not help."""
    return isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError)


def unreached(url: str, error: BaseException) -> UnreachableError:
    """Return what a caller is told when no relay was reached at `url`."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        why = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else found
        return CertificateUntrustedError(f"{url}: {why}")
    return UnreachableError(f"{url}: {error or type(error).__name__}")
