//! The rules of `deny.toml`, as far as they can be looked at without the network: which licences,
//! which packages never, where packages come from, and no requirement that any version meets.
//!
//! Of TOML it reads what that file has: sections, and arrays of strings or of tables on lines of
//! their own. Whatever it cannot read it refuses, so that no rule is passed over.

use std::collections::BTreeSet;
use std::path::Path;

use crate::licence::is_met;
use crate::metadata::{Package, Supply};
use crate::{Outcome, read};

/// What may be used.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Licences, with their exceptions.
    licences: BTreeSet<String>,
    /// Packages that may not be there.
    banned: BTreeSet<String>,
}

impl Policy {
    /// Reads the rules.
    pub fn read(path: &Path) -> Outcome<Policy> {
        Policy::parse(&read(path)?)
    }

    fn parse(text: &str) -> Outcome<Policy> {
        let policy = Policy {
            licences: array(text, "licenses", "allow")?.into_iter().collect(),
            banned: array(text, "bans", "deny")?.into_iter().collect(),
        };
        match policy.licences.is_empty() || policy.banned.is_empty() {
            true => Err("deny.toml has no licences, or bans nothing".to_owned()),
            false => Ok(policy),
        }
    }

    /// Where the packages do not keep to them, a sentence each.
    pub fn problems(&self, supply: &Supply) -> Vec<String> {
        let of_others = supply.of_others().flat_map(|package| self.problems_of(package));
        of_others.chain(supply.own().flat_map(wildcards)).collect()
    }

    fn problems_of(&self, package: &Package) -> Vec<String> {
        let mut problems = Vec::new();
        let named = format!("{} {}", package.name, package.version);
        match is_met(&package.licence, &|licence| self.licences.contains(licence)) {
            Ok(true) => {}
            Ok(false) => problems.push(format!("{named}: licence {:?}", package.licence)),
            Err(what) => problems.push(format!("{named}: its licence: {what}")),
        }
        if self.banned.contains(&package.name) {
            problems.push(format!("{named} is banned"));
        }
        if !package.is_of_crates_io() {
            problems.push(format!("{named} comes from {:?}", package.source));
        }
        if package.checksum.is_none() {
            problems.push(format!("{named} has no checksum in the lock file"));
        }
        problems
    }
}

fn wildcards(package: &Package) -> Vec<String> {
    let any = package.requirements.iter().filter(|(_, versions)| versions.contains('*'));
    any.map(|(name, _)| format!("{} takes any version of {name}", package.name)).collect()
}

/// The strings of an array in a section: of a table in it, the one that `crate` is.
fn array(text: &str, section: &str, name: &str) -> Outcome<Vec<String>> {
    let missing = || format!("deny.toml: no array `{name}` in [{section}]");
    let start = text.find(&format!("\n[{section}]")).ok_or_else(missing)?;
    let body = &text[start + 1..];
    let body = &body[..body[1..].find("\n[").map_or(body.len(), |end| end + 1)];
    let start = body.find(&format!("\n{name} = [")).ok_or_else(missing)?;
    let body = &body[start + 1..];
    let end = body.find("\n]").ok_or_else(|| format!("deny.toml: `{name}` does not end"))?;
    let mut found = Vec::new();
    for line in body[..end].lines().skip(1) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let value = match line.strip_prefix("{ crate = ") {
            Some(rest) => rest,
            None => line,
        };
        let value = value.strip_prefix('"').and_then(|value| value.split_once('"'));
        let Some((value, _)) = value else {
            return Err(format!("deny.toml: `{line}` in `{name}` is not understood"));
        };
        found.push(value.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "
[bans]
deny = [
    { crate = \"openssl\", reason = \"C\" }, # and why
    \"bincode\",
]

[licenses]
confidence-threshold = 0.9
allow = [
    \"MIT\",
]
[sources]
";

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT OR Apache-2.0".to_owned(),
            source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
            checksum: Some("00".to_owned()),
            ..Package::default()
        }
    }

    fn problems(package: Package) -> Vec<String> {
        let policy = Policy::parse(RULES).unwrap();
        policy.problems(&Supply { packages: vec![package] })
    }

    #[test]
    fn a_package_that_keeps_to_the_rules_is_no_problem() {
        assert_eq!(problems(package("fine")), [""; 0]);
    }

    #[test]
    fn each_rule_is_looked_at() {
        assert!(problems(package("openssl"))[0].contains("banned"));
        assert!(problems(package("bincode"))[0].contains("banned"));
        let other = Package { licence: "GPL-3.0".to_owned(), ..package("a") };
        assert!(problems(other)[0].contains("GPL-3.0"));
        let unsaid = Package { licence: String::new(), ..package("a") };
        assert!(problems(unsaid)[0].contains("licence"));
        let elsewhere = Package { source: Some("git+https://x".to_owned()), ..package("a") };
        assert!(problems(elsewhere)[0].contains("git+https://x"));
        let unlocked = Package { checksum: None, ..package("a") };
        assert!(problems(unlocked)[0].contains("checksum"));
        let requirements = vec![("b".to_owned(), "*".to_owned())];
        let own = Package { source: None, requirements, ..package("own") };
        assert!(problems(own)[0].contains("any version of b"));
    }

    #[test]
    fn rules_that_are_not_understood_are_refused() {
        assert!(Policy::parse("").is_err());
        assert!(Policy::parse(&RULES.replace("\"MIT\"", "MIT")).unwrap_err().contains("MIT"));
        assert!(Policy::parse(&RULES.replace("allow", "permit")).is_err());
        assert!(Policy::parse(&RULES.replace("    \"MIT\",\n", "")).is_err());
    }
}
