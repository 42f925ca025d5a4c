// Runs before the first paint, so that nobody who chose dark sees a flash of light.
(() => {
  let theme = "system";
  try {
    theme = localStorage.getItem("lithe-theme") || "system";
  } catch {
    // Storage is off: the system's choice it is.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
