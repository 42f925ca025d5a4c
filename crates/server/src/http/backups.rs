//! Backups of the database that is served, and new databases made of them, all below one directory:
//! `repository/` has the backups, `names/` what they are called, `restored/` the databases.
//!
//! Invariants
//! - B1  A client's name is a plain word, and is only ever the last part of a path. Whatever in the
//!   way to it is a link is refused, so that nothing is read or written elsewhere.
//! - B2  A name is written behind the backup: one that is there is whole. A backup without one is
//!   called by its number.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lithedb::{BackupInfo, BackupOptions, BackupProgress, BackupRepository, Error, RestoreOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{Ask, Outcome, ok_json};
use super::failure::{Code, Failure};
use super::jobs::{self, Needs, NewJob, problems_json};
use super::moment::stamp_json;
use crate::auth::Verb;
use crate::moment::millis_text;

const NAME_LEN_MAX: usize = 64;
/// What backups without a name are called, with a number behind it.
const UNNAMED: &str = "backup-";
/// Bytes of a file with a name.
const NAME_FILE_SIZE_MAX: u64 = 256;

/// Where backups are.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// Names of backups that are being made, and of databases.
    taken: Arc<Mutex<BTreeSet<String>>>,
    /// As it was when it could be read last: nobody reads while somebody adds.
    listed: Mutex<Vec<Named>>,
}

/// A backup and what it is called.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    info: BackupInfo,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MakeBody {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    into: String,
}

/// A name that is being made something of; free again when this is dropped.
#[derive(Debug)]
struct Taken {
    names: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl Place {
    pub fn new(root: &Path) -> Place {
        Place { root: root.to_owned(), taken: Arc::default(), listed: Mutex::default() }
    }

    fn repository(&self) -> PathBuf {
        self.root.join("repository")
    }

    fn name_file(&self, name: &str) -> PathBuf {
        self.root.join("names").join(name)
    }

    fn restored(&self, name: &str) -> PathBuf {
        self.root.join("restored").join(name)
    }

    fn take(&self, kind: &str, name: &str) -> Result<Taken, Failure> {
        let name = format!("{kind}/{name}");
        let mut names = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match names.insert(name.clone()) {
            true => Ok(Taken { names: Arc::clone(&self.taken), name }),
            false => Err(name_taken()),
        }
    }

    /// The backups, by number.
    fn list(&self) -> Result<Vec<Named>, Error> {
        let (repository, names) = (self.repository(), self.root.join("names"));
        refuse_links([&self.root, &repository, &names])?;
        if !repository.exists() {
            return Ok(Vec::new());
        }
        let infos = match BackupRepository::open(&repository).and_then(|open| open.list()) {
            Err(Error::Locked { .. }) => {
                return Ok(self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone());
            }
            infos => infos?,
        };
        let mut known = names_in(&names)?;
        let named = infos.into_iter().map(|info| {
            let name = known.remove(&key_of(&info));
            Named { name: name.unwrap_or_else(|| unnamed(info.number)), info }
        });
        let named: Vec<Named> = named.collect();
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = named.clone();
        Ok(named)
    }
}

impl Place {
    /// Removes a backup, then its name; files and bytes that only it had. A name of which the
    /// backup is gone already goes as well. `None` if there is neither.
    fn remove(&self, name: &str) -> Result<Option<(u64, u64)>, Error> {
        let (repository, names) = (self.repository(), self.root.join("names"));
        refuse_links([&self.root, &repository, &names])?;
        let mut freed = None;
        if repository.exists() {
            let repository = BackupRepository::open(&repository)?;
            let known = names_in(&names)?;
            let is_it = |info: &BackupInfo| match known.get(&key_of(info)) {
                Some(known) => known == name,
                None => name == unnamed(info.number),
            };
            if let Some(info) = repository.list()?.iter().find(|info| is_it(info)) {
                let removed = repository.remove(info.number)?;
                freed = Some((removed.files, removed.bytes));
            }
        }
        let file = self.name_file(name);
        match fs::remove_file(&file).and_then(|()| sync_folder(&names)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(freed),
            Err(error) => Err(Error::io("remove", &file, error)),
            Ok(()) => Ok(Some(freed.unwrap_or_default())),
        }
    }
}

/// What a backup without a name is called.
fn unnamed(number: u64) -> String {
    format!("{UNNAMED}{number:08}")
}

/// What a backup is known by: numbers are given again.
fn key_of(info: &BackupInfo) -> String {
    format!("{} {} {}\n", info.number, info.created_millis, info.seqno.as_u64())
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::io(action, path, source)
}

/// Names by what they are of. What is no such file is passed over.
fn names_in(folder: &Path) -> Result<HashMap<String, String>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        entries => entries.map_err(io_error("list", folder))?,
    };
    let mut names = HashMap::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", folder))?;
        let about = entry.metadata().map_err(io_error("look at", folder))?; // Of a link, its own.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if about.is_file() && about.len() <= NAME_FILE_SIZE_MAX && is_plain(&name) {
            let text = fs::read_to_string(entry.path());
            names.insert(text.map_err(io_error("read", &entry.path()))?, name);
        }
    }
    Ok(names)
}

/// B1.
fn refuse_links<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Error> {
    for path in paths {
        match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() => {}
            Ok(_) => {
                let what = format!("{} is to be a directory, and no link", path.display());
                return Err(Error::invalid(what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("look at", path, error)),
        }
    }
    Ok(())
}

/// For its owner alone: backups are as confidential as the database.
fn make_folder(path: &PathBuf) -> Result<(), Error> {
    refuse_links([path])?;
    match make_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io("create", path, error))
        }
        _ => refuse_links([path]),
    }
}

/// Makes a directory for its owner alone, whatever the umask says.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        builder.mode(0o700);
        builder.create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
    }
    #[cfg(not(unix))]
    {
        builder.create(path)
    }
}

/// Makes the directory that backups go below, unless it is there, and looks whether it can be read.
pub fn make_root(path: &Path) -> io::Result<()> {
    match make_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::read_dir(path).map(drop),
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Letters, digits, dots, lines; no dot first: so it is one part of a path, and this one.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

fn check_name(name: &str) -> Result<(), Failure> {
    match is_plain(name) {
        true => Ok(()),
        false => {
            let what = format!("a name has 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 . _ -, no dot first");
            Err(Failure::new(Code::InvalidArgument, what))
        }
    }
}

fn name_taken() -> Failure {
    Failure::new(Code::NameTaken, "there is something of this name")
}

fn place(ask: &Ask) -> Result<&Place, Failure> {
    let no_place = || Failure::new(Code::NoBackups, "the server was given no place for backups");
    ask.shared.http.backups.as_ref().ok_or_else(no_place)
}

/// Does something with the place on a thread of its own.
async fn with_place<T: Send + 'static>(
    ask: &Ask,
    work: impl FnOnce(&Place) -> Result<T, Error> + Send + 'static,
) -> Result<T, Failure> {
    place(ask)?;
    let shared = Arc::clone(&ask.shared);
    ask.blocking(move || match &shared.http.backups {
        Some(place) => work(place),
        None => Err(Error::invalid("there is no place for backups")),
    })
    .await
}

/// `GET /v1/backups`
pub async fn list(ask: &mut Ask) -> Outcome {
    let named = with_place(ask, Place::list).await?;
    let shown: Vec<Value> = named.iter().map(shown).collect();
    ok_json(&json!({ "backups": shown }))
}

fn shown(named: &Named) -> Value {
    let info = &named.info;
    json!({
        "name": named.name,
        "number": info.number,
        "created": millis_text(info.created_millis),
        "stamp": stamp_json(info.seqno),
        "files": info.files,
        "bytes": info.bytes,
        "written_bytes": info.written_bytes,
        "database": format!("{:016x}", info.database),
    })
}

/// The number of the backup of the address.
async fn number(ask: &Ask) -> Result<(String, u64), Failure> {
    place(ask)?;
    let not_found = || Failure::new(Code::BackupNotFound, "there is no such backup");
    let name = ask.name(0).ok_or_else(not_found)?.to_owned();
    let named = with_place(ask, Place::list).await?;
    let found = named.into_iter().find(|named| named.name == name).ok_or_else(not_found)?;
    Ok((name, found.info.number))
}

fn job(kind: &'static str, name: &str) -> NewJob {
    let needs = Needs::All(Verb::Backup);
    NewJob { kind, needs, about: ("name", name.into()), unit: "bytes" }
}

/// Tells a job how far its backup is.
fn noting(job: &jobs::Job) -> BackupOptions<'_> {
    BackupOptions::new()
        .go_on_while(|progress: &BackupProgress| job.note(progress.bytes, Some(progress.all_bytes)))
}

/// `POST /v1/backups`
pub async fn make(ask: &mut Ask) -> Outcome {
    place(ask)?;
    let MakeBody { name } = ask.json().await?;
    check_name(&name)?;
    if name.starts_with(UNNAMED) {
        let what = "names of this kind are those of backups without one";
        return Err(Failure::new(Code::InvalidArgument, what));
    }
    let taken = place(ask)?.take("names", &name)?;
    let file = place(ask)?.name_file(&name);
    if with_place(ask, move |_| Ok(is_there(&file))).await? {
        return Err(name_taken());
    }
    let new = job("backup", &name);
    jobs::begin(ask, new, move |job, shared| {
        let _taken = taken;
        let Some(place) = &shared.http.backups else {
            return Err(Error::invalid("there is no place for backups"));
        };
        let names = place.root.join("names");
        make_folder(&names)?;
        make_folder(&place.repository())?;
        let repository = BackupRepository::open_or_create(place.repository())?;
        let info = repository.create_with(shared.store.db(), noting(job))?;
        write_name(&names, &name, &key_of(&info))?;
        Ok(shown(&Named { name, info }))
    })
}

/// B2. A name that is there already stays what it is.
fn write_name(names: &Path, name: &str, text: &str) -> Result<(), Error> {
    let file = names.join(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&file).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        sync_folder(names)
    });
    written.map_err(io_error("write", &file))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}

/// `DELETE /v1/backups/{name}`
pub async fn remove(ask: &mut Ask) -> Outcome {
    let not_found = || Failure::new(Code::BackupNotFound, "there is no such backup");
    let place = place(ask)?;
    let name = ask.name(0).filter(|name| is_plain(name)).ok_or_else(not_found)?.to_owned();
    let _taken = place.take("names", &name)?;
    let gone = name.clone();
    let removed = with_place(ask, move |place| place.remove(&gone)).await?;
    let (files, bytes) = removed.ok_or_else(not_found)?;
    ok_json(&json!({ "deleted": name, "files": files, "bytes": bytes }))
}

/// `POST /v1/backups/{name}/verify`
pub async fn verify(ask: &mut Ask) -> Outcome {
    let (name, number) = number(ask).await?;
    jobs::begin(ask, job("verify", &name), move |job, shared| {
        let Some(place) = &shared.http.backups else {
            return Err(Error::invalid("there is no place for backups"));
        };
        let repository = BackupRepository::open(place.repository())?;
        let check = repository.verify(Some(number), noting(job))?;
        let problems: Vec<String> = check.problems.iter().map(|found| found.what.clone()).collect();
        let report = json!({ "ok": check.is_ok(), "files": check.files, "bytes": check.bytes });
        Ok(problems_json(&problems, report))
    })
}

/// `POST /v1/backups/{name}/restore`
pub async fn restore(ask: &mut Ask) -> Outcome {
    place(ask)?;
    let RestoreBody { into } = ask.json().await?;
    let (name, number) = number(ask).await?;
    check_name(&into)?;
    let taken = place(ask)?.take("restored", &into)?;
    let target = place(ask)?.restored(&into);
    let looked_at = target.clone();
    if with_place(ask, move |_| Ok(is_there(&looked_at))).await? {
        return Err(name_taken());
    }
    let mut new = job("restore", &name);
    new.about = ("target", into.clone().into());
    jobs::begin(ask, new, move |job, shared| {
        let _taken = taken;
        let Some(place) = &shared.http.backups else {
            return Err(Error::invalid("there is no place for backups"));
        };
        make_folder(&place.root.join("restored"))?;
        let repository = BackupRepository::open(place.repository())?;
        let options = RestoreOptions::new().options(noting(job));
        let restored = repository.restore(number, &target, options)?;
        Ok(json!({
            "name": into,
            "stamp": stamp_json(restored.seqno),
            "files": restored.files,
            "bytes": restored.bytes,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for good in ["a", "2026-11-22", "A.b_c-d", &"x".repeat(64)] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", ".", "..", ".a", "a/b", "a\\b", "a b", "a\0", "ä", "a:b", &"x".repeat(65)]
        {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, names) = (dir.path().join("elsewhere"), dir.path().join("names"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &names).unwrap();
        assert!(make_folder(&names).is_err());
        assert!(refuse_links([&names]).is_err());
        assert!(Place::new(dir.path()).list().is_err());
        assert!(is_there(&names));
    }
}
