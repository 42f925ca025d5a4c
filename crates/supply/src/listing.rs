//! Lists for people: who has written what LitheDB is built of, and under which licences.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::licence::normalized;
use crate::metadata::{Package, Supply};
use crate::{Outcome, read};

const HEAD: &str = "\
# Packages of others

What LitheDB is built of, by `Cargo.lock`: with all features, for all systems. Written by
`just third-party`; a test compares. `just licences` prints the licence texts that the packages come
with, to be passed on with a program. The bundled data set has a licence of its own:
[data/README.md](data/README.md).
";

/// `THIRD-PARTY.md`.
pub fn table(supply: &Supply) -> String {
    let mut page = HEAD.to_owned();
    let parts = [
        ("In the library or the program, or used to build them", true),
        ("For tests and measurements only", false),
    ];
    for (heading, is_shipped) in parts {
        let _ = write!(page, "\n## {heading}\n\n| package | version | licence |\n|---|---|---|\n");
        for package in supply.of_others().filter(|package| package.is_shipped == is_shipped) {
            let Package { name, version, licence, repository, .. } = package;
            let name = match repository.starts_with("https://") {
                true => format!("[{name}]({repository})"),
                false => name.clone(),
            };
            let _ = writeln!(page, "| {name} | {version} | {} |", normalized(licence));
        }
    }
    page
}

/// The licence texts, each once, with the packages that have it; of those that come with none,
/// what they say.
pub fn texts(supply: &Supply) -> Outcome<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in supply.of_others().filter(|package| package.is_shipped) {
        let Package { name, version, licence, repository, .. } = package;
        let files = text_files(package)?;
        for path in &files {
            let text = read(path)?.replace('\r', "").trim().to_owned();
            by_text.entry(text).or_default().push(format!("{name} {version}"));
        }
        if files.is_empty() {
            let text = format!("It comes with no text. {}: {repository}", normalized(licence));
            by_text.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut all = String::new();
    for (text, packages) in by_text {
        let rule = "-".repeat(80);
        let _ = write!(all, "{rule}\n{}\n{rule}\n\n{text}\n\n", packages.join(", "));
    }
    Ok(all)
}

fn text_files(package: &Package) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(&package.dir);
    let entries = entries.map_err(|error| format!("{}: {error}", package.dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_text = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if path.is_file() && is_text.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
