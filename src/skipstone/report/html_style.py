"""The look of scans drawn as HTML: one palette for light and one for dark, every rule under one class."""

from __future__ import annotations

from skipstone.report.trace import Cause

ROOT = "skst"
"""The class of the outermost element, and the start of every other class."""

_INKS = {
    "ink": ("#1b2733", "#e4eaf0"),
    "soft": ("#5b6b7b", "#9aa9b8"),
    "line": ("#dfe5ea", "#2f3a45"),
    "back": ("#ffffff", "#151b21"),
    "card": ("#f5f7f9", "#1d252d"),
    "kept": ("#35b39a", "#3fbfa6"),
    "proven": ("#0b7a66", "#8be3d0"),
    "zoom": ("#35b39a26", "#3fbfa626"),
    "warn": ("#a15c00", "#f0b35c"),
    "other": ("#c3ccd4", "#4a5763"),
    "files": ("#3a4bb8", "#97a5ff"),
    "groups": ("#7f8fe0", "#6b7de6"),
    "pages": ("#bcc6f3", "#45539f"),
}
# Told apart by hue and by lightness, so that neither colour blindness nor grey print merges them.
_CAUSES = {
    Cause.CONSTANT: ("#8d99a6", "#71808f"),
    Cause.PARTITION: ("#4477aa", "#6699cc"),
    Cause.BOUNDS: ("#e08a2c", "#e69a45"),
    Cause.NULLS: ("#8c5fb5", "#a982cf"),
    Cause.BLOOM: ("#cc5577", "#dd7391"),
    Cause.DICTIONARY: ("#d9bd3c", "#e0c95a"),
    Cause.PAGE: ("#8a4b2a", "#b5714c"),
}


def _variables(theme: int) -> str:
    inks = {**_INKS, **{cause.value: pair for cause, pair in _CAUSES.items()}}
    return "".join(f"--{ROOT}-{name}:{pair[theme]};" for name, pair in inks.items())


_RULES = """
.@{color:var(--@-ink);background:var(--@-back);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,\
"Helvetica Neue",sans-serif;font-variant-numeric:tabular-nums;width:100%;max-width:1040px;padding:18px 20px;\
border:1px solid var(--@-line);border-radius:10px;box-sizing:border-box;text-align:left;\
container-type:inline-size}
.@ *{box-sizing:border-box}
.@ code{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
color:inherit;background:none;padding:0;border:0;overflow-wrap:anywhere;white-space:pre-wrap}
.@-lake{font-size:17px;font-weight:650;overflow-wrap:anywhere}
.@-about{color:var(--@-soft);font-size:12.5px;margin-top:2px;max-height:3em;overflow:auto;\
overflow-wrap:anywhere}
.@-where{margin:10px 0 0;padding:8px 12px;border-left:3px solid var(--@-kept);background:var(--@-card);\
border-radius:0 6px 6px 0;max-height:7.5em;overflow:auto}
.@-cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:14px 0 0}
.@-card{background:var(--@-card);border-radius:8px;padding:10px 12px;min-width:0}
.@-label{color:var(--@-soft);font-size:11px;font-weight:600;letter-spacing:.06em;text-transform:uppercase}
.@-figure{font-size:22px;font-weight:650;line-height:1.25;overflow-wrap:anywhere}
.@-aside{color:var(--@-soft);font-size:12px;overflow-wrap:anywhere}
.@-head{font-size:13px;font-weight:650;margin:20px 0 8px}
.@-row{display:grid;grid-template:22px 1fr/108px minmax(0,1fr) 250px;gap:0 14px;\
line-height:1.35}
.@-name{font-weight:600;line-height:22px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.@-bar{display:flex;gap:1px;height:22px;border-radius:4px;overflow:hidden;background:var(--@-line)}
.@-bar>span{flex:1 1 0;min-width:3px}
.@-bar.@-gauge{height:5px;margin:5px 0;border-radius:2px}
.@-said{font-size:12.5px;grid-column:3;grid-row:1/3;padding:2px 0 10px}
.@-said b{font-weight:650}
.@-zoom{grid-column:2;grid-row:2;min-height:14px;background:var(--@-zoom)}
.@-below{grid-column:2;grid-row:2;padding:3px 0 12px}
.@-legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:12px;color:var(--@-soft);font-size:12px}
.@-dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.@-facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 14px;margin:0}
.@-facts dt{color:var(--@-soft);font-weight:400;margin:0}
.@-facts dd{margin:0;max-height:7.5em;overflow:auto;overflow-wrap:anywhere}
.@ details{margin-top:16px}
.@ summary{cursor:pointer;font-size:13px;font-weight:650}
.@-scroll{max-height:420px;overflow:auto;margin-top:6px}
.@ table{border-collapse:collapse;width:100%;font-size:12.5px;color:inherit;margin:0;border:0}
.@ th{color:var(--@-soft);font-weight:600;white-space:nowrap;position:sticky;top:0;background:var(--@-back)}
.@ th,.@ td{padding:4px 14px 4px 0;border:0;border-bottom:1px solid var(--@-line);vertical-align:top;\
text-align:left}
.@ tr{background:none}
.@ .@-number{text-align:right;white-space:nowrap}
.@ .@-tight{white-space:nowrap;max-width:180px;overflow:hidden;text-overflow:ellipsis}
.@ td.@-wide{width:100%}
.@-clip{max-height:4.5em;overflow:auto}
.@ ul{margin:6px 0 0;padding-left:18px;overflow-wrap:anywhere}
.@-warn{color:var(--@-warn)}
@container (max-width:560px){
.@-row{grid-template:auto/minmax(0,1fr)}
.@-said,.@-below{grid-column:1;grid-row:auto}
.@-zoom{display:none}
.@ .@-tight{white-space:normal;overflow-wrap:anywhere}
.@ td.@-wide,.@-why thead{display:none}
.@-why tr{display:flex;flex-wrap:wrap;padding:5px 0;border-bottom:1px solid var(--@-line)}
.@-why td{border:0;padding:0 12px 0 0}
.@-why td.@-wide{display:block;order:1}
.@-why .@-wide+.@-number{margin-left:auto}
}
"""


def style() -> str:
    """The style sheet of one drawing; it touches nothing outside the drawing's own element."""
    light, dark = _variables(0), _variables(1)
    # Notebooks have a theme of their own, which may differ from the system's.
    themes = (
        f".{ROOT}{{{light}}}"
        f"@media (prefers-color-scheme:dark){{.{ROOT}{{{dark}}}}}"
        f'[data-jp-theme-light="true"] .{ROOT},.vscode-light .{ROOT}{{{light}}}'
        f'[data-jp-theme-light="false"] .{ROOT},.vscode-dark .{ROOT}{{{dark}}}'
    )
    return themes + _RULES.replace(".@", f".{ROOT}").replace("--@", f"--{ROOT}")


def page_style() -> str:
    """What a whole document adds: the ground around the drawing."""
    ground = ("#eceff2", "#0d1115")
    return (
        f"html{{color-scheme:light dark}}body{{margin:0;padding:24px;background:{ground[0]}}}"
        f"body>.{ROOT}{{margin:0 auto}}@media (max-width:640px){{body{{padding:8px}}}}"
        f"@media (prefers-color-scheme:dark){{body{{background:{ground[1]}}}}}"
    )
