//! Keys: whether what a keyspace has is sealed with the data key that is its own, or else with none
//! that is another's (R8).

use std::io::ErrorKind;

use crate::base::Error;
use crate::db::core::{Core, keyspace_dir};
use crate::structure::{Findings, Site};

impl Core {
    /// Looks at the header of every file of every keyspace, if any has a key of its own. Of which
    /// keyspaces a value file has values is not known by its header.
    pub(super) fn check_keys(&self, findings: &mut Findings) {
        let Some(keyring) = self.storage.keyring().filter(|keyring| keyring.has_owners()) else {
            return;
        };
        for runtime in self.runtimes() {
            let site = Site::of_keyspace(runtime.id);
            let paths = self.files_with_payloads(&keyspace_dir(&self.dir, runtime.store_id));
            let paths = match paths {
                Ok(paths) => paths.unwrap_or_default(),
                Err(error) => {
                    findings.note_error(site, &error);
                    continue;
                }
            };
            for path in paths {
                let numbers = match self.keys_of(&path) {
                    Ok(numbers) => numbers,
                    // It went meanwhile.
                    Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                        continue;
                    }
                    Err(error) => {
                        findings.note_error(site, &error);
                        continue;
                    }
                };
                // Asked afterwards: it may have become an older one.
                let owner = runtime.store_id.into();
                for number in numbers.into_iter().filter(|key| keyring.is_of_others(owner, *key)) {
                    let expected = keyring.number_for(owner);
                    findings.note_at(site.in_file(&path), "the data key", expected, number);
                }
            }
        }
    }
}
