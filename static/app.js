"use strict";
// Everything here makes a page quicker to use; without it each page works by links and forms.
(() => {
  document.documentElement.classList.add("js");
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const typing = (event) =>
    event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") || $("dialog[open]");

  // Toasts -------------------------------------------------------------------------------------
  const say = (text, bad = false) => {
    const toast = document.createElement("div");
    toast.className = bad ? "toast bad" : "toast";
    const span = document.createElement("span");
    span.textContent = text;
    toast.append(span);
    $("#toasts").replaceChildren(toast);
    fade(toast);
  };
  const fade = (toast) => {
    if (toast.dataset.timed || toast.classList.contains("bad")) return;
    toast.dataset.timed = "1";
    const wait = () => setTimeout(() => (toast.matches(":hover, :focus-within") ? wait() : toast.remove()), 8000);
    wait();
  };
  const fadeAll = () => all("#toasts .toast").forEach(fade);
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) event.target.closest(".toast").remove();
  });

  // Forms --------------------------------------------------------------------------------------
  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button && button.dataset.confirm && !window.confirm(button.dataset.confirm)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }, true);
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.dataset.all) all(`input[name="${box.dataset.all}"]`).forEach((one) => { one.checked = box.checked; });
    if ("submit" in box.dataset) box.form.requestSubmit();
    const pill = box.closest(".pill");
    if (pill) pill.classList.toggle("on", box.type === "checkbox" ? box.checked : Boolean(box.value));
  });
  document.addEventListener("htmx:sendError", () => say("The server does not answer. Is it still running?", true));
  // A search that goes on is shown anew twice a second; whoever walks through its hits stays there.
  let walked = "";
  document.addEventListener("htmx:beforeSwap", () => { walked = $("[data-item].active a")?.getAttribute("href") || ""; });
  document.addEventListener("htmx:afterSettle", (event) => {
    fadeAll();
    if (event.target.id === "message") showMessage();
    const link = walked && all("[data-item] a").find((one) => one.getAttribute("href") === walked);
    if (!link) return;
    link.closest("[data-item]").classList.add("active");
    if (document.activeElement === document.body) link.focus({ preventScroll: true });
  });

  const showHelp = () => $("#help").showModal();
  document.addEventListener("click", (event) => { if (event.target.closest("[data-help]")) showHelp(); });

  // Keys ---------------------------------------------------------------------------------------
  let went = 0;
  const items = () => all("[data-item]").filter((item) => item.checkVisibility());
  const move = (step) => {
    const list = items();
    if (!list.length) return;
    const now = list.findIndex((item) => item.classList.contains("active"));
    const next = list[Math.min(list.length - 1, Math.max(0, now < 0 ? (step > 0 ? 0 : list.length - 1) : now + step))];
    list.forEach((item) => item.classList.toggle("active", item === next));
    const link = $("a", next);
    if (link) link.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.matches("#q")) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const key = event.key;
    if (went && Date.now() - went < 1500) {
      went = 0;
      const link = $(`[data-go="${CSS.escape(key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (key === "g") { went = Date.now(); return; }
    if (key === "/") { event.preventDefault(); $("#q").focus(); $("#q").select(); }
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "n") { const link = $('[aria-keyshortcuts="n"]'); if (link) link.click(); }
    else if (key === "?") showHelp();
    else if (key === "w") { const button = $("[data-wrap]"); if (button) button.click(); }
    else if (key === "f") { const button = $("[data-fold]"); if (button) button.click(); }
    else if (key === "m") toggleMessage();
    else if (key === "y") copyLink();
    else if (key === "p") {
      const one = $(".active [data-promote]") || $("[data-promote]:enabled, a[data-promote]");
      if (one) one.click();
      else if (record) say("Click a line number first, then promote it.");
    }
    else if (key === "[" || key === "]") { const link = $(`.bar a[rel="${key === "[" ? "prev" : "next"}"]`); if (link) link.click(); }
  });

  // The record ---------------------------------------------------------------------------------
  const record = $("#record");
  let anchor = 0;
  const rows = () => all(".row", record);
  const numberOf = (row) => Number(row.id.slice(1));
  const chosen = () => rows().filter((row) => row.classList.contains("selected"));
  const select = (first, last) => {
    rows().forEach((row) => {
      const n = numberOf(row);
      row.classList.toggle("selected", n >= first && n <= last);
    });
    $("[data-copy]", record).disabled = false;
    const promote = $("[data-promote]", record);
    promote.form.elements.lines.value = first === last ? first : `${first}-${last}`;
    promote.disabled = false;
  };
  const address = (first, last) => `${record.dataset.base}/${first === last ? first : `${first}-${last}`}`;
  // The same fold as webapp/lines.py: fingerprint().
  const fingerprint = (list) =>
    list.reduce((value, row) => (Math.imul(value, 31) + Number(row.dataset.h)) >>> 0, 0).toString(16).padStart(8, "0");
  const copyText = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      const done = document.execCommand("copy");
      box.remove();
      return done;
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copies]");
    if (!button) return;
    if (await copyText(document.getElementById(button.dataset.copies).textContent)) say("Copied.");
    else say("The browser does not allow copying. Select the text and copy it.", true);
  });
  async function copyLink() {
    if (!record) return;
    const list = chosen();
    if (!list.length) { say("Click a line number first, then copy the link."); return; }
    const [first, last] = [numberOf(list[0]), numberOf(list.at(-1))];
    const link = `${location.origin}${address(first, last)}?h=${fingerprint(list)}#L${first}`;
    const what = first === last ? `line ${first}` : `lines ${first} to ${last}`;
    if (await copyText(link)) say(`Copied the link to ${what}.`);
    else say(`The browser does not allow copying. The link: ${link}`, true);
  }
  // The message beside the lines: of the selected line, or of the first in view.
  function toggleMessage() {
    if (!record) return;
    const close = $("#message-close");
    if (close) { close.click(); return; }
    if ("foreign" in record.dataset) { say("Another program wrote this transcript; where its messages begin is not known."); return; }
    const list = rows();
    const top = $(".bar", record).getBoundingClientRect();
    const edge = getComputedStyle($(".bar", record)).position === "sticky" ? Math.max(0, top.bottom) : 0;
    const row = chosen()[0] || list.find((one) => one.offsetParent !== null && one.getBoundingClientRect().bottom > edge);
    if (!row) return;
    const heading = list.slice(0, list.indexOf(row) + 1).reverse().find((one) => one.classList.contains("h2"));
    const link = heading && $("a.md", heading);
    if (link) { link.click(); return; }
    const place = new URL(location.href);
    place.searchParams.set("md", String(numberOf(row)));
    place.hash = "message";
    location.assign(place);
  }
  // A line selected since the page came is in the address, and not in the links that came with it.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.target.id !== "message" || !/\/\d+(-\d+)?$/.test(location.pathname)) return;
    const place = new URL(event.detail.path, location.href);
    if (place.pathname !== location.pathname) place.searchParams.delete("h");
    event.detail.path = location.pathname + place.search;
  });
  const showMessage = () => {
    const panel = $("#message");
    const reader = panel.parentElement;
    const was = reader.classList.contains("two");
    reader.classList.toggle("two", !panel.hidden);
    all("a.md", record).forEach((link) => {
      if (link.dataset.md === panel.dataset.first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    if (panel.hidden) return;
    panel.focus({ preventScroll: true });
    const narrow = panel.offsetTop + panel.offsetHeight <= record.offsetTop;
    if (narrow) panel.scrollIntoView({ block: "start" });
    else if (!was && panel.dataset.first) {
      const row = document.getElementById(`L${panel.dataset.first}`);
      if (row) row.scrollIntoView({ block: "nearest" });
    }
  };
  const fromHash = () => {
    const match = /^#L(\d{1,13})(?:-L?(\d{1,13}))?$/.exec(location.hash);
    if (!match) return false;
    const [first, last] = [Number(match[1]), Number(match[2] || match[1])];
    if (!document.getElementById(`L${first}`) || (match[2] && !document.getElementById(`L${last}`))) {
      if (first >= 1 && last >= first) location.replace(`${address(first, last)}${location.search}#L${first}`);
      return true;
    }
    const range = chosen();
    const inside = range.length && first === numberOf(range[0]) && !match[2];
    if (!inside) select(first, last);
    document.getElementById(`L${first}`).scrollIntoView({ block: "start" });
    return true;
  };
  if (record) {
    // Wrapping, folding and colours are the reader's taste, so they are kept in the browser and not in the address.
    for (const name of ["wrap", "fold", "ansi"]) {
      const button = $(`[data-${name}]`, record);
      if (!button) continue;
      const show = (on) => {
        const box = $(".rows", record);
        if (box) {
          box.classList.toggle(name, on);
          $(".all-folded", record).hidden = rows().some((row) => row.offsetParent !== null);
        }
        button.setAttribute("aria-pressed", String(on));
      };
      let on = new URLSearchParams(location.search).has(name);
      try { on = on || localStorage.getItem(name) === "1"; } catch { /* a browser that keeps nothing */ }
      show(on);
      button.addEventListener("click", () => {
        on = !on;
        show(on);
        try { localStorage.setItem(name, on ? "1" : "0"); } catch { /* a browser that keeps nothing */ }
      });
    }
    $("[data-copy]", record).addEventListener("click", copyLink);
    record.addEventListener("click", (event) => { if (event.target.closest("[data-unfold]")) $("[data-fold]", record).click(); });
    if (chosen().length) anchor = numberOf(chosen()[0]);
    record.addEventListener("click", (event) => {
      const link = event.target.closest("a.n");
      if (!link || event.ctrlKey || event.metaKey || event.button) return;
      event.preventDefault();
      const n = Number(link.dataset.n);
      const [first, last] = event.shiftKey && anchor ? [Math.min(anchor, n), Math.max(anchor, n)] : [n, n];
      if (!(event.shiftKey && anchor)) anchor = n;
      select(first, last);
      const find = $('.find input[name="from"]', record);
      if (find) find.value = String(first);
      history.replaceState(history.state, "", `${address(first, last)}${location.search.replace(/([?&])h=[^&]*&?/, "$1").replace(/[?&]$/, "")}`);
      window.getSelection().removeAllRanges();
    });
    if (!fromHash()) {
      const first = chosen()[0];
      if (first) first.scrollIntoView({ block: "center" });
    }
    const mark = chosen().length ? $("mark", chosen()[0]) : null;
    if (mark) mark.scrollIntoView({ block: "nearest", inline: "center" });
    window.addEventListener("hashchange", fromHash);
  }

  // Charts -------------------------------------------------------------------------------------
  const draw = (box) => {
    const style = getComputedStyle(document.documentElement);
    const token = (name) => style.getPropertyValue(name).trim();
    const colours = ["--entry", "--record", "--context", "--accent", "--bad", "--soft", "--faint"].map(token);
    const names = JSON.parse(box.dataset.names);
    const days = JSON.parse(box.dataset.days);
    const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { stroke: token("--line") } };
    box.replaceChildren();
    new uPlot({
      padding: [10, 40, 0, 0],
      width: box.clientWidth, height: 210, legend: { live: true },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
      axes: [
        { ...axis, space: 90, incrs: [1, 2, 7, 14, 30, 61, 91, 182, 365, 730].map((days) => days * 86400),
          values: (_u, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(0, 10)) },
        { ...axis, size: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000] },
      ],
      series: [{ value: (_u, at) => (at == null ? "" : new Date(at * 1000).toISOString().slice(0, 10)) },
        ...names.map((name, n) => ({ label: name, stroke: colours[n % colours.length], width: 1.5, points: { show: days.length < 2 }, paths: uPlot.paths.stepped({ align: 1 }) }))],
    }, [days, ...JSON.parse(box.dataset.values)], box);
  };
  // The context of a session: tokens by the number of the message, a dashed line at each compaction.
  const drawContext = (box) => {
    const style = getComputedStyle(document.documentElement);
    const token = (name) => style.getPropertyValue(name).trim();
    const marks = JSON.parse(box.dataset.marks);
    const small = box.classList.contains("small");
    const at = Number(box.dataset.at) || 0;
    const most = Math.max(...JSON.parse(box.dataset.tokens));
    // A limit far above the line would press it flat; the heading tells it then.
    const usable = Number(box.dataset.usable) <= most * 4 ? Number(box.dataset.usable) : 0;
    const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { stroke: token("--line") } };
    const short = (n) => (n >= 1e6 ? `${n / 1e6}M` : n >= 1e3 ? `${n / 1e3}k` : String(n));
    const whole = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];
    box.replaceChildren();
    new uPlot({
      padding: [10, 24, 0, 0],
      width: box.clientWidth, height: small ? 104 : 170, legend: { show: !small },
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, Math.max(high, usable) * 1.08 || 1] } },
      axes: [{ ...axis, incrs: whole, space: 60, size: small ? 28 : 50 }, { ...axis, size: 52, incrs: whole, values: (_u, ticks) => ticks.map(short) }],
      series: [
        { label: "message", value: (_u, n) => (n == null ? "" : `${n.toLocaleString("en")}${marks.includes(n) ? " (compacted)" : ""}`) },
        { label: "tokens in context", stroke: token("--record"), fill: token("--hover"), width: 1.5, points: { show: JSON.parse(box.dataset.numbers).length < 60, size: 4 },
          value: (_u, n) => (n == null ? "" : n.toLocaleString("en")) },
      ],
      hooks: { draw: [(plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = token("--context");
        ctx.lineWidth = 1.5 * devicePixelRatio;
        ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
        const line = (x1, y1, x2, y2) => {
          ctx.beginPath();
          ctx.moveTo(x1, y1);
          ctx.lineTo(x2, y2);
          ctx.stroke();
        };
        const upright = (n) => {
          const x = Math.round(plot.valToPos(n, "x", true));
          line(x, bbox.top, x, bbox.top + bbox.height);
        };
        marks.forEach(upright);
        ctx.setLineDash([]);
        if (usable) {
          const y = Math.round(plot.valToPos(usable, "y", true));
          ctx.strokeStyle = token("--bad");
          ctx.lineWidth = devicePixelRatio;
          line(bbox.left, y, bbox.left + bbox.width, y);
        }
        if (at) {
          ctx.strokeStyle = token("--accent");
          ctx.lineWidth = 3 * devicePixelRatio;
          upright(at);
        }
        ctx.restore();
      }] },
    }, [JSON.parse(box.dataset.numbers), JSON.parse(box.dataset.tokens)], box);
  };

  const charts = all(".chart");
  const drawAny = (box) => (box.dataset.numbers ? drawContext(box) : draw(box));
  if (charts.length && window.uPlot) {
    charts.forEach(drawAny);
    let timer;
    window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => charts.forEach(drawAny), 200); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(drawAny));
  }

  // A session ----------------------------------------------------------------------------------
  const session = $("[data-session]");
  if (session) {
    const toHash = () => {
      let id = location.hash.slice(1);
      try { id = decodeURIComponent(id); } catch { /* no id of ours */ }
      if (!/^(msg|prt)_/.test(id)) return false;
      const there = document.getElementById(id);
      if (there) there.scrollIntoView({ block: "start" });
      // Once only, or an id that is nowhere would be asked for again and again.
      else if (new URLSearchParams(location.search).get("at") !== id) location.replace(`${session.dataset.session}${encodeURIComponent(id)}#${encodeURIComponent(id)}`);
      return true;
    };
    if (!toHash()) {
      const here = all("[data-here]").at(-1);
      if (here) here.scrollIntoView({ block: "start" });
    }
    window.addEventListener("hashchange", toHash);
    // Messages that were added since the page came are not in its address; so that the way back leads to
    // the message whose link is followed, its own address takes the page's place.
    session.addEventListener("click", (event) => {
      const link = event.target.closest("a[href]");
      const message = link && link.closest(".msg");
      if (!message || link.target || event.ctrlKey || event.metaKey || event.button || link.pathname === location.pathname) return;
      history.replaceState(history.state, "", $(".msg-head h2 a", message).href);
    });
  }

  // News ---------------------------------------------------------------------------------------
  // A page that is seen asks every 2.5 s whether there is something new; the server says 304 without a
  // look into any database while no file has changed. A hidden page does not ask.
  const LOOK = 2500;
  let newsTimer = 0;
  let failures = 0;
  let asking = false;
  const look = async () => {
    clearTimeout(newsTimer);
    const box = $("#news");
    if (!box || document.hidden || asking) return;
    asking = true;
    try {
      const tag = box.dataset.tag;
      const answer = await fetch(box.dataset.poll, { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        failures = 0;
        const text = await answer.text();
        if (box.isConnected) tell(box, text, answer.headers.get("ETag"));
      } else failures = answer.status === 304 ? 0 : failures + 1;
    } catch {
      failures += 1;
      if (failures === 3 && box.isConnected) {
        box.textContent = "The server does not answer. Is it still running?";
        // So that what stood there comes back with the server.
        box.dataset.tag = "";
      }
    }
    asking = false;
    newsTimer = setTimeout(look, Math.min(LOOK * 2 ** failures, 60000));
  };
  const tell = (box, text, tag) => {
    const holder = document.createElement("template");
    holder.innerHTML = text;
    const told = $("#news", holder.content);
    if (!told) return;
    box.dataset.poll = told.dataset.poll;
    box.dataset.tag = tag || "";
    // What stands there already is not read out again.
    if (box.innerHTML !== told.innerHTML) box.replaceChildren(...told.childNodes);
  };
  const lookSoon = () => { clearTimeout(newsTimer); newsTimer = setTimeout(look, LOOK); };
  document.addEventListener("visibilitychange", look);
  // To another place of this very page a link alone would not load what is new.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#news a");
    if (!link || event.ctrlKey || event.metaKey || link.pathname + link.search !== location.pathname + location.search) return;
    event.preventDefault();
    if (link.hash) history.replaceState(history.state, "", link.hash);
    location.reload();
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) look(); });
  document.addEventListener("htmx:afterSettle", (event) => { if ($("#news", event.target)) lookSoon(); });
  if ($("#news")) lookSoon();
  fadeAll();
})();
