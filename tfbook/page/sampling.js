// From logits to the next token, with the filters of tfbook.generation.sampling: temperature, then top-k, then top-p.

// Ids of the likeliest tokens first; ties in the order of their ids.
function ranked(scores) {
  return [...scores.keys()].sort((a, b) => scores[b] - scores[a] || a - b);
}

function filtered(logits, { temperature, k, p }) {
  const order = ranked(logits);
  if (!temperature) return logits.map((_, id) => (id === order[0] ? 1 : 0)); // the limit: always the likeliest
  const least = logits[order[Math.min(k, order.length) - 1]];
  const shares = softmax(logits.map((one) => (one < least ? -Infinity : one / temperature)));
  return normalized(withoutTail(shares, order, p));
}

// Leaves the smallest set of tokens whose shares sum to p or more. Small ones are added first, to lose none of them.
function withoutTail(shares, order, p) {
  const kept = shares.slice();
  let sum = 0;
  for (const id of order.toReversed().slice(0, -1)) {
    sum += shares[id];
    if (sum <= 1 - p) kept[id] = 0;
  }
  return kept;
}

function normalized(shares) {
  const total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

// The token in whose part of the line from 0 to 1 the number falls.
function drawFrom(shares, number) {
  let left = number;
  for (const [id, share] of shares.entries()) {
    left -= share;
    if (share && left < 0) return id;
  }
  return ranked(shares)[0]; // rounding left the last token a little short of 1
}
