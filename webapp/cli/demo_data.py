"""The invented entries, and what was done with some of them. Nothing here is real."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.cli.demo_parts import BILLING, DOCS, SHOP, clean
from webapp.scope import GLOBAL

PERSON = ""
"""Stands for the person at the keyboard, whose name the settings know."""


@dataclass(frozen=True, slots=True)
class Note:
    """An entry that was saved `age` days ago, to live for `lasts` days; 0 is for ever."""

    age: float
    scope: str
    kind: str
    title: str
    body: str
    tags: tuple[str, ...] = ()
    source: str = "build"
    lasts: float = 0


@dataclass(frozen=True, slots=True)
class Edited:
    """A note that got another title and body."""

    age: float
    scope: str
    title: str
    new_title: str
    new_body: str
    actor: str = PERSON


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Notes that were moved to the trash together; `titles` are all of one scope."""

    age: float
    scope: str
    titles: tuple[str, ...]
    actor: str = PERSON


@dataclass(frozen=True, slots=True)
class Restored:
    """A note that was taken out of the trash."""

    age: float
    scope: str
    title: str
    actor: str = PERSON


@dataclass(frozen=True, slots=True)
class Purged:
    """A note that was destroyed while in the trash."""

    age: float
    scope: str
    title: str
    actor: str = PERSON


@dataclass(frozen=True, slots=True)
class Swept:
    """The sweep of what had been in the trash for over 30 days."""

    age: float


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """A cleanup of transcripts untouched for `retention_days`."""

    age: float
    retention_days: int
    keep_recent: int
    actor: str = PERSON


Event = Note | Edited | Forgotten | Restored | Purged | Swept | CleanedUp

CONFLICT_TITLE = "Coupons are checked in the cart"
CJK_TITLE = "全文検索は二文字の語でも当たること"
SCRIPT_TITLE = "Escape product names: one of them is <script>alert('shop')</script>"
LONG_TITLE = (
    "When a supplier sends a price list in a foreign currency, keep that list as it came and "
    "convert it only when it is shown"
)

RELEASE_BODY = clean("""
    # Releasing billing

    Once a month, **on a Tuesday**, never before a public holiday. Two people; the second one reads.

    ## Before

    1. Freeze `main` and wait for CI.
    2. Restore last night's backup into the rehearsal database and run the migrations on it.
    3. Compare the totals:

    | check | command | accepted |
    |---|---|---|
    | open invoices | `npm run totals -- open` | equal to the cent |
    | dunning queue | `npm run dunning -- --dry-run` | at most 40 letters |
    | numbering | `npm run numbers -- --gaps` | no gaps |
    | exchange rates | `npm run rates -- --check` | none older than a day |

    ## During

    ```sh
    npm run maintenance -- on --minutes 10
    npm run migrate -- --timeout 120
    npm run start -- --workers 4
    npm run smoke && npm run maintenance -- off
    ```

    - If a migration takes longer than two minutes, **stop**: it waits for a lock.
      - Look at who holds it: `npm run locks`.
      - Never kill the booking worker; it finishes by itself within a minute.
    - If a smoke test fails, go back: `npm run rollback`. The migrations are made so that the
      version before still runs on the new tables.

    ## After

    - [ ] Write one line per change into `CHANGELOG.md`.
    - [ ] Send the first invoice by hand and *look at it*, on paper.
    - [ ] Watch the queue for an hour; it should never hold more than 200 jobs.
    - [ ] Tag the release: `git tag -s v$(date +%Y.%m)`.

    > Why by hand? In spring an invoice went out with an empty box in place of the euro sign. Every
    > automatic test had passed, since none of them looks at the picture.

    ## Numbers of the last three releases

    | release | migration | downtime | letters |
    |---|---:|---:|---:|
    | 2.7 | 41 s | 3 min | 12 |
    | 2.8 | 18 s | 2 min | 31 |
    | 2.9 | 77 s | 4 min | 9 |
    """)

NOTES: tuple[Note, ...] = (
    # The shop.
    Note(148.9, SHOP, "preference", "Tests before a commit",
         "Run `python -m pytest -q` before every commit; a red commit costs everybody a morning.",
         ("tests", "git"), PERSON),
    Note(139.2, SHOP, "fact", "Article numbers are SKU- and five digits",
         "`SKU-00107`. Older ones have four digits and are padded when they are read.",
         ("catalogue",)),
    Note(126.4, SHOP, "decision", "One process, threads, SQLite",
         "One shop, one machine, forty orders an hour. A database server would be one more thing "
         "that can be down. Looked at again when two machines are needed.",
         ("architecture", "sqlite"), "plan"),
    Note(117.3, SHOP, "lesson", "Money is Decimal from the form to the mail",
         "Floats crept in twice: in `cart.total()` and in the order mail. Three times 0.10 gave "
         "0.30000000000000004. Build `Decimal` from the text, never from a float.",
         ("money",), "reflection"),
    Note(104.6, SHOP, "gotcha", "Template names are cached in production only",
         "A renamed template works on the laptop and fails after deployment until the workers are "
         "restarted.", ("deploy", "templates")),
    Note(88.4, SHOP, "decision", "Only shop/tax.py rounds",
         "`cents()` is the only place that rounds prices. `discount.py` used to round on its own, "
         "so a cart with a coupon was a cent off.", ("money", "refactoring")),
    Note(76.0, SHOP, "lesson", "casefold, not lower, on both sides of a search",
         "`lower()` keeps ß, so “strasse” did not find “Straße”. Index and query must fold alike.",
         ("search", "unicode")),
    Note(69.5, SHOP, "gotcha", SCRIPT_TITLE,
         "A supplier's test article is really named <script>alert('shop')</script> & co. It is a "
         "good test: it must show as text in lists, mails, invoices and <title>.",
         ("security", "templates"), "reflection"),
    Note(55.1, SHOP, "fact", "The proxy sets X-Forwarded-For, and only the proxy",
         "Requests reach the shop through the proxy alone; the last address in the header is the "
         "client's. `REMOTE_ADDR` is always the proxy.", ("network",)),
    Note(47.1, SHOP, "gotcha", "Keys live in the password store, not in local.env",
         "A key was pasted into a session once and had to be rotated, as had the ghp_ token beside "
         "it. Name the variable in a note, never its value.", ("security",), PERSON),
    Note(36.3, SHOP, "gotcha", "Supplier feeds have line ends inside quotes",
         'Open them with `newline=""` and let `csv.reader` split; splitting at line ends first '
         "loses rows.\n\n```python\nwith open(path, newline='') as file:\n    rows = "
         "list(csv.reader(file, delimiter=';'))\n```", ("import", "csv")),
    Note(24.1, SHOP, "lesson", "PRAGMA foreign_keys is off for each new connection",
         "17 refunds lost their order, since SQLite switches foreign keys off by default, for each "
         "connection anew. `connect()` sets it and a test asserts it.", ("sqlite", "db"),
         "reflection"),
    Note(14.1, SHOP, "fact", "Catalogue import: 900 rows, 3 skipped",
         "The checkpoint token and the skipped rows are in the transcript of “Migrate the price "
         "lists”, under “imported=900”.", ("import",)),
    Note(14.0, SHOP, "compaction", "Compacted: Migrate the price lists",
         "Lists 1 to 4 were moved when the context was compacted. The whole record is the "
         "transcript of that session; retrieve exact values from it instead of guessing.\n\nLast "
         "request: “Step 5: move price list 5 to the new table.”", ("prices",)),
    Note(9.0, SHOP, "decision", "Five checkout tries a minute for each cart",
         "Then 429 with `Retry-After`. Counted by cart, by the forwarded address only where there "
         "is none.", ("security", "checkout")),
    Note(5.1, SHOP, "lesson", "VAT rounds half up, with Decimal",
         "round() on floats rounds half to even, so 13.375 became 2.67. Money is Decimal "
         "everywhere; see tax.py.", ("money", "tests")),
    Note(3.0, SHOP, "gotcha", "BEGIN IMMEDIATE or the timeout is ignored",
         "A deferred transaction that reads first fails at once when it upgrades; `busy_timeout` "
         "does not apply. Take the lock early.", ("db",), "reflection"),
    Note(3.05, SHOP, "decision", "Use WAL mode and a busy timeout",
         "The shop database runs in WAL mode with `busy_timeout = 5000`; one writer at a time "
         "still holds, so write transactions stay short.", ("db", "sqlite")),
    Note(0.15, SHOP, "fact", "The spring sale ends soon: prices in list 9 count until then",
         "Until the sale is over, list 9 goes before all others. This note goes by itself.",
         ("prices", "sale"), PERSON, lasts=12),
    # Billing.
    Note(144.8, BILLING, "fact", "Amounts are whole cents, rates are strings",
         "`amount: number` is cents. Exchange rates keep six digits as text and become numbers "
         "only inside `money.ts`.", ("money",), "plan"),
    Note(132.7, BILLING, "preference", "No default exports",
         "Named exports only: a rename is then found by the compiler.", ("style",), PERSON),
    Note(124.2, BILLING, "decision", "Webhooks are booked once, by event id",
         "The provider delivers at least once. `seen_events` has a unique id, and the booking "
         "happens in the same transaction; a known event answers 200.", ("webhooks", "db")),
    Note(95.6, BILLING, "decision", "Invoice numbers come from a counter row, not a sequence",
         "A sequence leaves gaps on rollback, which the tax office does not accept. Measured: "
         "6,940 bookings a second instead of 8,120.", ("invoices", "db")),
    Note(72.1, BILLING, "lesson", "Embed the font, or the printer takes its own",
         "€ was an empty box on paper and fine on screen. `pdffonts` must say `emb yes` for each.",
         ("invoices", "pdf"), "reflection"),
    Note(63.0, BILLING, "decision", LONG_TITLE,
         "The rate of the day it came would be frozen into the stored prices otherwise.",
         ("money", "prices"), "plan"),
    Note(52.4, BILLING, "gotcha", "A due date is a day, not an instant",
         "Compared in UTC a reminder went out a day early to customers in the west. Use "
         "`daysBetween(day, today(zone))`.", ("dunning", "time")),
    Note(43.8, BILLING, "fact", "How a release of billing goes", RELEASE_BODY,
         ("release", "checklist", "operations"), PERSON),
    Note(33.1, BILLING, "decision", "The exchange rate is the one of the invoice day",
         "Also on a reprint. `rates.on(invoice.day, currency)`, never `rates.latest()`.",
         ("money", "invoices")),
    Note(21.3, BILLING, "preference", "SQL in capitals, one clause a line",
         "```sql\nSELECT number, total\nFROM invoices\nWHERE paid_at IS NULL\nORDER BY due\n```",
         ("style", "sql"), PERSON),
    Note(15.7, BILLING, "fact", "The bank export mixes letters O and zeros",
         "About one line in five hundred. Match by amount and day where the reference fails, and "
         "show those for a person to confirm.", ("bank", "import")),
    Note(6.8, BILLING, "compaction", "Compacted: Reconcile the bank export",
         "1,600 lines were matched, three are open. The lines themselves are in the transcript.",
         ("bank",)),
    Note(0.8, BILLING, "decision", "A credit note repeats the tax rate of its invoice",
         "Not the rate of the day it is written. It names the invoice and lists what came back.",
         ("invoices", "tax")),
    # The docs.
    Note(136.1, DOCS, "preference", "Short sentences, active voice, no “simply”",
         "Nobody was ever helped by reading that something is simple.", ("writing",), PERSON),
    Note(109.0, DOCS, "decision", "Inner links are checked on every change, outer ones at night",
         "412 inner links take 1.3 s. Other people's servers are slow and must not fail our build.",
         ("ci", "links")),
    Note(92.9, DOCS, "gotcha", "Headings are link targets, so renaming one breaks links",
         "The checker finds dead anchors inside the docs, not those on other sites. Keep the old "
         'anchor: `<a id="old-name"></a>`.', ("links",)),
    Note(79.4, DOCS, "gotcha", CJK_TITLE,
         "トライグラム索引は三文字以上の語にしか当たらない。二文字以下の語（例：「検索」「登录」）は本文を"
         "直接調べること。確認方法：`python tools/find.py 検索` が 31 件を返す。",
         ("検索", "日本語"), "reflection"),
    Note(65.2, DOCS, "fact", "Release notes: one line a change, the newest first",
         "Written from the reader's side: what is different, not what was done.", ("release",)),
    Note(28.5, DOCS, "lesson", "A picture without alt text is a hole",
         "`tools/shots.py` refuses one. Say what the picture shows, not that it is a picture.",
         ("accessibility", "pictures"), "reflection"),
    Note(8.2, DOCS, "decision", "Pictures exist in light and dark",
         "A `picture` element with a media query; no script. 36 files for 18 pages.",
         ("pictures", "theme")),
    Note(0.3, DOCS, "lesson", "Show a result after two commands",
         "Readers left at the third page. Concepts come after the first success.", ("writing",),
         "reflection"),
    # Everywhere.
    Note(146.0, GLOBAL, "preference", "Answer in the language of the question",
         "Code, comments and commit messages stay English.", ("style",), PERSON),
    Note(111.4, GLOBAL, "lesson", "Measure before making it faster",
         "Twice the slow part was not where it was suspected. Count queries, print times, then "
         "change one thing.", ("performance",), "reflection"),
    Note(83.3, GLOBAL, "gotcha", "A failing hook hides in the exit code of a pipe",
         "`make test | tee log` succeeds whatever `make` says. Use `set -o pipefail`.",
         ("shell", "ci")),
    Note(40.2, GLOBAL, "preference", "Ask before adding a dependency",
         "Say what it saves, how large it is and who keeps it. Three lines are enough.",
         ("dependencies",), PERSON),
    Note(17.6, GLOBAL, "preference", "Short commit messages that say why",
         "One line under 60 characters, the reason in the body.", ("git", "style"), PERSON),
    Note(2.2, GLOBAL, "fact", "The build machine is being moved: use the second one",
         "CI may queue for up to ten minutes until the move is done.", ("ci",), PERSON, lasts=45),
)  # fmt: skip
"""What is live today, before the edit among the events."""

GONE: tuple[Note, ...] = (
    Note(101.0, SHOP, "fact", "The old theme lives in static/v1",
         "Kept for customers with bookmarks, until the summer.", ("theme",)),
    Note(96.5, SHOP, "preference", "Tabs in templates",
         "Two teams, two editors. Settled by the formatter since.", ("style",), PERSON),
    Note(81.0, SHOP, "decision", CONFLICT_TITLE,
         "When the cart is shown and nowhere else; the checkout trusts it.", ("coupons",), "plan"),
    Note(58.3, SHOP, "lesson", "Retry the mail server three times",
         "It was down twice in a week. The queue does that by itself now.", ("mail",),
         "reflection"),
    Note(66.6, BILLING, "fact", "The test bank answers on port 4011",
         "Since the move it is 4020; see the README.", ("bank", "tests")),
    Note(49.9, BILLING, "lesson", "Reminders on Mondays are read least",
         "From one month of data; too little to go by.", ("dunning",), "reflection"),
    Note(34.0, DOCS, "fact", "The preview server is rented until the end of the month",
         "Pushes to `preview` appear on it within a minute.", ("preview",), PERSON, lasts=22),
    Note(120.5, GLOBAL, "preference", "Emoji in commit messages", "One for each kind of change.",
         ("git",), PERSON),
    Note(90.2, GLOBAL, "fact", "A note to try the memory", "Does it save?", ("test",), PERSON),
    Note(74.7, SHOP, "fact", "Sandbox password hint", "It hung on the wall. Now it does not.",
         ("test",), PERSON),
)  # fmt: skip
"""What was saved once and is in the trash now, or was destroyed."""

EVENTS: tuple[Event, ...] = (
    Forgotten(73.9, GLOBAL, ("A note to try the memory",)),
    Swept(43.5),
    Forgotten(27.2, SHOP, ("Sandbox password hint",)),
    Purged(27.1, SHOP, "Sandbox password hint"),
    Forgotten(25.4, BILLING, ("The test bank answers on port 4011",), "build"),
    Forgotten(20.8, SHOP, ("The old theme lives in static/v1", "Tabs in templates")),
    Forgotten(18.3, SHOP, ("Only shop/tax.py rounds",), "build"),
    Restored(18.1, SHOP, "Only shop/tax.py rounds"),
    Forgotten(13.4, GLOBAL, ("Emoji in commit messages",)),
    Forgotten(10.6, SHOP, (CONFLICT_TITLE, "Retry the mail server three times")),
    Note(10.2, SHOP, "decision", CONFLICT_TITLE,
         "In the cart for the customer, and again in the checkout, since a cart may be a day old.",
         ("coupons", "checkout")),
    Forgotten(7.5, DOCS, ("Headings are link targets, so renaming one breaks links",)),
    Restored(7.4, DOCS, "Headings are link targets, so renaming one breaks links"),
    CleanedUp(6.0, retention_days=120, keep_recent=5),
    Edited(4.4, BILLING, "Reminders on Mondays are read least",
           "Reminders go out on Wednesdays",
           "Three months of data: read twice as often as on Mondays. Measured again in autumn."),
    # Saved a second time, as agents do: the same words, so that only its time is new.
    Note(1.1, BILLING, "gotcha", "A due date is a day, not an instant",
         "Compared in UTC a reminder went out a day early to customers in the west. Use "
         "`daysBetween(day, today(zone))`.", ("dunning", "time"), "plan"),
)  # fmt: skip
"""What happened besides, in order."""

LIMITS = {
    "coder-large": {"context": 28_000, "output": 8_000},
    "coder-wide": {"context": 64_000, "output": 8_000},
}
"""The limits of the invented models, in tokens."""

GLOBAL_AGENTS = """# How I work

- Answer in short sentences, and say when you are not sure.
- Money is an integer of cents or a Decimal, never a float.
- A change comes with the test that would have caught its absence.
- Ask before you touch anything below `migrations/`.
- Run `make check` before you say that something is done, and show its last lines.
"""

CLAUDE_HOME = """# Notes for another agent

- Prefer rg to grep.
"""
