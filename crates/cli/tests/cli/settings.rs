//! Settings by file and environment, the manual and completions.

use crate::shell::{Run, Shell};

fn with_file(text: &str) -> Shell {
    let shell = Shell::new();
    std::fs::create_dir_all(shell.path("config/lithe")).unwrap();
    shell.write("config/lithe/config.toml", text.as_bytes());
    shell
}

fn origins(run: Run) -> Vec<(String, serde_json::Value, String)> {
    let json: serde_json::Value = serde_json::from_slice(&run.ok()).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let settings = json["settings"].as_array().unwrap().iter();
    settings.map(|it| (text(&it["setting"]), it["value"].clone(), text(&it["origin"]))).collect()
}

#[test]
fn each_value_says_where_it_is_from() {
    let shell = with_file("db = \"../../db\"\nkeyspace = \"users\"\n[shell]\nmode = \"csv\"\n");
    let mut command = shell.command(&["--color", "never", "config", "--format", "json"]);
    command.env("LITHE_KEYSPACE", "people").env("LITHE_TIMER", "on");
    let found = origins(Run::of(command.output().unwrap()));
    let is = |name: &str, value: &str, origin: &str| {
        let found = found.iter().find(|(setting, ..)| setting == name).unwrap();
        assert_eq!((found.1.as_str().unwrap(), found.2.as_str()), (value, origin), "{name}");
    };
    is("keyspace", "people", "environment");
    is("shell.timer", "true", "environment");
    is("shell.mode", "csv", "file");
    is("color", "never", "option");
    is("shell.bail", "false", "default");
    let table = shell.run(&["config"]).ok_text();
    let line = table.lines().find(|line| line.contains("shell.mode")).unwrap();
    assert!(line.contains("csv") && line.ends_with("config.toml: line 4"), "{line}");
    let path = shell.run(&["config", "path"]).ok_text();
    assert!(path.ends_with("config/lithe/config.toml\n"), "{path}");
}

#[test]
fn the_file_counts_for_commands_and_the_shell() {
    let shell = with_file("db = \"../../db\"\nkeyspace = \"users\"\n[shell]\nmode = \"csv\"\n");
    shell.run(&["put", "ada", "1"]).ok();
    assert_eq!(shell.run(&["--db", "db", "--keyspace", "users", "scan"]).ok_text(), "ada\t1\n");
    assert_eq!(shell.run(&["-c", "scan"]).ok_text(), "key,value\nada,1\n");
    assert_eq!(shell.run(&["-c", ".use\n.mode"]).ok_text(), "users\ncsv\n");
    let mut command = shell.command(&["-c", "scan"]);
    command.env("LITHE_MODE", "auto");
    assert_eq!(Run::of(command.output().unwrap()).ok_text(), "ada\t1\n");
}

#[test]
fn a_key_of_the_file_is_for_the_database_of_the_file() {
    let shell = with_file("db = \"../../safe\"\nkey_file = \"../../key\"\n");
    shell.write("key", &[7; 32]);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(shell.path("key"), private).unwrap();
    shell.run(&["create", "--encrypted"]).ok();
    shell.run(&["put", "a", "1"]).ok();
    assert_eq!(shell.run(&["get", "a"]).ok_text(), "1");
    shell.run(&["--db", "plain", "put", "a", "2"]).ok();
    assert_eq!(shell.run(&["--db", "plain", "get", "a"]).ok_text(), "2");
}

#[test]
fn mistakes_in_the_file_are_named_with_their_line() {
    for (text, said) in [
        ("quiet = 3\n", "line 1: quiet: expected true or false"),
        ("\ncolour = \"never\"\n", "line 2: there is no setting"),
        ("passphrase = \"open sesame\"\n", "line 1: passphrase: secrets are not for this file"),
        ("db = \n", "line 1: "),
    ] {
        let shell = with_file(text);
        let stderr = shell.run(&["config"]).fails(2);
        assert!(stderr.contains("config.toml: ") && stderr.contains(said), "{stderr}");
        assert!(!stderr.contains("sesame"), "{stderr}");
        shell.db(&["put", "a", "1"]).fails(2);
        shell.run(&["config", "path"]).ok();
    }
    let shell = Shell::new();
    let mut command = shell.command(&["config"]);
    command.env("LITHE_QUIET", "perhaps");
    let stderr = Run::of(command.output().unwrap()).fails(2);
    assert!(stderr.contains("LITHE_QUIET"), "{stderr}");
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let shell = Shell::new();
    shell.run(&["man", "--out", "pages"]).ok();
    for name in ["lithe", "lithe-get", "lithe-keyspaces-create", "lithe-top"] {
        let page = std::fs::read_to_string(shell.path(&format!("pages/{name}.1"))).unwrap();
        assert!(page.contains(".TH ") && page.contains("lithe \\-\\-db"), "{name}: {page}");
    }
    for name in ["lithe", "lithe-get", "lithe-token-create"] {
        let page = std::fs::read_to_string(shell.path(&format!("pages/{name}.1"))).unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.contains(concat!("\"lithe ", env!("CARGO_PKG_VERSION"))), "{title}");
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
            let count = page.matches(&format!("\n.SH {section}\n")).count();
            assert_eq!(count, 1, "{section} in {page}");
        }
        assert!(!page.contains("EXTRA") && !page.contains("Examples:"), "{page}");
        assert!(page.contains("\\fB130\\fR\ninterrupted\n"), "{page}");
        assert!(page.contains("LITHE_DB"), "{page}");
    }
    assert!(!shell.path("pages/lithe-bench-child.1").exists());
    assert!(shell.run(&["man", "get"]).ok_text().contains("lithe"));
    shell.run(&["man", "nope"]).fails(2);
}

#[test]
fn completions_know_the_commands() {
    let shell = Shell::new();
    for system_shell in ["bash", "zsh", "fish"] {
        let script = shell.run(&["completions", system_shell]).ok_text();
        for name in ["keyspaces", "top", "config", "key-file"] {
            assert!(script.contains(name), "{system_shell} does not know {name}");
        }
    }
}

#[test]
fn samples_are_printed_beside_the_writer() {
    let shell = Shell::new();
    shell.db(&["put", "a", "1"]).ok();
    let text = shell.db(&["top", "--json", "--count", "2", "--interval", "100ms"]).ok_text();
    let samples: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[1]["keyspaces"][0]["name"], "default");
    assert!(samples[1]["gets_per_second"].is_null(), "{text}");
    assert!(samples[1]["seconds"].as_f64().unwrap() > 0.0, "{text}");
    let text = shell.db(&["top", "--once", "--interval", "100ms"]).ok_text();
    assert!(text.starts_with("lithe top") && text.contains("amplification"), "{text}");
    shell.db(&["top"]).fails(2);
    let text = shell.run(&["db", "-c", "top --json --count 1 --interval 100ms"]).ok_text();
    let sample: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sample["gets_per_second"], 0.0);
}

#[test]
fn limits_of_the_server_are_settings() {
    let shell = with_file("[serve]\nbody_size = \"16MiB\"\nfeeds = 12\n");
    let mut command = shell.command(&["config", "--format", "json"]);
    command.env("LITHE_SERVE_FEEDS", "13");
    let found = origins(Run::of(command.output().unwrap()));
    let is = |name: &str, value: &str, origin: &str| {
        let found = found.iter().find(|(setting, ..)| setting == name).unwrap();
        assert_eq!((found.1.as_str().unwrap(), found.2.as_str()), (value, origin), "{name}");
    };
    is("serve.body_size", "16MiB", "file");
    is("serve.feeds", "13", "environment");
    is("serve.key_size", "64KiB", "default");
    let mut command = shell.command(&["config"]);
    command.env("LITHE_SERVE_FEEDS", "none");
    assert!(Run::of(command.output().unwrap()).fails(2).contains("LITHE_SERVE_FEEDS"));
    let wrong = shell.run(&["--db", "db", "serve", "--page-count", "0"]).fails(2);
    assert!(wrong.contains("--page-count") && wrong.contains("no number from 1"), "{wrong}");
    let help = shell.run(&["serve", "--help"]).ok_text();
    assert!(help.contains("--body-size <SIZE>") && help.contains("[default: 64MiB]"), "{help}");
}
