//! Files of secrets, which are for their owner alone.

use std::io;
use std::path::Path;

/// Whether others than its owner can read or write a file of secrets. What a service manager hands
/// over in the directory of credentials may be readable by a group, which is how it lets the
/// service read it.
///
/// # Errors
/// When there is no such file, or it cannot be looked at.
pub fn is_exposed(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Ok(exposes(path, std::fs::metadata(path)?.permissions().mode()))
    }
    #[cfg(not(unix))]
    {
        std::fs::metadata(path).map(|_| false)
    }
}

/// The same, by the mode that the file has.
#[cfg(unix)]
#[must_use]
pub fn exposes(path: &Path, mode: u32) -> bool {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let is_credential = credentials.is_some_and(|directory| path.starts_with(directory));
    let others = if is_credential { 0o037 } else { 0o077 };
    mode & others != 0
}
