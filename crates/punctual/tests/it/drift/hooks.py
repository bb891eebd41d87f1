"""What schemathesis has to know of the server that its document cannot say."""

import schemathesis


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Every status is documented by its number: the response `default` would excuse all drift."""
    for item in raw_schema["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"].pop("default", None)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes calls short, and those sensible that are meant to succeed."""
    if case.body is None and case.operation.body and not case.operation.body[0].is_required:
        # The server takes `null` for a body that may be absent. The document does not say so, since generators
        # make clumsy types of it.
        case.body = []
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), (int, float)):
        # A long poll answers what a short one does, later.
        case.body["wait_seconds"] = min(case.body["wait_seconds"], 0)
    if isinstance(case.query, dict):
        case.query.pop("wait_seconds", None)
        if case.meta is not None and case.meta.generation.mode.is_positive:
            # A cursor comes from a page, and nobody makes one up.
            case.query.pop("cursor", None)
    for header in ("If-Match", "If-None-Match"):
        # The phase `coverage` loses the quotes of an entity tag.
        if case.headers and str(case.headers.get(header, "")).isdigit():
            case.headers[header] = '"%s"' % case.headers[header]
