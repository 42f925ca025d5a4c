//! Where the lines are kept that were typed, for their owner alone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::Settings;

/// Below `XDG_STATE_HOME`, or where that is when nobody says.
const FOLDER_DEFAULT: &str = ".local/state";
const FILE_NAME: &str = "lithe/history";

/// The file, if there is to be one.
pub fn path(settings: &Settings) -> Option<PathBuf> {
    match settings.value("shell.history") {
        Some("off") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => path_by(&|name| std::env::var_os(name).map(PathBuf::from)),
    }
}

fn path_by(environment: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let folder = environment("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let home = || environment("HOME").filter(|path| path.is_absolute());
    let folder = folder.or_else(|| home().map(|home| home.join(FOLDER_DEFAULT)));
    Some(folder?.join(FILE_NAME))
}

/// Makes the file, if it is not there, and takes it from everybody but its owner.
pub fn make_private(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    let file: File = options.append(true).create(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_is_for_its_owner_alone_even_if_it_was_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/lithe/history");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        make_private(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        make_private(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn it_is_where_files_of_its_kind_are() {
        let of = |state: Option<&str>, home: Option<&str>| {
            path_by(&|name| match name {
                "XDG_STATE_HOME" => state.map(PathBuf::from),
                _ => home.map(PathBuf::from),
            })
        };
        assert_eq!(of(Some("/s"), Some("/h")), Some("/s/lithe/history".into()));
        assert_eq!(of(Some("s"), Some("/h")), Some("/h/.local/state/lithe/history".into()));
        assert_eq!(of(None, None), None);
    }
}
