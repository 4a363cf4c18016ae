"""The views of a page as a reader sees them, and what a page asks for, says and lets be read."""

import json

from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


class Mounted:
    """A view in its shadow root."""

    def __init__(self, browser: Chrome, host: WebElement):
        self.browser, self.host = browser, host

    def all(self, selector: str) -> list[WebElement]:
        return self.host.shadow_root.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        (element,) = self.all(selector)
        return element

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.all(selector)]

    def press(self, *keys: str) -> None:
        """Presses keys wherever the focus is."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def run(self, script: str) -> object:
        """What a script returns, in which `root` is the shadow root."""
        return self.browser.execute_script(f"const root = arguments[0].shadowRoot; {script}", self.host)

    @property
    def summary(self) -> str:
        return self.one(".summary").text

    @property
    def focused(self) -> str:
        """The text of what has the focus."""
        return str(self.run("return root.activeElement?.textContent ?? ''"))

    def faint_texts(self, ink: str, ground: str) -> dict[str, float]:
        """On a page of these colors, the texts whose contrast is below 4.5, with their contrast."""
        script = "document.body.style.cssText = `color: ${arguments[0]}; background: ${arguments[1]}`"
        self.browser.execute_script(script, ink, ground)
        return dict(self.run(FAINT_TEXTS))


FAINT_TEXTS = """
const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
const parsed = (color) => {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
  return { rgb: [red, green, blue], alpha: alpha / 255 };
};
const over = (below, color) => {
  const { rgb, alpha } = parsed(color);
  return below.map((part, i) => alpha * rgb[i] + (1 - alpha) * part);
};
const luminance = (rgb) => {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = rgb.map((part) => linear(part / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const ground = (element) => {
  const outer = element.parentElement ?? element.getRootNode().host;
  const below = outer ? ground(outer) : [255, 255, 255];
  const shape = element instanceof SVGGElement && element.querySelector(":scope > rect"); // a box with a word in it
  return over(below, shape ? getComputedStyle(shape).fill : getComputedStyle(element).backgroundColor);
};
const written = ({ childNodes }) => [...childNodes].some((node) => node instanceof Text && node.data.trim());
return [...root.querySelectorAll("section *")]
  .filter((element) => written(element) && element.tagName !== "title")
  .filter((element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
  .map((element) => {
    const look = getComputedStyle(element);
    const below = ground(element);
    const [low, high] = [below, over(below, element instanceof SVGElement ? look.fill : look.color)]
      .map(luminance)
      .sort((a, b) => a - b);
    return [element.textContent, (high + 0.05) / (low + 0.05)];
  })
  .filter(([, contrast]) => contrast < 4.5);
"""


def mounted(browser: Chrome, kind: str, count: int = 1) -> list[Mounted]:
    """The views of a kind on the page, as soon as all of them are mounted."""
    selector = f".tfbook-{kind}[data-mounted]"
    found = WebDriverWait(browser, 60).until(
        lambda page: len(hosts := page.find_elements(By.CSS_SELECTOR, selector)) == count and hosts
    )
    return [Mounted(browser, host) for host in found]


def requested(browser: Chrome) -> set[str]:
    """Addresses asked for since the last call, aside from data in the page and the browser's own pictures."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith(("data:", "chrome:"))}


def said(browser: Chrome) -> list[str]:
    """What scripts said on the console since the last call; what the network said is `requested`."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["source"] != "network"]
