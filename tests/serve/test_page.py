"""The page in a real browser: numbers, errors, reasons, keys, colours, widths, tokens, and hostile names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect

import skipstone as sk
from skipstone.report.units import percent, share, size
from tests.serve._browser import PATIENCE, chromium, tab
from tests.serve._server import Running, make_table, serving, write_tokens

expect.set_options(timeout=PATIENCE)
HOSTILE = "<img src=x onerror=hacked=1>"
BOTH = ["read", "plan"]
FILES = 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    make_table(root)
    for number in range(FILES):
        folder = root / "logs" / f"region={'ab'[number % 2]}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = list(range(number * 100, number * 100 + 100))
        rows = pa.table({"id": ids, "name": [f"n{one}" for one in ids]})
        pq.write_table(rows, folder / f"{number:02}.parquet", row_group_size=50, write_page_index=True)
    sk.open(str(root / "logs")).index.build(blooms=["name"], engine="local")
    hostile = root / "hostile" / f"{HOSTILE}={HOSTILE}".replace("=hacked=1", "")
    hostile.mkdir(parents=True)
    rows = pa.table({HOSTILE: [f"{HOSTILE}{n}" for n in range(9)], "tail\u202egnp.\u2028": range(9)})
    pq.write_table(rows, hostile / f"{HOSTILE}.parquet")
    return root


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[Running]:
    tokens = write_tokens(
        root / "tokens.json", dora={"*": BOTH}, ana={"logs": BOTH, "db.events": ["read"]}, eve={"none": BOTH}
    )
    catalog = sk.catalog(f"{root / 'warehouse'}/")
    catalog.create_table(f"db.{HOSTILE}", pa.schema([(HOSTILE, pa.int64())]))
    lakes = {name: str(root / name) for name in ("logs", "hostile")}
    with serving(root / "warehouse", lakes, token_file=str(tokens)) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def events(root: Path) -> Any:
    return sk.open("db.events", catalog=str(root / "warehouse"))


@pytest.fixture(scope="module")
def logs(root: Path) -> Any:
    return sk.open(str(root / "logs"))


def address(**parts: str) -> str:
    return urlencode(parts)


def explained(lake: Any, where: str | None, **options: Any) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(lake.scan(where, **options).explain(format="json"))
    return trace


def expect_funnel(page: Page, trace: dict[str, Any]) -> None:
    """The figures of each level are those of the trace."""
    cards = page.locator("#funnel .skst-figure")
    read, whole = (trace["reads"][name] for name in ("bytes", "bytes_total")) if trace["reads"] else (0, 0)
    said = f"read {share(read, whole, size)}" if whole else "nothing to read"
    expect(cards.nth(0)).to_have_text(f"{trace['tasks']:,}")
    expect(cards.nth(1)).to_have_text(f"{trace['rows_kept']:,}")
    expect(cards.nth(2)).to_have_text(size(read))
    rows = page.locator("#funnel .skst-row")
    expect(rows).to_have_count(len(trace["levels"]) + 1)
    for level in trace["levels"]:
        row = page.locator(f'#funnel [data-level="{level["name"]}"]')
        kept = f"kept {share(level['kept'], level['units'])}" if level["units"] else "nothing to judge"
        expect(row.locator(".skst-said")).to_contain_text(kept)
        dropped = sorted(level["drops"], key=lambda drop: -drop["units"])
        expect(row.locator(".why-dropped code")).to_have_text([drop["condition"] for drop in dropped])
        parts = row.locator(".skst-bar > span")
        grown = parts.evaluate_all("all => all.map(one => Number(one.style.flexGrow))")
        assert sum(grown) == level["units"]
    expect(page.locator('[data-level="bytes"] .skst-said')).to_have_text(said)
    expect(page.locator("#funnel")).not_to_have_class("stale")


# -- the condition -------------------------------------------------------------------------------


def test_typing_shows_the_funnel(browser: Browser, running: Running, events: Any) -> None:
    where = "part = 1 AND v = 900"
    with tab(browser, running, refused=[400]) as one:
        page = one.open("table=db.events")
        expect_funnel(page, explained(events, None))
        started = len(one.asked("/api/explain"))
        page.locator("#where").press_sequentially(where)
        expect_funnel(page, explained(events, where))
        assert page.url.endswith(address(table="db.events", where=where))
        questions = [body["where"] for body in one.asked("/api/explain")[started:]]
        assert questions[-1] == where
        # Keys that follow each other quickly are one question.
        assert 1 <= len(questions) <= len(where)
        # What was typed last is not lost by going elsewhere at once.
        page.locator("#where").fill("part = 9")
        opened(page, "layout")
        expect(page.locator("#where")).to_have_value("part = 9")
        opened(page, "files")
        expect_funnel(page, explained(events, "part = 9"))
        expect(page.locator("#view")).to_contain_text("no file can hold a matching row")
        page.locator("#where").fill(where)
        expect(page.locator("#said")).to_contain_text("1 file of 8")


def test_a_condition_that_can_not_be_read(browser: Browser, running: Running, logs: Any) -> None:
    with tab(browser, running, refused=[400]) as one:
        page = one.open("lake=logs")
        trace = explained(logs, None)
        expect_funnel(page, trace)
        for wrong in ("nothing = 3", "id >"):
            with pytest.raises(sk.SkipstoneError) as caught:
                logs.scan(wrong).plan()
            page.locator("#where").fill(wrong)
            expect(page.locator("#problem")).to_have_text(str(caught.value), use_inner_text=True)
            expect(page.locator("#where")).to_have_attribute("aria-invalid", "true")
            expect(page.locator("#funnel .skst-figure").nth(0)).to_have_text(f"{trace['tasks']:,}")
        page.locator("#where").fill("id = 3")
        expect_funnel(page, explained(logs, "id = 3"))
        expect(page.locator("#problem")).to_be_empty()
        expect(page.locator("#where")).to_have_attribute("aria-invalid", "false")


# -- views ---------------------------------------------------------------------------------------


def opened(page: Page, view: str) -> Locator:
    page.locator(f"#tab-{view}").click()
    expect(page.locator(f"#tab-{view}")).to_have_attribute("aria-selected", "true")
    return page.locator("#view")


def test_tasks_and_reasons(browser: Browser, running: Running, logs: Any) -> None:
    where = "id BETWEEN 120 AND 5930"
    plan = logs.scan(where).plan()
    with tab(browser, running) as one:
        page = one.open(address(lake="logs", where=where))
        rows = page.locator("#view tbody tr")
        expect(rows).to_have_count(50)
        expect(page.locator("#view .tools")).to_contain_text(f"1–50 of {len(plan.tasks)}")
        for at in (0, 49):
            task = plan.tasks[at]
            expect(rows.nth(at)).to_contain_text(f"{len(task.rows):,} of {task.rows.total:,}")
            expect(rows.nth(at).locator("td").nth(3)).to_have_text(f"{len(task.proven):,}")
        page.get_by_role("button", name="Next").click()
        expect(rows).to_have_count(len(plan.tasks) - 50)
        page.get_by_label("Find in paths").fill("01.par")
        expect(rows).to_have_count(1)
        page.locator("#view button.link").click()
        why = plan.why("region=b/01.parquet")
        expect(page.locator(".why .end")).to_have_text(why.conclusion)
        for step in why.steps:
            expect(page.locator(".why")).to_contain_text(step.evidence)
        page.get_by_label("Find in paths").fill("")
        page.locator("label", has_text="Dropped 1").click()
        page.get_by_role("button", name="00.parquet").click()
        dropped = plan.why("region=a/00.parquet")
        assert not dropped.kept
        expect(page.locator(".why .end")).to_have_text(dropped.conclusion)
        expect(page.locator(".why")).to_contain_text(dropped.steps[-1].evidence)
        # What is open is in the address.
        page.reload()
        expect(page.locator(".why .end")).to_have_text(dropped.conclusion)


def test_layout(browser: Browser, running: Running, logs: Any) -> None:
    where = "id < 1000"
    with tab(browser, running) as one:
        page = one.open(address(lake="logs", where=where, view="layout"))
        measured = {column.name: column for column in logs.layout().columns}
        rows = page.locator("#view tbody tr")
        expect(rows).to_have_count(len(measured))
        for at, column in enumerate(measured.values()):
            depth = f"{column.files.depth:,.1f} ({percent(column.files.depth, FILES)})"
            expect(rows.nth(at)).to_contain_text(column.name)
            expect(rows.nth(at)).to_contain_text(column.files.layout.value)
            expect(rows.nth(at)).to_contain_text(depth)
        expect(page.locator(".chart .note").first).to_have_text(
            f"at most 1 file overlap · 10 of {FILES} drawn files kept by the condition"
        )
        canvas = page.locator(".chart canvas")
        inks = """canvas => {
            const pen = canvas.getContext("2d"), {width, height} = canvas, seen = new Set();
            const all = pen.getImageData(0, 0, width, height).data;
            for (let at = 0; at < all.length; at += 4)
                if (all[at + 3] === 255) seen.add(all.slice(at, at + 3).join());
            return seen.size;
        }"""
        # Overlap, the line below it, kept and dropped files.
        assert canvas.evaluate(inks) == 4
        canvas.focus()
        for _ in range(3):
            canvas.press("ArrowDown")
        expect(page.locator("#readout")).to_have_text("200 … 299 · kept · 02.parquet")
        canvas.press("Enter")
        expect(page.locator(".why .end")).to_have_text(
            logs.scan(where).plan().why("region=a/02.parquet").conclusion
        )


def test_snapshots_and_compaction(browser: Browser, running: Running, events: Any) -> None:
    with tab(browser, running, refused=[400]) as one:
        page = one.open(address(table="db.events", where="part = 1"))
        expect_funnel(page, explained(events, "part = 1"))
        opened(page, "snapshots")
        listed = [str(snapshot.id) for snapshot in reversed(events.snapshots())]
        expect(page.locator("#view tbody tr td:first-child")).to_have_text(listed)
        third = events.snapshots()[2]
        page.get_by_role("button", name=str(third.id)).click()
        expect(page.locator("#pinned")).to_contain_text(str(third.id))
        expect_funnel(page, explained(events, "part = 1", snapshot=third.id))
        page.get_by_role("button", name="current snapshot").click()
        expect_funnel(page, explained(events, "part = 1"))
        view = opened(page, "compaction")
        expect(view).to_contain_text("Nothing to compact")
        view.get_by_label("At least").fill("2")
        view.get_by_label("only partitions").check()
        plan = events.plan_compaction("part = 1", min_input_files=2)
        head = f"{plan.files} files in 1 group would become about 1 file: {size(plan.bytes_to_read)}"
        expect(view.locator("[role=status]")).to_contain_text(head)
        expect(view).to_contain_text(f"{plan.files_matched} of {plan.files_considered} files in partitions")
        expect(view.locator("tbody tr")).to_have_count(1)
        expect(view.locator("tbody tr")).to_contain_text("part=1")
        expect(view.locator("tbody tr")).to_contain_text("small 2")
        view.get_by_label("Strategy").select_option("zorder")
        view.get_by_label("by", exact=True).fill("nothing")
        view.get_by_label("by", exact=True).press("Enter")
        expect(view.get_by_role("alert")).to_contain_text("nothing")


# -- keys, colours and widths --------------------------------------------------------------------


def test_with_keys_only(browser: Browser, running: Running, logs: Any) -> None:
    focused = "() => [document.activeElement.id || document.activeElement.textContent, "
    focused += "getComputedStyle(document.activeElement).outlineStyle]"
    with tab(browser, running) as one:
        page = one.open()
        expect(page.locator("#sources [role=option]")).to_have_count(4)

        def press(*keys: str) -> str:
            for key in keys:
                page.keyboard.press(key)
            name, outline = page.evaluate(focused)
            assert outline == "solid" or name in ("main", "where")
            return str(name)

        assert press("Tab") == "skip"
        assert page.locator("#skip").bounding_box()["y"] >= 0  # type: ignore[index]
        assert press("Enter") == "main"
        assert press("Shift+Tab") == "hostile"
        assert press("Shift+Tab") == "find"
        assert press("ArrowDown", "ArrowDown") == "logs"
        assert press("End") == "db.events"
        assert press("Home", "ArrowDown", "Enter") == "where"
        expect(page.locator("#name")).to_have_text("logs")
        page.keyboard.type("id < 300")
        expect_funnel(page, explained(logs, "id < 300"))
        assert press("Tab") == "tab-files"
        assert press("ArrowRight") == "tab-layout"
        expect(page.locator(".chart canvas")).to_be_visible()
        assert press("ArrowLeft") == "tab-files"
        expect(page.locator("#view tbody tr")).to_have_count(3)
        press("Tab", "Tab", "Tab", "ArrowDown", "Enter")
        expect(page.locator(".why .end")).to_be_visible()
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        press("Escape")
        expect(page.locator(".why")).to_have_count(0)
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
        assert press("/") == "where"
        press("Escape")
        expect(page.locator("#where")).to_have_value("")
        expect_funnel(page, explained(logs, None))
        page.go_back()
        page.go_forward()
        expect(page.locator("#name")).to_have_text("logs")


def test_light_dark_and_narrow(browser: Browser, running: Running) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(21, 27, 33)"
    with tab(browser, running, color_scheme="dark", viewport={"width": 390, "height": 844}) as one:
        page = one.open("lake=logs")
        assert page.evaluate(back) == dark
        theme = page.locator("#theme")
        expect(theme).to_have_attribute("aria-pressed", "true")
        theme.click()
        assert page.evaluate(back) == light
        page.reload()
        assert page.evaluate(back) == light
        expect(theme).to_have_attribute("aria-pressed", "false")
        page.emulate_media(color_scheme="light")
        page.evaluate("localStorage.clear()")
        long = "name IN (" + ", ".join(f"'n{n}'" for n in range(40)) + ")"
        path = "region=a/00.parquet"
        for view, settled in {
            address(lake="logs", where=long, file=path, show="all"): ".why .end",
            address(lake="logs", where="id < 3", view="layout"): ".chart canvas",
            address(table="db.events", view="snapshots"): "#view tbody tr",
            address(table="db.events", view="compaction"): "#view [role=status]",
            "": "#start .keys",
        }.items():
            page = one.open(view)
            expect(page.locator(settled).first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            cut = """() => [...document.querySelectorAll("#app *")]
                .filter(one => !one.closest(".scroll, .unseen, #views"))
                .filter(one => one.getBoundingClientRect().right > 391).map(one => one.outerHTML)"""
            assert page.evaluate(cut) == []


# -- tokens and hostile names --------------------------------------------------------------------


def test_a_late_refusal_does_not_ask_for_a_token_again(browser: Browser, running: Running) -> None:
    with tab(browser, running, token=None, refused=[401]) as one:
        held: list[Any] = []
        one.page.route("**/api/tables", lambda request: held.append(request))
        with one.page.expect_request("**/api/tables"):
            page = one.open()
        login = page.locator("#login")
        expect(login).to_be_visible()
        page.keyboard.press("Escape")
        with suppress(Error):  # the page no longer waits for it
            held[0].fulfill(status=401, json={"error": {"message": "token is missing"}})
        page.wait_for_timeout(200)
        expect(login).not_to_be_visible()


def test_tokens(browser: Browser, running: Running) -> None:
    with tab(browser, running, token=None, refused=[401, 403]) as one:
        page = one.open()
        login = page.locator("#login")
        expect(login).to_be_visible()
        page.keyboard.press("Escape")
        expect(login).not_to_be_visible()
        expect(page.locator("#none")).to_have_text("A token is needed.")
        page.locator("#enter").click()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#refused")).to_have_text("token is not valid")
        page.keyboard.type("ana")
        page.keyboard.press("Enter")
        options = page.locator("#sources [role=option]")
        expect(options).to_have_text(["logs", "db.events"])
        stored = "[sessionStorage.getItem('token'), localStorage.length, document.cookie]"
        assert page.evaluate(stored) == ["ana", 0, ""]
        options.nth(0).click()
        expect(page.locator("#funnel .skst-row")).to_have_count(2)
        # A right to read is none to plan.
        options.nth(1).click()
        expect(page.locator("#problem")).to_have_text("ana may not plan db.events")
        expect(page.locator("#where")).to_have_attribute("aria-invalid", "false")
        opened(page, "snapshots")
        expect(page.locator("#view tbody tr")).to_have_count(8)
        page.locator("#forget").click()
        expect(login).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        assert "ana" not in page.url
    with tab(browser, running, token="eve") as one:
        page = one.open()
        expect(page.locator("#none")).to_have_text("There are no lakes or tables that you may read.")


def test_hostile_names(browser: Browser, running: Running) -> None:
    with tab(browser, running, refused=[400]) as one:
        page = one.open("lake=hostile")
        expect(page.locator("#view tbody tr")).to_have_count(1)
        expect(page.locator("#view tbody tr")).to_contain_text(f"{HOSTILE}.parquet")
        page.locator("#view button.link").click()
        expect(page.locator(".why .end")).to_be_visible()
        where = f"`{HOSTILE}` = '{HOSTILE}3'"
        page.locator("#where").fill(where)
        expect(page.locator("#view")).to_contain_text(f"'{HOSTILE}3'")
        view = opened(page, "layout")
        expect(view).to_contain_text(f"'{HOSTILE}0' … '{HOSTILE}8'")
        # Direction and line marks would reorder what is shown.
        expect(view).to_contain_text("tail\\u202egnp.\\u2028")
        view.get_by_role("button", name="tail").click()
        expect(view.locator(".chart h3")).to_have_text("tail\\u202egnp.\\u2028")
        expect(view.locator(".chart .ends")).to_have_text("08")
        page.locator("#where").fill(f"`{HOSTILE}x` = 1")
        expect(page.locator("#problem")).to_contain_text(HOSTILE)
        page.locator("#sources").get_by_text(f"db.{HOSTILE}").click()
        expect(page.locator("#name")).to_have_text(f"db.{HOSTILE}")
        assert page.locator("img").count() == 1
        assert page.evaluate("typeof hacked") == "undefined"
        # Markup from texts is refused by the browser, whatever the page's code does.
        for sink in ("document.body.innerHTML = '<b>'", "document.write('<b>')", "setTimeout('hacked = 1')"):
            with pytest.raises(Exception, match=r"Trusted|unsafe-eval"):
                page.evaluate(f"() => {{ {sink} }}")
        one.errors = [error for error in one.errors if "Trusted" not in error]


def test_headers(running: Running) -> None:
    with running.client() as client:
        answers = {
            path: client.get(path) for path in ("/", "/page/page.js", "/page/report.css", "/page/icon.svg")
        }
        kinds = [answer.headers["content-type"].partition(";")[0] for answer in answers.values()]
        assert kinds == ["text/html", "text/javascript", "text/css", "image/svg+xml"]
        for answer in answers.values():
            policy = dict(
                part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
            )
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["referrer-policy"] == "no-referrer"
        for path, status in {"/api/lakes": 401, "/page/../app.py": 404, "/page/%2e%2e/app.py": 404}.items():
            refused = client.get(path)
            assert (refused.status_code, refused.headers["x-content-type-options"]) == (status, "nosniff")
    with running.client("dora") as client:
        assert client.get("/api/lakes").headers["cache-control"] == "no-store"
