"""Opens every kind of page of a served console in Chromium, and keeps them open: python open_pages.py URL TOKEN_FILE.

Prints the number of pages once all are open, and ends when its input does.
"""

import sys

from playwright.sync_api import sync_playwright

BASE, TOKEN_FILE = sys.argv[1:3]


def kind(path):
    parts = path.split("?")[0].strip("/").split("/")
    return "/".join(part if index % 2 == 0 else "*" for index, part in enumerate(parts))


def crawl(page):
    """A path of each kind of page."""
    waiting, kinds = ["/"], {}
    while waiting:
        path = waiting.pop(0)
        if kind(path) in kinds:
            continue
        kinds[kind(path)] = path
        page.goto(BASE + path)
        found = page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href').split('#')[0])")
        waiting += [path for path in found if path.startswith("/") and not path.startswith(("/v1/", "/assets/"))]
    return list(kinds.values())


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    context = browser.new_context()
    first = context.new_page()
    first.goto(BASE + "/login")
    first.fill("#token", open(TOKEN_FILE).read().strip())
    first.press("#token", "Enter")
    first.wait_for_url(BASE + "/")
    paths = crawl(first)
    pages = [context.new_page() for _ in paths]
    for page, path in zip(pages, paths):
        page.goto(BASE + path)
    hidden = sum(page.evaluate("document.hidden") for page in pages)
    print(len(pages), hidden, flush=True)
    # Messages of the browser are handled while this waits.
    while first.evaluate("1"):
        import select

        if select.select([sys.stdin], [], [], 0.2)[0] and not sys.stdin.readline():
            break
    browser.close()
