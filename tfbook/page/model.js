// A GPT in plain JavaScript: pre-norm blocks, learned or rotary positions, tied embeddings. It reads one token at a
// time and keeps in a "reading" its cache of keys and values, and all that the page shows. The names are those of
// tfbook's weights, the arithmetic is that of tfbook.models; weights come in half precision or in eight bits, and numbers are float32.

const GELU_SCALE = Math.sqrt(2 / Math.PI);

// ---- weights ----

// The number of each of the 65,536 bit patterns of half precision; an exporter lets no infinity through.
function halfTable() {
  return Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
  });
}

// The bytes of a text in base64, by a loop as below.
function decoded(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// Each weight by its name, in the order in which `shapes` lists them; a shape is its rows and columns. In eight bits a
// matrix is the scales of its rows, in half precision, and then whole numbers.
function weightsOf(bytes, shapes, bits) {
  const table = halfTable();
  const weights = {};
  let start = 0;
  for (const [name, [rows, columns]] of Object.entries(shapes)) {
    const halves = bits === 16 ? rows * (columns ?? 1) : rows;
    const numbers = new Float32Array(halves); // filled by a loop, since `from` takes half a second
    for (let i = 0; i < halves; i += 1, start += 2) numbers[i] = table[bytes[start] | (bytes[start + 1] << 8)];
    weights[name] = numbers;
    if (halves === rows * (columns ?? 1)) continue;
    weights[name] = new Float32Array(rows * columns);
    const whole = new Int8Array(bytes.buffer, start, rows * columns);
    for (let i = 0; i < whole.length; i += 1) weights[name][i] = whole[i] * numbers[Math.floor(i / columns)];
    start += whole.length;
  }
  return weights;
}

// ---- vectors ----

function dot(a, aStart, b, bStart, count) {
  let sum = 0;
  for (let i = 0; i < count; i += 1) sum += a[aStart + i] * b[bStart + i];
  return sum;
}

// y = matrix · x, four rows at a time: a number of x is loaded once for four products, which saves a third of the time.
function product(matrix, x) {
  const count = x.length;
  const y = new Float32Array(matrix.length / count);
  let row = 0;
  for (; row + 3 < y.length; row += 4) {
    const a = row * count;
    const b = a + count;
    const c = b + count;
    const d = c + count;
    let s = 0;
    let t = 0;
    let u = 0;
    let v = 0;
    for (let i = 0; i < count; i += 1) {
      s += matrix[a + i] * x[i];
      t += matrix[b + i] * x[i];
      u += matrix[c + i] * x[i];
      v += matrix[d + i] * x[i];
    }
    y[row] = s;
    y[row + 1] = t;
    y[row + 2] = u;
    y[row + 3] = v;
  }
  for (; row < y.length; row += 1) y[row] = dot(matrix, row * count, x, 0, count);
  return y;
}

function addTo(x, more) {
  for (let i = 0; i < x.length; i += 1) x[i] += more[i];
}

function gelu(x) {
  for (let i = 0; i < x.length; i += 1) {
    const one = x[i];
    x[i] = 0.5 * one * (1 + Math.tanh(GELU_SCALE * (one + 0.044715 * one * one * one)));
  }
  return x;
}

function softmax(scores) {
  let most = -Infinity;
  for (const score of scores) most = Math.max(most, score);
  const shares = scores.map((score) => Math.exp(score - most));
  let sum = 0;
  for (const share of shares) sum += share;
  return shares.map((share) => share / sum);
}

// ---- the model ----

// How many tokens two texts have in common from their beginning on.
function sharedLength(some, others) {
  let length = 0;
  while (length < some.length && some[length] === others[length]) length += 1;
  return length;
}

function headKey(layer, head) {
  return `${layer}.${head}`;
}

class Gpt {
  constructor({ sizes, shapes, bits }, bytes) {
    Object.assign(this, sizes); // layers, heads, width, longest, epsilon, rotaryBase (null: learned positions)
    this.weights = weightsOf(bytes, shapes, bits);
    this.headWidth = this.width / this.heads;
  }

  // An empty reading. `silenced` holds keys of heads whose output is 0; an implant puts a `vector` at a `place`: in the
  // place of a `head`'s output in a `layer`, or, where `head` is null, of the residual stream before block `layer`.
  begin({ silenced = new Set(), implants = [] } = {}) {
    const each = (count) => Array.from({ length: count }, () => []);
    return {
      ids: [],
      keys: each(this.layers), // [layer][place]: all heads side by side
      values: each(this.layers),
      weights: Array.from({ length: this.layers }, () => each(this.heads)), // [layer][head][place]: over places so far
      mixed: each(this.layers), // [layer][place]: the outputs of all heads side by side
      stream: each(this.layers + 1), // [layer][place]: before block `layer`, and after the last one
      logits: [], // [place]
      silenced,
      implants,
    };
  }

  read(ids, changes) {
    const reading = this.begin(changes);
    for (const id of ids) this.append(reading, id);
    return reading;
  }

  // Makes a reading one of `ids`, and keeps what it has read of their beginning.
  readOn(reading, ids) {
    const common = sharedLength(ids, reading.ids);
    const { weights, keys, values, mixed, stream, logits } = reading;
    for (const places of [reading.ids, logits, ...keys, ...values, ...mixed, ...stream, ...weights.flat()]) {
      places.length = common;
    }
    for (const id of ids.slice(common)) this.append(reading, id);
  }

  append(reading, id) {
    const place = reading.ids.push(id) - 1;
    let x = this.embedded(id, place);
    for (let layer = 0; layer < this.layers; layer += 1) {
      x = this.streamed(reading, layer, place, x);
      addTo(x, this.attention(reading, layer, place, this.norm(x, `stack.blocks.${layer}.mixer.norm`)));
      addTo(x, this.feedForward(x, `stack.blocks.${layer}.feed_forward`));
    }
    x = this.streamed(reading, this.layers, place, x);
    reading.logits.push(this.unembedded(x));
  }

  embedded(id, place) {
    const x = this.weights["embed.weight"].slice(id * this.width, (id + 1) * this.width);
    const learned = this.weights["stack.position.embedding.weight"];
    if (learned) addTo(x, learned.subarray(place * this.width, (place + 1) * this.width));
    return x;
  }

  // Keeps the residual stream before block `layer`, or the vector implanted there, and returns a copy to go on with.
  streamed(reading, layer, place, x) {
    const implant = reading.implants.find((one) => one.head === null && one.layer === layer && one.place === place);
    reading.stream[layer].push(implant ? implant.vector : x);
    return reading.stream[layer][place].slice();
  }

  attention(reading, layer, place, x) {
    const name = `stack.blocks.${layer}.mixer.branch`;
    const query = this.rotated(this.linear(x, `${name}.W_Q`), place);
    reading.keys[layer].push(this.rotated(this.linear(x, `${name}.W_K`), place));
    reading.values[layer].push(this.linear(x, `${name}.W_V`));
    const mixed = new Float32Array(this.width);
    for (let head = 0; head < this.heads; head += 1) {
      const output = this.attend(reading, layer, head, query);
      mixed.set(this.changed(reading, layer, head, place, output), head * this.headWidth);
    }
    reading.mixed[layer].push(mixed);
    return this.linear(mixed, `${name}.W_O`);
  }

  // The output of one head for the newest place: softmax(q K^T / √d_head) V.
  attend(reading, layer, head, query) {
    const start = head * this.headWidth;
    const values = reading.values[layer];
    const scale = 1 / Math.sqrt(this.headWidth);
    const scored = (key) => dot(query, start, key, start, this.headWidth) * scale;
    const weights = softmax(Float32Array.from(reading.keys[layer], scored));
    reading.weights[layer][head].push(weights);
    const output = new Float32Array(this.headWidth);
    for (let place = 0; place < values.length; place += 1) {
      for (let i = 0; i < this.headWidth; i += 1) output[i] += weights[place] * values[place][start + i];
    }
    return output;
  }

  changed(reading, layer, head, place, output) {
    const implant = reading.implants.find(
      (one) => one.head === head && one.layer === layer && one.place === place,
    );
    if (implant) return implant.vector;
    return reading.silenced.has(headKey(layer, head)) ? output.fill(0) : output;
  }

  // Rotates the pairs (i, i + d_head / 2) of each head by angles that grow with the place.
  rotated(x, place) {
    if (this.rotaryBase === null) return x;
    const half = this.headWidth / 2;
    for (let i = 0; i < half; i += 1) {
      const angle = place * this.rotaryBase ** ((-2 * i) / this.headWidth);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let first = i; first < this.width; first += this.headWidth) {
        const [a, b] = [x[first], x[first + half]];
        x[first] = a * cos - b * sin;
        x[first + half] = b * cos + a * sin;
      }
    }
    return x;
  }

  feedForward(x, name) {
    const hidden = gelu(this.linear(this.norm(x, `${name}.norm`), `${name}.branch.up`));
    return this.linear(hidden, `${name}.branch.down`);
  }

  norm(x, name) {
    const [scale, bias] = [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
    let mean = 0;
    for (const one of x) mean += one / x.length;
    let variance = 0;
    for (const one of x) variance += (one - mean) ** 2 / x.length;
    const size = Math.sqrt(variance + this.epsilon);
    return x.map((one, i) => (scale[i] * (one - mean)) / size + bias[i]);
  }

  linear(x, name) {
    const y = product(this.weights[`${name}.weight`], x);
    const bias = this.weights[`${name}.bias`];
    if (bias) addTo(y, bias);
    return y;
  }

  // Logits from a vector of the residual stream, wherever it is taken from: behind the last block these are the model's
  // own, before it a logit lens.
  unembedded(x) {
    return this.linear(this.norm(x, "stack.norm"), "embed");
  }
}
