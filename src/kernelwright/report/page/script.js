"use strict";
(() => {
  document.body.classList.add("with-script");

  // --- Sources and graphs: put together when a problem is opened -----------------------------
  const KEYWORDS = {
    cuda: "alignas auto bool break case char class const constexpr continue default do double " +
      "else enum extern false float for if inline int int64_t long namespace operator return " +
      "short signed sizeof static static_assert struct switch template true typename uint32_t " +
      "uint64_t union unsigned using void volatile while __global__ __device__ __host__ " +
      "__shared__ __restrict__ __launch_bounds__ __forceinline__",
    python: "and as assert class def del elif else except False finally for from global if " +
      "import in is lambda None nonlocal not or pass raise return True try while with yield",
    graph: "graph where return input parameter constant pointwise plan launch kernel replaces " +
      "takes gives computes config",
    log: "",
  };
  const TOKENS = {
    cuda: /(\/\/[^\n]*|\/\*[^]*?\*\/)|("(?:\\.|[^"\\\n])*")|(\b\d[\w.]*)|(#?\b[A-Za-z_]\w*)/g,
    python: /(#[^\n]*)|("""[^]*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(\b\d[\w.]*)|(\b[A-Za-z_]\w*)/g,
    graph: /(#[^\n]*)|("(?:\\.|[^"\\\n])*")|(\b\d[\w.]*)|(\b[A-Za-z_]\w*)/g,
  };

  function colour(text, language) {
    const code = document.createElement("code");
    const pattern = TOKENS[language];
    if (!pattern) { code.textContent = text; return code; }
    const keywords = new Set(KEYWORDS[language].split(" "));
    let last = 0;
    for (const found of text.matchAll(pattern)) {
      const [word, comment, string, numeral] = found;
      const kind = comment ? "c" : string ? "s" : numeral ? "n"
        : keywords.has(word) || word[0] === "#" ? "k" : "";
      if (!kind) continue;
      code.append(text.slice(last, found.index));
      const span = document.createElement("span");
      span.className = kind;
      span.textContent = word;
      code.append(span);
      last = found.index + word.length;
    }
    code.append(text.slice(last));
    return code;
  }

  // All paragraphs of the page, unpacked when the first problem is opened.
  let shelf;
  async function unpack() {
    const packed = document.getElementById("paragraphs").textContent;
    const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // "0-2,7" are paragraphs 0, 1, 2 and 7.
  const textOf = (paragraphs, places) => places.split(",").flatMap((place) => {
    const [first, last = first] = place.split("-").map(Number);
    return paragraphs.slice(first, last + 1);
  }).join("\n\n");

  async function fill(place) {
    if (!place.dataset.texts) return;
    const texts = JSON.parse(place.dataset.texts);
    delete place.dataset.texts;
    const paragraphs = await (shelf ??= unpack());
    for (const [title, language, places] of texts) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = title;
      details.append(summary);
      details.addEventListener("toggle", () => {
        if (details.children.length > 1) return;
        const pre = document.createElement("pre");
        pre.tabIndex = 0;
        pre.setAttribute("role", "region");
        pre.setAttribute("aria-label", title);
        pre.append(colour(textOf(paragraphs, places), language));
        details.append(pre);
      });
      place.append(details);
    }
  }

  for (const problem of document.querySelectorAll("details.problem")) {
    problem.addEventListener("toggle", () => problem.querySelectorAll(".texts").forEach(fill));
  }

  function openTarget() {
    const target = document.getElementById(location.hash.slice(1));
    if (target && target.matches("details")) {
      target.open = true;
      target.scrollIntoView();
      target.querySelector("summary").focus({ preventScroll: true });
    }
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  // --- The table: sorted by a click on a column, filtered by words and family ------------------
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        return typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
      };
      rows.sort((a, b) => (down ? order(b, a) : order(a, b)) || 0);
      body.append(...rows);
    });
  });
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const family = document.getElementById("family");
  function narrow() {
    const words = filter.value.toLowerCase().split(" ").filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const families = row.dataset.families.split(" ");
      row.hidden = !words.every((word) => text.includes(word))
        || (family.value !== "" && !families.includes(family.value));
      count += !row.hidden;
    }
    shown.textContent = words.length || family.value ? `${count} of ${rows.length}` : "";
  }
  filter.addEventListener("input", narrow);
  family.addEventListener("change", narrow);
})();
