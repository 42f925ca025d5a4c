//! Tests of the console's files: that they belong together, and need nobody else.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// What all files may have together, as they are sent: not packed, comments and all.
const SIZE_MAX: usize = 170_000;

fn text(name: &str) -> &'static str {
    let file = file(name).unwrap_or_else(|| panic!("{name} is not among the files"));
    std::str::from_utf8(file.body).unwrap()
}

fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".js")).map(|n| (n, text(n)))
}

/// What stands between `before` and the next `after`, each time.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let rest = text.split(before).skip(1);
    rest.filter_map(|rest| rest.split_once(after)).map(|(found, _)| found).collect()
}

/// A reference from one file to another, as a name in the table.
fn resolved(from: &str, reference: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in reference.split('/') {
        match part {
            "." => {}
            ".." => assert!(parts.pop().is_some(), "{from} leads out of the console: {reference}"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_file_of_the_folder_is_served_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    let mut found = BTreeSet::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                found.insert(name.to_owned());
            }
        }
    }
    let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, served);
    for no in ["../Cargo.toml", "/index.html", "views", "views/", "nothing.js", "STYLE.css"] {
        assert_eq!(file(no), None, "{no}");
    }
}

#[test]
fn whatever_files_refer_to_is_there() {
    let page = text("index.html");
    let links = between(page, "href=\"", "\"").into_iter().chain(between(page, "src=\"", "\""));
    let links: Vec<&str> = links.collect();
    assert!(links.contains(&"app.js") && links.contains(&"style.css"));
    for link in links {
        text(link);
    }
    for (name, module) in modules() {
        let imports = between(module, "from \"", "\"");
        for import in imports.into_iter().chain(between(module, "import(\"", "\"")) {
            assert!(import.starts_with("./") || import.starts_with("../"), "{name}: {import}");
            text(&resolved(name, import));
        }
    }
}

#[test]
fn every_module_is_loaded_with_the_page() {
    let page = text("index.html");
    for (name, _) in modules() {
        let preload = format!("<link rel=\"modulepreload\" href=\"{name}\">");
        let script = format!("src=\"{name}\"");
        assert!(page.contains(&preload) || page.contains(&script), "{name}");
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    for (name, _) in FILES {
        // The name of a vocabulary, which is not fetched.
        let left = text(name).replace("http://www.w3.org/2000/svg", "");
        for elsewhere in ["http://", "https://", "=\"//", "ws://", "wss://", "@import", "url("] {
            assert!(!left.contains(elsewhere), "{name} has {elsewhere}");
        }
    }
}

#[test]
fn nothing_needs_what_the_content_policy_forbids() {
    let page = text("index.html");
    assert_eq!(page.matches("<script").count(), page.matches("<script src=").count() + 1);
    assert_eq!(page.matches("<script type=\"module\" src=").count(), 1);
    for forbidden in [" style=", "<style", " onclick", " onload", "javascript:"] {
        assert!(!page.contains(forbidden), "index.html has {forbidden}");
    }
    for (name, module) in modules() {
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "eval(",
            "new Function",
            "javascript:",
            "setAttribute(\"style",
            "setAttribute(\"on",
            " style: \"",
            "cssText",
        ] {
            assert!(!module.contains(forbidden), "{name} has {forbidden}");
        }
    }
}

#[test]
fn tokens_are_kept_for_the_session_alone() {
    for (name, module) in modules() {
        let kept = between(module, "localStorage.setItem(\"", "\"");
        assert!(kept.iter().all(|key| *key == "lithe-theme"), "{name} keeps {kept:?}");
        assert!(!module.contains("document.cookie"), "{name}");
    }
}

#[test]
fn files_say_what_they_are() {
    assert_eq!(file(""), file("index.html"));
    let types = [
        ("", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("views/keys.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ];
    for (name, content_type) in types {
        assert_eq!(file(name).unwrap().content_type, content_type);
    }
    assert!(FILES.iter().all(|(name, _)| content_type(name) != "application/octet-stream"));
    let total: usize = FILES.iter().map(|(_, body)| body.len()).sum();
    assert!(total <= SIZE_MAX, "{total} bytes");
}

#[test]
fn who_has_a_file_is_told_so() {
    let (page, style) = (file("").unwrap(), file("style.css").unwrap());
    assert_ne!(page.etag, style.etag);
    assert_eq!(page.etag.len(), 34);
    for known in [page.etag.to_owned(), format!("\"x\", W/{}", page.etag), "*".to_owned()] {
        assert!(page.is_known_by(&known), "{known}");
        assert_eq!(style.is_known_by(&known), known == "*");
    }
    assert!(!page.is_known_by("") && !page.is_known_by("\"x\""));
    let headers = page.headers();
    let policy = headers.iter().find(|(name, _)| *name == "content-security-policy").unwrap();
    assert!(policy.1.starts_with("default-src 'none'; script-src 'self'"));
    assert!(!policy.1.contains("unsafe") && !policy.1.contains("  "));
}

#[test]
fn entries_that_are_not_counted_are_shown_as_a_bound() {
    let mut shown = 0;
    for (name, module) in modules() {
        for figure in ["entries_estimate", "totals.entries"] {
            for exact in ["count", "short"] {
                for of in ["", "found."] {
                    let exact = format!("format.{exact}({of}{figure})");
                    assert!(!module.contains(&exact), "{name} has {exact}");
                }
            }
        }
        shown += module.matches("format.atMost(").count();
    }
    assert_eq!(shown, 5);
    assert!(text("format.js").contains("`≤ ${as(number)}`"));
}

/// The colours of the style sheet by name, for light and dark: red, green and blue.
fn colours() -> Vec<(&'static str, [[f64; 3]; 2])> {
    let parsed = |text: &str| {
        let digits = text.trim().strip_prefix('#').filter(|digits| digits.len() == 6)?;
        let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok().map(f64::from);
        Some([part(0)?, part(2)?, part(4)?])
    };
    let named = text("style.css").lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("--")?.split_once(": light-dark(")?;
        let (light, dark) = value.strip_suffix(");")?.split_once(',')?;
        Some((name, [parsed(light)?, parsed(dark)?]))
    });
    named.collect()
}

/// As WCAG 2 reckons it.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let linear = colour.map(|part| match part / 255.0 {
            part if part <= 0.04045 => part / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_and_marks_stand_out_from_what_is_behind_them_as_wcag_aa_wants() {
    let colours = colours();
    let find = |name: &str| {
        let found = colours.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("there is no colour {name}")).1
    };
    let plain = ["page", "surface", "raised", "sunken"];
    let texts = ["text", "muted", "accent", "good", "warn", "bad"];
    let on_plain = texts.iter().flat_map(|text| plain.map(|behind| (*text, behind, 4.5)));
    let code = ["c1", "c2", "c3", "c4"].into_iter();
    let code = code.flat_map(|text| ["surface", "sunken"].map(|behind| (text, behind, 4.5)));
    let others = [
        ("accent-text", "accent", 4.5),
        ("danger-text", "danger", 4.5),
        ("accent", "accent-soft", 4.5),
        ("text", "accent-soft", 4.5),
        ("good", "good-soft", 4.5),
        ("warn", "warn-soft", 4.5),
        ("bad", "bad-soft", 4.5),
        // Frames of fields, lines of charts.
        ("line-strong", "surface", 3.0),
        ("c5", "surface", 3.0),
        ("c6", "surface", 3.0),
    ];
    for (front, behind, least) in on_plain.chain(code).chain(others) {
        for theme in [0, 1] {
            let found = contrast(find(front)[theme], find(behind)[theme]);
            assert!(found >= least, "{front} on {behind}, theme {theme}: {found:.2}");
        }
    }
}
