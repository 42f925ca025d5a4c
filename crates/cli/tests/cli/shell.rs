//! A directory of its own in which a test runs `lithe`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

pub struct Shell {
    directory: TempDir,
}

/// What a run of the program left behind.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Run {
        let code = output.status.code().expect("the program exits by itself");
        let stderr = String::from_utf8(output.stderr).unwrap();
        Run { code, stdout: output.stdout, stderr }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The standard output of a run that must succeed.
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub fn ok_text(self) -> String {
        String::from_utf8(self.ok()).unwrap()
    }

    /// The standard error of a run that must end with this code and say why.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        self.stderr
    }
}

impl Shell {
    pub fn new() -> Shell {
        Shell { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let mut file = std::fs::File::create(self.path(name)).unwrap();
        file.write_all(bytes).unwrap();
    }

    /// The program with these arguments, in the directory, without a database in the environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lithe"));
        command.args(arguments);
        self.at_home(command)
    }

    /// A line for `sh`, run in the same place.
    pub fn shell_command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("LITHE_")) {
            command.env_remove(name);
        }
        command
            .current_dir(self.directory.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("PAGER")
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    /// Runs with `--db db`.
    pub fn db(&self, arguments: &[&str]) -> Run {
        self.run(&[&["--db", "db"], arguments].concat())
    }

    /// Runs with `--db db` and this standard input.
    pub fn db_with_input(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(&[&["--db", "db"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // From a thread of its own: neither side may wait for the other.
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(&input); // The program may stop reading early.
        });
        let run = Run::of(child.wait_with_output().unwrap());
        feeder.join().unwrap();
        run
    }
}
