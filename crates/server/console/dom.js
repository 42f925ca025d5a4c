// Elements out of plain calls. Text is always text: nothing here, or anywhere else in the console,
// makes markup out of data.

function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "value" || name === "checked" || name === "disabled") {
    element[name] = value;
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

// h("button", { class: "primary", on: { click } }, "Save")
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  append(element, children);
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  append(element, children);
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Whether what is typed goes into a field.
export function isTyping(target) {
  return target instanceof HTMLElement
    && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
