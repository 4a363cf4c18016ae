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
  const chooseHead = (layer, head, at = session.at) => change(() => Object.assign(session, { chosen: { layer, head }, at }));
  const silence = (layer, head) => change(() => session.toggleSilence(layer, head));

  const rewriting = implants(session, other, () => change(() => {}));
  const quick = [written, tokens(session, choosePlace), cache(session)];
  const slow = [nextBars(session, (id) => change(() => session.chooseNext(id))), heads(session, chooseHead, silence), lens(session), rewriting];

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

// The sentence that a screen reader hears after each change.
function statusOf(session, speed) {
  const { reading, at, ids, tokenizer, length, model } = session;
  if (!length) return "Write something for the model to go on from.";
  const shares = softmax(reading.logits[at]);
  const best = ranked(shares)[0];
  const found = `At place ${at + 1} of ${length}, “${session.labels()[at]}”: most likely next is “${tokenizer.named(best)}”, ${percent(shares[best])}.`;
  const given = at ? ` The model gave “${tokenizer.named(ids[at])}” itself ${percent(softmax(reading.logits[at - 1])[ids[at]])}.` : "";
  const ended = session.hasEnded ? " The text ends here." : "";
  const full = session.isFull && session.isFinite ? ` It has ${model.longest} tokens, the most that the model has seen in training.` : "";
  return found + given + ended + full + (speed ? ` ${Math.round(speed)} tokens per second.` : "");
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
  show();
}

let session = null;
// Two frames later the text of the page has been drawn.
requestAnimationFrame(() => setTimeout(() => (session = openPage(JSON.parse($("data").textContent)))));
