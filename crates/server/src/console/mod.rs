//! The web console: its files, out of the program, and what they are served with.
//!
//! They hold no data, so that they need no token; all that is shown is asked for at `/v1` by the
//! page. There are no names with hashes in them: who has a file asks with its `ETag` whether it is
//! still the one, and it is until there is another program.
//!
//! Invariants
//! - C1  Only the files of the table below are served: a path is looked up, and never opened.
//! - C2  The page loads nothing from elsewhere and runs nothing that is not one of the files.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// What the page may do: load scripts and styles from here, ask this server, and nothing else.
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// A file of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsoleFile {
    /// What it says.
    pub body: &'static [u8],
    /// What it is.
    pub content_type: &'static str,
    /// What its bytes are known by, in quotes, as the header has it.
    pub etag: &'static str,
}

impl ConsoleFile {
    /// The headers that it is answered with, also where it is answered that it has not changed.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, &'static str); 9] {
        [
            ("content-type", self.content_type),
            ("etag", self.etag),
            ("cache-control", "no-cache"),
            ("content-security-policy", CONTENT_POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-frame-options", "DENY"),
        ]
    }

    /// Whether somebody who asks with this `If-None-Match` has it already.
    #[must_use]
    pub fn is_known_by(&self, if_none_match: &str) -> bool {
        let known = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag;
        if_none_match.split(',').any(|tag| known(tag.trim()))
    }
}

/// The file at a path behind `/console/`; the page itself at the empty one.
#[must_use]
pub fn file(path: &str) -> Option<ConsoleFile> {
    let path = if path.is_empty() { "index.html" } else { path };
    let index = FILES.iter().position(|(name, _)| *name == path)?;
    let (name, body) = FILES[index];
    Some(ConsoleFile { body, content_type: content_type(name), etag: &ETAGS[index] })
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../console/", $name)))),*]
    };
}

/// All there is (C1).
static FILES: &[(&str, &[u8])] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "theme.js",
    "app.js",
    "api.js",
    "bytes.js",
    "chart.js",
    "diff.js",
    "dom.js",
    "format.js",
    "icons.js",
    "jobs.js",
    "list.js",
    "router.js",
    "stats.js",
    "ui.js",
    "views/changes.js",
    "views/difference.js",
    "views/entries.js",
    "views/entry.js",
    "views/json.js",
    "views/keys.js",
    "views/keyspace.js",
    "views/keyspaces.js",
    "views/maintenance.js",
    "views/overview.js",
    "views/settings.js",
    "views/structure.js",
    "views/travel.js",
    "views/versions.js",
];

/// Of each file half a hash: enough to tell files of one name apart.
static ETAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |(_, body): &(&str, &[u8])| {
        let hash = Sha256::digest(body);
        let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{digits}\"")
    };
    FILES.iter().map(tag).collect()
});

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
