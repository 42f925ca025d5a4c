//! What can be seen without building an image or a package: that `packaging/` says what it should,
//! and that its parts fit each other.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Instructions of a Dockerfile, each in one line.
fn instructions() -> Vec<String> {
    let text = read("packaging/Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The settings of the unit; the last one of each name.
fn unit() -> BTreeMap<String, String> {
    let text = read("packaging/lithe.service");
    let settings = text.lines().filter(|line| !line.starts_with('#'));
    settings
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn images_are_pinned_and_fit_the_toolchain() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.expect("it names one").trim_matches('"');
    let lines = instructions();
    let images: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let [build, last] = &images[..] else { panic!("not two stages: {images:?}") };
    let tag = build.strip_prefix("rust:").and_then(|rest| rest.split(' ').next());
    let version = tag.and_then(|tag| tag.strip_suffix("-slim-bookworm")).expect("pinned");
    assert_eq!(version, channel);
    assert!(lines.contains(&format!("ENV RUSTUP_TOOLCHAIN={channel}")));
    // Of the same release of Debian: bookworm is 12.
    assert_eq!(*last, "gcr.io/distroless/cc-debian12:nonroot");
}

#[test]
fn the_image_runs_without_rights_and_looks_after_itself() {
    let lines = instructions();
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    for start in ["USER 10001:10001", "VOLUME /data", "EXPOSE 8080 6379", "STOPSIGNAL SIGTERM"] {
        assert!(has(start), "{start}");
    }
    assert!(
        lines.iter().any(|line| line.starts_with("HEALTHCHECK") && line.contains("\"health\""))
    );
    // Where it asks is a variable, as it is another place with TLS.
    assert!(has("ENV LITHE_HEALTH_URL=") && !lines.iter().any(|line| line.contains("--url")));
    let entry = lines.iter().position(|line| line.starts_with("ENTRYPOINT")).expect("it has one");
    let user = lines.iter().position(|line| line.starts_with("USER")).expect("it has one");
    assert!(user < entry);
    // Nothing that is copied is kept from the build.
    let ignored = read(".dockerignore");
    let ignored: Vec<&str> = ignored.lines().collect();
    assert!(ignored.contains(&"**/target") && ignored.contains(&".git"));
    for needed in ["crates", "src", "data", "Cargo.lock", "packaging", "tests"] {
        assert!(!ignored.contains(&needed), "{needed}");
    }
}

#[test]
fn the_unit_is_hardened_and_has_what_it_starts_with() {
    let unit = unit();
    for (name, value) in [
        ("Type", "exec"),
        ("DynamicUser", "yes"),
        ("StateDirectory", "lithe"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("MemoryDenyWriteExecute", "yes"),
        ("CapabilityBoundingSet", ""),
        ("SystemCallFilter", "~@privileged @resources"),
        ("LoadCredential", "tokens:/etc/lithe/tokens"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        ("EnvironmentFile", "-/etc/lithe/server.toml"),
    ] {
        assert_eq!(unit.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(unit.contains_key("MemoryMax"));
    let start = &unit["ExecStart"];
    assert!(start.starts_with("/usr/bin/lithe serve --db ${STATE_DIRECTORY}/db "), "{start}");
    // What it takes from the environment has a value there, or is nothing.
    let settings = read("packaging/server.toml");
    for name in ["LITHE_HTTP", "LITHE_REDIS", "LITHE_OPTIONS"] {
        assert!(start.contains(name), "{name}");
        assert!(settings.lines().any(|line| line.starts_with(&format!("{name}=\""))), "{name}");
    }
    for name in ["LITHE_HTTP=", "LITHE_REDIS="] {
        assert!(unit["Environment"].contains(name), "{name}");
    }
}

#[test]
fn settings_are_toml_and_environment_at_once() {
    for line in read("packaging/server.toml").lines() {
        let is_comment = line.is_empty() || line.starts_with('#');
        let is_setting = line.split_once('=').is_some_and(|(name, value)| {
            name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                && value.len() >= 2
                && value.starts_with('"')
                && value.ends_with('"')
                && !value[1..value.len() - 1].contains(['"', '\\', '$'])
        });
        assert!(is_comment || is_setting, "{line}");
    }
}

/// By systemd itself, where it is there. The program is another one, as it need not be installed.
#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lithe.service");
    let unit = read("packaging/lithe.service").replace("/usr/bin/lithe ", "/bin/true ");
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, unit.as_bytes()))
        .unwrap();
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.arg("verify").arg(&file).output() else {
        println!("not looked at: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("lithe.service:"), "{said}");
}

#[test]
fn the_debian_package_is_made_of_files_that_are_there() {
    let manifest = read("crates/cli/Cargo.toml");
    let assets = manifest.split("assets = [").nth(1).and_then(|rest| rest.split("\n]").next());
    let mut installed = Vec::new();
    for line in assets.expect("it has assets").lines().filter(|line| line.contains('[')) {
        let fields: Vec<&str> = line.split('"').collect();
        let (from, to) = (fields[1], fields[3]);
        // What the program writes of itself is made when the package is.
        if let Some(part) = from.strip_prefix("../../target/debian-parts/") {
            let part = part.trim_end_matches("/*");
            let script = read("packaging/debian.sh");
            assert!(script.contains(&format!("\"$parts/{part}\"")), "{part}");
        } else if from != "target/release/lithe" {
            assert!(root().join("crates/cli").join(from).is_file(), "{from}");
        }
        let name = from.rsplit('/').next().unwrap();
        installed.push(format!("/{to}{name}"));
    }
    assert!(installed.contains(&"/usr/bin/lithe".to_owned()));
    assert!(installed.contains(&"/etc/lithe/server.toml".to_owned()));
    assert!(installed.contains(&"/usr/share/man/man1/*".to_owned()));
    assert!(manifest.contains("conf-files = [\"/etc/lithe/server.toml\"]"));
    // The unit is found by the package's name in this folder.
    assert!(manifest.contains("name = \"lithe\"") && manifest.contains("unit-scripts"));
    assert!(root().join("packaging/lithe.service").is_file());
}
