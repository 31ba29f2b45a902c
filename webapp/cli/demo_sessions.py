"""The invented sessions: what was asked, thought, done and answered. Nothing here is real."""

from __future__ import annotations

from webapp.cli.demo_parts import (
    BILLING,
    DOCS,
    SHOP,
    Reply,
    Script,
    Turn,
    bash,
    compaction,
    edit,
    failed,
    file,
    glob,
    grep,
    pruned,
    read,
    running,
    say,
    task,
    think,
    todo,
    turn,
    write,
)

PLANTED = "PLANTED-EXACT-VALUE-7731"

# Put together here, so that no complete key stands in a source file. None of them ever worked.
FAKE_MODEL_KEY = "sk-" + "FAKE0demo7" * 4
FAKE_GIT_TOKEN = "ghp_" + "FakeDemo0" * 4

LONG_LINE = "".join(f"function f{n}(a){{return a*{n}}};" for n in range(600))[:12_000]

SET_UP = Script(
    "set-up-the-shop", SHOP, 149.2, "Set up the shop repository",
    (
        turn(
            "Start a small web shop in Python with SQLite. Only the skeleton and a test, please.",
            [
                think("A package, a test and a configuration; nothing that is not needed yet."),
                bash("git init -q && python -m venv .venv && ls -a",
                     ".\n..\n.git\n.venv", "Start the repository"),
                write(f"{SHOP}/shop/__init__.py", '"""A small web shop."""'),
                write(f"{SHOP}/tests/test_smoke.py", """
                    import shop


                    def test_it_imports():
                        assert shop.__doc__
                    """),
            ],
            [bash("python -m pytest -q", "1 passed in 0.02s", "Run the test")],
            [say("The package `shop` and one test are there; the test passes.")],
        ),
        turn(
            "Which conventions should the agents follow here?",
            [write(f"{SHOP}/AGENTS.md", """
                # Shop

                - Money is `Decimal`, never `float`.
                - SQLite runs in WAL mode.
                - Tests before a commit: `python -m pytest -q`.
                """)],
            [say("I wrote three of them into `AGENTS.md`. They are loaded into every session.")],
        ),
    ),
)  # fmt: skip

CART = Script(
    "cart-totals-drift", SHOP, 117.4, "Cart totals drift by a cent",
    (
        turn(
            """
            A cart with three items of 0.10 shows 0.30000000000000004 in the log and a total that is
            one cent off in the mail. Where does it come from?
            """,
            [
                think("0.1 three times is the classic sum of floats. Find where it is added."),
                grep(r"sum\(", SHOP, 
                     ("shop/cart.py", 5, "    return sum(i.price * i.count for i in items)"),
                     ("shop/mail.py", 31, "    total = sum(float(line.amount) for line in lines)")),
                read(f"{SHOP}/shop/cart.py", """
                    from shop.models import Item


                    def total(items: list[Item]) -> float:
                        return sum(i.price * i.count for i in items)
                    """),
            ],
            [
                edit(f"{SHOP}/shop/cart.py",
                     "def total(items: list[Item]) -> float:\n"
                     "    return sum(i.price * i.count for i in items)",
                     "def total(items: list[Item]) -> Decimal:\n"
                     '    return sum((i.price * i.count for i in items), Decimal("0.00"))', 4),
                edit(f"{SHOP}/shop/mail.py", "float(line.amount)", "line.amount", 31),
                bash("python -m pytest -q tests/test_cart.py", "9 passed in 0.11s", "Test it"),
            ],
            [say("""
                Two places added floats: `cart.total()` and the order mail. Both now add `Decimal`.

                | items | before | after |
                |---|---|---|
                | 3 × 0.10 | 0.30000000000000004 | 0.30 |
                | 7 × 1.15 | 8.049999999999999 | 8.05 |
                """)],
        ),
        turn("Remember that, so that nobody brings floats back.",
             [say("Saved as a lesson: money is `Decimal` from the form to the mail.")]),
    ),
)  # fmt: skip

SURVEY = Script(
    "survey-price-code", SHOP, 88.6, "Delegate the survey of the price code",
    (
        turn(
            [{"type": "agent", "name": "explore",
              "source": {"value": "@explore", "start": 0, "end": 8}},
             say("@explore find every place where a price is computed, then say what to merge.")],
            [
                think("The survey is wide and its output is not needed here: a subagent."),
                task("Find price code", "List every file that computes a price, with the function.",
                     "explore", "find-price-code", """
                     - `shop/tax.py`: `vat()`
                     - `shop/cart.py`: `total()`
                     - `shop/discount.py`: `apply()`, rounds on its own
                     """),
            ],
            [say("""
                Three files compute prices. Only `shop/discount.py` rounds on its own; I would move
                the rounding to `shop/tax.py` and call it from both.
                """)],
        ),
        turn("Do that.",
             [edit(f"{SHOP}/shop/discount.py", "return round(price * (1 - rate), 2)",
                   "return cents(price * (1 - rate))", 9),
              bash("python -m pytest -q", "38 passed in 0.71s", "Run all tests")],
             [say("Merged: `cents()` in `shop/tax.py` alone rounds now. 38 tests pass.")]),
    ),
)  # fmt: skip

SURVEY_CHILD = Script(
    "find-price-code", SHOP, 88.599, "Find price code (@explore subagent)",
    (
        turn("List every file that computes a price, with the function.",
             [glob("**/*.py", f"{SHOP}/shop", "__init__.py", "cart.py", "db.py", "discount.py",
                   "mail.py", "tax.py"),
              grep("price", f"{SHOP}/shop", ("cart.py", 5, "    return sum((i.price * i.count"),
                   ("discount.py", 9, "    return round(price * (1 - rate), 2)"),
                   ("tax.py", 4, "def vat(price):"))],
             [say("""
                - `shop/tax.py`: `vat()`
                - `shop/cart.py`: `total()`
                - `shop/discount.py`: `apply()`, rounds on its own
                """)]),
    ),
    agent="explore", parent="survey-price-code",
)  # fmt: skip

STREET = Script(
    "search-strasse", SHOP, 76.1, "The search box finds nothing for Straße",
    (
        turn(
            "Customers who type “strasse” or “STRASSE” do not find the street atlas. Why?",
            [bash("""
                python - <<'PY'
                from shop.search import find
                for word in ("Straße", "strasse", "STRASSE"):
                    print(word, len(find(word)))
                PY
                """, "Straße 4\nstrasse 0\nSTRASSE 0", "Ask the search")],
            [
                think("lower() leaves ß alone, casefold() makes ss of it, on both sides."),
                grep(r"\.lower\(", SHOP, ("shop/search.py", 22, "    word = word.lower()"),
                     ("shop/index.py", 17, "    return text.lower().split()")),
                edit(f"{SHOP}/shop/search.py", "word.lower()", "word.casefold()", 22),
                edit(f"{SHOP}/shop/index.py", "text.lower()", "text.casefold()", 17),
            ],
            [bash("python -m shop.index --rebuild && python -m pytest -q tests/test_search.py",
                  "indexed 1204 articles\n11 passed in 0.31s", "Rebuild and test")],
            [say("`lower()` keeps the ß. With `casefold()` on both sides all three find 4.")],
        ),
    ),
)  # fmt: skip

REVERTED = Script(
    "delete-old-migrations", SHOP, 61.7, "Delete the old migrations",
    (
        turn("Which migrations are older than the first release?",
             [bash("ls migrations | head -4",
                   "0001_initial.sql\n0002_articles.sql\n0003_orders.sql\n0004_prices.sql",
                   "List the migrations")],
             [say("`0001` to `0003` are older than release 1.0.")]),
        turn("Delete them.",
             [bash("git rm -q migrations/0001_initial.sql migrations/0002_articles.sql "
                   "migrations/0003_orders.sql", "", "Delete three files"),
              write(f"{SHOP}/migrations/README", "Migrations before 1.0 were removed.")],
             [say("Deleted three migrations and noted it in `migrations/README`.")]),
    ),
    reverted=1,
    diff="--- /dev/null\n+++ b/migrations/0001_initial.sql\n@@ -0,0 +1 @@\n"
    "+CREATE TABLE articles (id INTEGER PRIMARY KEY);\n",
)  # fmt: skip

KEY_PASTED = Script(
    "key-pasted", SHOP, 47.3, "A key was pasted by mistake",
    (
        turn(
            f"Use this key for the texts: {FAKE_MODEL_KEY} and this to push: {FAKE_GIT_TOKEN}",
            [say("""
                I will not use or repeat them: both are in this session now. Please revoke them,
                make new ones and put those into the environment as `TEXT_KEY` and `GIT_TOKEN`.
                """)],
        ),
        turn("Done. Is the old one still anywhere in the project?",
             [bash("grep -rn 'KEY' --include='*.env' . ; git log --oneline -S TEXT_KEY",
                   f"./local.env:2:TEXT_KEY={FAKE_MODEL_KEY}", "Look for the key")],
             [edit(f"{SHOP}/local.env.example", "TEXT_KEY=", "TEXT_KEY=  # from the safe"),
              bash("rm local.env && git status --short", " M local.env.example", "Remove it")],
             [say("It stood in `local.env`, which was never committed. The file is gone.")]),
    ),
)  # fmt: skip

FEED = Script(
    "supplier-feed", SHOP, 36.4, "A supplier feed with odd line ends, and a minified bundle",
    (
        turn(
            "The import of feed.csv stops at row 3. The file comes from a Windows machine.\r\n"
            "It worked last month.\r\n",
            [
                bash("head -4 feed.csv | cat -A | cut -c1-60",
                     "sku;name;price^M$\nSKU-00107;Lamp;19,90^M$\nSKU-00114;M-CM-<hle;7,50^M$",
                     "Show the line ends"),
                bash("cat feed.csv",
                     "sku;name;price\r\nSKU-00107;Lamp;19,90\r\nSKU-00114;Mühle;7,50\r\n"
                     "SKU-00121;\"Tea\r\npot\";24,00\r\n", "Show the file"),
            ],
            [bash("python -m shop.feed feed.csv --dry-run",
                  "\x1b[1mfeed.csv\x1b[0m\n\x1b[32m  ok    SKU-00107\x1b[0m\n"
                  "\x1b[32m  ok    SKU-00114\x1b[0m\n"
                  "\x1b[31m  error SKU-00121: 2 fields, 3 expected\x1b[0m\n"
                  "\x1b[33m  1 of 3 rows skipped\x1b[0m\r\n", "Import without writing", 1)],
            [say("""
                Row 3 holds a line end inside quotes. The importer splits at line ends before it
                looks at quotes; `csv.reader` with `newline=""` reads it as one field.
                """)],
        ),
        turn("And why does the bundle differ on every build?",
             [bash("cat static/shop.min.js", LONG_LINE, "Show the bundle"),
              bash("for i in 1 2; do make -s bundle; sha256sum static/shop.min.js; done",
                   "31f0c8  static/shop.min.js\n9be214  static/shop.min.js", "Build twice")],
             [think("Same input, other hash: something in it depends on order or time."),
              bash("diff <(tr ';' '\\n' < a.js) <(tr ';' '\\n' < b.js) | head -3; echo\n"
                   "wc -L static/shop.min.js",
                   "< var built=1790000000\n---\n> var built=1790000007\n12000 static/shop.min.js",
                   "Compare two builds")],
             [say("The bundler writes the time into it. `SOURCE_DATE_EPOCH` makes it steady.")]),
    ),
)  # fmt: skip

REFUNDS = Script(
    "refund-rows", SHOP, 24.2, "Refund rows without an order",
    (
        turn(
            "Accounting found refunds that belong to no order. How many, and how did that happen?",
            [bash("sqlite3 shop.db 'SELECT count(*) FROM refunds r LEFT JOIN orders o "
                  "ON o.id = r.order_id WHERE o.id IS NULL'", "17", "Count the orphans"),
             bash("sqlite3 shop.db 'PRAGMA foreign_keys'", "0", "Are foreign keys on?")],
            [
                think("foreign_keys is off by default, for each connection anew."),
                read(f"{SHOP}/shop/db.py", """
                    import sqlite3


                    def connect(path):
                        conn = sqlite3.connect(path, isolation_level=None)
                        conn.execute("PRAGMA journal_mode = WAL")
                        return conn
                    """),
                edit(f"{SHOP}/shop/db.py", '    conn.execute("PRAGMA journal_mode = WAL")',
                     '    conn.execute("PRAGMA journal_mode = WAL")\n'
                     '    conn.execute("PRAGMA foreign_keys = ON")', 6),
            ],
            [say("17. Foreign keys were never on, so deleting an order left its refunds.")],
        ),
        turn("What should happen to the 17?",
             [todo(("Export the 17 rows for accounting", "completed", "high"),
                   ("Attach them to the order they name in `note`", "in_progress", "high"),
                   ("Add ON DELETE RESTRICT", "pending", "medium"))],
             [bash("python -m shop.repair refunds --attach", "attached 15, left 2", "Attach them")],
             [say("15 name their order and are attached. Two name none; accounting has them.")]),
    ),
)  # fmt: skip

_IMPORT_LOG = "\n".join(
    f"row {n} sku SKU-{n * 7:05} price {n % 97}.{n % 10}0" for n in range(1, 901)
)
_CHECK_LOG = "\n".join(
    f"check {n:04} list {n % 8 + 1} old {n % 89}.50 new {n % 89}.50 same" for n in range(1, 621)
)


def _step(number: int) -> Turn:
    """One price list of the long session."""
    moved = [f"  {number}-{n:03} moved in {n % 7} ms" for n in range(1, 81)]
    total = f"{number * 113} prices moved, port {4000 + number}, flag --level={number}"
    return turn(
        f"Step {number}: move price list {number} to the new table.",
        [bash(f"python -m shop.prices move --list {number} --level={number}",
              "\n".join([f"list {number}", *moved, total]), f"Move list {number}")],
        [say(f"Price list {number} moved: {number * 113} prices. The worker listened on port "
             f"{4000 + number}.")],
    )  # fmt: skip


def _summary(done: int, auto: bool) -> Turn:
    """A compaction in the long session, after `done` price lists."""
    return compaction(auto, f"""
        ## Objective
        - Move the eight price lists of the shop to the new table.

        ## Important Details
        - The catalogue was imported: 900 rows, 3 skipped.
        - One writer at a time; write transactions stay short.

        ## Work State
        ### Completed
        - Price lists 1 to {done} were moved.

        ### Active
        - Price list {done + 1}.

        ### Blocked
        - (none)

        ## Next Move
        1. Move price list {done + 1} with `python -m shop.prices move`.

        ## Relevant Files
        - shop/prices.py: the move
        - shop/db.py: connection pragmas
        """)  # fmt: skip


PRICE_LISTS = Script(
    "migrate-price-lists", SHOP, 14.2, "Migrate the price lists",
    (
        turn(
            "Import the whole catalogue and keep an eye on the SKU counter.",
            [
                think("The import prints every row. Note the last line, it holds the checkpoint."),
                pruned(bash("python -m shop.catalogue import catalogue.csv",
                            f"{_IMPORT_LOG}\n{PLANTED} imported=900 skipped=3",
                            "Import the catalogue")),
            ],
            [say(f"Imported 900 rows, skipped 3. The checkpoint token is `{PLANTED}`.")],
        ),
        turn(
            "Plan the move of the price lists.",
            [todo(*((f"Move price list {n}", "pending", "high") for n in range(1, 9)),
                  ("Compare old and new prices", "pending", "high"))],
            [say("Eight lists, one after the other, then a comparison of every price.")],
        ),
        _step(1), _step(2), _step(3), _step(4), _summary(4, auto=True),
        _step(5), _step(6), _step(7), _summary(7, auto=False), _step(8),
        turn(
            "Compare old and new.",
            [bash("python -m shop.prices compare --all", f"{_CHECK_LOG}\n620 checked, 0 differ",
                  "Compare all prices")],
            [failed("read", {"filePath": f"{SHOP}/reports/prices.txt"},
                    f"File not found: {SHOP}/reports/prices.txt")],
            [write(f"{SHOP}/reports/prices.txt", "620 checked, 0 differ")],
            [say("All 620 samples agree. The report is in `reports/prices.txt`.")],
        ),
    ),
)  # fmt: skip

RATE_LIMIT = Script(
    "rate-limit-checkout", SHOP, 9.1, "Rate limit on the checkout",
    (
        turn(
            "A script tried 4,000 coupon codes last night. Put a limit on the checkout.",
            [
                think("By session or by address? Behind the proxy every address is the proxy's."),
                grep("REMOTE_ADDR", SHOP, ("shop/web.py", 40, '    who = env["REMOTE_ADDR"]')),
                failed("edit", {"filePath": f"{SHOP}/shop/web.py", "oldString": "who = addr",
                                "newString": "who = session"},
                       "oldString not found in content"),
            ],
            [edit(f"{SHOP}/shop/web.py", '    who = env["REMOTE_ADDR"]',
                  "    who = cart_id(env) or forwarded_for(env)", 40),
             write(f"{SHOP}/shop/limit.py", """
                import time


                class Bucket:
                    # At most `size` tries, one more every `seconds`.
                    def __init__(self, size: int, seconds: float) -> None:
                        self.size, self.seconds = size, seconds
                        self.left, self.at = float(size), time.monotonic()
                """)],
            [bash("python -m pytest -q tests/test_limit.py", "5 passed in 0.19s", "Test it")],
            [say("""
                Five tries a minute for each cart, then **429** with `Retry-After`. The address is
                only used where there is no cart, and then the one that the proxy names.
                """)],
        ),
    ),
)  # fmt: skip

CHECKOUT = Script(
    "fix-checkout-test", SHOP, 5.2, "Fix the failing checkout test",
    (
        turn(
            "tests/test_checkout.py fails on the rounding of VAT. Find out why.",
            [think("First the test, then the function that it calls."),
             bash("python -m pytest -q tests/test_checkout.py", """
                E   AssertionError: assert Decimal('2.67') == Decimal('2.68')
                FAILED tests/test_checkout.py::test_vat_of_13_375
                1 failed, 41 passed in 0.92s
                """, "Run the failing test", 1),
             read(f"{SHOP}/shop/tax.py", """
                RATE = 0.2


                def vat(amount):
                    return round(amount * RATE, 2)
                """)],
            [grep(r"round\(", SHOP, ("shop/tax.py", 5, "    return round(amount * RATE, 2)"),
                  ("shop/report.py", 71, "    share = round(part / whole, 1)")),
             edit(f"{SHOP}/shop/tax.py", "    return round(amount * RATE, 2)",
                  "    return (amount * RATE).quantize(CENT, ROUND_HALF_UP)", 5)],
            [bash("python -m pytest -q", "42 passed in 0.88s", "Run the tests again")],
            [say("""
                `round()` on floats rounds half to even, so 2.675 became 2.67. I moved `vat()` to
                `Decimal` with `ROUND_HALF_UP`; 42 tests pass.

                | amount | before | after |
                |---|---|---|
                | 13.375 | 2.67 | 2.68 |
                """)],
        ),
        turn("Read shop/missing.py, too.",
             [failed("read", {"filePath": f"{SHOP}/shop/missing.py"},
                     f"File not found: {SHOP}/shop/missing.py")],
             [say("`shop/missing.py` does not exist.")]),
        turn("Plan the rest.",
             [todo(("Fix the rounding of VAT", "completed", "high"),
                   ("Add a test for refunds", "in_progress", "high"),
                   ("Document the rounding rule", "pending", "low"))],
             [say("Two things are left: a test for refunds, and a note on the rounding rule.")]),
    ),
)  # fmt: skip

JOURNAL = Script(
    "choose-journal-mode", SHOP, 3.1, "Choose the SQLite journal mode",
    (
        turn(
            "Orders time out when two workers write. Which journal mode should we use?",
            [think("Look at what the database uses today."),
             bash("sqlite3 shop.db 'PRAGMA journal_mode; PRAGMA busy_timeout'", "delete\n0",
                  "Current pragmas")],
            [think("WAL is the usual answer for many readers and one writer."),
             say("""
                The database runs in the rollback journal with no busy timeout, so the second writer
                fails at once.

                **Decision:** use WAL mode and `busy_timeout = 5000`.

                1. Readers no longer block the writer.
                2. One writer at a time still holds, so keep write transactions short.
                3. Take the lock early with `BEGIN IMMEDIATE`.
                """)],
        ),
        turn("Write that down in the code, please.",
             [edit(f"{SHOP}/shop/db.py", '    conn.execute("PRAGMA foreign_keys = ON")',
                   '    conn.execute("PRAGMA foreign_keys = ON")\n'
                   '    conn.execute("PRAGMA busy_timeout = 5000")', 7)],
             [say("Written to `shop/db.py`. Every connection now sets all three pragmas.")]),
        turn("It still fails now and then: “database is locked”, at once.",
             [bash("grep -rn 'BEGIN' shop | head", "shop/orders.py:18:    conn.execute('BEGIN')",
                   "How do transactions begin?"),
              edit(f"{SHOP}/shop/orders.py", "'BEGIN'", "'BEGIN IMMEDIATE'", 18)],
             [say("""
                A deferred transaction that reads first and writes later fails at once when another
                connection wrote in between; the timeout does not apply to that. `BEGIN IMMEDIATE`
                waits for the lock before it reads.
                """)]),
    ),
)  # fmt: skip

SLOW_PAGE = Script(
    "slow-product-page", SHOP, 0.016, "The product page takes two seconds",
    (
        turn(
            "The product page takes two seconds. Where does the time go?",
            [think("Measure before guessing: count the queries first."),
             bash("python -m shop.profile /product/107",
                  "queries 212  sql 1.71 s  template 0.08 s", "Count the queries")],
            [say("212 queries for one page. I look for the loop that asks for each review alone.")],
        ),
        turn("Go on.",
             Reply((think("The reviews are loaded one by one; one query can fetch them all."),
                    running("bash", {"command": "python -m pytest -q tests/test_product.py",
                                     "description": "Test the product page"},
                            "python -m pytest -q tests/test_product.py")), unfinished=True)),
    ),
    exported=False,
)  # fmt: skip

WEBHOOKS = Script(
    "webhook-idempotency", BILLING, 124.5, "Idempotency keys for webhooks",
    (
        turn(
            "The payment provider sends some webhooks twice and we book both. How do we stop that?",
            [think("At-least-once delivery: the receiver must make it exactly once."),
             read(f"{BILLING}/src/webhook.ts", """
                export async function receive(event: PaymentEvent) {
                  const invoice = await invoices.find(event.invoice);
                  await bookings.add(invoice, event.amount);
                }
                """)],
            [say("""
                Keep the id of every event in a table with a unique index, and book inside the same
                transaction:

                ```sql
                CREATE TABLE seen_events (id TEXT PRIMARY KEY, at INTEGER NOT NULL);
                ```

                An event that is there already answers 200 and does nothing.
                """)],
        ),
        turn("Build it.",
             [write(f"{BILLING}/migrations/012_seen_events.sql",
                    "CREATE TABLE seen_events (id TEXT PRIMARY KEY, at INTEGER NOT NULL);"),
              edit(f"{BILLING}/src/webhook.ts",
                   "  await bookings.add(invoice, event.amount);",
                   "  await db.transaction(async (tx) => {\n"
                   "    if (await tx.seen(event.id)) return;\n"
                   "    await bookings.add(invoice, event.amount, tx);\n"
                   "  });", 3)],
             [bash("npm test -- webhook", " PASS  test/webhook.test.ts (7 tests) 412ms", "Test")],
             [say("Booked once: seven tests pass, among them the same event a hundred times.")]),
    ),
)  # fmt: skip

_MODEL_ERROR = {
    "name": "APIError",
    "data": {
        "message": "The model is overloaded, try again later",
        "statusCode": 529,
        "isRetryable": True,
        "responseBody": '{"error":{"type":"overloaded","message":"try again later"}}',
    },
}

MODEL_FAILED = Script(
    "invoice-numbers", BILLING, 95.8, "Invoice numbers without gaps",
    (
        turn(
            "Invoice numbers must have no gaps, also when a booking is rolled back.",
            Reply(({"type": "retry", "attempt": 1, "error": _MODEL_ERROR},
                   {"type": "retry", "attempt": 2, "error": _MODEL_ERROR}),
                  {"error": _MODEL_ERROR}),
        ),
        turn("Try again.",
             [think("A sequence leaves gaps on rollback. A row inside the transaction does not."),
              say("""
                A database sequence leaves a gap on every rollback. Use a counter row per year,
                locked and raised inside the transaction of the booking: both roll back together.
                """)]),
        turn("How much slower is that?",
             [bash("npm run bench -- numbering",
                   "sequence     8,120 bookings/s\ncounter row  6,940 bookings/s", "Measure")],
             [say("15 % slower, at 6,940 bookings a second. We have about forty a minute.")]),
    ),
)  # fmt: skip

EURO = Script(
    "invoice-pdf-euro", BILLING, 72.2, "The invoice PDF loses the euro sign",
    (
        turn("On printed invoices € is an empty box, on screen it is fine.",
             [bash("pdffonts out/2041.pdf", """
                name                 type       encoding         emb sub
                -------------------- ---------- ---------------- --- ---
                Helvetica            Type 1     WinAnsi          no  no
                """, "Which fonts are in it?")],
             [think("Not embedded: the printer takes its own font, which has no euro sign."),
              glob("**/*.ttf", BILLING, "assets/Inter-Regular.ttf"),
              edit(f"{BILLING}/src/pdf.ts", 'doc.font("Helvetica")',
                   'doc.font("assets/Inter-Regular.ttf")', 12)],
             [bash("npm run pdf -- 2041 && pdffonts out/2041.pdf | tail -1",
                   "ABCDEF+Inter-Regular  TrueType   WinAnsi          yes yes", "Look again")],
             [say("The font was not embedded. Now a subset of Inter is, € included.")]),
    ),
)  # fmt: skip

DUNNING = Script(
    "dunning-letters", BILLING, 52.6, "Dunning letters in three steps",
    (
        turn(
            [{"type": "subtask", "prompt": "Review src/dunning.ts for dates and time zones.",
              "description": "Review the dunning code", "agent": "plan", "command": "review"}],
            [task("Review the dunning code", "Review src/dunning.ts for dates and time zones.",
                  "plan", "review-dunning", "Due dates are compared in local time, line 31.")],
        ),
        turn(
            [say("Plan the three dunning letters. Change nothing yet."),
             say("Plan mode is active: do not edit files.", synthetic=True)],
            [{"type": "snapshot", "snapshot": "5f0c9b1e77a2"},
             say("""
                | step | after due date | fee | tone |
                |---|---|---|---|
                | reminder | 7 days | none | friendly |
                | first dunning | 21 days | 5.00 | plain |
                | last dunning | 35 days | 12.00 | firm |

                - Due dates are days in the customer's time zone, never instants.
                - A letter is written once; a second run of the same day does nothing.
                """)],
        ),
        turn("Good. Build the first step.",
             [edit(f"{BILLING}/src/dunning.ts", "if (invoice.due < new Date())",
                   "if (daysBetween(invoice.dueDay, today(customer.zone)) >= 7)", 31)],
             [bash("npm test -- dunning", " PASS  test/dunning.test.ts (12 tests) 633ms", "Test")],
             [say("The reminder goes out seven days after the due day of the customer.")]),
    ),
    agent="plan",
)  # fmt: skip

DUNNING_CHILD = Script(
    "review-dunning", BILLING, 52.5995, "Review the dunning code (@plan subagent)",
    (
        turn("Review src/dunning.ts for dates and time zones.",
             [read(f"{BILLING}/src/dunning.ts", """
                export function due(invoice: Invoice) {
                  if (invoice.due < new Date()) return true;
                  return false;
                }
                """)],
             [say("Due dates are compared in local time, line 31.")]),
    ),
    agent="plan", parent="dunning-letters",
)  # fmt: skip

RATES = Script(
    "currency-rates", BILLING, 33.3, "Where exchange rates come from",
    (
        turn("Which rate do we use for an invoice in a foreign currency?",
             [think("Read the module before answering."),
              grep("rates", f"{BILLING}/src", ("money.ts", 8, "const rate = rates.latest(to);"))],
             [say("The latest one at the time of printing. A reprint may show another amount.")]),
        turn("It must be the rate of the invoice day.",
             [edit(f"{BILLING}/src/money.ts", "rates.latest(to)", "rates.on(invoice.day, to)", 8),
              failed("bash", {"command": "npm tset", "description": "Test"},
                     "npm: unknown command: tset")],
             [bash("npm test", " PASS  test/money.test.ts (19 tests) 287ms", "Test")],
             [say("Rates are now those of the invoice day, kept as strings with six digits.")]),
    ),
    newer=True,
)  # fmt: skip

_BANK_LOG = "\n".join(
    f"2026-{n % 12 + 1:02}-{n % 28 + 1:02};REF{n * 31:07};{n % 911},{n % 100:02};matched"
    for n in range(1, 1_601)
)

BANK = Script(
    "reconcile-bank", BILLING, 15.9, "Reconcile the bank export",
    (
        turn(
            [say("Match the attached export with open invoices. The picture is the bank's form."),
             say('Called the Read tool with the following input: {"filePath":"export.csv"}',
                 synthetic=True),
             file("export.csv", "text/plain",
                  "data:text/plain;base64,ZGF5O3JlZmVyZW5jZTthbW91bnQKMjAyNi0wMi0wMTtSRUYwMDAx"),
             file("form.png", "image/png",
                  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR4"
                  "2mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")],
            [think("Sixteen hundred lines; match by reference first, by amount and day second."),
             bash("npm run match -- export.csv --verbose", _BANK_LOG, "Match every line")],
            [say("1,600 lines: 1,588 match by reference, 9 by amount and day, 3 by nothing.")],
        ),
        turn("Show me the three.",
             [bash("npm run match -- export.csv --unmatched", """
                2026-02-03;;49,00;no reference
                2026-02-11;INVOICE 2O41;120,00;letter O instead of zero
                2026-02-19;THANK YOU;5,00;a gift
                """, "The lines without a match")],
             [say("One has no reference, one has the letter O for a zero, one is a gift.")]),
    ),
    model="coder-wide",
)  # fmt: skip

CREDIT_NOTES = Script(
    "credit-notes", BILLING, 0.9, "Credit notes for part of an invoice",
    (
        turn("A customer returns two of five items. What does the credit note look like?",
             [think("It must name the invoice and repeat its tax rate, not today's."),
              say("It names the invoice, lists the two items and repeats its tax rate.")]),
        turn("Add it.",
             [write(f"{BILLING}/src/credit.ts", """
                export function creditNote(invoice: Invoice, lines: Line[]): CreditNote {
                  return { invoice: invoice.number, lines, rate: invoice.rate };
                }
                """)],
             [say("Added `creditNote()` in `src/credit.ts`, with the rate of the invoice.")]),
    ),
    exported=False,
)  # fmt: skip

LINKS = Script(
    "link-checker", DOCS, 109.3, "A link checker in CI",
    (
        turn("Dead links keep slipping into the docs. Check them on every change, fast.",
             [glob("**/*.md", DOCS, "index.md", "guide/start.md", "guide/search.md", "api/http.md"),
              bash("python tools/links.py --offline",
                   "checked 412 links in 1.3 s\nguide/search.md:88  #ranking  no such heading",
                   "Check the links", 1)],
             [edit(f"{DOCS}/guide/search.md", "[ranking](#ranking)", "[order](#order)", 88)],
             [say("Links inside the docs are checked on every change; outer ones once a night.")]),
    ),
)  # fmt: skip

JAPANESE = Script(
    "cjk-search", DOCS, 79.5, "日本語ドキュメントの全文検索",
    (
        turn(
            "「検索」のような二文字の語で検索すると、何も見つかりません。原因を調べてください。",
            [think("トライグラムは三文字以上でないと当たらない。短い語は別に扱う必要がある。"),
             bash("python tools/find.py 検索 ; python tools/find.py 全文検索",
                  "検索: 0 件\n全文検索: 12 件", "二文字と四文字で比べる")],
            [edit(f"{DOCS}/tools/find.py", "return grams(word)",
                  "return grams(word) if len(word) > 2 else contains(word)", 27)],
            [bash("python tools/find.py 検索", "検索: 31 件", "もう一度")],
            [say("二文字以下の語は索引を使わず、本文を直接調べるようにしました。「検索」は 31 件です。")],
        ),
        turn("请再确认中文：“用户身份验证”和“登录”能找到吗？",
             [bash("python tools/find.py 用户身份验证 ; python tools/find.py 登录",
                   "用户身份验证: 4 条\n登录: 9 条", "检查中文")],
             [say("能找到：“用户身份验证”4 条，“登录”9 条。全角标点“，。”也不影响结果。👍")]),
    ),
)  # fmt: skip

RELEASE_NOTES = Script(
    "release-notes-spring", DOCS, 65.4, "Release notes for spring",
    (
        turn("Write the release notes from the commits since v1.4.",
             [bash("git log --oneline v1.4..", """
                9d1c2e4 search: two-character words
                41b7f90 links: check anchors
                c0ffee1 theme: dark code blocks
                """, "The commits")],
             [write(f"{DOCS}/releases/1.5.md", """
                # 1.5

                - Search finds words of two characters.
                - Dead anchors fail the build.
                - Code blocks follow the dark theme.
                """)],
             [say("Three notes in `releases/1.5.md`, each one line, the newest first.")]),
    ),
    archived=True,
)  # fmt: skip

SCREENSHOTS = Script(
    "screenshots-dark", DOCS, 8.3, "Screenshots in light and dark",
    (
        turn("Every screenshot should exist twice and follow the reader's theme.",
             [think("A picture element with a media query does it without any script."),
              write(f"{DOCS}/theme/shot.html", """
                <picture>
                  <source srcset="{{ name }}-dark.png" media="(prefers-color-scheme: dark)">
                  <img src="{{ name }}.png" alt="{{ alt }}">
                </picture>
                """)],
             [bash("python tools/shots.py --all", "18 pages, 36 pictures, 0 without alt text",
                   "Take them")],
             [say("36 pictures for 18 pages. The theme chooses, without a script.")]),
        turn("Note what a picture may show.",
             [say("Only the demo data, never a real project: written into `guide/pictures.md`.")]),
    ),
)  # fmt: skip

QUICK_START = Script(
    "quick-start", DOCS, 0.35, "A quick start on one page",
    (
        turn("Newcomers give up at the third page. Make the start fit on one.",
             [read(f"{DOCS}/guide/start.md", """
                # Start

                1. Install.
                2. Configure.
                3. Read the concepts.
                """)],
             [say("I would show a result after two commands, and move the concepts behind it.")]),
    ),
    exported=False,
)  # fmt: skip

SCRIPTS: tuple[Script, ...] = (
    SET_UP, WEBHOOKS, CART, LINKS, MODEL_FAILED, SURVEY, SURVEY_CHILD, JAPANESE, STREET, EURO,
    RELEASE_NOTES, REVERTED, DUNNING, DUNNING_CHILD, KEY_PASTED, FEED, RATES, REFUNDS, BANK,
    PRICE_LISTS, RATE_LIMIT, SCREENSHOTS, CHECKOUT, JOURNAL, CREDIT_NOTES, QUICK_START, SLOW_PAGE,
)  # fmt: skip
"""Every session, the oldest first."""
