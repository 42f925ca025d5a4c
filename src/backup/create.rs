//! Adding a backup: all files of a moment, or of a stream, and then the list of them.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use super::list::{Content, Head, ListWriter};
use super::moment::Moment;
use super::stream::{BackupStream, StreamStep};
use super::work::{BackupOptions, Work};
use super::{BackupInfo, BackupRepository, LISTS_DIR, UNFINISHED, files, info_of, list_name};
use crate::base::{Error, Result};
use crate::db::Db;

impl BackupRepository {
    /// Makes a backup of an open database, as it is now: full by itself, and of what the repository
    /// has already nothing is written again, whichever backup of whichever database that is from.
    /// Durable on return.
    ///
    /// First makes a checkpoint ([`Db::checkpoint`]) beside the database, whose files are then read
    /// once, and those that are new a second time. So writers wait for what a checkpoint has them
    /// wait for, and neither the log nor old files are held for longer than that, but as long as it
    /// takes there are links to them; where a checkpoint has to copy files, as it does where there
    /// are no links and where the database's directory is a mount point, these take their room once
    /// more until then. In memory are 1 MiB and a hundred bytes a file. One backup of a database is
    /// made at a time; another one waits.
    ///
    /// If a trail in this repository follows the database, what has come up to now is added to it,
    /// and the backup is on it: see [`BackupRepository::begin_trail`]. Where a trail ends, it is a
    /// backup without one.
    ///
    /// The checkpoint has the database's name, or the hash of a long one, and `.being-backed-up-`
    /// and a number behind it. Should the process end before it is removed, the next backup of the
    /// database removes it.
    ///
    /// # Errors
    /// As [`Db::checkpoint`]; `Locked` while somebody else is at the repository, `DiskFull`, `Io`,
    /// `Corruption` of a file in the repository that should be the same: there is no backup more,
    /// and the others are as they were. (`Io` of the sync of its name alone: it may be there.) What
    /// was written for it is used by the next one, or goes with the next prune.
    pub fn create(&self, db: &Db) -> Result<BackupInfo> {
        self.create_with(db, BackupOptions::new())
    }

    /// As [`BackupRepository::create`], as the options say.
    ///
    /// # Errors
    /// As [`BackupRepository::create`].
    pub fn create_with(&self, db: &Db, options: BackupOptions<'_>) -> Result<BackupInfo> {
        let _lock = self.lock()?;
        self.clear_unfinished()?;
        let number = self.next_number()?;
        let moment = Moment::take(db)?;
        let (seqno, as_of) = (moment.seqno, moment.as_of);
        let created_millis = db.wall_millis();
        let mut work = Work::begin(options);
        let (list, written_bytes) = self.add_all(&moment, &mut work)?;
        moment.remove()?;
        let on_trail = self.join_trail(db, as_of)?;
        let head = Head {
            number,
            database: db.id(),
            seqno,
            created_millis,
            file_count: list.file_count,
            bytes: list.bytes,
            written_bytes,
            on_trail,
        };
        self.put_list(&head, list)?;
        Ok(info_of(&head))
    }

    /// Adds the backup that a stream has; of what the repository has already nothing stays twice.
    /// It gets a number of its own. Durable on return. In memory are 1 MiB and a hundred bytes a
    /// file.
    ///
    /// # Errors
    /// `Corruption` of a stream that is damaged or was cut, with the place in it; else as
    /// [`BackupRepository::create`].
    pub fn import(
        &self,
        mut stream: BackupStream<impl Read>,
        options: BackupOptions<'_>,
    ) -> Result<BackupInfo> {
        let _lock = self.lock()?;
        self.clear_unfinished()?;
        let number = self.next_number()?;
        let files = self.files();
        let (mut list, mut new) = (ListWriter::default(), Vec::new());
        let mut work = Work::begin(options);
        let sent = *stream.info();
        work.expect(sent.files, sent.bytes);
        while let Some((path, len)) = stream.next_file()? {
            let shown = Path::new(&path);
            let mut writer = files.begin(len)?;
            let content = loop {
                match stream.next_step()? {
                    StreamStep::Bytes(bytes) => {
                        writer.write(bytes)?;
                        work.advance(shown, bytes.len())?;
                    }
                    StreamStep::Zeros(count) => {
                        writer.write_zeros(count)?;
                        work.advance(shown, count as usize)?;
                    }
                    StreamStep::End(content) => break content,
                }
            };
            match files.has(&content, &mut work)? {
                true => files.give_up(writer)?,
                false => {
                    let found = files.end(writer)?;
                    stream.expect_content(&path, &found, &content)?;
                    new.push(found);
                }
            }
            list.add(&path, &content)?;
            work.end_file(shown)?;
        }
        let written_bytes = self.sync_files(&new)?;
        let head = Head {
            number,
            database: sent.database,
            seqno: sent.seqno,
            created_millis: sent.created_millis,
            file_count: list.file_count,
            bytes: list.bytes,
            written_bytes,
            on_trail: None,
        };
        self.put_list(&head, list)?;
        Ok(info_of(&head))
    }

    /// Adds all files of a moment, durably.
    fn add_all(&self, moment: &Moment<'_>, work: &mut Work<'_>) -> Result<(ListWriter, u64)> {
        let all = moment.files()?;
        work.expect(all.len() as u64, all.iter().map(|file| file.len).sum());
        let files = self.files();
        let (mut list, mut new) = (ListWriter::default(), Vec::new());
        for file in &all {
            let (source, from) = moment.open(&file.path)?;
            let (content, is_new) = files.add((&*source, &from), work)?;
            list.add(&file.path, &content)?;
            if is_new {
                new.push(content);
            }
            work.end_file(&from)?;
        }
        let written_bytes = self.sync_files(&new)?;
        Ok((list, written_bytes))
    }

    /// Q2: makes the names of all files durable, of which these are new. The bytes of these.
    fn sync_files(&self, new: &[Content]) -> Result<u64> {
        let files = self.files();
        let dir = files.dir();
        if let Err(error) = self.storage.sync_dir(dir) {
            // A name that a failed sync has left behind may never be durable, whatever a later one
            // says: who makes the next backup must not find it. Nor one that an interrupted backup
            // has left, as this would have been its first sync. What a list names was healed, and
            // had its name.
            match self.all_listed() {
                Ok(listed) => drop(files.remove_all_but(&listed)), // They stay if it fails.
                Err(_) => new.iter().for_each(|content| {
                    let _stays_if_it_fails = self.storage.remove_file(&files.path_of(content));
                }),
            }
            return Err(Error::io("sync", dir, error));
        }
        Ok(new.iter().map(|content| content.len).sum())
    }

    /// What all lists name.
    fn all_listed(&self) -> Result<BTreeSet<Content>> {
        let mut listed = BTreeSet::new();
        for number in self.numbers()? {
            listed.extend(self.read_list(number)?.entries().map(|entry| entry.content));
        }
        Ok(listed)
    }

    fn put_list(&self, head: &Head, list: ListWriter) -> Result<()> {
        let dir = self.dir.join(LISTS_DIR);
        let name = list_name(head.number);
        let unfinished = dir.join(format!("{name}{UNFINISHED}"));
        let bytes = list.finish(self.id, head);
        // The marker: who has made the repository may have ended in front of that.
        self.storage.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, error))?;
        files::put_whole(&*self.storage, (&unfinished, &dir.join(name)), &bytes)?;
        self.storage.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))
    }
}
