//! The calls of [`Storage`] and [`StorageFile`] on a simulated machine.
//!
//! Owns handles and locks. Every call goes through [`SimStorage::call`], which counts it, lets it
//! fail, and notes it; what is here does the work on names and contents.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SimStorage;
use super::check::{Gaps, OnViolation};
use super::disk::{DataChange, NameChange};
use super::fault::Operation;
use super::machine::{Course, Machine};
use crate::base::hash_key;
use crate::storage::content::{PAGE_SIZE, check_range};
use crate::storage::locks::Hold;
use crate::storage::names::{NodeId, Place, Renamed};
use crate::storage::not_writable;
use crate::storage::{DirEntry, OpenMode, Storage, StorageFile, StorageLock};

impl SimStorage {
    fn call<T>(
        &self,
        operation: Operation,
        paths: &[&Path],
        detail: u64,
        work: impl FnOnce(&mut Machine, Course) -> io::Result<T>,
    ) -> io::Result<T> {
        crate::base::sync::point();
        let mut machine = self.machine();
        let violation_count = machine.checks.violations.len();
        let result = match machine.begin(operation, paths, detail) {
            Ok(course) => work(&mut machine, course),
            Err(error) => Err(error),
        };
        machine.note_outcome(&result);
        if machine.checks.on_violation == OnViolation::Panic
            && let Some(violation) = machine.checks.violations.get(violation_count).cloned()
        {
            drop(machine); // The panic must not poison the machine.
            panic!("{violation}");
        }
        result
    }

    fn take_lock(&self, path: &Path, hold: Hold) -> io::Result<Box<dyn StorageLock>> {
        let file = self.call(Operation::Lock, &[path], 0, |machine, course| {
            course.outcome()?;
            let file = match machine.live.names.find_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => machine.create(path)?,
                found => found?,
            };
            machine.locks.take(file, hold)?;
            Ok(file)
        })?;
        Ok(Box::new(SimLock { storage: self.clone(), file }))
    }
}

impl Storage for SimStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let operation = match mode {
            OpenMode::CreateNew => Operation::Create,
            OpenMode::ReadWrite | OpenMode::ReadOnly => Operation::Open,
        };
        let file = self.call(operation, &[path], mode as u64, |machine, course| {
            let file = match mode {
                OpenMode::CreateNew => machine.create(path)?,
                OpenMode::ReadWrite | OpenMode::ReadOnly => machine.live.names.find_file(path)?,
            };
            course.outcome()?;
            machine.add_handle(file, mode, path);
            Ok(file)
        })?;
        Ok(Arc::new(SimFile { storage: self.clone(), file, mode, path: path.into() }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::CreateDir, &[path], 0, |machine, course| {
            if machine.live.names.directory_at(path).is_err() {
                machine.check_room_for_name()?;
            }
            let mut created = Vec::new();
            let result = machine.live.names.create_dir_all(path, &mut created);
            for (node, place) in created {
                machine.note_name_change(NameChange {
                    node,
                    from: None,
                    to: Some(place),
                    with: None,
                });
            }
            result.and_then(|()| course.outcome())
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::CreateDir, &[path], 1, |machine, course| {
            if !machine.live.names.exists(path)? {
                machine.check_room_for_name()?;
            }
            let (node, place) = machine.live.names.create_dir(path)?;
            machine.note_name_change(NameChange { node, from: None, to: Some(place), with: None });
            course.outcome()
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Operation::Rename, &[from, to], 0, |machine, course| {
            let renamed = machine.live.names.rename(from, to)?;
            machine.note_renamed(from, to, renamed);
            course.outcome()
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Operation::Rename, &[from, to], 1, |machine, course| {
            let renamed = machine.live.names.rename_new(from, to)?;
            machine.note_renamed(from, to, renamed);
            course.outcome()
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.call(Operation::Rename, &[one, other], 2, |machine, course| {
            if let Some(exchanged) = machine.live.names.exchange(one, other)? {
                let (from, to) = (Some(exchanged.from), Some(exchanged.to));
                let (node, with) = (exchanged.one, Some(exchanged.other));
                machine.note_name_change(NameChange { node, from, to, with });
            }
            course.outcome()
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Operation::Link, &[from, to], 0, |machine, course| {
            if !machine.live.names.exists(to)? {
                machine.check_room_for_name()?;
            }
            let (node, place) = machine.live.names.link(from, to)?;
            machine.note_name_change(NameChange { node, from: None, to: Some(place), with: None });
            course.outcome()
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::Remove, &[path], 0, |machine, course| {
            let (node, place) = machine.live.names.remove_file(path)?;
            machine.note_name_change(NameChange { node, from: Some(place), to: None, with: None });
            machine.release_if_unused(node.id);
            course.outcome()
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::RemoveDir, &[path], 0, |machine, course| {
            let (node, place) = machine.live.names.remove_dir(path)?;
            machine.note_name_change(NameChange { node, from: Some(place), to: None, with: None });
            course.outcome()
        })
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.call(Operation::List, &[path], 0, |machine, course| {
            course.outcome()?;
            machine.live.names.list(path)
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::SyncDir, &[path], 0, |machine, course| {
            let directory = machine.live.names.directory_at(path)?;
            match course {
                Course::Pretend => {}
                Course::FailAndDrop(_) => drop(machine.unsynced.take_names(directory)),
                _ => machine.make_names_durable(directory),
            }
            course.outcome()
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.take_lock(path, Hold::Alone)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.take_lock(path, Hold::Shared)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call(Operation::Exists, &[path], 0, |machine, course| {
            course.outcome()?;
            machine.live.names.exists(path)
        })
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.call(Operation::Exists, &[path], 1, |machine, course| {
            course.outcome()?;
            machine.live.names.resolve(path)
        })
    }

    /// No call that is counted or fails: it changes nothing, and nothing depends on it alone.
    fn room(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(Some(self.machine().room()))
    }
}

impl Machine {
    /// Creates an empty file. Its name is durable only after a sync of the directory.
    fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        if !self.live.names.exists(path)? {
            self.check_room_for_name()?;
        }
        let (node, place) = self.live.names.create_file(path)?;
        self.live.contents.insert(node.id, Arc::default());
        self.durable.contents.insert(node.id, Arc::default());
        self.note_name_change(NameChange { node, from: None, to: Some(place), with: None });
        Ok(node.id)
    }

    fn note_renamed(&mut self, from: &Path, to: &Path, renamed: Option<Renamed>) {
        let Some(renamed) = renamed else { return };
        let node = renamed.node;
        if self.unsynced.has_data(node.id) {
            let (from, to) = (from.display(), to.display());
            self.checks.report(format!("{from} was renamed to {to} with data that is not synced"));
        }
        let (from, to): (Place, Place) = (renamed.from, renamed.to);
        let (from, to) = (Some(from), Some(to));
        self.note_name_change(NameChange { node, from, to, with: None });
        if let Some(replaced) = renamed.replaced {
            self.release_if_unused(replaced.id);
        }
    }

    /// What has a name in a checkpoint as well belongs to two databases.
    fn check_one_name(&mut self, file: NodeId, action: &str) {
        let count = self.live.names.name_count(file);
        if count > 1 {
            let path = self.live.names.path_of(file);
            let path = path.display();
            self.checks.report(format!("{path} was {action} while it has {count} names"));
        }
    }

    fn add_handle(&mut self, file: NodeId, mode: OpenMode, path: &Path) {
        let handles = self.handles.entry(file).or_default();
        if mode == OpenMode::ReadOnly {
            handles.readers += 1;
            return;
        }
        handles.writers += 1;
        if handles.writers == 2 {
            let path = path.display();
            self.checks.report(format!("{path} was opened for writing while it already is"));
        }
    }

    fn drop_handle(&mut self, file: NodeId, mode: OpenMode) {
        if let Some(handles) = self.handles.get_mut(&file) {
            match mode {
                OpenMode::ReadOnly => handles.readers -= 1,
                OpenMode::CreateNew | OpenMode::ReadWrite => handles.writers -= 1,
            }
            if handles.readers + handles.writers == 0 {
                self.handles.remove(&file);
            }
        }
        self.release_if_unused(file);
    }

    fn read(
        &mut self,
        file: NodeId,
        buffer: &mut [u8],
        offset: u64,
        (course, gaps): (Course, Gaps),
    ) -> io::Result<usize> {
        let wanted = match course {
            Course::Short if buffer.len() > 1 => self.part_of(buffer.len()),
            _ => buffer.len(),
        };
        let count = self.live_content(file).read_at(&mut buffer[..wanted], offset);
        if gaps == Gaps::Suspicious
            && let Some(gap) = self.checks.gap_in(file, &(offset..offset + count as u64))
        {
            let path = self.live.names.path_of(file);
            self.checks.report(format!("{}: read of {gap:?}, never written", path.display()));
        }
        if matches!(course, Course::FlipBit) && count > 0 {
            let bit = self.random.below(count as u64 * 8);
            buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        course.outcome().map(|()| count)
    }

    fn write(
        &mut self,
        file: NodeId,
        bytes: &[u8],
        offset: u64,
        course: Course,
    ) -> io::Result<usize> {
        let size = match course {
            Course::Short if bytes.len() > 1 => self.part_of(bytes.len()),
            Course::FailAfter(_) if !bytes.is_empty() => self.part_of(bytes.len() + 1) - 1,
            _ => bytes.len(),
        };
        let size = self.size_that_fits(file, offset, size)?;
        let bytes = &bytes[..size];
        if !self.live.names.is_named(file) {
            self.checks.report(format!("file {} was written to after its removal", file.0));
        }
        let len = self.live_content(file).len();
        let end = offset + size as u64;
        self.checks.note_write(file, len, &(offset..end));
        self.change_live(file, |content| content.write_at(bytes, offset));
        if size > 0 {
            self.unsynced.push_data(file, DataChange::Write { offset, bytes: bytes.into() });
        }
        if size > 0 && end > len {
            self.unsynced.push_data(file, DataChange::Grow { len: end });
        }
        course.outcome().map(|()| size)
    }

    fn punch_hole(&mut self, file: NodeId, offset: u64, size: u64) {
        let end = (offset + size).min(self.live_content(file).len());
        if offset >= end {
            return;
        }
        self.checks.note_hole(file, offset..end);
        self.change_live(file, |content| content.punch_hole(offset, end - offset));
        let zeros = vec![0; (end - offset) as usize].into();
        self.unsynced.push_data(file, DataChange::Punch { offset, zeros });
    }

    /// As an operating system does when the disk fills up: a write stops where the room ends, and
    /// only the next one fails.
    fn size_that_fits(&self, file: NodeId, offset: u64, size: usize) -> io::Result<usize> {
        let content = self.live_content(file);
        let room = self.room();
        let mut fitting = size;
        while content.growth_of_write(offset, fitting as u64) > room {
            let end = offset + fitting as u64;
            let page_start = (end - 1) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
            fitting = page_start.saturating_sub(offset) as usize;
        }
        if fitting == 0 && size > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(fitting)
    }

    /// At least 1 and less than `size`, which is more than 1.
    fn part_of(&mut self, size: usize) -> usize {
        1 + self.random.below(size as u64 - 1) as usize
    }
}

/// An open file.
#[derive(Debug)]
struct SimFile {
    storage: SimStorage,
    file: NodeId,
    mode: OpenMode,
    path: Box<Path>,
}

impl SimFile {
    fn call<T>(
        &self,
        operation: Operation,
        detail: u64,
        work: impl FnOnce(&mut Machine, Course) -> io::Result<T>,
    ) -> io::Result<T> {
        self.storage.call(operation, &[&self.path], detail, work)
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.mode {
            OpenMode::CreateNew | OpenMode::ReadWrite => Ok(()),
            OpenMode::ReadOnly => Err(not_writable()),
        }
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let size = buffer.len() as u64;
        self.call(Operation::Read, offset.rotate_left(32) ^ size, |machine, course| {
            check_range(offset, size)?;
            machine.read(self.file, buffer, offset, (course, Gaps::Suspicious))
        })
    }

    fn read_as_is_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let size = buffer.len() as u64;
        self.call(Operation::Read, offset.rotate_left(32) ^ size, |machine, course| {
            check_range(offset, size)?;
            machine.read(self.file, buffer, offset, (course, Gaps::Expected))
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.call(Operation::Write, offset.rotate_left(32) ^ hash_key(bytes), |machine, course| {
            check_range(offset, bytes.len() as u64)?;
            self.check_writable()?;
            machine.check_one_name(self.file, "written to");
            machine.write(self.file, bytes, offset, course)
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.call(Operation::Size, 0, |machine, course| {
            course.outcome()?;
            Ok(machine.live_content(self.file).len())
        })
    }

    fn link_count(&self) -> io::Result<u64> {
        self.call(Operation::Size, 1, |machine, course| {
            course.outcome()?;
            Ok(machine.live.names.name_count(self.file))
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Operation::SetLen, len, |machine, course| {
            check_range(0, len)?;
            self.check_writable()?;
            machine.check_one_name(self.file, "cut or extended");
            machine.change_live(self.file, |content| content.set_len(len));
            machine.checks.fill(self.file, &(len..u64::MAX)); // What was cut is no gap any more.
            machine.unsynced.push_data(self.file, DataChange::SetLen { len });
            course.outcome()
        })
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.call(Operation::Preallocate, len, |machine, course| {
            check_range(0, len)?;
            self.check_writable()?;
            machine.check_one_name(self.file, "extended");
            machine.check_room(machine.live_content(self.file).growth_of_reserve(len))?;
            machine.change_live(self.file, |content| content.reserve(len));
            machine.checks.fill(self.file, &(0..len));
            machine.unsynced.push_data(self.file, DataChange::Reserve { len });
            course.outcome()
        })
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        self.call(Operation::PunchHole, offset.rotate_left(32) ^ size, |machine, course| {
            check_range(offset, size)?;
            self.check_writable()?;
            machine.check_one_name(self.file, "punched");
            machine.punch_hole(self.file, offset, size);
            course.outcome()
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Operation::Sync, 0, |machine, course| {
            match course {
                Course::Pretend => {}
                Course::FailAndDrop(_) => drop(machine.unsynced.take_data(self.file)),
                _ => machine.make_data_durable(self.file),
            }
            course.outcome()
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.storage.machine().drop_handle(self.file, self.mode);
    }
}

#[derive(Debug)]
struct SimLock {
    storage: SimStorage,
    file: NodeId,
}

impl StorageLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.storage.machine().locks.give_back(self.file);
    }
}
