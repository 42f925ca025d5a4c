//! What a salvage does with frames that verify and say anything, for fuzzing.

use std::path::Path;

use super::{LayerPlan, Merged, OnePiece, Order, Owner, SalvageFile, SalvageMerge, SalvagedStore};
use crate::base::{EntryKind, Slice};
use crate::seal::FileIdentity;
use crate::storage::Storage;

/// Searches a file for frames, behind a header of this length, and merges what is in them, each a
/// layer that is newer than the ones behind it; once by rank and once by stamp.
pub(crate) fn fuzz_file(storage: &dyn Storage, path: &Path, tag: u64, header_len: u64) {
    let identity = FileIdentity { kind: *b"seg ", database: 1, owner: 1, number: 1 };
    let owner = Owner { tag, identity, header_len, key_in: |_, _| Some(0) };
    for order in [Order::Ranks, Order::Stamps] {
        let Ok(file) = SalvageFile::open(storage, path, &owner) else { return };
        let layers = layers_of(file, header_len);
        let store = SalvagedStore { state: None, order, layers, damage: Vec::new() };
        let mut last: Option<Vec<u8>> = None;
        let _ = SalvageMerge::new(store).run_to(None, &mut |merged| {
            if let Merged::Entry { entry, .. } = merged {
                assert!(entry.kind != EntryKind::Tombstone, "what is deleted is none");
                assert!(last.as_deref().is_none_or(|last| last < entry.key), "keys rise");
                last = Some(entry.key.to_vec());
            }
            Ok(())
        });
    }
}

fn layers_of(mut file: SalvageFile, header_len: u64) -> Vec<LayerPlan> {
    let (mut layers, mut from) = (Vec::new(), header_len);
    while let (Some(found), _) = file.next_frame(from) {
        assert!(found.offset >= from && found.len > 0, "the search goes on");
        from = found.offset + found.len;
        let read = file.block(&found, None);
        let (all, place) = ((Slice::default(), None), (file.path.clone(), found.offset));
        layers.push(LayerPlan {
            first: Slice::default(),
            end: None,
            rank: layers.len() as u64,
            open: Box::new(move || OnePiece::of(read, all, place)),
        });
    }
    layers
}
