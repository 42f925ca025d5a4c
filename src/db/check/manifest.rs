//! The manifest: what is in memory of it against what is on disk.

use crate::db::core::Core;
use crate::manifest::Manifest;
use crate::structure::{Findings, Site};

impl Core {
    pub(in crate::db) fn check_manifest(&self, findings: &mut Findings) {
        findings.files += 1;
        let manifest = self.lock_manifest();
        let site = Site::default().in_file(manifest.path());
        let (durable, found) = match Manifest::read(&*self.storage, &self.dir) {
            Ok(read) => read,
            Err(error) => return findings.note_error(site, &error),
        };
        findings.note_marks(site, &found, manifest.mended_mark());
        for difference in manifest.state().differences(&durable) {
            let site = Site { keyspace: difference.keyspace, ..site };
            findings.note_at(site, difference.what, difference.expected, difference.found);
        }
    }
}
