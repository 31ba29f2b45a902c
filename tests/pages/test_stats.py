"""`/stats`: counts, sizes and plots, the same counts as search."""

from __future__ import annotations

import json
from typing import Any

SHOP = "/home/demo/shop"
DAY = 86_400_000
MARCH = 1_772_323_200_000


def figures(answer: Any) -> dict[str, str]:
    """The figures at the top."""
    return {
        box.one("dt").text: box.one("dd").text
        for box in answer.doc.one("dl", class_="figures").all("div")
    }


def table(answer: Any, heading: str) -> dict[str, str]:
    """First and second column of the table under a heading."""
    section = next(s for s in answer.doc.all("section") if heading in [h.text for h in s.all("h2")])
    cells = [[cell.text for cell in row.all("td")] for row in section.all("tr") if row.all("td")]
    return {row[0]: row[1] for row in cells}


def test_an_unused_store_has_nothing_to_count(site: Any) -> None:
    answer = site.get("/stats")
    assert answer.status == 200
    assert figures(answer)["entries"] == "0"
    assert figures(answer)["oldest entry"] == "—"
    assert "Nothing to plot yet." in answer.text
    assert not site.settings.db.exists()


def test_the_figures_count_what_is_live(site: Any) -> None:
    site.save("One", scope=SHOP, kind="decision", source="build", now=MARCH)
    site.save("Two", scope=SHOP, source="build")
    site.save("Three", source="plan")
    gone = site.save("Gone")
    site.post(f"/entries/{gone.id}/forget")
    site.foreign_entry("old", title="Expired", expires_at=MARCH)
    answer = site.get("/stats")
    shown = figures(answer)
    assert (shown["entries"], shown["of them global"], shown["in the trash"]) == ("3", "1", "1")
    assert shown["memory.db"].endswith("KB")
    assert table(answer, "Entries by kind") == {"fact": "2", "decision": "1"}
    assert table(answer, "Entries by writer") == {"build": "2", "plan": "1"}
    assert table(answer, "Entries by project") == {SHOP: "2", "global": "1"}
    links = {a.text: a.attrs["href"] for a in answer.main.all("a")}
    assert links["decision"] == "/?kind=decision"
    assert links["build"] == "/?source=build"
    assert "3 matching" not in answer.text
    counts = site.get(links["build"]).doc.one("nav", class_="tabs").all(class_="count")
    assert counts[0].text == "2"


def test_the_transcripts_are_counted_by_project(site: Any) -> None:
    site.export_all()
    site.foreign_transcript("ses_a", "# A\nscope: /home/demo/blog\nx\n")
    answer = site.get("/stats")
    assert figures(answer)["transcripts"] == "16"
    assert table(answer, "Transcripts by project") == {SHOP: "15", "/home/demo/blog": "1"}
    listed = site.get("/transcripts").text
    assert figures(answer)["their lines"] in listed


def test_the_plots_carry_their_numbers_and_the_same_as_a_table(site: Any) -> None:
    site.save("One", kind="decision", now=MARCH)
    site.save("Two", kind="fact", now=MARCH + DAY)
    site.save("Three", kind="fact", now=MARCH + DAY + 5)
    answer = site.get("/stats")
    box = next(
        s for s in answer.doc.all("section", class_="chart-box") if "by kind" in s.one("h2").text
    )
    chart = box.one("div", class_="chart")
    days, names, values = (
        json.loads(chart.attrs[f"data-{n}"]) for n in ("days", "names", "values")
    )
    assert names == ["fact", "decision"]
    assert days[:3] == [(MARCH - DAY) // 1000, MARCH // 1000, (MARCH + DAY) // 1000]
    assert all(len(column) == len(days) for column in values)
    assert [column[:3] for column in values] == [[0, 0, 2], [0, 1, 1]]
    rows = [[cell.text for cell in row.all("td")] for row in box.one("tbody").all("tr")]
    assert rows[:3] == [
        ["2026-02-28", "0", "0"],
        ["2026-03-01", "0", "1"],
        ["2026-03-02", "2", "1"],
    ]
    assert "fact 2" in chart.attrs["aria-label"]


def test_names_cannot_break_out_of_the_plots(hostile: Any) -> None:
    answer = hostile.get("/stats")
    answer.assert_inert()
    charts = answer.doc.all(class_="chart")
    assert len(charts) == 3
    names = [name for chart in charts for name in json.loads(chart.attrs["data-names"])]
    assert any("<script>alert(1)</script>" in name for name in names)


def test_odd_times_of_another_program_do_not_break_the_plots(site: Any) -> None:
    site.save("Live")
    for number, at in enumerate((-(10**15), -1, 0, 10**15, 9 * 10**18)):
        site.foreign_entry(f"odd-{number}", created_at=at, updated_at=at)
    answer = site.get("/stats")
    assert answer.status == 200
    assert figures(answer)["entries"] == "6"


def test_a_smaller_memory_db_is_offered_where_it_is_worth_it(site: Any) -> None:
    site.save("Kept")
    assert not site.get("/stats").has_form("/vacuum")
    for number in range(40):
        site.foreign_entry(f"long-{number}", body="x" * 100_000)
    site.rows("DELETE FROM entries WHERE id LIKE 'long-%'")
    page = site.get("/stats")
    job = site.finished(site.submit(page, page.form("/vacuum"), "Make memory.db smaller"))
    assert "memory.db took " in job.text and "1 of 1" in job.text
    assert not site.get("/stats").has_form("/vacuum")
    receipt = site.get(next(a for a in job.doc.all("a") if a.text == "Receipt").attrs["href"])
    assert receipt.main.one("h1").text == "Made memory.db smaller"
    assert set(receipt.facts) == {"before", "after", "bytes"}
    assert " MB (" in receipt.facts["before"]
    assert "Kept" in site.get("/?q=kept").text


def test_an_unused_store_is_not_made_by_a_vacuum(site: Any) -> None:
    job = site.finished(site.post("/vacuum"))
    assert "There is no memory.db yet" in job.text
    assert not site.settings.db.exists()
