//! Staged values: those of one batch, laid out as records, before it is known where they will lie.
//!
//! The hash is taken when a value comes in, on the caller's thread; checksums are bound to the
//! place and filled in when that is known. The records are written as they lie here, in one call.

use std::collections::BTreeMap;

use super::format::{
    Form, RECORD_HEADER_LEN, RecordHeader, RecordLayout, RecordPlace, hash_value, seal_record,
    u64_at,
};
use crate::base::ValuePointer;

/// The number of a file that is not known yet; no file has it.
pub const NO_FILE: u64 = 0;

/// Values that are to be appended together.
#[derive(Clone, Debug, Default)]
pub struct StagedValues {
    /// Whole records but for their checksums, one behind the other.
    records: Vec<u8>,
    /// Where each starts; `None` of one that is not to be written.
    starts: Vec<Option<usize>>,
    /// Bytes of all values pushed.
    value_bytes: usize,
    /// Where each starts in what was written, if that is not as it is here.
    written_starts: Vec<Option<usize>>,
}

/// How far staging had come at some moment.
#[derive(Clone, Copy, Debug)]
pub struct StagedMark {
    size: usize,
    count: usize,
    value_bytes: usize,
}

impl StagedValues {
    /// Adds a value; returns the pointer to it, with its offset in here and no file.
    pub fn push(&mut self, keyspace: u32, value: &[u8]) -> ValuePointer {
        self.written_starts.clear();
        let start = self.records.len();
        let len = value.len() as u64;
        let layout = layout_of(len);
        let header = RecordHeader { len, hash: hash_value(value), sum: 0, keyspace };
        self.records.reserve(layout.end as usize);
        self.records.extend_from_slice(&header.encode(0, 0));
        self.records.extend_from_slice(value);
        self.records.resize(start + layout.end as usize, 0);
        self.starts.push(Some(start));
        self.value_bytes += value.len();
        let len = u32::try_from(len).expect("the caller limits values");
        ValuePointer { file: NO_FILE, offset: start as u64, len, hash: header.hash }
    }

    /// Number of values, those that are not to be written included.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of the records.
    pub fn size(&self) -> usize {
        self.records.len()
    }

    /// Bytes of the values, as their writers know them.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// How far it has come.
    pub fn mark(&self) -> StagedMark {
        let (size, count) = (self.records.len(), self.starts.len());
        StagedMark { size, count, value_bytes: self.value_bytes }
    }

    /// Forgets the values since `mark`.
    pub fn truncate(&mut self, mark: StagedMark) {
        self.records.truncate(mark.size);
        self.starts.truncate(mark.count);
        self.value_bytes = mark.value_bytes;
    }

    /// The value that [`Self::push`] gave this pointer to.
    pub fn value(&self, pointer: &ValuePointer) -> &[u8] {
        let start = pointer.offset as usize + RECORD_HEADER_LEN;
        &self.records[start..start + pointer.len as usize]
    }

    /// Where the value with this number starts among what is, or was, written.
    pub fn start(&self, number: usize) -> Option<u64> {
        let written = self.written_starts.get(number).unwrap_or(&self.starts[number]);
        written.map(|start| start as u64)
    }

    /// Takes those out that are there already; the others move together.
    pub fn leave_out(&mut self, is_there: impl Fn(usize) -> bool) {
        if !(0..self.starts.len()).any(&is_there) {
            return;
        }
        let mut end = 0;
        for (number, place) in self.starts.iter_mut().enumerate() {
            let Some(start) = *place else { continue };
            let len = u64_at(&self.records, start + 8);
            let layout = layout_of(len);
            if is_there(number) {
                *place = None;
                continue;
            }
            self.records.copy_within(start..start + layout.end as usize, end);
            *place = Some(end);
            end += layout.end as usize;
        }
        self.records.truncate(end);
    }

    /// Parts those that are to be written by what `part_of` says of their keyspaces. Each part
    /// comes with the numbers that its values have here.
    pub fn parted(self, part_of: impl Fn(u32) -> u16) -> Vec<(StagedValues, Vec<usize>)> {
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, start) in self.starts.iter().enumerate() {
            let Some(start) = *start else { continue };
            let keyspace = header_of(&self.records[start..]).keyspace;
            parts.entry(part_of(keyspace)).or_default().push(number);
        }
        match parts.len() {
            0 | 1 => self.whole(),
            _ => parts.into_values().map(|numbers| (self.only(&numbers), numbers)).collect(),
        }
    }

    /// All of it as one part.
    pub fn whole(self) -> Vec<(StagedValues, Vec<usize>)> {
        let numbers = (0..self.starts.len()).collect();
        vec![(self, numbers)]
    }

    /// A copy of those with these numbers, which are to be written.
    fn only(&self, numbers: &[usize]) -> StagedValues {
        let mut part = StagedValues::default();
        for start in numbers.iter().filter_map(|number| self.starts[*number]) {
            let len = u64_at(&self.records, start + 8);
            let end = start + layout_of(len).end as usize;
            part.starts.push(Some(part.records.len()));
            part.records.extend_from_slice(&self.records[start..end]);
            part.value_bytes += len as usize;
        }
        part
    }

    /// The keyspace of the first value that is to be written; 0 if there is none.
    pub(super) fn first_keyspace(&self) -> u32 {
        let start = self.starts.iter().flatten().next();
        start.map_or(0, |start| header_of(&self.records[*start..]).keyspace)
    }

    /// Binds all records to their place: from `offset` on in the file with this tag.
    pub(super) fn seal(&mut self, tag: u64, offset: u64) -> &[u8] {
        for start in self.starts.iter().flatten() {
            let record = &mut self.records[*start..];
            let place = RecordPlace { tag, key: None, offset: offset + *start as u64 };
            let header = header_of(record);
            seal_record(record, place, header);
        }
        &self.records
    }

    /// Bytes of the records in a file whose records are sealed.
    pub(super) fn sealed_size(&self) -> u64 {
        let records = self.starts.iter().flatten().map(|start| &self.records[*start..]);
        records.map(|record| sealed_layout(u64_at(record, 8)).end).sum()
    }

    /// The records as they are to be written from there on, in a file whose records are sealed; the
    /// staged values stay as they are, to be looked at, or to be written again elsewhere.
    pub(super) fn sealed_for(&mut self, place: RecordPlace<'_>) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(self.sealed_size() as usize);
        self.written_starts.clear();
        for start in &self.starts {
            let Some(start) = *start else {
                self.written_starts.push(None);
                continue;
            };
            let record = &self.records[start..];
            let (header, written) = (header_of(record), sealed.len());
            sealed.extend_from_slice(&record[..RECORD_HEADER_LEN + header.len as usize]);
            sealed.resize(written + sealed_layout(header.len).end as usize, 0);
            let offset = place.offset + written as u64;
            seal_record(&mut sealed[written..], RecordPlace { offset, ..place }, header);
            self.written_starts.push(Some(written));
        }
        sealed
    }
}

fn layout_of(len: u64) -> RecordLayout {
    RecordLayout::of(len, Form::Plain).expect("the value is in memory")
}

fn sealed_layout(len: u64) -> RecordLayout {
    RecordLayout::of(len, Form::Sealed).expect("the value is in memory")
}

fn header_of(record: &[u8]) -> RecordHeader {
    RecordHeader {
        len: u64_at(record, 8),
        hash: record[16..32].try_into().expect("sixteen bytes"),
        sum: 0,
        keyspace: u64_at(record, 40) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_leaves_no_gap() {
        let mut staged = StagedValues::default();
        let pointers: Vec<ValuePointer> = (0..5u8)
            .map(|number| staged.push(1, &vec![number; 100 + usize::from(number)]))
            .collect();
        assert!(pointers.iter().enumerate().all(|(number, pointer)| {
            staged.value(pointer) == vec![number as u8; 100 + number]
        }));
        staged.leave_out(|number| number % 2 == 0);
        assert_eq!(staged.count(), 5);
        assert_eq!((staged.start(0), staged.start(2), staged.start(4)), (None, None, None));
        for number in [1, 3] {
            let moved = ValuePointer { offset: staged.start(number).unwrap(), ..pointers[number] };
            assert_eq!(staged.value(&moved), vec![number as u8; 100 + number]);
        }
        assert_eq!(staged.size(), 152 + 152);
    }

    #[test]
    fn what_goes_to_different_files_is_parted_and_keeps_its_numbers() {
        let mut staged = StagedValues::default();
        let pointers: Vec<ValuePointer> =
            (0..6u8).map(|number| staged.push(u32::from(number % 3) + 1, &[number; 100])).collect();
        staged.leave_out(|number| number == 1);
        let parts = staged.clone().parted(|keyspace| u16::from(keyspace == 3));
        let numbers: Vec<&[usize]> = parts.iter().map(|(_, numbers)| &numbers[..]).collect();
        assert_eq!(numbers, [&[0, 3, 4][..], &[2, 5]]);
        for (part, numbers) in &parts {
            for (within, number) in numbers.iter().enumerate() {
                let offset = part.start(within).unwrap();
                let value = part.value(&ValuePointer { offset, ..pointers[*number] });
                assert_eq!(value, [*number as u8; 100]);
            }
        }
        assert_eq!(parts[1].0.first_keyspace(), 3);
        let sizes: Vec<usize> = parts.iter().map(|(part, _)| part.size()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), staged.size());
        let parts = staged.parted(|_| 7);
        let (whole, numbers) = &parts[0];
        assert_eq!((parts.len(), whole.count(), whole.start(1)), (1, 6, None));
        assert_eq!(*numbers, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn staging_goes_back_to_a_mark() {
        let mut staged = StagedValues::default();
        staged.push(1, b"one");
        let mark = staged.mark();
        staged.push(1, b"two");
        staged.truncate(mark);
        assert_eq!((staged.count(), staged.size(), staged.value_bytes()), (1, 56, 3));
    }
}
