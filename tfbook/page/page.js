// Brings the parts of the page together. Each part has an update() that brings it in step with the session.

function openPage({ start, other, head, vocabulary, ...model }) {
  const session = new Session(new Gpt(model, decoded($("weights").textContent)), tokenizerOf(vocabulary));
  session.chosen = { layer: head[0], head: head[1] };
  const written = writer(session, refresh);
  const change = (act) => {
    written.stop();
    act();
    refresh();
  };
  const choosePlace = (place) => change(() => (session.at = place));
  const chooseHead = (layer, head, at = session.at) => {
    change(() => Object.assign(session, { chosen: { layer, head }, at }));
  };
  const chooseNext = (id) => change(() => session.chooseNext(id));
  const silence = (layer, head) => change(() => session.toggleSilence(layer, head));

  const rewriting = implants(session, other, () => change(() => {}));
  const quick = [written, tokens(session, choosePlace), cache(session)];
  const slow = [nextBars(session, chooseNext), heads(session, chooseHead, silence), lens(session), rewriting];

  // While the model writes, only what is quick to draw follows.
  function refresh({ writing = false, speed = null } = {}) {
    for (const part of writing ? quick : [...quick, ...slow]) part.update();
    if (!writing) say("status", statusOf(session, speed));
  }

  const read = textBox($("start"), $("notice"), (text) => {
    change(() => session.setText(text));
    return strangersOf(session.tokenizer, text);
  });
  $("again").addEventListener("click", read);
  sliders(session);
  themeButton(refresh);
  $("start").value = start;
  read();
  rewriting.begin();
  return session;
}

// The sentences that a screen reader hears after each change.
function statusOf(session, speed) {
  const { reading, at, ids, tokenizer, length, model } = session;
  if (!length) return "Write something for the model to go on from.";
  const said = (id, place) => `“${tokenizer.named(id)}” ${percent(softmax(reading.logits[place])[id])}`;
  const best = ranked(reading.logits[at])[0];
  const sentences = [`Place ${at + 1} of ${length}, “${session.labels()[at]}”. Most likely next: ${said(best, at)}.`];
  if (at) sentences.push(`When the model came here, it gave ${said(ids[at], at - 1)}.`);
  if (session.hasEnded) sentences.push("The text ends here.");
  if (session.isFull && session.isFinite) sentences.push(`${model.longest} tokens are the most that the model can read.`);
  if (speed) sentences.push(`${Math.round(speed)} tokens per second.`);
  return sentences.join(" ");
}

// The page follows the system's theme until the reader chooses.
function themeButton(refresh) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.style.colorScheme || (dark.matches ? "dark" : "light")) === "dark";
  const repaint = () => {
    show();
    knownColors.clear();
    refresh();
  };
  const show = () => ($("theme").textContent = isDark() ? "light page" : "dark page");
  $("theme").addEventListener("click", () => {
    root.style.colorScheme = isDark() ? "light" : "dark";
    repaint();
  });
  dark.addEventListener("change", repaint);
  if (window !== parent) inFrame(repaint);
  show();
}

// Inside another page only the desk is shown, from the beginning (page.html); that page is told its height, which can shrink,
// too, and says which theme it has.
function inFrame(repaint) {
  const root = document.documentElement;
  new ResizeObserver(() => parent.postMessage({ height: root.offsetHeight }, "*")).observe(document.body);
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !["light", "dark"].includes(data.theme)) return;
    root.style.colorScheme = data.theme;
    repaint();
  });
  parent.postMessage({ ready: true }, "*");
}

let session = null;
// Two frames later the text of the page has been drawn.
requestAnimationFrame(() =>
  setTimeout(() => {
    session = openPage(JSON.parse($("data").textContent));
    document.documentElement.classList.add("opened");
  }),
);
