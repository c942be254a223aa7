"""The service over HTTP: JSON, problem documents, server-sent events, metrics, and the operator's page.

Each request passes `guard` (Host, origin, size), then `access` (the owner of its token), then a route of
`app`, which calls the service and answers with one of the JSON objects of `ina.service.views`. `problems`
converts errors to problem documents, and alone defines their status codes.

Needs ``pip install 'ina[service]'``.
"""

from ina.service.api.access import Gate
from ina.service.api.app import app
from ina.service.api.guard import LOOPBACK
from ina.service.api.web import Address, Certificate, speaking

__all__ = ["LOOPBACK", "Address", "Certificate", "Gate", "app", "speaking"]
