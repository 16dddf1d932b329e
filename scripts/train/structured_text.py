# SPDX-License-Identifier: Apache-2.0
"""Structured text (JSON, CSV, XML, TOML) made from the Python standard library itself.

Each source file gives two documents: an outline of its definitions as JSON, and one table or tree in another
format, chosen by a hash of its path. A few tables that the library holds as data (HTTP statuses, error
numbers, HTML entities, file types) are added. So the licence of this part is that of the library, and a
document belongs to the held-out set exactly when the file that it was made from does.
"""
import ast
import csv
import errno
import hashlib
import html.entities
import http
import io
import json
import keyword
import mimetypes
import signal
import tokenize
import xml.sax.saxutils

SUMMARY_LENGTH = 100
MAX_ROWS = 160


def definitions(tree):
    """(kind, qualified name, node) of every class and function, in the order of the text."""
    found = []

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = prefix + child.name
                found.append(("class" if isinstance(child, ast.ClassDef) else "function", name, child))
                visit(child, name + ".")
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                visit(child, prefix)

    visit(tree, "")
    return found[:MAX_ROWS]


def summary(node):
    """First line of the docstring."""
    text = ast.get_docstring(node) or ""
    return text.split("\n", 1)[0][:SUMMARY_LENGTH]


def arguments(node):
    """Names of the parameters, * and ** included."""
    spec = node.args
    names = [a.arg for a in spec.posonlyargs + spec.args]
    if spec.vararg:
        names.append("*" + spec.vararg.arg)
    names += [a.arg for a in spec.kwonlyargs]
    if spec.kwarg:
        names.append("**" + spec.kwarg.arg)
    return names


def imported_names(tree):
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return sorted(names)


def json_outline(path, tree):
    """One object a definition, indented or compact by the hash of the path."""
    rows = []
    for kind, name, node in definitions(tree):
        row = {"kind": kind, "name": name, "line": node.lineno}
        if kind == "function":
            row["arguments"] = arguments(node)
            row["async"] = isinstance(node, ast.AsyncFunctionDef)
        else:
            row["bases"] = [ast.unparse(base) for base in node.bases]
        row["decorators"] = [ast.unparse(item) for item in node.decorator_list]
        row["doc"] = summary(node)
        rows.append(row)
    document = {"module": path, "imports": imported_names(tree), "definitions": rows}
    return json.dumps(document, indent=2 if digest(path) % 2 else None) + "\n"


def csv_outline(path, tree):
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["module", "kind", "name", "line", "end", "arguments", "doc"])
    for kind, name, node in definitions(tree):
        count = len(arguments(node)) if kind == "function" else len(node.bases)
        table.writerow([path, kind, name, node.lineno, node.end_lineno, count, summary(node)])
    return out.getvalue()


def xml_outline(path, tree):
    quote = xml.sax.saxutils.quoteattr
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<module path={quote(path)}>"]
    for kind, name, node in definitions(tree):
        lines.append(f"  <{kind} name={quote(name)} line=\"{node.lineno}\">")
        names = arguments(node) if kind == "function" else [ast.unparse(base) for base in node.bases]
        tag = "argument" if kind == "function" else "base"
        lines += [f"    <{tag}>{xml.sax.saxutils.escape(item)}</{tag}>" for item in names]
        if summary(node):
            lines.append(f"    <doc>{xml.sax.saxutils.escape(summary(node))}</doc>")
        lines.append(f"  </{kind}>")
    return "\n".join(lines + ["</module>", ""])


def toml_outline(path, tree):
    lines = [f"module = {json.dumps(path)}", f"imports = {json.dumps(imported_names(tree))}", ""]
    for kind, name, node in definitions(tree):
        lines.append(f"[{kind}.{json.dumps(name) if '.' in name else name}]")
        lines.append(f"line = {node.lineno}")
        names = arguments(node) if kind == "function" else [ast.unparse(base) for base in node.bases]
        lines.append(f"{'arguments' if kind == 'function' else 'bases'} = {json.dumps(names)}")
        if summary(node):
            lines.append(f"doc = {json.dumps(summary(node))}")
        lines.append("")
    return "\n".join(lines)


def token_table(path, source):
    """Tab-separated tokens of the first lines of a file."""
    lines = ["line\tcolumn\ttype\ttext"]
    try:
        for item in tokenize.generate_tokens(io.StringIO(source).readline):
            if len(lines) > MAX_ROWS:
                break
            text = json.dumps(item.string[:40])
            lines.append(f"{item.start[0]}\t{item.start[1]}\t{tokenize.tok_name[item.type]}\t{text}")
    except (tokenize.TokenError, IndentationError):
        pass  # the table ends where the text stops being Python
    return f"# {path}\n" + "\n".join(lines) + "\n"


def digest(text):
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")


def documents_of(path, source):
    """The structured documents of one Python file; none if it does not parse or defines nothing."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    if not definitions(tree):
        return []
    makers = [csv_outline, xml_outline, toml_outline, lambda p, _: token_table(p, source)]
    return [json_outline(path, tree), makers[digest(path) // 2 % len(makers)](path, tree)]


def library_tables():
    """(name, text) of tables that the library holds as data."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["code", "name", "phrase", "description"])
    for status in http.HTTPStatus:
        table.writerow([status.value, status.name, status.phrase, status.description])
    yield "http_status.csv", out.getvalue()
    yield "errno.json", json.dumps({str(k): v for k, v in sorted(errno.errorcode.items())}, indent=2) + "\n"
    yield "signals.toml", "[signals]\n" + "".join(f"{s.name} = {s.value}\n" for s in signal.Signals)
    rows = sorted(html.entities.name2codepoint.items())
    yield "entities.csv", "name,codepoint\n" + "".join(f"{name},{code}\n" for name, code in rows)
    types = sorted(mimetypes.MimeTypes().types_map[1].items())
    yield "types.xml", "<types>\n" + "".join(
        f'  <type suffix="{suffix}">{kind}</type>\n' for suffix, kind in types) + "</types>\n"
    yield "keywords.json", json.dumps({"hard": keyword.kwlist, "soft": keyword.softkwlist}, indent=2) + "\n"
