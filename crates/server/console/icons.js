// Pictograms, drawn with one pen on a grid of 24.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M3 13h4l3-8 4 14 3-9 1 3h3",
  keyspaces: "M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5",
  keys: "M4 6h2M4 12h2M4 18h2M10 6h10M10 12h10M10 18h10",
  travel: "M3 12a9 9 0 1 0 3-6.7M3 4v4h4M12 7v5l3 2",
  changes: "M4 7h13l-3-3M20 17H7l3 3",
  maintenance: "M14 6a4 4 0 0 1 5-1l-3 3 1 2 2 1 3-3a4 4 0 0 1-6 5l-7 7a2 2 0 0 1-3-3l7-7a4 4 0 0 1 1-4z",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  more: "M4.5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M17.5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0",
  theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  help: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 17.5h.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  close: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  plus: "M12 5v14M5 12h14",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10 11v5M14 11v5",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM20 20l-4.5-4.5",
  pause: "M8 5v14M16 5v14",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
};

export function icon(name) {
  const pen = { fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round" };
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", ...pen }, svg("path", { d: PATHS[name] }));
}
