// Implants: a vector from the reading of another text, put into the reading of this one.

function implants(session, start, changed) {
  let donor = []; // the tokens of the other text
  const [vector, source, target] = ["vector", "source", "target"].map($);
  fillSelect(vector, vectorNames(session.model));
  vector.value = `stream ${Math.ceil(session.model.layers / 2)}`;

  // A vector usually goes to where it comes from.
  function follow() {
    if (source.value < session.length) target.value = source.value;
  }

  const take = textBox($("other"), $("other-notice"), (text) => {
    donor = session.tokenizer.encode(text).slice(0, session.model.longest);
    fillSelect(source, placeNames(donor, session.tokenizer));
    source.value = Math.max(0, donor.findIndex((id, place) => id !== session.ids[place]));
    follow();
    return strangersOf(session.tokenizer, text);
  });
  source.addEventListener("change", follow);

  function implant() {
    if (!donor.length || !session.length) return;
    const other = session.model.read(donor);
    const [from, place] = [Number(source.value), Number(target.value)];
    const { layer, head } = chosenVector(vector.value);
    const said = `Implanted: ${nameOf(vector)} at ${nameOf(target)}: from ${nameOf(source)} of the other text`;
    session.implant({ layer, head, place, vector: vectorOf(session.model, other, layer, head, from), said });
    changed();
  }
  $("implant").addEventListener("click", implant);
  $("restore").addEventListener("click", () => {
    session.restore();
    changed();
  });

  function update() {
    const chosen = target.value;
    fillSelect(target, placeNames(session.ids, session.tokenizer));
    if (chosen !== "" && chosen < session.length) target.value = chosen;
    say("effect", ...effectOf(session));
    $("changes").replaceChildren(...changesOf(session, changed));
    $("restore").setAttribute("aria-disabled", !session.isChanged);
  }

  return {
    update,
    begin() {
      $("other").value = start;
      take();
    },
  };
}

// ---- what can be implanted: [value, name]; a stream vector is known by the number of blocks before it ----

function vectorNames({ layers, heads: count }) {
  const streams = Array.from({ length: layers + 1 }, (_, layer) => [
    `stream ${layer}`,
    layer ? `the residual stream after block ${layer}` : "the embedding",
  ]);
  const outputs = Array.from({ length: layers * count }, (_, i) => {
    const [layer, head] = [Math.floor(i / count), i % count];
    return [`head ${headKey(layer, head)}`, `the output of block ${layer + 1}, head ${head + 1}`];
  });
  return [...streams, ...outputs];
}

function chosenVector(value) {
  const [kind, key] = value.split(" ");
  const [layer, head] = key.split(".").map(Number);
  return { layer, head: kind === "head" ? head : null };
}

function vectorOf(model, reading, layer, head, place) {
  if (head === null) return reading.stream[layer][place];
  return reading.mixed[layer][place].slice(head * model.headWidth, (head + 1) * model.headWidth);
}

function placeNames(ids, tokenizer) {
  return labelsOf(ids, tokenizer).map((label, place) => [place, `${place + 1} “${label}”`]);
}

function fillSelect(select, names) {
  select.replaceChildren(...names.map(([value, name]) => make("option", { value }, name)));
}

function nameOf(select) {
  return select.selectedOptions[0].textContent;
}

// ---- what the changes do ----

function effectOf(session) {
  if (!session.isChanged || !session.length) return ["Nothing is changed."];
  const [before, now] = [session.original, session.reading].map(({ logits }) => {
    const shares = softmax(logits[session.at]);
    const best = ranked(shares)[0];
    return [make("strong", {}, `“${session.tokenizer.named(best)}”`), ` ${percent(shares[best])}`];
  });
  const place = `After “${tailOf(session)}” the likeliest next token was `;
  return [place, ...before, "; with your changes it is ", ...now, "."];
}

function changesOf(session, changed) {
  const row = (said, undo) => {
    const act = () => {
      undo();
      changed();
    };
    return make("li", {}, `${said} `, button("undo", act, { "aria-label": `undo: ${said}` }));
  };
  const silent = [...session.silenced].map((key) => {
    const [layer, head] = key.split(".").map(Number);
    return row(`Block ${layer + 1}, head ${head + 1} is silenced.`, () => session.toggleSilence(layer, head));
  });
  const implanted = session.implants.map((one) => row(`${one.said}.`, () => session.removeImplant(one)));
  return [...silent, ...implanted];
}
