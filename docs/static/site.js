// What the pages need beyond their theme: the model of the front page, areas that scroll, parts that open.

// The model is loaded after everything else; it says how high it is and takes the page's theme.
function openModel(frame) {
  const isDark = () => {
    const chosen = document.body.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const tell = () => frame.contentWindow.postMessage({ theme: isDark() ? "dark" : "light" }, "*");
  addEventListener("message", ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data.ready) tell();
    if (data.height) frame.style.height = `${Math.ceil(data.height)}px`;
  });
  new MutationObserver(tell).observe(document.body, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  frame.src = frame.dataset.source;
}

// An area that scrolls can be reached by keyboard; one that does not is no stop.
function reachable() {
  for (const area of document.querySelectorAll("pre, .output, .table-wrapper, .formula, .sidebar-scroll, .toc-scroll")) {
    const scrolls = area.scrollWidth > area.clientWidth + 1 || area.scrollHeight > area.clientHeight + 1;
    if (scrolls && getComputedStyle(area).overflow !== "visible") area.tabIndex = 0;
    else area.removeAttribute("tabindex");
  }
}

// A link into a closed part opens it, and paper shows everything.
function openAround(target) {
  for (let part = target?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
}

// Sphinx looks for stems, such as "rotari", and where a page has none it shows the page's first words. The words that were
// typed are looked for, too, and what a lesson says about itself is not looked at.
function showPlaces() {
  const { makeSearchSummary } = Search;
  const words = new URLSearchParams(location.search).get("q")?.match(/\S+/g) ?? [];
  Search.makeSearchSummary = (page, stems, anchor) =>
    makeSearchSummary.call(Search, page.replace(/<div class="doors">.*?<\/div>/s, ""), [...stems, ...words], anchor);
}

const linked = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
addEventListener("hashchange", () => openAround(linked()));
addEventListener("resize", reachable);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
document.addEventListener("toggle", reachable, true);
openAround(linked());
reachable();
if (typeof Search !== "undefined") showPlaces();
addEventListener("load", () => {
  reachable();
  const frame = document.getElementById("model");
  if (frame) openModel(frame);
});
