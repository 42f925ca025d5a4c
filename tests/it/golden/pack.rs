//! Files in one file, without the zeros that most of them are.
//!
//! For each file, by name: the length of its name (4 bytes), the name, its length (8), then the
//! sectors of 512 bytes that are not zero, each behind its number (4), and the number 0xFFFFFFFF.

use super::make::Files;

const SECTOR: usize = 512;
const END: u32 = u32::MAX;

pub fn pack(files: &Files) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, bytes) in files {
        packed.extend((name.len() as u32).to_le_bytes());
        packed.extend(name.as_bytes());
        packed.extend((bytes.len() as u64).to_le_bytes());
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            if sector.iter().any(|byte| *byte != 0) {
                packed.extend((number as u32).to_le_bytes());
                packed.extend(sector);
            }
        }
        packed.extend(END.to_le_bytes());
    }
    packed
}

pub fn unpack(packed: &[u8]) -> Files {
    let mut rest = packed;
    let mut take = |len: usize| {
        let (taken, behind) = rest.split_at_checked(len)?;
        rest = behind;
        Some(taken.to_vec())
    };
    let mut files = Files::new();
    while let Some(len) = take(4) {
        let len = u32::from_le_bytes(len.try_into().unwrap());
        let name = String::from_utf8(take(len as usize).unwrap()).unwrap();
        let size = u64::from_le_bytes(take(8).unwrap().try_into().unwrap()) as usize;
        let mut bytes = vec![0; size];
        loop {
            let number = u32::from_le_bytes(take(4).unwrap().try_into().unwrap());
            if number == END {
                break;
            }
            let at = number as usize * SECTOR;
            let sector = take(SECTOR.min(size - at)).unwrap();
            bytes[at..at + sector.len()].copy_from_slice(&sector);
        }
        files.insert(name, bytes);
    }
    files
}
