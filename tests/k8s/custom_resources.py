"""Schemas of the custom resources in use: what we write of them, and nothing that is not theirs."""

from typing import Any

Schema = dict[str, Any]

_DURATION: Schema = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _resource(spec: Schema) -> Schema:
    metadata = _object({"name": {"type": "string"}, "namespace": {"const": "shardflow"}}, {"labels": _TEXTS})
    return _object({"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata, "spec": spec})


_SELECTOR = _object({"matchLabels": _TEXTS})
_RULE = _object(
    {"alert": {"type": "string"}, "expr": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS},
    {"for": _DURATION},
)
_RULES = _resource(
    _object({"groups": _list(_object({"name": {"type": "string"}, "rules": _list(_RULE)}, {"interval": _DURATION}))})
)
_FROM_POD = _object({"from": {"type": "string"}, "to": {"type": "string"}})
_RELABELING = _object({"sourceLabels": _list({"type": "string"}), "targetLabel": {"type": "string"}})

SCHEMAS: dict[tuple[str, str], Schema] = {
    ("monitoring.googleapis.com/v1", "PodMonitoring"): _resource(
        _object(
            {"selector": _SELECTOR, "endpoints": _list(_object({"port": {"type": "string"}, "interval": _DURATION}))},
            {"targetLabels": _object({}, {"fromPod": _list(_FROM_POD)})},
        )
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _resource(
        _object(
            {
                "selector": _SELECTOR,
                "endpoints": _list(
                    _object({"port": {"type": "string"}, "interval": _DURATION}, {"relabelings": _list(_RELABELING)})
                ),
            },
            {"jobLabel": {"type": "string"}},
        )
    ),
    ("monitoring.googleapis.com/v1", "Rules"): _RULES,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _RULES,
}
