// Runs in the page that holds the frames: measures every frame once all are loaded, and writes JSON into the page.
//   width, scroll    the frame's width, and how wide its content is: wider means that the page scrolls sideways
//   screen           the frame's height
//   boxes            selector → {top, bottom, left, right} of its first match, or null
//   fetched          addresses that were asked for
//   scripts          how many elements, attributes or links could run something
//   contrast         the worst ratio of text to what is behind it, and that text
//   clipped          texts of cells that reach out of a box that cuts them off, each with that box's label
//   scrollers        labels of the boxes whose content is larger than they are, in either direction
//   headings, lang, title, text, dark, names

function channels(color) {
  const parts = color.match(/[\d.]+/g).map(Number);
  return parts.length < 4 ? [...parts, 1] : parts;
}

function luminance(color) {
  const [r, g, b] = channels(color).slice(0, 3).map((c) => {
    const share = c / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function behind(element, view) {
  if (element.matches('svg text[class^="t-"]') && element.previousElementSibling) {
    const fill = view.getComputedStyle(element.previousElementSibling).fill;
    if (fill !== 'none') return fill;
  }
  for (let each = element; each; each = each.parentElement) {
    const color = view.getComputedStyle(each).backgroundColor;
    if (channels(color)[3] === 1) return color;
  }
  return 'rgb(255, 255, 255)';
}

function contrast(element, view) {
  const style = view.getComputedStyle(element);
  const [a, b] = [luminance(element.closest('svg') ? style.fill : style.color), luminance(behind(element, view))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

function worstContrast(page, view) {
  let worst = { ratio: 21, text: '' };
  for (const element of page.body.querySelectorAll('*')) {
    const own = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!own.length || element.tagName === 'title') continue;
    const ratio = contrast(element, view);
    if (ratio < worst.ratio) worst = { ratio, text: own[0].data.trim().slice(0, 60) };
  }
  return worst;
}

function box(page, selector) {
  const found = page.querySelector(selector);
  if (!found) return null;
  const { top, bottom, left, right } = found.getBoundingClientRect();
  return { top, bottom, left, right };
}

function label(box) {
  return box.getAttribute('aria-label') || box.className || box.tagName;
}

function words(cell) {
  const range = cell.ownerDocument.createRange();
  range.selectNodeContents(cell);
  return range.getBoundingClientRect();
}

// Sideways only: a list that is cut off below is one that is read on.
function clipped(page, view) {
  const found = [];
  for (const cell of page.querySelectorAll('th, td, dt, dd, figcaption, caption')) {
    if (!cell.checkVisibility() || cell.closest('thead')?.getBoundingClientRect().width === 1) continue;
    const { left, right, width } = words(cell);
    const boxes = [page.documentElement];
    for (let each = cell; each; each = each.parentElement) {
      if (view.getComputedStyle(each).overflowX !== 'visible') boxes.push(each);
    }
    const cuts = boxes.find((each) => {
      const edge = each.getBoundingClientRect();
      return width && (left < edge.left - 1 || right > edge.right + 1);
    });
    if (cuts) found.push(`${label(cuts)}: ${cell.textContent.trim().slice(0, 40)}`);
  }
  return found;
}

function scrollers(page) {
  return [...page.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1)
    .map(label);
}

function runnable(page) {
  const active = page.querySelectorAll('script, iframe, object, embed, img, audio, video, link:not([href^="data:"])').length;
  const handlers = [...page.querySelectorAll('*')].flatMap((e) => [...e.attributes])
    .filter((a) => a.name.startsWith('on') || /^\s*javascript:/i.test(a.value)).length;
  return active + handlers;
}

function measured(frame) {
  const page = frame.contentDocument;
  const view = frame.contentWindow;
  return {
    width: page.documentElement.clientWidth,
    scroll: page.documentElement.scrollWidth,
    screen: view.innerHeight,
    boxes: Object.fromEntries(SELECT.map((selector) => [selector, box(page, selector)])),
    fetched: view.performance.getEntriesByType('resource').map((entry) => entry.name),
    scripts: runnable(page),
    contrast: worstContrast(page, view),
    clipped: clipped(page, view),
    scrollers: scrollers(page),
    headings: [...page.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((h) => [Number(h.tagName[1]), h.innerText]),
    lang: page.documentElement.lang,
    title: page.title,
    text: page.body.innerText,
    dark: view.matchMedia('(prefers-color-scheme: dark)').matches,
    untitled: [...page.querySelectorAll('svg')].filter((svg) => svg.firstElementChild?.tagName !== 'title').length,
  };
}

window.addEventListener('load', () => {
  const frames = [...document.querySelectorAll('iframe')];
  const all = Object.fromEntries(frames.map((frame) => [frame.id, measured(frame)]));
  const out = document.createElement('pre');
  out.id = 'measured';
  out.textContent = JSON.stringify(all);
  frames.forEach((frame) => frame.remove());
  document.body.append(out);
});
