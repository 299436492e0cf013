"""Who has sent a webhook: the signatures of Standard Webhooks, GitHub, GitLab and Stripe.

Each proves that the sender knows the secret. Those of GitHub and GitLab say nothing of the time: a
request that somebody has recorded can be sent again, as another message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping

from standardwebhooks import Webhook, WebhookVerificationError

from daemon.runs.settings import WebhookSender

# Signatures in one header of Stripe's, while a secret is being replaced.
_MAX_SIGNATURES = 10


def verify(sender: WebhookSender, headers: Mapping[str, str], raw: bytes) -> str | None:
    """Return the sender's id of a message; None if it has none.

    Raises WebhookVerificationError if the message is not signed by the sender.
    """
    match sender.kind:
        case "standard":
            try:
                Webhook(sender.secret).verify(raw, dict(headers), json_parse=False)
            except ValueError:  # headers that cannot be parsed
                raise WebhookVerificationError(
                    "malformed headers, or a body that is not UTF-8"
                ) from None
            return headers.get("webhook-id")
        case "github":
            # https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
            _compare(
                headers.get("x-hub-signature-256"),
                f"sha256={_hmac(sender.secret, raw)}",
                "X-Hub-Signature-256",
            )
            return headers.get("x-github-delivery")
        case "gitlab":
            # https://docs.gitlab.com/user/project/integrations/webhooks/
            _compare(headers.get("x-gitlab-token"), sender.secret, "X-Gitlab-Token")
            return headers.get("idempotency-key") or headers.get("x-gitlab-event-uuid")
        case "stripe":
            _verify_stripe(sender, headers.get("stripe-signature"), raw)
            return _id_in_body(raw)


def _verify_stripe(sender: WebhookSender, header: str | None, raw: bytes) -> None:
    """Check `t=SECONDS,v1=HEX,…`, which signs the time and the body
    (https://docs.stripe.com/webhooks#verify-manually).
    """
    if not header:
        raise WebhookVerificationError("there is no header Stripe-Signature")
    fields = [field.strip().partition("=") for field in header.split(",")]
    times = [value for key, _, value in fields if key == "t"]
    signatures = [value for key, _, value in fields if key == "v1"][:_MAX_SIGNATURES]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit()) or len(times[0]) > 12:
        raise WebhookVerificationError("Stripe-Signature has no time")
    if abs(time.time() - int(times[0])) > sender.tolerance:
        raise WebhookVerificationError("the time of Stripe-Signature is too far from now")
    expected_signature = _hmac(sender.secret, times[0].encode() + b"." + raw)
    # each is compared, so that the time taken tells nothing
    matches = [
        hmac.compare_digest(signature.encode(), expected_signature.encode())
        for signature in signatures
    ]
    if not any(matches):
        raise WebhookVerificationError("Stripe-Signature does not fit the body")


def _compare(value: str | None, expected_value: str, header: str) -> None:
    """Raise WebhookVerificationError unless a header has the expected value."""
    if value is None:
        raise WebhookVerificationError(f"there is no header {header}")
    if not hmac.compare_digest(value.encode("utf-8", "replace"), expected_value.encode()):
        raise WebhookVerificationError(f"{header} does not fit")


def _hmac(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def _id_in_body(raw: bytes) -> str | None:
    """Return the `id` of Stripe's event, which is the same each time it is sent."""
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    id_ = event.get("id") if isinstance(event, dict) else None
    return id_ if isinstance(id_, str) else None
