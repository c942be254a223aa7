"""The service over HTTP: JSON, problem documents, server-sent events, metrics, and the operator's page.

`guard` checks each request's Host header, origin and size, and `access` finds the author by the token. Then a
route of `app` calls the service, and answers with one of the JSON objects of `ina.run.views`. `problems`
converts errors to problem documents; their status codes are defined only there.

Needs ``pip install 'ina[service]'``.
"""

from ina.api.access import Gate
from ina.api.app import app
from ina.api.guard import LOOPBACK
from ina.api.web import Address, Certificate, listening, speaking

__all__ = ["LOOPBACK", "Address", "Certificate", "Gate", "app", "listening", "speaking"]
