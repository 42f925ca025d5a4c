//! A sorted map in memory as an engine under test: lets the workloads themselves be tested.
//!
//! Stores live in a table of the process, by directory, so that they survive closing. A `Fault`
//! says what the engine does wrong, so that tests can see the workloads notice.

use crate::engine::{Commit, Engine, Memory, Result, View, Walk};
use crate::records::Records;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, RwLock};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Store = Arc<RwLock<Arc<Map>>>;
static STORES: LazyLock<Mutex<HashMap<PathBuf, Store>>> = LazyLock::new(Mutex::default);
/// Its presence says that the store is the one in the table, not an older one of that name.
const MARK: &str = "map";

/// What happens to an entry on its way in.
pub trait Fault: Send + Sync + 'static {
    /// The value that is stored; `None` to lose the entry.
    fn stored(key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
}

/// Stores what it is given.
pub struct Faithful;
/// Loses one entry in eight.
pub struct Forgetful;
/// Changes a middle byte of one value in eight; scan checksums do not see that.
pub struct Garbling;

fn is_struck(key: &[u8]) -> bool {
    key[key.len() - 1] % 8 == 7
}

impl Fault for Faithful {
    fn stored(_key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        Some(value.to_vec())
    }
}

impl Fault for Forgetful {
    fn stored(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        (!is_struck(key)).then(|| value.to_vec())
    }
}

impl Fault for Garbling {
    fn stored(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let mut value = value.to_vec();
        let middle = value.len() / 2;
        value[middle] ^= u8::from(is_struck(key));
        Some(value)
    }
}

pub struct MapEngine<F> {
    store: Store,
    fault: PhantomData<F>,
}

pub struct MapView {
    map: Arc<Map>,
}

impl<F: Fault> MapEngine<F> {
    fn change(&self, change: impl FnOnce(&mut Map)) {
        change(Arc::make_mut(&mut self.store.write().unwrap()));
    }

    fn insert(map: &mut Map, key: &[u8], value: &[u8]) {
        if let Some(value) = F::stored(key, value) {
            map.insert(key.to_vec(), value);
        }
    }
}

impl<F: Fault> Engine for MapEngine<F> {
    const NAME: &'static str = "map";
    const BUFFERED_SURVIVES_KILL: bool = true;
    type View<'a> = MapView;

    fn open(dir: &Path, _memory: Memory) -> Result<Self> {
        let mark = dir.join(MARK);
        let mut stores = STORES.lock().unwrap();
        if !mark.exists() {
            fs::create_dir_all(dir)?;
            let mut file = fs::OpenOptions::new().create(true).append(true).open(mark)?;
            file.write_all(&[0; 4096])?;
            stores.insert(dir.to_owned(), Store::default());
        }
        Ok(MapEngine {
            store: stores.entry(dir.to_owned()).or_default().clone(),
            fault: PhantomData,
        })
    }

    fn put(&self, key: &[u8], value: &[u8], _commit: Commit) -> Result<()> {
        self.change(|map| Self::insert(map, key, value));
        Ok(())
    }

    fn put_batch(&self, records: &Records, _commit: Commit) -> Result<()> {
        self.change(|map| records.iter().for_each(|(key, value)| Self::insert(map, key, value)));
        Ok(())
    }

    fn delete(&self, key: &[u8], _commit: Commit) -> Result<()> {
        self.change(|map| {
            map.remove(key);
        });
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.store.read().unwrap().get(key).map(|value| out.extend_from_slice(value)).is_some())
    }

    fn view(&self) -> Result<MapView> {
        Ok(MapView { map: self.store.read().unwrap().clone() })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

impl View for MapView {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.map.get(key).map(|value| out.extend_from_slice(value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            visit(key, value);
            count += 1;
        };
        match walk {
            Walk::Forward => self.map.iter().for_each(&mut show),
            Walk::Reverse => self.map.iter().rev().for_each(&mut show),
            Walk::From { key, limit } => {
                self.map.range(key.to_vec()..).take(limit as usize).for_each(&mut show);
            }
        }
        Ok(count)
    }
}
