"""Judges the web console in Chromium: python console.py URL TOKEN_FILE AXE_FILE (or - without axe-core).

Each page in light and dark: no request to another server, no message on the browser's console, small, painted soon, no
violation of WCAG 2.2 AA that axe-core finds. Then a volume made, snapshotted and deleted by the keyboard alone; the pages
without scripts; and a live page that shows an event.
"""

import json
import sys

from playwright.sync_api import sync_playwright

BASE, TOKEN_FILE, AXE = sys.argv[1:4]
TOKEN = open(TOKEN_FILE).read().strip()
PAGE_BYTES_MAX = 300_000
# On a machine that paints the smallest page within CALM_MS; one with other work gets as much more time as that page takes
# more. The quickest of a page's visits counts.
PAINT_MS_MAX = 300
CALM_MS = 60
# The API prints a table for each of 4,096 volumes; the program of the tests is not optimised.
PAINT_MS_MAX_OF = {"/site": 1500}
VISITS = 3
PAGES_AT_ONCE = 9
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
findings = []


def found(text):
    print("FOUND", text)
    findings.append(text)


def watch(page, name):
    """Notes every message, failure and request to another server."""
    page.on("console", lambda message: message.type in ("error", "warning") and found(f"{name}: {message.text}"))
    page.on("pageerror", lambda error: found(f"{name}: {error}"))

    def check(request):
        if not request.url.startswith(BASE + "/"):
            found(f"{name}: it asks {request.url}")

    page.on("request", check)


def login(page):
    page.goto(BASE + "/login")
    page.fill("#token", TOKEN)
    page.press("#token", "Enter")
    page.wait_for_url(BASE + "/")


def links(page):
    """Paths of the pages that one links to; of many alike (volumes, snapshots, schemas) the first."""
    paths = page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href').split('#')[0])")
    return [path for path in paths if path.startswith("/") and not path.startswith(("/v1/", "/assets/"))]


def kind(path):
    parts = path.split("?")[0].strip("/").split("/")
    return "/".join(part if index % 2 == 0 else "*" for index, part in enumerate(parts)) + ("?" if "?" in path else "")


def crawl(page):
    """A path of each kind of page."""
    waiting, kinds = ["/", "/login"], {}
    while waiting:
        path = waiting.pop(0)
        if kind(path) in kinds:
            continue
        kinds[kind(path)] = path
        page.goto(BASE + path)
        waiting += links(page)
    return list(kinds.values())


def visit(page, path):
    """Goes to a page: the answer, its size, and the time of its first paint."""
    answer = page.goto(BASE + path)
    size = len(answer.body())
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0", timeout=10_000)
    return answer, size, page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")


def judge_page(page, path, scheme):
    paints = []
    for _ in range(VISITS):
        smallest = visit(page, "/login")[2]
        answer, size, paint = visit(page, path)
        paints.append(paint / max(1, smallest / CALM_MS))
    paint = min(paints)
    if answer.status != 200 or size > PAGE_BYTES_MAX or paint > PAINT_MS_MAX_OF.get(path, PAINT_MS_MAX):
        found(f"{path} {scheme}: status {answer.status}, {size} bytes, painted after {paint:.0f} ms")
    if AXE != "-":
        page.evaluate(open(AXE).read())
        report = page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", WCAG)
        for violation in report["violations"]:
            nodes = [node["html"][:160] for node in violation["nodes"][:3]]
            found(f"{path} {scheme}: {violation['id']}: {violation['help']}: {nodes}")
    return paint, size


def judge_pages(browser):
    paths = None
    worst = (0, 0, "")
    for scheme in ("light", "dark"):
        # Axe is put into the page, which the pages' policy forbids to everybody.
        context = browser.new_context(color_scheme=scheme, bypass_csp=AXE != "-")
        page = context.new_page()
        login(page)
        paths = paths or crawl(page)
        watch(page, scheme)
        for path in paths:
            paint, size = judge_page(page, path, scheme)
            worst = max(worst, (paint, size, path))
        context.close()
    print(f"{len(paths)} kinds of pages, light and dark; the slowest was painted after {worst[0]:.0f} ms ({worst[2]})")
    return paths


def judge_policy(browser, paths):
    """The same pages under their policy: a violation is a message of the console."""
    context = browser.new_context()
    page = context.new_page()
    login(page)
    watch(page, "policy")
    for path in paths:
        page.goto(BASE + path, wait_until="load")
    context.close()


def tab_to(page, selector):
    """Goes on with the Tab key until an element has the focus."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            if outline == "none":
                found(f"{selector}: nothing shows the focus")
            return
    raise SystemExit(f"the keyboard does not reach {selector}")


def judge_keyboard(browser):
    context = browser.new_context()
    page = context.new_page()
    watch(page, "keyboard")
    login(page)
    keys = page.keyboard
    tab_to(page, "nav a[href='/volumes']")
    keys.press("Enter")
    page.wait_for_url(BASE + "/volumes")
    page.keyboard.press("Tab")
    if not page.evaluate("document.activeElement.matches('.skip')"):
        found("the first Tab does not reach the link to the contents")
    tab_to(page, "#new-name")
    keys.type("typed")
    tab_to(page, "#new-size")
    keys.type("2")
    tab_to(page, "select[name=size_unit]")
    keys.type("M")
    keys.press("Enter")
    if not page.url.split("?")[0].startswith(BASE + "/volumes/"):
        tab_to(page, "form[action='/volumes'] button")
        keys.press("Enter")
    page.wait_for_url(BASE + "/volumes/*done=created")
    volume = page.url.split("?")[0]
    tab_to(page, "#snapshot-name")
    keys.type("by-keys")
    keys.press("Enter")
    page.wait_for_url(volume + "?done=snapshot")
    tab_to(page, "#snapshots a[href*='/snapshots/']")
    keys.press("Enter")
    page.wait_for_selector("#delete-typed")
    tab_to(page, "#delete-typed")
    keys.type("by-keys")
    keys.press("Enter")
    page.wait_for_url(volume + "?done=snapshot-deleted")
    tab_to(page, "#delete-typed")
    keys.type(page.inner_text("h1").removeprefix("Volume "))
    keys.press("Enter")
    page.wait_for_url(BASE + "/volumes?done=deleted")
    context.close()
    print("by the keyboard alone: a volume made, snapshotted, the snapshot and the volume deleted")


def judge_without_scripts(browser, paths):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    login(page)
    for path in paths:
        if page.goto(BASE + path).status != 200:
            found(f"{path}: not without scripts")
    page.click("text=Log out")
    page.wait_for_url(BASE + "/login")
    context.close()


def judge_live(browser):
    context = browser.new_context()
    page = context.new_page()
    watch(page, "live")
    login(page)
    page.goto(BASE + "/events")
    before = page.inner_text("#events tbody tr:first-child")
    other = browser.new_context()
    login(other.new_page())
    page.wait_for_function(
        "before => document.querySelector('#events tbody tr').innerText !== before", arg=before, timeout=8000
    )
    other.close()
    context.close()
    print("a live page shows an event when it happens")


def judge_many_pages(browser):
    """More pages of one browser than HTTP/1 has connections: all open, all live, also when the one with the stream goes."""
    context = browser.new_context()
    first = context.new_page()
    login(first)
    pages = [first] + [context.new_page() for _ in range(PAGES_AT_ONCE - 1)]
    for page in pages:
        watch(page, "many")
        page.goto(BASE + "/events")
    other = browser.new_context()
    for left in (pages, pages[1:]):
        before = [page.inner_text("#events tbody tr:first-child") for page in left]
        login(other.new_page())
        for page, text in zip(left, before):
            page.wait_for_function(
                "before => document.querySelector('#events tbody tr').innerText !== before", arg=text, timeout=8000
            )
        pages[0].close()
    other.close()
    context.close()
    print(f"{PAGES_AT_ONCE} pages of a browser at once show an event when it happens")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    paths = judge_pages(browser)
    judge_policy(browser, paths)
    judge_keyboard(browser)
    judge_without_scripts(browser, paths)
    judge_live(browser)
    judge_many_pages(browser)
    browser.close()
print(json.dumps({"findings": len(findings), "axe": AXE != "-"}))
sys.exit(1 if findings else 0)
