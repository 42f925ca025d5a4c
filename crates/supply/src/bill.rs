//! A bill of materials: library and program with all that is built in, as CycloneDX 1.5 has it
//! (<https://cyclonedx.org/docs/1.5/json/>). The same lock file gives the same bytes: it has
//! neither a time nor a number of its own.

use serde_json::{Value, json};

use crate::Outcome;
use crate::licence::normalized;
use crate::metadata::{Package, Supply};

/// The package that the bill is about; the library is one of its components.
const SUBJECT: &str = "lithe-cli";

/// The bill.
pub fn cyclone_dx(supply: &Supply) -> Outcome<String> {
    let subject = supply.own().find(|package| package.name == SUBJECT);
    let subject = subject.ok_or("the program is no part of the workspace")?;
    let shipped: Vec<&Package> =
        supply.packages.iter().filter(|package| package.is_shipped).collect();
    let others = shipped.iter().filter(|package| package.id != subject.id);
    let bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(subject, "application") },
        "components": others.map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": shipped.iter().map(|package| uses(package, supply)).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": package.url(),
        "name": package.name,
        "version": package.version,
        "purl": package.url(),
        "licenses": [{ "expression": normalized(&package.licence) }],
    });
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if package.repository.starts_with("https://") {
        component["externalReferences"] = json!([{ "type": "vcs", "url": package.repository }]);
    }
    component
}

fn uses(package: &Package, supply: &Supply) -> Value {
    let shipped = || supply.packages.iter().filter(|other| other.is_shipped);
    let of = |id: &String| shipped().find(|other| other.id == *id);
    let mut urls: Vec<String> = package.uses.iter().filter_map(of).map(Package::url).collect();
    urls.sort();
    urls.dedup();
    json!({ "ref": package.url(), "dependsOn": urls })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::root;

    fn bill() -> Value {
        let text = cyclone_dx(&Supply::of_workspace(&root()).unwrap()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The fields that the schema requires, and no others than it has.
    #[test]
    fn the_bill_is_as_its_schema_says() {
        let bill = bill();
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["specVersion"], "1.5");
        assert!(bill["version"].as_u64().unwrap() >= 1);
        let fields = [
            "$schema",
            "bomFormat",
            "specVersion",
            "version",
            "metadata",
            "components",
            "dependencies",
        ];
        assert!(bill.as_object().unwrap().keys().all(|field| fields.contains(&field.as_str())));
        let components = bill["components"].as_array().unwrap();
        assert!(components.len() > 20);
        let subject = &bill["metadata"]["component"];
        assert_eq!((&subject["type"], &subject["name"]), (&json!("application"), &json!(SUBJECT)));
        for component in components.iter().chain([subject]) {
            let fields = [
                "type",
                "bom-ref",
                "name",
                "version",
                "purl",
                "licenses",
                "hashes",
                "externalReferences",
            ];
            let object = component.as_object().unwrap();
            assert!(object.keys().all(|field| fields.contains(&field.as_str())), "{component}");
            for required in ["type", "name", "bom-ref", "version"] {
                assert!(!component[required].as_str().unwrap().is_empty(), "{component}");
            }
            let licences = component["licenses"].as_array().unwrap();
            assert_eq!(licences.len(), 1, "one expression, and nothing beside it");
            assert!(!licences[0]["expression"].as_str().unwrap().contains('/'));
            for hash in component["hashes"].as_array().into_iter().flatten() {
                assert_eq!(hash["alg"], "SHA-256");
                let content = hash["content"].as_str().unwrap();
                assert_eq!(content.len(), 64);
                assert!(content.bytes().all(|byte| byte.is_ascii_hexdigit()));
            }
        }
    }

    #[test]
    fn every_reference_leads_to_one_component_and_nothing_that_is_built_in_is_missing() {
        let (bill, supply) = (bill(), Supply::of_workspace(&root()).unwrap());
        let components = bill["components"].as_array().unwrap().iter();
        let components = components.chain([&bill["metadata"]["component"]]);
        let of = |component: &Value| component["bom-ref"].as_str().unwrap().to_owned();
        let all: Vec<String> = components.map(of).collect();
        let refs: BTreeSet<String> = all.iter().cloned().collect();
        assert_eq!(refs.len(), all.len(), "each reference once");
        for shipped in supply.packages.iter().filter(|package| package.is_shipped) {
            assert!(refs.contains(&shipped.url()), "{}", shipped.url());
        }
        for entry in bill["dependencies"].as_array().unwrap() {
            assert!(refs.contains(entry["ref"].as_str().unwrap()), "{entry}");
            for other in entry["dependsOn"].as_array().unwrap() {
                assert!(refs.contains(other.as_str().unwrap()), "{other}");
            }
        }
        let names = ["blake3", "chacha20poly1305", "clap", "lithedb", "zstd-sys"];
        for name in names {
            assert!(refs.iter().any(|of| of.starts_with(&format!("pkg:cargo/{name}@"))), "{name}");
        }
        assert!(!refs.iter().any(|of| of.starts_with("pkg:cargo/tempfile@")), "it is for tests");
    }

    #[test]
    fn the_same_lock_file_gives_the_same_bill() {
        let supply = Supply::of_workspace(&root()).unwrap();
        assert_eq!(cyclone_dx(&supply).unwrap(), cyclone_dx(&supply).unwrap());
    }
}
